"""Captures read in parts, compared with the same captures read as one timeline; guesses of parts are verified."""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.capture.formats.bytestream import open_path
from kafkasniff.capture.formats.raw import Parsed
from kafkasniff.capture.formats.reader import CaptureReader
from kafkasniff.capture.timeline.parts import (
    CaptureFile,
    CapturePlan,
    plan_captures,
    read_datagrams,
    read_notes,
    read_split,
    walk_piece,
)
from kafkasniff.capture.timeline.planning import piece_count, pieces, plan, walk
from kafkasniff.capture.timeline.splits import ReadAt, Split, open_split
from kafkasniff.errors import CaptureError
from tests.capture.files import pcap
from tests.capture.segments import frame, frames, marked
from tests.capture.timelines import Timeline, expected, make_captures, placed_rows, timeline
from tests.choice import examples

CAPTURES = Path(__file__).parents[3] / "captures"


def opened(file: CaptureFile) -> ReadAt:
    data = Path(file.path).read_bytes()
    return lambda offset, size, /: data[offset : offset + size]


def planned(paths: Sequence[Path], split_size: int, names: Sequence[str] = ()) -> CapturePlan:
    named = zip(paths, names or map(str, paths), strict=True)
    files = [CaptureFile(name, str(path), path.stat().st_size) for path, name in named]
    return plan_captures(files, opened, split_size=split_size)


def in_parts(plan: CapturePlan, size: int = 3_000) -> Timeline:
    rows = []
    for split in random.Random(4).sample(plan.splits, len(plan.splits)):
        rows.extend(placed_rows(read_split(split, opened(plan.files[split.capture]), size=size), split.capture))
    rows.extend(placed_rows(read_datagrams(plan.of_rest(), opened)))
    return timeline(rows, read_notes(plan, opened))


@examples(14)
@given(st.integers(0, 2**32), st.sampled_from([150, 1_000, 5_000, 10**9]), st.booleans())
def test_parts_add_up_to_the_run(tmp_path_factory, seed: int, split_size: int, damage: bool) -> None:
    paths = make_captures(tmp_path_factory.mktemp("parts"), seed, damage=damage)
    assert in_parts(planned(paths, split_size)) == expected(paths)


def test_pieces_may_be_walked_elsewhere(tmp_path: Path) -> None:
    paths = [tmp_path / "a.pcap", tmp_path / "b.pcap"]
    for path in paths:
        path.write_bytes(pcap(frames(200)))
    files = [CaptureFile(path.name, str(path), path.stat().st_size) for path in paths]
    walked = [
        [walk_piece(file, opened(file), 5_000, index) for index in range(piece_count(file.size, 5_000))]
        for file in files
    ]
    plan = plan_captures(files, opened, walked=[[piece for piece in pieces if piece] for pieces in walked])
    assert all(all(pieces) for pieces in walked)
    assert len(plan.splits) > 2
    assert plan == planned(paths, 5_000, names=["a.pcap", "b.pcap"])
    rows = [row for split in plan.splits for row in placed_rows(read_split(split, opened(plan.files[split.capture])))]
    assert [row for _, row in sorted(rows)] == expected(paths).rows


def test_read_errors_are_reported(tmp_path: Path) -> None:
    def fails(file: CaptureFile) -> ReadAt:
        def read(offset: int, size: int, /) -> bytes:
            raise OSError(5, "Input/output error")

        return read

    with pytest.raises(CaptureError, match=r"a\.pcap: cannot be read \(Input/output error\)"):
        plan_captures([CaptureFile("a.pcap", "a.pcap", 100)], fails)


def test_a_part_with_a_read_error_is_reported_and_the_rest_is_kept(tmp_path: Path) -> None:
    data = pcap([frame(marked(number)) for number in range(1_000)])

    def broken(file: CaptureFile) -> ReadAt:
        def read(offset: int, size: int, /) -> bytes:
            if offset < 81_920 and offset + size > 77_824:  # a bad sector
                raise OSError(5, "Input/output error")
            return data[offset : offset + size]

        return read

    plan = plan_captures([CaptureFile("a.pcap", "a.pcap", len(data))], broken, split_size=10_000)
    rows = [row for split in plan.splits for row in placed_rows(read_split(split, broken(plan.files[0])))]
    (note,) = read_notes(plan, broken)
    assert len(rows) == (77_824 - 24) // 110
    assert "reading it failed: Input/output error" in repr(note.value)
    assert note.place.number == len(rows) + 1


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


def planned_splits(path: Path, split_size: int) -> tuple[list[Split], list[bool]]:
    """The plan, and for each piece whether the guess was right."""
    reads = read_at(path)
    parts = pieces(reads, str(path), 0, path.stat().st_size, split_size)
    walks = [walk(part, reads) for part in parts]
    splits = plan(parts, reads, walks)
    ends = {split.end for split in splits}
    return splits, [one.end in ends for one in walks]


def in_splits(path: Path, splits: list[Split], size: int = 3_000) -> list[tuple[Any, ...]]:
    reads = read_at(path)
    # Each is read independently, in any order.
    shuffled = random.Random(1).sample(splits, len(splits))
    return rows(parsed for split in shuffled for parsed in open_split(split, reads).read(size))


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("split_size", [100, 1_000, 4_096, 20_000, 10**9])
def test_parts_add_up_to_the_whole(name: str, split_size: int) -> None:
    path = CAPTURES / name
    splits, _ = planned_splits(path, split_size)
    assert in_splits(path, splits) == whole(path)
    assert [split.end for split in splits[:-1]] == [split.begin for split in splits[1:]]
    assert splits[-1].end == path.stat().st_size
    if split_size < 5_000:
        # A part may end late: an apparent block asked for many bytes before it proved to be none.
        assert len(splits) > 1


def test_guesses_are_right_for_common_captures(tmp_path: Path) -> None:
    generator = random.Random(3)
    path = tmp_path / "long.pcap"
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, 1))
        for number in range(6_000):
            packet = generator.randbytes(generator.randrange(60, 300))
            file.write(struct.pack("<IIII", 1_700_000_000 + number // 100, number % 100, len(packet), len(packet)))
            file.write(packet)
    splits, right = planned_splits(path, 100_000)
    assert len(splits) > 5
    assert all(right)
    assert in_splits(path, splits) == whole(path)


@pytest.mark.parametrize("kept", [1.0, 0.5])
def test_a_compressed_capture_is_one_part(tmp_path: Path, kept: float) -> None:
    path = tmp_path / "capture.gz"
    data = gzip.compress((CAPTURES / PLAIN[0]).read_bytes())
    path.write_bytes(data[: int(len(data) * kept)])
    splits, _ = planned_splits(path, 1_000)
    assert len(splits) == 1
    assert splits[0].has_notes == (kept < 1)
    assert in_splits(path, splits) == whole(path)


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_packets_that_disappear_after_the_plan_are_reported(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "capture"
    data = (CAPTURES / PLAIN[0]).read_bytes()
    path.write_bytes(compress(data))
    splits, _ = planned_splits(path, 10**9)
    path.write_bytes(compress(data[:-2_000]))
    with pytest.raises(CaptureError, match="packets differ from the planned ones"):
        in_splits(path, splits)
