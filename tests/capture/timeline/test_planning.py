"""Plans of parts: guesses are verified, so that parts add up to the whole for any bytes."""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkasniff.capture import open_captures
from kafkasniff.capture.timeline.planning import pieces
from kafkasniff.errors import CaptureError
from tests.capture.timeline.test_splits import CAPTURES, PLAIN, in_parts, planned, read_at, whole


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
        with pytest.raises(CaptureError) as reported:
            open_captures([path])
        with pytest.raises(CaptureError) as found:
            pieces(read_at(path), str(path), 0, len(content))
        assert str(found.value) == str(reported.value)


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
