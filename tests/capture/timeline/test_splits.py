"""Split reading compared with the reader of whole captures: the same packets and problems for any borders."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.capture.formats.bytestream import open_path
from kafkasniff.capture.formats.raw import Parsed
from kafkasniff.capture.formats.reader import CaptureReader
from kafkasniff.capture.timeline.planning import pieces, plan, walk
from kafkasniff.capture.timeline.splits import ReadAt, Split, open_split

CAPTURES = Path(__file__).parents[3] / "captures"
PLAIN = (
    "java-telemetry.pcap",
    "librdkafka-ipv6-ns.pcapng",
    "librdkafka-snaplen-128.pcap",
    "librdkafka-nanoseconds.pcap",
)


def rows(parsed: Iterable[Parsed]) -> list[tuple[Any, ...]]:
    """Packets and notes as tuples, in order."""
    found: list[tuple[Any, ...]] = []
    for one in parsed:
        for number, value in one.notes:
            found.append((number, 0, repr(value)))
        packets = one.packets
        if packets is None:
            continue
        for row in range(len(packets.start)):
            start = int(packets.start[row])
            found.append(
                (
                    int(packets.number[row]),
                    1,
                    packets.buffer[start : start + int(packets.captured[row])],
                    int(packets.wire[row]),
                    int(packets.time_ns[row]),
                    int(packets.link[row]),
                    int(packets.interface[row]),
                )
            )
    return sorted(found, key=lambda row: row[:2])


def whole(path: Path) -> list[tuple[Any, ...]]:
    reader = CaptureReader(open_path(str(path)), str(path), 0)
    parsed = []
    while (one := reader.read(1 << 20)) is not None:
        parsed.append(one)
    reader.close()
    return rows(parsed)


def read_at(path: Path) -> ReadAt:
    data = path.read_bytes()
    return lambda offset, size, /: data[offset : offset + size]


def planned(path: Path, split_size: int) -> tuple[list[Split], list[bool]]:
    """The plan, and for each piece whether the guess was right."""
    reads = read_at(path)
    parts = pieces(reads, str(path), 0, path.stat().st_size, split_size)
    walks = [walk(part, reads) for part in parts]
    splits = plan(parts, reads, walks)
    ends = {split.end for split in splits}
    return splits, [one.end in ends for one in walks]


def in_parts(path: Path, splits: list[Split], size: int = 3_000) -> list[tuple[Any, ...]]:
    reads = read_at(path)
    # Each is read independently, in any order.
    shuffled = random.Random(1).sample(splits, len(splits))
    return rows(parsed for split in shuffled for parsed in open_split(split, reads).read(size))


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("split_size", [100, 1_000, 4_096, 20_000, 10**9])
def test_parts_add_up_to_the_whole(name: str, split_size: int) -> None:
    path = CAPTURES / name
    splits, _ = planned(path, split_size)
    assert in_parts(path, splits) == whole(path)
    assert [split.end for split in splits[:-1]] == [split.begin for split in splits[1:]]
    assert splits[-1].end == path.stat().st_size
    if split_size < 5_000:
        # A part may end late: an apparent block asked for many bytes before it proved to be none.
        assert len(splits) > 1
