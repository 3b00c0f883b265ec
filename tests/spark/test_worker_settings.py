from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from kafkasniff.enrich.learned_facts import LearnedFacts
from kafkasniff.spark import connections, planning, source, table_rows
from kafkasniff.spark.pieces import PacketCutter
from kafkasniff.tables.exports.options import ExportOptions

PROGRAM = """
import gc, json, sys
import pyarrow as pa
gc.set_threshold(*json.loads(sys.argv[1]))
from kafkasniff.spark.worker_settings import settle_worker
found = []
for _ in range(2):
    settle_worker()
    found.append([pa.default_memory_pool().backend_name, gc.get_threshold(), gc.get_freeze_count() > 1000])
    gc.unfreeze()
print(json.dumps(found))
"""


def settled(threshold: int = 700, **environment: str) -> list[list[object]]:
    """Arrow's memory, thresholds, and whether objects were frozen, after a first and a second call."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps([threshold, 10, 10])],
        env={"PATH": "", "PYTHONPATH": ":".join(sys.path), **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    found: list[list[object]] = json.loads(done.stdout)
    return found


def test_what_a_worker_settles() -> None:
    """A worker that is used again is left as it is, and what the user chose is kept."""
    first, second = settled()
    assert first == ["system", [100_000, 50, 100], True]
    assert second == ["system", [100_000, 50, 100], False]
    (pool, threshold, _), _ = settled(400_000, ARROW_DEFAULT_MEMORY_POOL="mimalloc")
    assert (pool, threshold) == ("mimalloc", [400_000, 10, 10])


class SettledError(Exception):
    """Raised in place of settling."""


TASKS: list[tuple[str, Callable[[], Callable[..., Iterator[object]]]]] = [
    ("planning", lambda: planning._Looks(1 << 20, None)),
    ("source", lambda: source._ReadPieces(PacketCutter(1))),
    ("connections", lambda: connections.ReadConnections(ExportOptions(), {})),
    ("table_rows", lambda: table_rows.MakeRows(ExportOptions(), LearnedFacts(), {}, "records")),
    ("table_rows", lambda: table_rows.WriteFiles(ExportOptions(), LearnedFacts(), {}, None, 1)),  # type: ignore[arg-type]
]


def test_every_task_of_the_pipeline_settles_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it does anything else: each may be the first of its worker."""

    def settle() -> None:
        raise SettledError

    pytest.importorskip("pyspark")
    monkeypatch.setattr("pyspark.TaskContext.get", lambda: SimpleNamespace(partitionId=int, taskAttemptId=int))
    for module, task in TASKS:
        monkeypatch.setattr(f"kafkasniff.spark.{module}.settle_worker", settle)
        with pytest.raises(SettledError):
            next(task()([]))
