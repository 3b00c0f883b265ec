"""Captures read in parts, compared with the same captures read as one timeline; guesses of parts are verified."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.capture.timeline.parts import (
    CaptureFile,
    CapturePlan,
    plan_captures,
    read_datagrams,
    read_notes,
    read_split,
)
from kafkasniff.capture.timeline.splits import ReadAt, piece_count
from kafkasniff.errors import CaptureError
from tests.capture.files import pcap
from tests.capture.segments import frame, marked
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


def test_guesses_are_right_for_common_captures(tmp_path: Path) -> None:
    """A wrong guess of where a packet begins joins two pieces."""
    generator = random.Random(3)
    path = tmp_path / "long.pcap"
    path.write_bytes(pcap([generator.randbytes(generator.randrange(60, 300)) for _ in range(6_000)], step=10_000_000))
    plan = planned([path], 100_000)
    assert len(plan.splits) == piece_count(path.stat().st_size, 100_000)
    assert in_parts(plan) == expected([path])


PLAIN = [
    CAPTURES / name
    for name in (
        *("java-telemetry.pcap", "librdkafka-ipv6-ns.pcapng"),
        *("librdkafka-snaplen-128.pcap", "librdkafka-nanoseconds.pcap"),
    )
]


@pytest.mark.parametrize("path", PLAIN, ids=lambda path: path.name)
@pytest.mark.parametrize("split_size", [1_000, 4_096, 10**9])
def test_parts_of_a_real_capture_add_up_to_it(path: Path, split_size: int) -> None:
    plan = planned([path], split_size)
    assert in_parts(plan) == expected([path])
    assert [split.end for split in plan.splits[:-1]] == [split.begin for split in plan.splits[1:]]
    assert plan.splits[-1].end == path.stat().st_size
    # A part may end late: an apparent block asked for many bytes before it proved to be none.
    assert len(plan.splits) > 1 or split_size > 5_000


@pytest.mark.parametrize("kept", [1.0, 0.5])
def test_a_compressed_capture_is_one_part(tmp_path: Path, kept: float) -> None:
    path = tmp_path / "capture.gz"
    data = gzip.compress(PLAIN[0].read_bytes())
    path.write_bytes(data[: int(len(data) * kept)])
    plan = planned([path], 1_000)
    (split,) = plan.splits
    assert split.has_notes == (kept < 1)
    assert in_parts(plan) == expected([path])


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_packets_that_disappear_after_the_plan_are_reported(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "capture"
    data = PLAIN[0].read_bytes()
    path.write_bytes(compress(data))
    plan = planned([path], 10**9)
    path.write_bytes(compress(data[:-2_000]))
    with pytest.raises(CaptureError, match="packets differ from the planned ones"):
        in_parts(plan)
