from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafkasniff.analysis import TableReading
from kafkasniff.analysis.export import Export
from kafkasniff.errors import CaptureError
from kafkasniff.runtime.addresses import Location
from tests.analysis.exports import write_export
from tests.analysis.tables import SECOND, START_NS, exchange, record

DAY = 86_400
COLUMNS = TableReading(("api", "time_ns"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three days; the last one has two APIs."""
    rows = [exchange("Fetch", day * DAY, exchange_id=day) for day in range(3)]
    rows += [exchange("Produce", 2 * DAY + number, exchange_id=number) for number in range(100)]
    return write_export(tmp_path / "out", exchanges=rows, records=[record(at=day * DAY) for day in range(3)])


def count(export: Export, reading: TableReading = COLUMNS, *bounds: int | None, table: str = "exchanges") -> int:
    return sum(batch.num_rows for batch in export.batches(table, reading, *bounds))


def test_only_selected_rows(folder: Path) -> None:
    export = Export.open(str(folder))
    assert count(export, TableReading(("api",), ("Fetch",))) == 3
    since, until = START_NS + DAY * SECOND, START_NS + 2 * DAY * SECOND
    assert count(export, COLUMNS, since, None) == 102
    assert count(export, COLUMNS, since, until) == 3
    assert count(export, COLUMNS, since + 1, until - 1) == 0
    assert len(export.files("exchanges", since, since)) == 1
    assert count(export, TableReading(("topic",)), since, until, table="records") == 2
    assert (
        count(export, TableReading(("topic",)), since + 1, None, table="records") == 2
    )  # the column has microseconds only


def test_files_of_other_dates_are_not_opened(folder: Path) -> None:
    export = Export.open(str(folder))
    (folder / export.files("exchanges")[0]).write_bytes(b"damaged")
    assert count(export, COLUMNS, START_NS + 2 * DAY * SECOND) == 101
    with pytest.raises(CaptureError, match="cannot read"):
        count(export)


@pytest.mark.parametrize("older", [0, 2])
def test_fields_that_earlier_releases_did_not_write(folder: Path, older: int) -> None:
    """Files of both kinds in one export, in either order."""
    export = Export.open(str(folder))
    path = folder / export.files("exchanges")[older]
    table = pq.read_table(path, partitioning=None)
    place = table.schema.get_field_index("partitions")
    element = table.schema.field("partitions").type.value_type
    fields = [field for field in element if field.name != "last_stable_offset"]
    table = table.set_column(
        place, "partitions", pa.nulls(table.num_rows, pa.list_(pa.field("element", pa.struct(fields))))
    )
    pq.write_table(table, path)
    found = list(export.batches("exchanges", TableReading(("api", "partitions"))))
    assert sum(batch.num_rows for batch in found) == 103
    assert {batch.schema.field("partitions").type for batch in found} == {pa.list_(pa.field("element", element))}


def test_columns_that_earlier_releases_did_not_write(tmp_path: Path) -> None:
    """An export without them yields nulls, an export with them yields their values."""
    path = tmp_path / "exchanges" / "part-00000.parquet"
    path.parent.mkdir()
    pq.write_table(pa.table({"api": ["Fetch"], "time_ns": [1]}), path)
    export = Export(str(tmp_path), {"exchanges": ("exchanges/part-00000.parquet",)}, Location.of(str(tmp_path)))
    (batch,) = export.batches("exchanges", TableReading(("api", "wait_us", "sender")))
    assert batch.to_pylist()[0] | {"api": "Fetch", "wait_us": None, "sender": None} == batch.to_pylist()[0]


def test_folders_that_are_not_exports(tmp_path: Path) -> None:
    for place, reported in ((tmp_path, "no manifest"), (tmp_path / "missing", "no such folder")):
        with pytest.raises(CaptureError, match=reported):
            Export.open(str(place))
    file = tmp_path / "file.pcap"
    file.write_bytes(b"x")
    with pytest.raises(CaptureError, match="is a file"):
        Export.open(str(file))


@pytest.mark.parametrize(
    "manifest",
    [
        "",
        "{",
        "[]",
        "null",
        '{"format":"other"}',
        '{"format":"kafkasniff-export"}',
        '{"format":"kafkasniff-export","tables":[]}',
        '{"format":"kafkasniff-export","tables":{"exchanges":{"files":[{"path":5}]}}}',
        '{"format":"kafkasniff-export","tables":{"exchanges":{"files":[{"path":"../../secret"}]}}}',
        '{"format":"kafkasniff-export","tables":{"exchanges":{"files":[{"path":"/etc/passwd"}]}}}',
        "[" * 100_000,
    ],
)
def test_an_invalid_manifest(manifest: str, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(manifest)
    with pytest.raises(CaptureError, match="is invalid"):
        Export.open(str(tmp_path))
