"""`event_log.jsonl` is from Spark 4.3, without what is not read: 200,000 rows on two cores, repartitioned, sorted (with
spills that were forced), through `mapInArrow` (whose second task fails once) into blocks on disk, and counted; then
counted by groups.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks.event_log import EventLog, parse_events, read_event_log

LOG = Path(__file__).parent / "event_log.jsonl"
EVENTS: list[dict[str, Any]] = [json.loads(line) for line in LOG.read_text().splitlines()]

SPARKS_OWN = {
    "run_ms": "internal.metrics.executorRunTime",
    "gc_ms": "internal.metrics.jvmGCTime",
    "shuffle_write_bytes": "internal.metrics.shuffle.write.bytesWritten",
    "shuffle_read_bytes": "internal.metrics.shuffle.read.localBytesRead",
    "spilled_disk_bytes": "internal.metrics.diskBytesSpilled",
    "spilled_memory_bytes": "internal.metrics.memoryBytesSpilled",
    "output_bytes": "internal.metrics.output.bytesWritten",
}
"""Our field, and the sum that Spark itself keeps for each stage, where failed tasks count too."""


@pytest.fixture
def log(tmp_path: Path) -> EventLog:
    shutil.copy(LOG, tmp_path / "local-1")
    return read_event_log(tmp_path)


@pytest.mark.parametrize("field", SPARKS_OWN)
def test_sums_are_those_that_spark_keeps(log: EventLog, field: str) -> None:
    reported: Counter[str] = Counter()
    for event in EVENTS:
        if event["Event"] == "SparkListenerStageCompleted":
            for one in event["Stage Info"]["Accumulables"]:
                reported[one["Name"]] += int(one["Value"])
    assert log.total(field) == reported[SPARKS_OWN[field]]
    assert log.total(field) > 0


def test_stages_have_descriptive_names(log: EventLog) -> None:
    assert [stage.name for stage in log.stages][:2] == [
        "connections put together: Exchange",
        "connections put together: shuffled → MapInArrow",
    ]
    assert log.stages[-1].name.endswith("WriteFiles")
    assert len({stage.name for stage in log.stages}) == len(log.stages)


def test_tasks(log: EventLog) -> None:
    assert [stage.tasks for stage in log.stages][:2] == [4, 4]
    assert [stage.failed for stage in log.stages][:2] == [0, 1]
    assert log.stages[1].longest_ms == 10_368
    assert 0 < log.stages[1].largest_read_bytes < log.stages[1].shuffle_read_bytes


def test_blocks_kept_on_disk(log: EventLog) -> None:
    assert log.persisted_bytes == 50_232 + 50_503 + 50_296


def test_time_in_which_tasks_ran_counts_once(log: EventLog) -> None:
    spans = [(task["Launch Time"], task["Finish Time"]) for task in _task_infos()]
    # Milliseconds one by one: slow, and plainly right.
    busy = {moment for begin, end in spans for moment in range(begin, end)}
    assert log.busy_ms == len(busy) < sum(end - begin for begin, end in spans)


def _task_infos() -> list[dict[str, Any]]:
    return [event["Task Info"] for event in EVENTS if event["Event"] == "SparkListenerTaskEnd"]


def test_a_task_that_was_lost_with_its_executor_has_no_metrics() -> None:
    events = [dict(event) for event in EVENTS]
    lost = next(event for event in events if event["Event"] == "SparkListenerTaskEnd")
    lost["Task End Reason"] = {"Reason": "ExecutorLostFailure"}
    del lost["Task Metrics"]
    found = parse_events(events)
    assert found.stages[0].failed == 1
    assert found.stages[0].tasks == 4


def test_exactly_one_complete_log_is_required(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="0 event logs"):
        read_event_log(tmp_path)
    shutil.copy(LOG, tmp_path / "local-1.inprogress")
    with pytest.raises(ValueError, match="did not end"):
        read_event_log(tmp_path)
    shutil.copy(LOG, tmp_path / "local-2")
    with pytest.raises(ValueError, match="2 event logs"):
        read_event_log(tmp_path)
