from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.exported import contents, differences

SCHEMA = pa.schema(
    [
        ("number", pa.int64()),
        ("name", pa.string()),
        ("value", pa.binary()),
        ("flag", pa.bool_()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("topics", pa.list_(pa.string())),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("empty", pa.int32()),
    ]
)

Row = dict[str, Any]


def row(number: int) -> Row:
    return {
        "number": 2**62 + number,
        "name": f"name-{number}",
        "value": None if number % 3 == 0 else b"\xff" * number,
        "flag": number % 2 == 0,
        "time": 1_781_000_000_000_000 + number,
        "topics": [f"topic-{place}" for place in range(number % 4)],
        "headers": None if number % 5 == 0 else [{"key": "k", "value": None}, {"key": "", "value": b"v"}],
        "empty": None,
    }


ROWS = [row(number) for number in range(40)]


def export(folder: Path, files: Sequence[Sequence[Row]]) -> Path:
    (folder / "things").mkdir(parents=True)
    entries = []
    for place, rows in enumerate(files):
        path = f"things/part-{place}.parquet"
        pq.write_table(pa.Table.from_pylist(list(rows), SCHEMA), folder / path, row_group_size=7)
        entries.append({"path": path, "rows": len(rows)})
    (folder / "manifest.json").write_text(json.dumps({"tables": {"things": {"files": entries}}}))
    return folder


def test_order_and_files_do_not_count(tmp_path: Path) -> None:
    one = contents(export(tmp_path / "one", [ROWS]))
    other = contents(export(tmp_path / "other", [ROWS[30:], ROWS[29::-1], []]))
    assert differences(one, other) == []
    assert one["things"].rows == 40
    assert one["things"].bytes == (tmp_path / "one" / "things" / "part-0.parquet").stat().st_size
    assert one["things"].sums["number"] == (40, sum(item["number"] for item in ROWS) % 2**64, 0)
    assert one["things"].sums["topics."][:2] == (60, 60 * len("topic-0"))


@pytest.mark.parametrize(
    ("changed", "column"),
    [
        ({"number": 8}, "number"),
        ({"name": "name-X"}, "name"),
        ({"value": b"\xfe" + b"\xff" * 6}, "value"),
        ({"flag": True}, "flag"),
        ({"time": 1}, "time"),
        ({"topics": ["topic-0", "topic-1topic-2"]}, "topics."),
        ({"headers": None}, "headers[]"),
        ({"topics": ["topic-0", "topic-1", "topic-3"]}, "topics."),
        ({"headers": [{"key": "l", "value": None}, {"key": "", "value": b"v"}]}, "headers..key"),
        ({"headers": [{"key": "k", "value": b""}, {"key": "", "value": b"v"}]}, "headers..value"),
        ({"empty": 0}, "empty"),
    ],
)
def test_one_changed_value_is_found(tmp_path: Path, changed: Row, column: str) -> None:
    rows = [*ROWS[:7], {**ROWS[7], **changed}, *ROWS[8:]]
    found = differences(contents(export(tmp_path / "one", [ROWS])), contents(export(tmp_path / "other", [rows])))
    assert any(line.startswith(f"things: {column} differs") for line in found)
    # A list that is not there has no elements, either.
    assert all(line.startswith(f"things: {column.rstrip('[]')}") for line in found)


def test_missing_rows_and_tables_are_found(tmp_path: Path) -> None:
    one, other = contents(export(tmp_path / "one", [ROWS])), contents(export(tmp_path / "other", [ROWS[1:]]))
    assert "things: 40 rows and 39" in differences(one, other)
    assert differences(one, {}) == ["things: only one of them has it"]


def test_a_file_has_the_rows_that_the_manifest_says(tmp_path: Path) -> None:
    folder = export(tmp_path / "one", [ROWS])
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"rows": 40', '"rows": 41'))
    with pytest.raises(ValueError, match="the manifest says 41"):
        contents(folder)
