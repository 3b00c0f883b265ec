"""Options of `live` for capturing and for files, before anything is opened."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import click
import pytest

from kafkasniff.capture.write.rotation import Rotation
from kafkasniff.cli.options.capture_options import (
    Writing,
    interface_table,
    kept,
    kept_line,
    take_capturing,
    take_interfaces,
    take_writing,
)
from tests.cli.console import environment
from tests.craft.batches import batch
from tests.craft.samples import mixed

UNSET = {"write": None, "write_all": False, "rotate_size": None, "rotate_every": None, "rotate_files": None}


def seconds(text: str | None) -> float | None:
    return None if text is None else float(text)


def writing(**given: Any) -> tuple[Writing | None, dict[str, Any]]:
    """What the options say, and the options that are left."""
    options = {**UNSET, "quiet": True, **given}
    return take_writing(options, seconds), options


def test_files_that_are_not_rotated() -> None:
    found, left = writing(write="out/kept.pcapng", write_all=True)
    assert found == Writing("out/kept.pcapng", Rotation(), every=True)
    assert (found.rotates, found.folder) == (False, "out")
    assert left == {"quiet": True}
    assert writing() == (None, {"quiet": True})


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


def test_only_given_options_are_passed_to_the_capture() -> None:
    options = {"snaplen": 128, "buffer_size": None, "promiscuous": False, "reopen": None, "quiet": True}
    assert take_capturing(options, seconds) == {"snaplen": 128}
    assert options == {"quiet": True}
    given = {"snaplen": None, "buffer_size": 8, "promiscuous": True, "reopen": "0"}
    assert take_capturing(given, seconds) == {"buffer": 8, "promiscuous": True, "reopen": 0.0}


def test_interfaces_by_name_and_number() -> None:
    first = interface_table().splitlines()[0].split()
    options = {"interfaces": ("any", first[0])}
    assert take_interfaces(options) == ["any", first[1]]
    assert options == {}
    with click.Context(click.Command("live")), pytest.raises(click.UsageError, match="name an interface"):
        take_interfaces({"interfaces": ()})


class Kept:
    """A keeper that notes what it takes, and whether signals are deferred meanwhile."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.taken: list[tuple[int, bool]] = []

    def take(self, _frames: object, _fragments: object, packets: Any) -> None:
        self.taken.append((len(packets), self.world.interrupts._held))


class Source:
    frames = fragments = None


def test_each_batch_is_written_after_its_consumer() -> None:
    world, parts = environment(), batch(mixed()).split(5)
    keeper: Any = Kept(world)
    source: Any = Source()
    batches = kept(world, source, iter(parts), keeper)
    assert len(next(batches)) == 5
    assert keeper.taken == []
    assert len(next(batches)) == len(mixed()) - 5
    assert keeper.taken == [(5, True)]
    # The last one is written even if the run ends within it.
    batches.close()
    assert keeper.taken == [(5, True), (len(mixed()) - 5, True)]


@pytest.mark.parametrize(
    ("packets", "made", "missing", "said"),
    [
        (1234, 1, 0, "1,234 packets in kept-1"),
        (1, 1, 0, "1 packet in kept-1"),
        (2, 4, 7, "2 packets in kept-1 and 3 more"),
    ],
)
def test_the_summary_of_the_files(packets: int, made: int, missing: int, said: str) -> None:
    """After they are closed, with signals deferred."""
    world, keeper = environment(), Mock(missing=missing, files=Mock(packets=packets, made=made, first="kept-1"))
    held: list[bool] = []
    keeper.close = lambda: held.append(world.interrupts._held)
    assert kept_line(world, keeper, "kept") == said
    assert held == [True]
    warned: str = world.stderr.getvalue()  # type: ignore[attr-defined]  # a StringIO in tests
    assert warned.startswith("kafkasniff: 7 packets of Kafka connections are not in kept: ") == bool(missing)
