"""Stage 2 without Spark: rows and files of a task, open rows, and its folder. All rows: test_connections.py."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from kafkasniff.enrich.catalog import LearnedFacts
from kafkasniff.model import Problem
from kafkasniff.runtime.confined_files import ConfinedPath, open_own_folder
from kafkasniff.spark.table_rows import KINDS, Decided, MakeRows, WriteFiles
from kafkasniff.spark.tasks import TaskReport, own_folder, share
from kafkasniff.tables.rows import TABLE_NAMES
from kafkasniff.tables.rows.staged import DAY_NS, date_of
from tests.craft.samples import mixed
from tests.craft.write import write_pcap
from tests.enrich import talks
from tests.spark.both_stages import OPTIONS, Decoded, decode, of_kinds
from tests.tables.exports.exported import Rows


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without the end of both connections to the broker: a request is still open."""
    return write_pcap(tmp_path_factory.mktemp("capture") / "mixed.pcap", mixed()[:-12], nanoseconds=True)


@pytest.fixture(scope="module")
def stage(capture: Path) -> Decoded:
    return decode([capture])


@pytest.fixture
def folder(tmp_path: Path) -> ConfinedPath:
    return open_own_folder(tmp_path / "out", make=True)


def written(stage: Decoded, folder: ConfinedPath, *, part: int = 0, **more: Any) -> list[TaskReport]:
    """What a task reports of ended and of open connections."""
    return list(WriteFiles(OPTIONS, stage.learned_facts, {}, share(folder), 3, **more).write(part, iter(stage.rows)))


def made(stage: Decoded, table: str, given: dict[str, str]) -> Iterator[pa.RecordBatch]:
    rows = [of_kinds(batch, *KINDS[table]) for batch in [*stage.rows, *stage.held()]]
    return MakeRows(OPTIONS, stage.learned_facts, given, table)(iter(rows))


def read(folder: ConfinedPath, reports: Sequence[TaskReport], table: str) -> Rows:
    paths = [file.path for report in reports for file in report.files[table]]
    return sorted((row for path in paths for row in pq.ParquetFile(folder.path / path).read().to_pylist()), key=repr)


def test_rows_of_open_connections_have_files_of_their_own(stage: Decoded, folder: ConfinedPath) -> None:
    """The next run replaces them. All rows are counted by day, for more dates than have partitions."""
    ended, opened = found = written(stage, folder, part=7)
    assert read(folder, [opened], "connections")
    assert {row["status"] for row in read(folder, [opened], "exchanges")} == {"open"}
    assert "open" not in {row["status"] for row in read(folder, [ended], "exchanges")}
    for report in found:
        assert report.part == 7
        assert all(("-open-00007-" in one.path) == report.open for files in report.files.values() for one in files)
    assert sum(sum(report.days["exchanges"].values()) for report in found) == 22
    assert sum(one.rows for report in found for one in report.files["exchanges"]) == 22


@pytest.mark.parametrize(("part", "reports"), [(0, False), (4, True)])
def test_partitions_that_were_decided_for_all_tasks(
    stage: Decoded, folder: ConfinedPath, part: int, reports: bool
) -> None:
    """One task writes the report. Attempts do not interfere, as if Spark ran a slow task a second time."""
    day = mixed()[0].time_ns // DAY_NS
    own = {table: frozenset({day} if table == "records" else ()) for table in TABLE_NAMES}
    decided = {state: Decided(own, (Problem("date-bound", "many dates"),), 4) for state in (False, True)}
    found, again = (written(stage, folder, part=part, decided=decided) for _ in range(2))
    paths, others = (
        {one.path for report in some for files in report.files.values() for one in files} for some in (found, again)
    )
    dates = {(path.split("/")[0], path.split("date=")[1][:10]) for path in paths}
    assert ("records", date_of(mixed()[0].time_ns)) in dates
    assert ("exchanges", date_of(None)) in dates
    kinds = [row["kind"] for row in read(folder, found, "problems")]
    assert kinds.count("date-bound") == 2 * reports
    assert not paths & others
    assert read(folder, found, "exchanges") == read(folder, again, "exchanges")


@pytest.mark.parametrize("given", [True, False])
def test_names_of_the_run_and_sessions(tmp_path: Path, given: bool) -> None:
    """Learned from the traffic, or given."""
    stage = decode([write_pcap(tmp_path / "ids.pcap", talks.consumer().packets, nanoseconds=True)])
    assert stage.learned_facts.topics == {}
    names = {talks.ORDERS[1]: "orders"} if given else {}
    named = {row["topic_id"]: row["topic"] for rows in made(stage, "records", given=names) for row in rows.to_pylist()}
    assert named[talks.ORDERS[1]] == ("orders" if given else None)
    assert named[talks.OFFSETS[1]] is None
    exchanges = [row for rows in made(stage, "exchanges", given=names) for row in rows.to_pylist()]
    assert any("orders" in row["topics"] for row in exchanges) == given
    assert stage.steps


def test_a_task_has_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a disk that Spark was given for such files, the first of several. A failing task leaves nothing."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/elsewhere")
    with own_folder() as first, own_folder() as second:
        assert first.path.parent == second.path.parent == tmp_path
        assert first != second
        (first / "file").put(b"x")

    def failing() -> Iterator[pa.RecordBatch]:
        yield from ()
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        list(MakeRows(OPTIONS, LearnedFacts(), {}, "records")(failing()))
    assert os.listdir(tmp_path) == []
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "nowhere"))
    with own_folder() as found:
        assert found.path.exists()
    assert not found.path.exists()
