"""For any number of dates in packets, the number of partitions is bounded and no row is lost or changed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.analysis.accumulator import TableReading
from kafkasniff.analysis.export import Export
from kafkasniff.runtime.confined_files import open_own_folder
from kafkasniff.tables.exports.finalise import DATE_BOUND, MAX_DATES, partitioned
from kafkasniff.tables.exports.staged import StagedFiles, StagedTable, merged
from kafkasniff.tables.rows.staged import DAY_NS, STAGED, UNDATED, date_of
from tests.fuzz.costs.streams import dates_rows
from tests.tables.exports.exported import Rows, by_partition, files, named_files, rows, run, tables

FEW = 3
SIZE = 3 << 10


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each exchange has its own date, except for one date with more of them."""
    path = tmp_path_factory.mktemp("capture") / "dates.pcap"
    path.write_bytes(dates_rows(SIZE, 86_400, 1))
    return path


@pytest.fixture(scope="module")
def whole(capture: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Rows]:
    """Its rows, exported without the bound."""
    folder = tmp_path_factory.mktemp("whole") / "out"
    run([capture], folder)
    return tables(folder)


@pytest.fixture
def few_dates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkasniff.tables.exports.finalise.MAX_DATES", FEW)


def without_bound(found: dict[str, Rows]) -> dict[str, Rows]:
    return {table: [row for row in part if row.get("kind") != DATE_BOUND] for table, part in found.items()}


def test_the_days_with_most_rows_are_partitioned() -> None:
    days = dict.fromkeys(range(1, MAX_DATES + 1), 1)
    assert partitioned({**days, UNDATED: 1}) == set(days)
    assert partitioned({**days, -7: 2, 1_000: 2}) == {-7, 1_000, *range(1, MAX_DATES - 1)}


@pytest.mark.usefixtures("few_dates")
def test_partitions_are_bounded_and_no_row_is_lost(capture: Path, whole: dict[str, Rows], tmp_path: Path) -> None:
    dates = {date_of(row["time_ns"]) for row in whole["exchanges"]}
    assert len(dates) > 5 * FEW
    result = run([capture], tmp_path / "out")
    assert without_bound(tables(tmp_path / "out")) == whole
    assert files(tmp_path / "out") == named_files(tmp_path / "out")
    undated = f"date={date_of(None)}"
    for table, parts in by_partition(tmp_path / "out").items():
        for state in ("True", "False"):
            assert len([name for name in parts if name.endswith(state)]) <= FEW + 1, table
        for name, part in parts.items():
            date = name.split()[0].removeprefix("date=")
            if date != date_of(None):
                assert {str(row["time"].date()) for row in part} == {date}
    problems = [row for row in rows(tmp_path / "out", "problems") if row["kind"] == DATE_BOUND]
    assert sorted(row["detail"] for row in problems) == sorted(result.notices)
    (reported,) = [detail for detail in result.notices if " rows of exchanges" in detail]
    parts = by_partition(tmp_path / "out")["exchanges"].items()
    moved = [row for name, part in parts if name.startswith(undated) for row in part]
    first, last = (date_of(pick(row["time_ns"] for row in moved)) for pick in (min, max))
    assert reported == (
        f"{len(moved)} rows of exchanges, from {len(dates) - FEW} dates between {first} and {last}, are in the "
        f"partition {undated}: more than {FEW} dates have rows, and those with the most are partitioned"
    )


@pytest.mark.usefixtures("few_dates")
def test_a_query_by_time_includes_rows_without_a_partition(capture: Path, tmp_path: Path) -> None:
    run([capture], tmp_path)
    export = Export.open(str(tmp_path))
    for row in rows(tmp_path, "exchanges")[::7]:
        now = row["time_ns"]
        (found,) = export.batches("exchanges", TableReading(("time_ns", "exchange_id")), now, now)
        assert found.to_pylist() == [{"time_ns": now, "exchange_id": row["exchange_id"]}]


@given(
    batches=st.lists(st.lists(st.tuples(st.integers(-3, 9) | st.none(), st.integers(0, 3)), max_size=12), max_size=4),
    own=st.sets(st.integers(-3, 9), max_size=5),
)
def test_parts_hold_all_rows_in_order_of_time(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[tuple[int | None, int]]], own: set[int]
) -> None:
    folder = open_own_folder(tmp_path_factory.mktemp("parts"))
    staged = StagedFiles(folder / "staged")
    for batch in batches:
        rows = [{"time_ns": day and day * DAY_NS + 5, "connection_id": number} for day, number in batch]
        staged.write("connections", pa.RecordBatch.from_pylist(rows, schema=STAGED["connections"]))
    staged.close()
    table = StagedTable([folder / "staged"], "connections")
    every = [(day or UNDATED, number) for batch in batches for day, number in batch]
    assert table.days() == Counter(day for day, _ in every)
    found: list[tuple[int, int]] = []
    for day, parts in table.parts(own - {UNDATED}, folder / "rest"):
        part = [row for batch in merged(parts, "connections") for row in batch.to_pylist()]
        keys = [(row["time_ns"] is not None, row["time_ns"] or 0, row["connection_id"]) for row in part]
        assert keys == sorted(keys)
        days = [(row["time_ns"] or 0) // DAY_NS for row in part]
        assert set(days) == {day} if day in own - {UNDATED} else own.isdisjoint(set(days) - {UNDATED})
        assert not found or max(one for one, _ in found) < min(days)
        found += [(one, row["connection_id"]) for one, row in zip(days, part, strict=True)]
    assert sorted(found) == sorted(every)
