"""Sections of shards in runs of Spark: rows and the state for the next run are as without them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.scale_captures import Form, captures
from kafkasniff.capture.timeline.parts import Place
from kafkasniff.engine.run_parts import open_problems
from kafkasniff.enrich.learned_facts import LearnedFacts
from kafkasniff.model import Summary
from kafkasniff.spark import run as runs
from kafkasniff.spark import section_runs as module
from kafkasniff.spark.connections import ShardEnd
from kafkasniff.spark.section_borders import SectionTask
from kafkasniff.spark.section_runs import DecodedPart, next_tasks, right_parts
from kafkasniff.spark.shard_sections import SectionSizes, state_hash
from kafkasniff.tables.checkpoint import load
from kafkasniff.tables.checkpoint.carried import Carried
from kafkasniff.tables.exports.beginning import load_state
from kafkasniff.tables.exports.folder import ExportFolder
from kafkasniff.tables.exports.options import ExportOptions
from tests.tables.exports.exported import run, tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLACES = [Place(10 * at, 0, at) for at in range(1, 5)]
MB = 1_000_000


def end(shard: int, sections: int = 0, begins: bytes = b"", ends: bytes = b"") -> ShardEnd:
    found = ShardEnd(shard, b"", LearnedFacts(), Summary(), 0, None)
    found.sections, found.begins_with, found.ends_with = PLACES[:sections], begins, ends
    return found


def test_tasks_for_sections() -> None:
    first = DecodedPart(0, end(3, 4))
    assert next_tasks([first], alone=False) == [
        SectionTask(3, 1, 1, PLACES[0], PLACES[1]),
        SectionTask(3, 2, 2, PLACES[1], PLACES[2]),
        SectionTask(3, 3, 3, PLACES[2], PLACES[3]),
        SectionTask(3, 4, 4, PLACES[3], None),
    ]
    after = [first, DecodedPart(1, end(9))]
    assert next_tasks(after, alone=True) == [SectionTask(3, 2, 4, PLACES[1], None)]
    for alone in (False, True):
        assert next_tasks([DecodedPart(0, end(3))], alone=alone) == []
        assert next_tasks([*after, DecodedPart(4, end(10))], alone=alone) == []


@pytest.mark.parametrize(
    ("begins", "right"),
    [(b"abc", 4), (b"xbc", 1), (b"axc", 2), (b"abx", 3), (b"axx", 2)],
    ids=["all", "not the first", "not the second", "not the last", "only the first"],
)
def test_parts_that_begin_where_the_one_before_ended(begins: bytes, right: int) -> None:
    parts = [DecodedPart(0, end(0, 3, ends=b"a"))]
    parts += [DecodedPart(at, end(at, begins=begins[at - 1 : at], ends=b"abc-"[at : at + 1])) for at in range(1, 4)]
    assert right_parts(parts) == right


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two captures with 90% of their bytes in one connection, which is open all the time; with flaws."""
    form = Form(file_bytes=36 * MB, base_bytes=12 * MB, hot_share=0.9)
    return captures(tmp_path_factory.mktemp("long"), 2, form)


def states(folder: Path) -> list[Any]:
    """The states of an export's shards, as far as they decide about rows."""
    with ExportFolder(folder) as target:
        carried = target.state()
    assert carried is not None
    options = ExportOptions()
    shards = load(carried, Carried).shards
    problems = [open_problems(load_state(one, options).inspector.state) for one in shards]
    return [(state_hash(one, options), found) for one, found in zip(shards, problems, strict=True)]


@pytest.fixture(scope="module")
def wanted(spark: SparkSession, long: list[Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """Rows of the local engine, and states of Spark without sections."""
    from kafkasniff.spark.export import export

    folder = tmp_path_factory.mktemp("wanted")
    run(long, folder / "local")
    for path in long:
        export(spark, [str(path)], folder / "whole", ExportOptions())
    return tables(folder / "local"), states(folder / "whole")


@pytest.mark.parametrize("is_wrong", [False, True], ids=["all begin right", "one does not"])
def test_sections_change_neither_rows_nor_state(
    spark: SparkSession,
    long: list[Path],
    wanted: tuple[Any, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_wrong: bool,
) -> None:
    """Over two runs. From the first section on that did not begin right, one task decodes all."""
    from kafkasniff.spark.export import export

    found: list[module.DecodedShards] = []
    wrong: list[int] = []
    decode, check = runs.decode_sections, module.right_parts

    def decoded(*values: Any, **more: Any) -> module.DecodedShards:
        wrong.clear()
        found.append(decode(*values, **more))
        return found[-1]

    def right(parts: list[DecodedPart]) -> int:
        assert check(parts) == len(parts)
        if is_wrong and len(parts) > 2 and not wrong:
            wrong.append(len(parts) - 2)
            return 2
        return len(parts)

    monkeypatch.setattr(runs, "section_sizes", lambda *_: SectionSizes(1, 1))
    monkeypatch.setattr(runs, "decode_sections", decoded)
    monkeypatch.setattr(module, "right_parts", right)
    for number, path in enumerate(long):
        export(spark, [str(path)], tmp_path, ExportOptions())
        ends = found[number].ends
        sections = sum(len(one.sections) for one in ends)
        assert sections >= 3
        shards = sum(not one.begins_with for one in ends)
        # One task instead of those that were wrong.
        assert len(ends) == shards + sections - sum(wrong) + len(wrong)
        assert bool(wrong) == is_wrong
    assert (tables(tmp_path), states(tmp_path)) == wanted
