"""What a Spark application's event log says of its stages: bytes shuffled, spilled and kept on disk, tasks, time.

The log (`spark.eventLog.enabled`) is JSON lines; the events and their fields are those of Spark's
`org.apache.spark.util.JsonProtocol`. Sizes are bytes, times milliseconds.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

CONF: Final = {
    "spark.eventLog.enabled": "true",
    # Plain lines in one file: defaults differ between releases.
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
    # Without it, cached blocks are not in the log.
    "spark.eventLog.logBlockUpdates.enabled": "true",
}
"""What `read_event_log` needs, besides `spark.eventLog.dir`."""

SHUFFLED: Final = "shuffled"
"""In the name of a stage: what another stage's exchange wrote is read."""

_NOT_TOLD: Final = ("WholeStageCodegen", "AQEShuffleRead", "InputAdapter")
"""Operators that say nothing of what a stage does."""


@dataclasses.dataclass
class Stage:
    """What all stages of one name did, all attempts and failed tasks included."""

    name: str
    tasks: int = 0
    failed: int = 0
    run_ms: int = 0
    """Sum over the tasks of the time that each held its core, waiting for Python included."""
    longest_ms: int = 0
    """The longest task."""
    jvm_cpu_ms: float = 0.0
    """CPU time of Java's threads; Python's is not in the log."""
    gc_ms: int = 0
    input_bytes: int = 0
    output_bytes: int = 0
    shuffle_read_bytes: int = 0
    shuffle_write_bytes: int = 0
    largest_read_bytes: int = 0
    """What the task that read most of a shuffle read."""
    spilled_memory_bytes: int = 0
    spilled_disk_bytes: int = 0


@dataclasses.dataclass
class EventLog:
    """An application."""

    stages: list[Stage] = dataclasses.field(default_factory=list)
    """In the order in which they were first submitted."""
    persisted_bytes: int = 0
    """Highest sum of the blocks of persisted tables that were on disk at one moment."""
    busy_ms: int = 0
    """How long at least one task ran."""

    def total(self, field: str) -> int:
        return sum(getattr(stage, field) for stage in self.stages)


def read_event_log(folder: Path) -> EventLog:
    """The one log in `folder`. Raises ValueError where there is none, or more than one, or one that has no end."""
    logs = [path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")]
    if len(logs) != 1:
        raise ValueError(f"{folder} holds {len(logs)} event logs, not one")
    if logs[0].suffix == ".inprogress":
        raise ValueError(f"{logs[0].name}: the application did not end")
    with logs[0].open("rb") as lines:
        return parse_events(json.loads(line) for line in lines)


def parse_events(events: Iterable[dict[str, Any]]) -> EventLog:
    """Sum up the events of one application."""
    stages: dict[str, Stage] = {}
    names: dict[tuple[int, int], str] = {}
    blocks: dict[tuple[str, str], int] = {}
    spans: list[tuple[int, int]] = []
    log = EventLog()
    for event in events:
        kind = event["Event"]
        if kind == "SparkListenerStageSubmitted":
            info = event["Stage Info"]
            name = stage_name(info, event.get("Properties") or {})
            names[info["Stage ID"], info["Stage Attempt ID"]] = name
            stages.setdefault(name, Stage(name))
        elif kind == "SparkListenerTaskEnd":
            _add(stages[names[event["Stage ID"], event["Stage Attempt ID"]]], event)
            spans.append((event["Task Info"]["Launch Time"], event["Task Info"]["Finish Time"]))
        elif kind == "SparkListenerBlockUpdated":
            info = event["Block Updated Info"]
            if info["Block ID"].startswith("rdd_"):
                blocks[info["Block Manager ID"]["Executor ID"], info["Block ID"]] = info["Disk Size"]
                log.persisted_bytes = max(log.persisted_bytes, sum(blocks.values()))
    log.stages = list(stages.values())
    until = 0
    for begin, end in sorted(spans):
        log.busy_ms += max(0, end - max(begin, until))
        until = max(until, end)
    return log


def stage_name(info: dict[str, Any], properties: dict[str, str]) -> str:
    """The job's description, if somebody gave one, and the operators in the order in which data goes through them."""
    operators: list[str] = []
    for rdd in sorted(info["RDD Info"], key=lambda rdd: int(rdd["RDD ID"])):
        operator = json.loads(rdd["Scope"])["name"] if "Scope" in rdd else ""
        # The two ends of an exchange have the same scope.
        if rdd["Name"] == "ShuffledRowRDD":
            operator = SHUFFLED
        elif not operator[:1].isupper() or operator.startswith(_NOT_TOLD):
            continue
        if operator not in operators[-1:]:
            operators.append(operator)
    described = properties.get("spark.job.description", "")
    # Spark itself describes jobs by their call site.
    parts = [described.splitlines()[0]] if described and " at " not in described else []
    return ": ".join([*parts, " → ".join(operators) or str(info["Stage Name"])])


def _add(stage: Stage, event: dict[str, Any]) -> None:
    stage.tasks += 1
    stage.failed += event["Task End Reason"]["Reason"] != "Success"
    # A task that was lost with its executor has none.
    metrics = event.get("Task Metrics") or {}
    run = int(metrics.get("Executor Run Time", 0))
    stage.run_ms += run
    stage.longest_ms = max(stage.longest_ms, run)
    stage.jvm_cpu_ms += metrics.get("Executor CPU Time", 0) / 1e6
    stage.gc_ms += metrics.get("JVM GC Time", 0)
    stage.spilled_memory_bytes += metrics.get("Memory Bytes Spilled", 0)
    stage.spilled_disk_bytes += metrics.get("Disk Bytes Spilled", 0)
    stage.input_bytes += metrics.get("Input Metrics", {}).get("Bytes Read", 0)
    stage.output_bytes += metrics.get("Output Metrics", {}).get("Bytes Written", 0)
    stage.shuffle_write_bytes += metrics.get("Shuffle Write Metrics", {}).get("Shuffle Bytes Written", 0)
    read = metrics.get("Shuffle Read Metrics", {})
    taken = read.get("Local Bytes Read", 0) + read.get("Remote Bytes Read", 0)
    stage.shuffle_read_bytes += taken
    stage.largest_read_bytes = max(stage.largest_read_bytes, taken)
