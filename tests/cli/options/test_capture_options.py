"""Options of `live` for capturing and for files, before anything is opened."""

from __future__ import annotations

from typing import Any

import pytest

from kafkasniff.cli.options.capture_options import (
    Writing,
    take_writing,
)

UNSET = {"write": None, "write_all": False, "rotate_size": None, "rotate_every": None, "rotate_files": None}


def seconds(text: str | None) -> float | None:
    return None if text is None else float(text)


def writing(**given: Any) -> tuple[Writing | None, dict[str, Any]]:
    """What the options say, and the options that are left."""
    options = {**UNSET, "quiet": True, **given}
    return take_writing(options, seconds), options


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("kept.pcapng", "."),
        ("/srv/kept", "/srv"),
        # A folder whose name has a time in it does not exist yet.
        ("/srv/%Y/kept-%H", "/srv"),
        ("day-%d/kept", "."),
    ],
)
def test_the_folder_is_the_part_before_the_first_time(name: str, folder: str) -> None:
    found, _ = writing(write=name)
    assert found is not None
    assert found.folder == folder


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("5", 5_000_000),
        ("512k", 512 << 10),
        ("64M", 64 << 20),
        ("1g", 1 << 30),
        ("999999999999", 999_999_999_999 * 10**6),
    ],
)
def test_sizes_of_files(text: str, size: int) -> None:
    found, _ = writing(write="kept", rotate_size=text)
    assert found is not None
    assert found.rotation.size == size
    assert found.rotates
