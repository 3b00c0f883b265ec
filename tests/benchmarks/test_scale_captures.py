from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.scale_captures import FACTS, HEADER, Form, captures, is_there
from tests.craft.read import read_packets

FORM = Form(file_bytes=700_000, base_bytes=1_000_000, seed=3)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return captures(tmp_path / "captures", 4, FORM)


def test_files_are_full_and_packets_whole(files: list[Path]) -> None:
    largest = 16 + 54 + 65_160
    for path in files:
        assert FORM.file_bytes - largest < path.stat().st_size <= FORM.file_bytes
    # The reader raises where a packet is cut.
    times = [packet.time_ns for path in files for packet in read_packets(path)]
    assert len(times) > 4 * 500
    assert times == sorted(times)


def test_nothing_is_lost_between_files(files: list[Path], tmp_path: Path) -> None:
    whole = captures(tmp_path / "whole", 1, Form(file_bytes=2_000_000, base_bytes=1_000_000, seed=3))[0].read_bytes()
    joined = HEADER + b"".join(path.read_bytes()[len(HEADER) :] for path in files)
    assert joined[: len(whole)] == whole


def test_fewer_files_are_the_first_of_more(files: list[Path]) -> None:
    before = [path.stat().st_mtime_ns for path in files]
    assert captures(files[0].parent, 2, FORM) == files[:2]
    assert [path.stat().st_mtime_ns for path in files] == before


def test_captures_with_other_settings_are_made_again(files: list[Path]) -> None:
    folder = files[0].parent
    first = files[0].read_bytes()
    files[0].write_bytes(first[:-1])
    assert not is_there(folder, 1, FORM)
    assert captures(folder, 1, FORM)[0].read_bytes() == first
    assert not is_there(folder, 2, FORM)
    assert not is_there(folder, 1, Form(file_bytes=700_000, base_bytes=1_000_000, seed=4))
    (folder / FACTS).unlink()
    assert not is_there(folder, 1, FORM)


def test_a_file_too_small_for_a_packet(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no room"):
        captures(tmp_path / "captures", 1, Form(file_bytes=10_000, base_bytes=1_000_000))
