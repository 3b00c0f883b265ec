from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyarrow import parquet as pq

from kafkasniff.analysis.compaction import ORDERS, compact
from kafkasniff.errors import CaptureError, OutputError
from kafkasniff.tables.exports.options import ExportOptions
from tests.tables.exports.exported import CAPTURES, cut, files, manifest, named_files, run, tables

CAPTURE = CAPTURES / "java-group-classic.pcap"
LATER = CAPTURES / "librdkafka-acks0.pcap"


def in_runs(folder: Path, capture: Path = CAPTURE) -> list[Path]:
    parts = cut(capture, (0.3, 0.6), folder.with_name("parts"))
    for part in parts:
        run([part], folder)
    return parts


def test_rows_stay_and_are_in_order(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    parts = in_runs(folder)
    before, reported = tables(folder), manifest(folder)
    assert max(len([one for one in entry["files"] if not one.get("open")]) for entry in reported["tables"].values()) > 1
    done = compact(folder)
    assert tables(folder) == before
    assert done.before > done.after
    assert files(folder) == named_files(folder)
    for table, entry in manifest(folder)["tables"].items():
        closed = [one for one in entry["files"] if not one.get("open")]
        assert len(closed) <= 1, "all rows are of one date"
        for one in closed:
            file = pq.ParquetFile(folder / one["path"])
            keys = [tuple((row[key] is not None, row[key]) for key in ORDERS[table]) for row in file.read().to_pylist()]
            assert keys == sorted(keys)
            if one.get("compacted"):
                order = [file.metadata.row_group(0).sorting_columns[place] for place in range(len(ORDERS[table]))]
                assert [file.schema.column(one.column_index).name for one in order] == [*ORDERS[table]]
    # Another one has nothing to do, and later runs continue from the same state.
    assert compact(folder).before == 0
    run([*parts, LATER], folder)
    again = tmp_path / "again"
    in_runs(again)
    run([*parts, LATER], again)
    assert tables(folder) == tables(again)
    compact(folder)
    assert tables(folder) == tables(again)


def test_old_dates_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    run([CAPTURE], folder, ExportOptions(tables=("exchanges", "problems")))
    (date,) = {path.split("date=")[1][:10] for path in named_files(folder) if "date=" in path}
    end = datetime.fromisoformat(date).replace(tzinfo=UTC) + timedelta(days=1)
    assert compact(folder, keep=timedelta(days=2), now=end + timedelta(hours=47)).removed == ()
    rows = manifest(folder)["tables"]["exchanges"]["rows"]
    done = compact(folder, keep=timedelta(days=2), now=end + timedelta(hours=48))
    assert done.removed == (date,)
    left = manifest(folder)["tables"]["exchanges"]
    # Rows of connections that are open belong to the next run.
    assert left["rows"] < rows
    assert all(one.get("open") for one in left["files"])
    assert files(folder) == named_files(folder)


def test_a_failure_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "out"
    in_runs(folder)
    before, found = tables(folder), files(folder)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("kafkasniff.tables.parquet.TableWriter.write", full)
        with pytest.raises(OutputError, match="No space left on device"):
            compact(folder)
    assert (tables(folder), files(folder)) == (before, found)
    path = next(one for one in sorted(found) if one.startswith("exchanges/") and "open" not in one)
    (folder / path).write_bytes(b"PAR1 no")
    with pytest.raises(CaptureError, match=path):
        compact(folder)
    assert files(folder) == found
    with pytest.raises(CaptureError, match="no such folder"):
        compact(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
