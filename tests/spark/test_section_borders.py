"""Which packets the tasks of sections get: those of their shard, between two places."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

from kafkasniff.capture.timeline.locations import find_captures, open_capture
from kafkasniff.capture.timeline.parts import Place, plan_captures
from kafkasniff.engine.shards import shard_of_rows
from kafkasniff.spark.packet_places import place_of
from kafkasniff.spark.pieces import PacketCutter, read_piece
from kafkasniff.spark.reading import packets_of, parts_of
from kafkasniff.spark.section_borders import SectionBorders, SectionTask
from kafkasniff.tcp.packets import PacketBatch
from tests.tables.exports.exported import CAPTURES

SHARDS = 3
BEFORE = 7
"""Captures of earlier runs."""


@pytest.fixture(scope="module")
def batches() -> list[PacketBatch]:
    paths = [str(CAPTURES / f"{name}.pcap") for name in ("kraft-three-brokers", "java-codecs")]
    plan = plan_captures(find_captures(paths), open_capture, split_size=64 << 10)
    return [batch for part in parts_of(plan, 64 << 10) for batch in packets_of(part)]


def places(batches: list[PacketBatch], shard: int) -> list[Place]:
    """The places of all packets of a shard, in order, with the numbers of captures among all runs."""
    found = [
        place_of(batch, row)
        for batch in batches
        for row in np.flatnonzero(shard_of_rows(batch, SHARDS) == shard).tolist()
    ]
    return sorted(place._replace(capture=place.capture + BEFORE) for place in found)


def tasks(batches: list[PacketBatch], seed: int) -> list[SectionTask]:
    """Sections of shards 0 and 2, of random lengths."""
    random, found = Random(seed), list[SectionTask]()
    for shard in (0, 2):
        every = places(batches, shard)
        begins = [every[at] for at in sorted(random.sample(range(5, len(every)), random.choice([1, 2, 9])))]
        ends = [*begins[1:], None]
        found += [SectionTask(shard, at, at, *pair) for at, pair in enumerate(zip(begins, ends, strict=True), 1)]
    return found


@pytest.mark.parametrize("seed", range(6))
def test_each_packet_has_the_task_of_its_place(batches: list[PacketBatch], seed: int) -> None:
    wanted = tasks(batches, seed)
    cutter = PacketCutter(SHARDS, captures_before=BEFORE, sections=SectionBorders(SHARDS, wanted, BEFORE))
    found: list[list[Place]] = [[] for _ in wanted]
    for rows in cutter.cut(batches):
        for task, data in zip(rows.column("shard").to_pylist(), rows.column("data"), strict=True):
            piece = read_piece(data.as_buffer())
            found[task] += [place_of(piece, row) for row in range(len(piece))]
    for task, own in zip(wanted, found, strict=True):
        whole = places(batches, task.shard)
        stop = len(whole) if task.end is None else whole.index(task.end)
        assert sorted(own) == whole[whole.index(task.begin) : stop]


def test_packets_of_other_shards_have_no_task(batches: list[PacketBatch]) -> None:
    (first, *_) = batches
    begin = place_of(first, 0)
    borders = SectionBorders(SHARDS, [SectionTask(1, 1, 1, begin, None)])
    own = shard_of_rows(first, SHARDS) == 1
    assert borders.tasks == 1
    assert borders.reaches(begin.clock)
    assert not borders.reaches(begin.clock - 1)
    assert borders.has(first).tolist() == own.tolist()
    assert (borders.tasks_of(first) == np.where(own, 0, -1)).all()
    late = begin._replace(clock=int(first.clock[-1]) + 1)  # type: ignore[index]
    assert (SectionBorders(SHARDS, [SectionTask(1, 1, 1, late, None)]).tasks_of(first) < 0).all()
    nothing = first.split(0)[0]
    assert borders.tasks_of(nothing).tolist() == []


def test_nothing_is_cut_where_no_section_is(batches: list[PacketBatch], tmp_path: Path) -> None:
    late = Place(2**62, 0, 1)
    cutter = PacketCutter(SHARDS, sections=SectionBorders(SHARDS, [SectionTask(1, 1, 1, late, None)]))
    assert list(cutter.cut(batches)) == []
