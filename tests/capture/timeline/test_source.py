"""Several captures as one timeline."""

from __future__ import annotations

import gzip
import itertools
import os
import resource
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.capture import open_captures
from kafkasniff.model import NO_TIME
from tests.capture.files import block, enhanced, interface, option, pcap_header, pcap_record, section, simple
from tests.capture.reading import collect, read
from tests.capture.segments import frame, marked, numbers

CHUNKS = [1, 7, 100, 1000, 1 << 24]


def timed(times: list[int], first: int = 0) -> bytes:
    """A capture of frames numbered from `first`, at these microseconds."""
    return pcap_header() + b"".join(pcap_record(frame(marked(first + i)), t * 1000) for i, t in enumerate(times))


def write(folder: Path, captures: list[bytes]) -> list[Path]:
    paths = [folder / f"capture-{number}" for number in range(len(captures))]
    for path, data in zip(paths, captures, strict=True):
        path.write_bytes(data)
    return paths


def merged(captures: list[list[int]]) -> list[tuple[int, int]]:
    """The rule, written plainly: (capture, number) of all packets, by (running maximum of time, capture)."""
    rows = [
        (key, capture, number)
        for capture, times in enumerate(captures)
        for number, key in enumerate(itertools.accumulate(times, max), 1)
    ]
    return [(capture, number) for key, capture, number in sorted(rows)]


TIMES = st.lists(st.integers(0, 30), max_size=12)


@given(st.lists(TIMES, min_size=1, max_size=5), st.sampled_from(CHUNKS))
def test_merge_follows_the_rule(tmp_path_factory, captures: list[list[int]], chunk_size: int) -> None:
    paths = write(tmp_path_factory.mktemp("merge"), [timed(times) for times in captures])
    result = read(*paths, chunk_size=chunk_size)
    assert [(row.capture, row.number) for row in result.rows] == merged(captures)
    assert [row.order for row in result.rows] == list(range(len(result.rows)))
    assert [row.time_ns for row in result.rows] == [captures[c][n - 1] * 1000 for c, n in merged(captures)]
    assert numbers(result.payloads) == [n - 1 for _, n in merged(captures)]


def test_rotated_files_pass_without_copying(tmp_path: Path) -> None:
    paths = write(tmp_path, [timed(list(range(n * 100, n * 100 + 100)), n * 100) for n in range(5)])
    # In order of time, whatever the order of the arguments.
    with open_captures(list(reversed(paths))) as source:
        batches = list(source)
    assert [len(batch) for batch in batches] == [100] * 5
    assert [batch.buffer for batch in batches] == [path.read_bytes()[24:] for path in paths]
    assert [batch.capture[0] for batch in batches] == [4, 3, 2, 1, 0]


def test_hundreds_of_files_are_not_open_at_once(tmp_path: Path) -> None:
    paths = write(tmp_path, [timed([n * 10, n * 10 + 5], n * 2) for n in range(400)])
    open_now = len(os.listdir("/proc/self/fd"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 20, hard))
    try:
        result = read(*paths)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert numbers(result.payloads) == list(range(800))
    assert not result.broken


def test_notes_keep_their_place_in_the_merge(tmp_path: Path) -> None:
    """Before the next packet of their capture or after its last one, at any chunk size."""
    names = block(4, option(1, bytes([10, 0, 0, 1]) + b"one\0") + bytes(4))
    late = block(4, option(1, bytes([10, 0, 0, 2]) + b"two\0") + bytes(4))
    first = section() + names + interface() + enhanced(frame(marked(0)), 10) + enhanced(frame(marked(1)), 30) + late
    second = pcap_header() + pcap_record(frame(marked(2)), 20_000) + pcap_record(frame(marked(3)), 40_000)
    paths = write(tmp_path, [first, second[:-3]])
    results = [read(*paths, chunk_size=chunk_size) for chunk_size in CHUNKS]
    assert all(result == results[0] for result in results)
    assert numbers(results[0].payloads) == [0, 2, 1]
    assert [(note.order, getattr(note.value, "kind", note.value)) for note in results[0].notes] == [
        (0, ("10.0.0.1", "one")),
        (2, "capture-cut"),
        (3, ("10.0.0.2", "two")),
    ]


def test_packets_without_a_time_stay_with_the_preceding_packet(tmp_path: Path) -> None:
    first, second, third = (frame(marked(number)) for number in range(3))
    a = section() + interface() + enhanced(first, 10) + simple(second) + enhanced(third, 30)
    b = timed([5, 20], first=100)
    result = read(*write(tmp_path, [a, b]))
    assert numbers(result.payloads) == [100, 0, 1, 101, 2]
    assert result.rows[2].time_ns == NO_TIME


def test_files_without_packets_and_damaged_files(tmp_path: Path) -> None:
    captures = [pcap_header(), timed([1, 3]), timed([2, 4], 10)[:-1], gzip.compress(timed([0], 20))]
    result = read(*write(tmp_path, captures))
    assert numbers(result.payloads) == [20, 0, 10, 1]
    assert result.kinds == ["capture-cut"]
    assert result.broken


def test_a_file_that_disappears_after_it_was_opened(tmp_path: Path) -> None:
    paths = write(tmp_path, [timed([1]), timed([5], 10)])
    with open_captures(paths) as source:
        paths[1].unlink()
        result = collect(source)
    assert numbers(result.payloads) == [0]
    assert result.kinds == ["capture-broken"]
    assert result.broken
