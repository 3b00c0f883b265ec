"""Stage 1 without Spark: what a shard says about its rows. The rows themselves: test_pipeline.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkasniff.capture.timeline.locations import find_captures, open_capture
from kafkasniff.capture.timeline.parts import plan_captures
from kafkasniff.enrich.learned_facts import LearnedFacts
from kafkasniff.spark.connections import END_VALUES, ReadConnections, ShardBegin
from kafkasniff.spark.shard_rows import STEP
from kafkasniff.tables.checkpoint.carried import Carried
from kafkasniff.tables.exports.beginning import first_states
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.rows import TABLE_NAMES
from kafkasniff.tables.rows.sessions import Sessions
from tests.spark.both_stages import in_shard, pieces_of

CAPTURES = Path(__file__).resolve().parents[2] / "captures"


@pytest.mark.parametrize(("name", "has_steps"), [("java-0.8.2.pcap", False), ("java-codecs.pcap", True)])
def test_the_end_of_a_shard_counts_its_rows(name: str, *, has_steps: bool) -> None:
    options = ExportOptions()
    plan = plan_captures(find_captures([str(CAPTURES / name)]), open_capture)
    (state,) = first_states(Carried([], Sessions(), LearnedFacts()), 1, options, {})
    read = ReadConnections(options, dict(enumerate(plan.names)), end_clock=plan.splits[-1].clock_after)
    shard = in_shard(pieces_of(plan, 1)[0], 0, ShardBegin(state), 2)
    rows = [row for batch in read.read(shard) for row in batch.to_pylist()]
    end = END_VALUES.load(rows.pop()["data"])
    blocks = [row for row in rows if row["kind"] != STEP]
    assert {row["kind"] for row in blocks} <= set(TABLE_NAMES)
    assert end.size > 0
    assert (end.in_session > 0) == any(row["in_session"] for row in blocks) == has_steps
