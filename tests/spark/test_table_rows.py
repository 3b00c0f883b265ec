"""Stage 2 without Spark: rows and files of a task, open rows, held sessions, and its folder."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from kafkasniff.capture.timeline.locations import find_captures, open_capture
from kafkasniff.capture.timeline.parts import plan_captures
from kafkasniff.enrich.learned_facts import LearnedFacts
from kafkasniff.model import Problem
from kafkasniff.runtime.confined_files import ConfinedPath, open_own_folder
from kafkasniff.spark import table_rows as module
from kafkasniff.spark.connections import END_VALUES, ReadConnections, ShardBegin
from kafkasniff.spark.fetch_sessions import HELD
from kafkasniff.spark.shard_rows import END, STEP
from kafkasniff.spark.shared_folder import share
from kafkasniff.spark.table_rows import KINDS, Decided, MakeRows, WriteFiles
from kafkasniff.spark.task_files import FILES
from kafkasniff.tables.checkpoint.carried import Carried
from kafkasniff.tables.exports.beginning import first_states
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.rows import TABLE_NAMES, TABLES
from kafkasniff.tables.rows.sessions import SessionContent, Sessions, encode_held
from kafkasniff.tables.rows.staged import DAY_NS, date_of
from tests.craft.samples import mixed
from tests.craft.write import write_pcap
from tests.enrich import talks
from tests.spark.both_stages import in_shard, pieces_of
from tests.tables.exports.exported import Rows, run, tables

OPTIONS = ExportOptions()

Stage = tuple[list[pa.RecordBatch], LearnedFacts]


def of_kinds(batches: Sequence[pa.RecordBatch], *kinds: str) -> list[pa.RecordBatch]:
    return [
        rows.filter(pa.array([kind in kinds for kind in rows.column("kind").to_pylist()], pa.bool_()))
        for rows in batches
    ]


def stage_1(capture: Path) -> Stage:
    """The rows of a capture between the stages, also steps of sessions, and what it says of names."""
    plan = plan_captures(find_captures([str(capture)]), open_capture)
    (state,) = first_states(Carried([], Sessions(), LearnedFacts()), 1, OPTIONS, {})
    read = ReadConnections(OPTIONS, dict(enumerate(plan.names)), end_clock=plan.splits[-1].clock_after)
    found, learned = [], LearnedFacts()
    for rows in read.read(in_shard(pieces_of(plan, 1)[0], 0, ShardBegin(state), 1000)):
        for data in of_kinds([rows], END)[0].column("data").to_pylist():
            learned.merge(END_VALUES.load(data).learned_facts)
        found += of_kinds([rows], *TABLE_NAMES, STEP)
    return found, learned


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without the end of both connections to the broker: a request is still open."""
    return write_pcap(tmp_path_factory.mktemp("capture") / "mixed.pcap", mixed()[:-12], nanoseconds=True)


@pytest.fixture(scope="module")
def stage(capture: Path) -> Stage:
    return stage_1(capture)


@pytest.fixture(scope="module")
def whole(capture: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Rows]:
    folder = tmp_path_factory.mktemp("whole") / "out"
    run([capture], folder)
    return tables(folder)


@pytest.fixture
def folder(tmp_path: Path) -> ConfinedPath:
    return open_own_folder(tmp_path / "out", make=True)


def written(
    stage: Stage, folder: ConfinedPath, *, part: int = 0, attempt: int = 0, **more: Any
) -> list[dict[str, Any]]:
    task = WriteFiles(OPTIONS, stage[1], {}, share(folder), 3, **more)
    batches = list(task.write(part, attempt, iter(of_kinds(stage[0], *TABLE_NAMES))))
    assert all(batch.schema.names == list(FILES) for batch in batches)
    return [row for batch in batches for row in batch.to_pylist()]


def read(folder: ConfinedPath, found: Sequence[dict[str, Any]], table: str) -> Rows:
    paths = [row["path"] for row in found if row["table"] == table and row["path"] is not None]
    return sorted((row for path in paths for row in pq.ParquetFile(folder.path / path).read().to_pylist()), key=repr)


def without_capture(rows: Rows) -> Rows:
    return [{name: value for name, value in row.items() if name != "capture"} for row in rows]


def test_files_have_the_rows_of_an_export(stage: Stage, whole: dict[str, Rows], folder: ConfinedPath) -> None:
    found = written(stage, folder)
    for table in TABLE_NAMES:
        assert without_capture(read(folder, found, table)) == without_capture(whole[table]), table
    for row in (row for row in found if row["path"] is not None):
        path = folder.path / row["path"]
        assert path.stat().st_size == row["size"]
        assert pq.ParquetFile(path).metadata.num_rows == row["rows"]
        assert row["days"] is None


def test_rows_of_open_connections_have_files_of_their_own(stage: Stage, folder: ConfinedPath) -> None:
    """The next run replaces them."""
    found = written(stage, folder)
    opened = [row for row in found if row["open"] and row["path"] is not None]
    assert read(folder, opened, "connections")
    assert {row["status"] for row in read(folder, opened, "exchanges")} == {"open"}
    ended = [row for row in found if not row["open"]]
    assert "open" not in {row["status"] for row in read(folder, ended, "exchanges")}
    assert all("-open-00000" in row["path"] for row in opened)


def test_rows_are_counted_by_day(stage: Stage, folder: ConfinedPath) -> None:
    """For more dates than have partitions, which no task can know alone."""
    found = [row for row in written(stage, folder, part=7) if row["path"] is None]
    assert {row["part"] for row in found} == {7}
    counts: Counter[str] = Counter()
    for row in found:
        days = msgspec.msgpack.decode(row["days"], type=dict[int, int])
        counts[row["table"]] += sum(days.values())
        assert row["rows"] is None
    assert counts["exchanges"] == 22


@pytest.mark.parametrize(("part", "reports"), [(0, False), (4, True)])
def test_partitions_that_were_decided_for_all_tasks(
    stage: Stage, folder: ConfinedPath, part: int, reports: bool
) -> None:
    """One task writes the report."""
    day = mixed()[0].time_ns // DAY_NS
    own = {table: frozenset({day} if table == "records" else ()) for table in TABLE_NAMES}
    problem = Problem("date-bound", "many dates")
    decided = {state: Decided(own, (problem,), 4) for state in (False, True)}
    found = written(stage, folder, part=part, decided=decided)
    dates = {(row["table"], row["path"].split("date=")[1][:10]) for row in found if row["path"] is not None}
    assert ("records", date_of(mixed()[0].time_ns)) in dates
    assert ("exchanges", date_of(None)) in dates
    kinds = [row["kind"] for row in read(folder, found, "problems")]
    assert kinds.count("date-bound") == 2 * reports


def test_attempts_do_not_interfere(stage: Stage, folder: ConfinedPath) -> None:
    """As if Spark ran a slow task a second time."""
    first, second = (written(stage, folder, attempt=attempt) for attempt in (11, 12))
    assert not {row["path"] for row in first} & {row["path"] for row in second} - {None}
    assert read(folder, first, "exchanges") == read(folder, second, "exchanges")


@pytest.mark.parametrize("table", TABLE_NAMES)
def test_rows_of_a_table(stage: Stage, whole: dict[str, Rows], table: str) -> None:
    batches = list(MakeRows(OPTIONS, stage[1], {}, table)(iter(of_kinds(stage[0], *KINDS[table]))))
    assert all(batch.schema.equals(TABLES[table]) for batch in batches)
    found = [row for batch in batches for row in batch.to_pylist()]
    assert without_capture(sorted(found, key=repr)) == without_capture(whole[table])


def test_rows_are_handed_over_in_small_batches(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OUTPUT_ROWS", 5)
    exchanges = of_kinds(stage[0], "exchanges")
    sizes = [len(batch) for batch in MakeRows(OPTIONS, stage[1], {}, "exchanges")(iter(exchanges))]
    assert max(sizes) == 5
    assert sum(sizes) == 22


def test_a_part_without_rows(folder: ConfinedPath) -> None:
    assert written(([], LearnedFacts()), folder) == []
    assert list(MakeRows(OPTIONS, LearnedFacts(), {}, "records")(iter(()))) == []


@pytest.mark.parametrize("given", [True, False])
def test_names_of_the_run(tmp_path: Path, given: bool) -> None:
    """Learned from the traffic, or given."""
    path = write_pcap(tmp_path / "ids.pcap", talks.consumer().packets, nanoseconds=True)
    batches, learned = stage_1(path)
    assert learned.topics == {}
    names = {talks.ORDERS[1]: "orders"} if given else {}
    records = of_kinds(batches, "records")
    rows = [row for batch in MakeRows(OPTIONS, learned, names, "records")(iter(records)) for row in batch.to_pylist()]
    named = {row["topic_id"]: row["topic"] for row in rows}
    assert named[talks.ORDERS[1]] == ("orders" if given else None)
    assert named[talks.OFFSETS[1]] is None


def test_sessions_that_were_walked_before(tmp_path: Path) -> None:
    """Their content is looked up by exchange."""
    path = write_pcap(tmp_path / "ids.pcap", talks.consumer().packets, nanoseconds=True)
    batches, learned = stage_1(path)
    steps = [row for batch in of_kinds(batches, STEP) for row in batch.to_pylist()]
    content = encode_held(SessionContent(("payments",), False, 1, None))
    held = [{**row, "kind": HELD, "data": content} for row in steps[1:2]]
    assert held

    def given() -> Iterator[pa.RecordBatch]:
        # Whatever the order: rows wait until the end of the task.
        yield from of_kinds(batches, "exchanges")
        yield pa.RecordBatch.from_pylist(held, schema=batches[0].schema)

    rows = [row for batch in MakeRows(OPTIONS, learned, {}, "exchanges")(given()) for row in batch.to_pylist()]
    assert [row["exchange_id"] for row in rows if "payments" in row["topics"]] == [held[0]["exchange_id"]]


def test_a_failing_task_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))

    def failing() -> Iterator[pa.RecordBatch]:
        yield from ()
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        list(MakeRows(OPTIONS, LearnedFacts(), {}, "records")(failing()))
    assert os.listdir(tmp_path) == []


def test_problems_of_parts_before_are_added(stage: Stage, folder: ConfinedPath, tmp_path: Path) -> None:
    """Only to rows of `connections`, including those of open ones."""
    found = written(stage, folder)
    before = {table: read(folder, found, table) for table in TABLE_NAMES}
    more = {row["connection_id"]: 1 + at for at, row in enumerate(before["connections"][1:])}
    other = open_own_folder(tmp_path / "more", make=True)
    for row in before["connections"]:
        row["problems"] += more.get(row["connection_id"], 0)
    found = written(stage, other, problems_before=more)
    for table in TABLE_NAMES:
        assert read(other, found, table) == sorted(before[table], key=repr)
    made = MakeRows(OPTIONS, stage[1], {}, "connections", more)(iter(of_kinds(stage[0], "connections")))
    counts = {row["connection_id"]: row["problems"] for batch in made for row in batch.to_pylist()}
    assert counts == {row["connection_id"]: row["problems"] for row in before["connections"]}
    assert sum(counts.values()) > sum(more.values()) > 0
