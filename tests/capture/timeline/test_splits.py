"""Split reading compared with the reader of whole captures: the same packets and problems for any borders."""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkasniff.capture import open_captures
from kafkasniff.capture.formats.bytestream import open_path
from kafkasniff.capture.formats.raw import Parsed
from kafkasniff.capture.formats.reader import CaptureReader
from kafkasniff.capture.timeline.planning import pieces, plan, walk
from kafkasniff.capture.timeline.splits import ReadAt, Split, open_split
from kafkasniff.errors import CaptureError

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


def test_guesses_are_right_for_common_captures(tmp_path: Path) -> None:
    generator = random.Random(3)
    path = tmp_path / "long.pcap"
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, 1))
        for number in range(6_000):
            packet = generator.randbytes(generator.randrange(60, 300))
            file.write(struct.pack("<IIII", 1_700_000_000 + number // 100, number % 100, len(packet), len(packet)))
            file.write(packet)
    splits, right = planned(path, 100_000)
    assert len(splits) > 5
    assert all(right)
    assert in_parts(path, splits) == whole(path)


def test_clock_and_number_at_the_start_of_each_part() -> None:
    path = CAPTURES / "java-telemetry.pcap"
    splits, _ = planned(path, 1_000)
    times = [row[4] for row in whole(path) if row[1] == 1]
    for split in splits[1:]:
        assert split.clock == max(times[: split.packets_before])


def test_inputs_that_are_not_captures_are_reported_as_by_the_reader_of_whole_captures(tmp_path: Path) -> None:
    plain = (CAPTURES / PLAIN[0]).read_bytes()
    for content in (
        b"",
        b"\x1f\x8b\x08" + bytes(40),
        b"no capture at all, but long enough",
        plain[:20],
        gzip.compress(b"neither"),
    ):
        path = tmp_path / "capture"
        path.write_bytes(content)
        with pytest.raises(CaptureError) as told:
            open_captures([path])
        with pytest.raises(CaptureError) as found:
            pieces(read_at(path), str(path), 0, len(content))
        assert str(found.value) == str(told.value)


@pytest.mark.parametrize("kept", [1.0, 0.5])
def test_a_compressed_capture_is_one_part(tmp_path: Path, kept: float) -> None:
    path = tmp_path / "capture.gz"
    data = gzip.compress((CAPTURES / PLAIN[0]).read_bytes())
    path.write_bytes(data[: int(len(data) * kept)])
    splits, _ = planned(path, 1_000)
    assert len(splits) == 1
    assert splits[0].has_notes == (kept < 1)
    assert in_parts(path, splits) == whole(path)


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_packets_that_disappear_after_the_plan_are_reported(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "capture"
    data = (CAPTURES / PLAIN[0]).read_bytes()
    path.write_bytes(compress(data))
    splits, _ = planned(path, 10**9)
    path.write_bytes(compress(data[:-2_000]))
    with pytest.raises(CaptureError, match="packets differ from the planned ones"):
        in_parts(path, splits)


def test_an_empty_capture(tmp_path: Path) -> None:
    path = tmp_path / "empty.pcap"
    path.write_bytes((CAPTURES / "java-telemetry.pcap").read_bytes()[:24])
    splits, _ = planned(path, 100)
    assert in_parts(path, splits) == whole(path) == []


@given(st.integers(0, 2**32), st.sampled_from(PLAIN), st.sampled_from([300, 2_000, 9_000]))
@example(76833, "librdkafka-nanoseconds.pcap", 300)  # damage within the beginning on which guesses are based
def test_damaged_captures(seed: int, name: str, split_size: int) -> None:
    import tempfile

    generator = random.Random(seed)
    data = bytearray((CAPTURES / name).read_bytes())
    head = 200 if name.endswith("ng") else 24
    for _ in range(generator.randrange(1, 4)):
        at = generator.randrange(head, len(data))
        match generator.randrange(4):
            case 0:
                data[at : at + generator.randrange(1, 3_000)] = b""
            case 1:
                data[at:at] = generator.randbytes(generator.randrange(1, 3_000))
            case 2:
                size = generator.randrange(1, 40)
                data[at : at + size] = generator.randbytes(size)
            case 3:
                del data[at:]
    with tempfile.NamedTemporaryFile() as file:
        path = Path(file.name)
        path.write_bytes(data)
        splits, _ = planned(path, split_size)
        assert in_parts(path, splits, generator.randrange(100, 5_000)) == whole(path)
