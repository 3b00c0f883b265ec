"""Staged rows to Parquet files: partitions, order, names of the whole run, and bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from kafkasniff.enrich import Catalog
from kafkasniff.enrich.learned_facts import LearnedFacts
from kafkasniff.enrich.sessions import SessionStep
from kafkasniff.errors import UsageError
from kafkasniff.model import Endpoint, Problem
from kafkasniff.runtime.confined_files import ConfinedPath, open_own_folder
from kafkasniff.tables.exports import finalise as module
from kafkasniff.tables.exports.beginning import new_state
from kafkasniff.tables.exports.finalise import MEMORY_PART, REST, final_rows, finalise
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.partitions import TablePartitions
from kafkasniff.tables.exports.staged import MappedFiles, StagedFiles
from kafkasniff.tables.exports.staging import new_stager, stage, stage_rest
from kafkasniff.tables.rows.resolve import LearnedNames
from kafkasniff.tables.rows.sessions import ExchangeKey, SessionContent, Sessions
from kafkasniff.tables.rows.staged import DAY_NS, STAGED, UNDATED, date_of
from tests.craft.batches import batch
from tests.craft.packet import Packet
from tests.enrich import talks
from tests.tables.exports.exported import Rows

EXCHANGES = ExportOptions(tables=("exchanges",))
EMPTY: dict[str, Any] = {"topics": [], "partitions": [], "problems": []}


def exchange(day: float, number: int, api: str = "Fetch") -> dict[str, Any]:
    return {"api": api, "time_ns": int(day * DAY_NS), "connection_id": 1, "exchange_id": number, **EMPTY}


def staged(folder: ConfinedPath, table: str, *parts: Rows) -> list[ConfinedPath]:
    """A staged folder for each list of rows."""
    found = [folder.below("staged", f"{number}") for number in range(len(parts))]
    for path, rows in zip(found, parts, strict=True):
        files = StagedFiles(path)
        files.write(table, pa.RecordBatch.from_pylist(rows, schema=STAGED[table]))
        files.close()
    return found


def written(
    found: Sequence[ConfinedPath], folder: ConfinedPath, options: ExportOptions = EXCHANGES, **more: Any
) -> dict[str, list[tuple[str, int]]]:
    """By table, the (path, rows) that `finalise` says it has written."""
    more = {
        "names": LearnedNames(LearnedFacts()),
        "sessions": Sessions(),
        "partitions": TablePartitions(),
        **more,
    }
    files = finalise(list(found), folder, "run-1", options, **more)
    for one in (one for some in files.values() for one in some):
        path = folder.path / one.path
        assert path.stat().st_size == one.bytes
        assert pq.ParquetFile(path).metadata.num_rows == one.rows
    return {table: [(one.path, one.rows) for one in some] for table, some in files.items()}


def read(folder: Path, files: Sequence[tuple[str, int]]) -> Rows:
    return [row for path, _ in files for row in pq.ParquetFile(folder / path).read().to_pylist()]


@pytest.fixture
def folder(tmp_path: Path) -> ConfinedPath:
    return open_own_folder(tmp_path)


def test_a_partition_for_each_day(folder: ConfinedPath) -> None:
    """Rows of all staged folders, in the table's order."""
    parts = (
        [exchange(3.5, 9), exchange(2.5, 8), exchange(2.25, 7, "Produce")],
        [exchange(2.75, 5), exchange(2.5, 4)],
    )
    found = written(staged(folder, "exchanges", *parts), folder)
    days = [f"exchanges/date={date_of(day * DAY_NS)}/run-1-00000.parquet" for day in (2, 3)]
    assert found == {"exchanges": [(days[0], 4), (days[1], 1)]}
    rows = read(folder.path, found["exchanges"])
    assert [row["exchange_id"] for row in rows] == [4, 8, 5, 7, 9]
    assert "_pending" not in rows[0]
    assert folder.names() == ["exchanges", "staged"]


def test_rows_without_a_day_of_their_own(folder: ConfinedPath) -> None:
    """They share one partition, and their report is a row of `problems`."""
    paths = staged(folder, "exchanges", [exchange(day + 0.5, day) for day in (9, 4, 6, 8, 2)])
    few = TablePartitions(
        {"exchanges": frozenset({4, 8}), "problems": frozenset()}, [Problem("date-bound", "3 rows", time_ns=None)]
    )
    found = written(paths, folder, ExportOptions(tables=("problems", "exchanges")), partitions=few)
    undated = f"date={date_of(None)}"
    dates = [path.split("/")[1] for path, _ in found["exchanges"]]
    assert dates == [*(f"date={date_of(day * DAY_NS)}" for day in (4, 8)), undated]
    rows = read(folder.path, found["exchanges"][2:])
    assert [row["exchange_id"] for row in rows] == [2, 6, 9]
    (problem,) = read(folder.path, found["problems"])
    assert (problem["kind"], problem["detail"]) == ("date-bound", "3 rows")


def test_left_over_files_of_sorting_are_removed(folder: ConfinedPath) -> None:
    """A task that was killed left them: they would be read as rows."""
    left = StagedFiles(folder / REST)
    left.write("exchanges", pa.RecordBatch.from_pylist([exchange(1, 99)], schema=STAGED["exchanges"]))
    left.close()
    paths = staged(folder, "exchanges", [exchange(day, day) for day in (5, 4, 3)])
    found = written(paths, folder, partitions=TablePartitions.none())
    assert [row["exchange_id"] for row in read(folder.path, found["exchanges"])] == [3, 4, 5]
    assert REST not in folder.names()


def test_memory_bounds_row_groups(folder: ConfinedPath) -> None:
    paths = staged(folder, "exchanges", [exchange(1, number) for number in range(500)])

    def groups(into: str, **more: Any) -> int:
        found = written(paths, folder / into, **more)
        rows = read(folder.path / into, found["exchanges"])
        assert [row["exchange_id"] for row in rows] == list(range(500))
        return sum(pq.ParquetFile(folder.path / into / path).metadata.num_row_groups for path, _ in found["exchanges"])

    assert groups("much") == 1
    assert groups("little", memory=MEMORY_PART << 10) > 2


def test_nothing_staged(folder: ConfinedPath) -> None:
    assert written([], folder, ExportOptions()) == {
        "exchanges": [],
        "records": [],
        "connections": [],
        "problems": [],
    }
    assert folder.names() == []


class Recorded:
    """The calls of a source of sessions, and rows that were yielded before each."""

    def __init__(self) -> None:
        self.keys: list[ExchangeKey | None] = []

    def held(self, key: ExchangeKey, broker: Endpoint, time_ns: int | None, step: SessionStep) -> SessionContent | None:
        assert broker == Endpoint("10.0.0.9", 9092)
        assert time_ns is not None
        assert step.number or step.epoch == 0
        self.keys.append(key)
        return None

    def answer(self) -> None:
        self.keys.append(None)


def staged_of(packets: Sequence[Packet], folder: ConfinedPath) -> tuple[list[ConfinedPath], LearnedFacts]:
    """Staged rows of a conversation, and what was learned from it."""
    options = ExportOptions(records=True)
    state = new_state(options, Catalog(), sessions=False)
    files = StagedFiles(folder / "staged")
    stager = new_stager(state, options, None, files)
    stage(state, stager, batch(packets))
    stage_rest(state, stager, files)
    learned = state.enricher.catalog.learned_facts
    assert learned is not None
    return [folder / "staged"], learned


def test_sessions_are_asked_in_order_and_end_after_the_exchanges(folder: ConfinedPath) -> None:
    paths, learned = staged_of(talks.both(), folder)
    sessions = Recorded()
    order = []
    options = ExportOptions(tables=("problems", "connections", "exchanges"))
    for table, _, batches in final_rows(
        paths,
        options,
        names=LearnedNames(learned),
        sessions=sessions,
        partitions=TablePartitions(),
        rest=folder / REST,
    ):
        order.append((table, list(sessions.keys)))
        for _ in batches:
            pass
    # Exchanges are first whatever the options say: problems found in them are rows of `problems`.
    assert [table for table, _ in order] == ["exchanges", "connections", "problems"]
    assert order[0][1] == []
    assert order[1][1][-1] is None
    numbers = [key[1] for key in order[1][1] if key is not None]
    assert len(numbers) >= 3
    assert numbers == sorted(numbers)
    assert sessions.keys.count(None) == 1


@pytest.mark.parametrize("known", [True, False])
def test_names_and_problems_of_the_whole_run(folder: ConfinedPath, known: bool) -> None:
    """Keys of a broker's own topic are read once its name is known: one of them is cut."""
    paths, learned = staged_of([*talks.consumer().packets, *talks.admin().packets], folder)
    names = LearnedNames(learned if known else LearnedFacts())
    found = written(paths, folder, ExportOptions(), names=names)
    rows = read(folder.path, found["exchanges"])
    fetched = {topic for row in rows for topic in row["topics"] if row["api"] == "Fetch"}
    assert fetched == ({"orders", "__consumer_offsets"} if known else set())
    kinds = [row["kind"] for row in read(folder.path, found["problems"]) if row["direction"] == "response"]
    assert len(kinds) == known
    assert kinds == [kind for row in rows for kind in row["problems"]]


def test_only_some_tables(folder: ConfinedPath) -> None:
    paths, learned = staged_of(talks.both(), folder)
    found = final_rows(
        paths,
        ExportOptions(),
        names=LearnedNames(learned),
        sessions=Sessions(),
        partitions=TablePartitions.none(),
        rest=folder / REST,
        tables=["connections"],
    )
    ((table, day, batches),) = ((table, day, list(some)) for table, day, some in found)
    assert (table, day, sum(map(len, batches))) == ("connections", UNDATED, 2)


def test_pages_are_released_while_rows_are_read(folder: ConfinedPath, monkeypatch: pytest.MonkeyPatch) -> None:
    released: list[object] = []

    def release(files: MappedFiles) -> None:
        released.append(files)

    monkeypatch.setattr(MappedFiles, "release", release)
    paths = staged(folder, "exchanges", *([exchange(1, number)] for number in range(40)))
    monkeypatch.setattr("kafkasniff.tables.exports.merge.WINDOW_ROWS", 1)
    written(paths, folder / "a")
    before = len(released)
    monkeypatch.setattr(module, "RELEASE_BYTES", 1)
    written(paths, folder / "b")
    assert len(released) - before > before


def test_a_file_in_the_way(folder: ConfinedPath) -> None:
    paths = staged(folder, "exchanges", [exchange(1, 1)])
    (folder / "exchanges").put(b"in the way")
    with pytest.raises(UsageError, match="exchanges is a file, not a folder"):
        written(paths, folder)
