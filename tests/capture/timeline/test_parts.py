"""Captures read in parts, compared with the same captures read as one timeline."""

from __future__ import annotations

import gzip
import random
from collections.abc import Sequence
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
    walk_piece,
)
from kafkasniff.capture.timeline.planning import piece_count
from kafkasniff.capture.timeline.splits import ReadAt
from kafkasniff.errors import CaptureError
from tests.capture.files import START, pcap
from tests.capture.reading import Row
from tests.capture.segments import frame, frames, marked, numbers, segment
from tests.capture.timelines import ETHERNET, Timeline, expected, fragments, make_captures, placed_rows, timeline
from tests.choice import examples
from tests.steps import steps

PAYLOAD = Row._fields.index("payload")
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


@pytest.mark.parametrize("split_size", [20_000, 10**9])
def test_real_captures_together(split_size: int) -> None:
    paths = [CAPTURES / name for name in ("librdkafka-ipv6-ns.pcapng", "java-telemetry.pcap", "sarama.pcap")]
    plan = planned(paths, split_size)
    found = in_parts(plan, 1 << 20)
    assert found == expected(paths)
    assert found.rows
    assert len(plan.splits) > (3 if split_size < 10**9 else 2)


def test_fragments_on_both_sides_of_a_border_and_in_two_captures(tmp_path: Path) -> None:
    one, two, three = (fragments(segment(marked(n, 80), seq=n), 40, n) for n in (1, 2, 3))
    plain = frames(90)
    across = [ETHERNET + one[0], *plain, ETHERNET + one[1], ETHERNET + one[2], ETHERNET + two[0]]
    paths = [tmp_path / "a.pcap", tmp_path / "b.pcap"]
    paths[0].write_bytes(pcap(across))
    paths[1].write_bytes(pcap([ETHERNET + part for part in (*two[1:], *three[:2])], start=START + 10**9))
    plan = planned(paths, 4_000)
    assert [split.fragments for split in plan.splits if split.fragments] == [1, 3, 4]
    found = in_parts(plan)
    assert found == expected(paths)
    assert sorted(numbers([row[PAYLOAD] for row in found.rows])) == sorted([*range(90), 1, 2])
    assert [note for _, note in found.notes if "ip-fragment-dropped" in note]


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


def test_a_compressed_capture_has_one_piece(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap.gz"
    path.write_bytes(gzip.compress(pcap(frames(200)), 0))
    file = CaptureFile(str(path), str(path), path.stat().st_size)
    assert piece_count(file.size, 5_000) > 1
    assert walk_piece(file, opened(file), 5_000, 1) is None
    assert len(planned([path], 5_000).splits) == 1


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


def test_notes_of_many_captures_take_work_in_proportion() -> None:
    """Names and splits of all captures are not gone through once more for each of them."""
    data = pcap(frames(1))

    def read_at(offset: int, size: int, /) -> bytes:
        return data[offset : offset + size]

    def work(count: int) -> int:
        files = [CaptureFile(f"{number}.pcap", f"{number}.pcap", len(data)) for number in range(count)]
        plan = plan_captures(files, lambda _: read_at)
        return steps(lambda: read_notes(plan, lambda _: read_at))

    few, many = work(30), work(300)
    assert many < 12 * few
