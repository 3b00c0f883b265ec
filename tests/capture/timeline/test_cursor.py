"""One capture of a merge: keys that never fall, notes in their places, and files that are open only while needed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.capture.formats.bytestream import open_path
from kafkasniff.capture.formats.reader import CaptureReader
from kafkasniff.capture.timeline.cursor import Cursor
from kafkasniff.errors import CaptureError
from kafkasniff.model import Problem
from kafkasniff.tcp.packets import NO_TIME
from tests.capture.files import START, pcap_header, pcap_record

times = st.lists(st.integers(0, 9), max_size=8)


def opened(path: Path, *, again: bool = True) -> Cursor:
    def reader() -> CaptureReader:
        return CaptureReader(open_path(str(path)), str(path), 3)

    return Cursor(3, str(path), reader(), reader if again else None)


def written(path: Path, seconds: list[int], rest: bytes = b"") -> Path:
    records = [pcap_record(b"%04d" % place, START + 1000 * second) for place, second in enumerate(seconds)]
    path.write_bytes(pcap_header() + b"".join(records) + rest)
    return path


def taken(cursor: Cursor, size: int = 1 << 20) -> tuple[list[bytes], list[int]]:
    """All packets and their keys."""
    packets, keys = [], []
    while True:
        cursor.fill(size)
        if cursor.empty:
            return packets, keys
        found, some, _ = cursor.take(cursor.up_to(cursor.last_key, 3))
        spans = zip(found.start.tolist(), found.captured.tolist(), strict=True)
        packets += [found.buffer[start : start + length] for start, length in spans]
        keys += some.tolist()


@given(times, st.sampled_from([20, 64, 1 << 20]))
def test_keys_are_the_highest_times_so_far(
    tmp_path_factory: pytest.TempPathFactory, seconds: list[int], size: int
) -> None:
    path = written(tmp_path_factory.mktemp("cursor") / "a.pcap", seconds)
    packets, keys = taken(opened(path), size)
    assert packets == [b"%04d" % place for place in range(len(seconds))]
    assert keys == [START + 1000 * max(seconds[: place + 1]) for place in range(len(seconds))]


@given(times, st.integers(0, 9), st.integers(2, 4))
def test_packets_up_to_a_key(
    tmp_path_factory: pytest.TempPathFactory, seconds: list[int], bound: int, capture: int
) -> None:
    """Among equal keys, captures before this one come first."""
    cursor = opened(written(tmp_path_factory.mktemp("cursor") / "a.pcap", seconds))
    cursor.fill(1 << 20)
    if cursor.empty:
        assert seconds == []
        return
    highest = [max(seconds[: place + 1]) for place in range(len(seconds))]
    expected = sum(key < bound or (key == bound and capture >= 3) for key in highest)
    assert cursor.up_to(START + 1000 * bound, capture) == expected


def test_a_probe_finds_the_first_time_and_closes_the_file(tmp_path: Path) -> None:
    cursor = opened(written(tmp_path / "a.pcap", [5, 3]))
    cursor.probe()
    assert cursor.first_key == START + 5000
    assert cursor.bytes_read == 0
    assert taken(cursor)[0] == [b"0000", b"0001"]
    assert cursor.bytes_read == (tmp_path / "a.pcap").stat().st_size


def test_a_pipe_is_not_probed(tmp_path: Path) -> None:
    cursor = opened(written(tmp_path / "a.pcap", [5]), again=False)
    cursor.probe()
    assert cursor.first_key == NO_TIME
    assert taken(cursor)[0] == [b"0000"]


def test_packets_are_taken_in_parts(tmp_path: Path) -> None:
    cursor = opened(written(tmp_path / "a.pcap", [1, 2, 3]))
    cursor.fill(1 << 20)
    first, _, _ = cursor.take(1)
    rest, keys, _ = cursor.take(2)
    assert (first.number.tolist(), rest.number.tolist()) == ([1], [2, 3])
    assert keys.tolist() == [START + 2000, START + 3000]
    assert cursor.empty


def test_damage_is_noted_in_its_place(tmp_path: Path) -> None:
    cursor = opened(written(tmp_path / "a.pcap", [1, 2], rest=b"\0" * 7))
    cursor.fill(1 << 20)
    assert not cursor.broken
    _, _, notes = cursor.take(2)
    assert notes == []
    cursor.fill(1 << 20)
    assert cursor.ended
    assert cursor.broken
    (note,) = cursor.rest()
    assert isinstance(note, Problem)
    assert note.kind == "capture-cut"
    assert cursor.rest() == []


def test_a_file_that_disappears_after_the_probe(tmp_path: Path) -> None:
    cursor = opened(written(tmp_path / "a.pcap", [1]))
    cursor.probe()
    (tmp_path / "a.pcap").unlink()
    cursor.fill(1 << 20)
    assert (cursor.ended, cursor.broken, cursor.empty) == (True, True, True)
    (note,) = cursor.rest()
    assert isinstance(note, Problem)
    assert (note.kind, note.capture) == ("capture-broken", str(tmp_path / "a.pcap"))


def test_nothing_but_a_capture(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(b"nonsense")
    with pytest.raises(CaptureError, match="is not a capture"):
        opened(path)
