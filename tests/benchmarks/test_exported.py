"""Exports that benchmarks compare: their rows in any order and in any files."""

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
        ("value", pa.binary()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("topics", pa.list_(pa.string())),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("empty", pa.int32()),
    ]
)


def row(number: int) -> dict[str, Any]:
    return {
        "number": 2**62 + number,
        "value": None if number % 3 == 0 else b"\xff" * number,
        "time": 1_781_000_000_000_000 + number,
        "topics": [f"topic-{place}" for place in range(number % 4)],
        "headers": None if number % 5 == 0 else [{"key": "k", "value": None}, {"key": "", "value": b"v"}],
        "empty": None,
    }


ROWS = [row(number) for number in range(10)]


def export(folder: Path, *files: Sequence[dict[str, Any]]) -> Path:
    (folder / "things").mkdir(parents=True)
    entries = []
    for place, rows in enumerate(files):
        path = f"things/part-{place}.parquet"
        pq.write_table(pa.Table.from_pylist(list(rows), SCHEMA), folder / path, row_group_size=7)
        entries.append({"path": path, "rows": len(rows)})
    (folder / "manifest.json").write_text(json.dumps({"tables": {"things": {"files": entries}}}))
    return folder


def test_contents_of_exports_are_compared(tmp_path: Path) -> None:
    one = contents(export(tmp_path / "one", ROWS))
    assert differences(one, contents(export(tmp_path / "other", ROWS[7:], ROWS[6::-1], []))) == []
    assert one["things"].rows == 10
    assert "things: 10 rows and 9" in differences(one, contents(export(tmp_path / "fewer", ROWS[1:])))
    assert differences(one, {}) == ["things: only one of them has it"]
    changes: list[tuple[dict[str, Any], str]] = [
        ({"number": 8}, "number"),
        ({"value": b"\xfe" + b"\xff" * 6}, "value"),
        ({"time": 1}, "time"),
        ({"topics": ["topic-0", "topic-1topic-2"]}, "topics."),
        ({"headers": None}, "headers[]"),
        ({"headers": [{"key": "k", "value": b""}, {"key": "", "value": b"v"}]}, "headers..value"),
        ({"empty": 0}, "empty"),
    ]
    for place, (changed, column) in enumerate(changes):
        folder = export(tmp_path / str(place), [*ROWS[:7], {**ROWS[7], **changed}, *ROWS[8:]])
        assert any(line.startswith(f"things: {column} differs") for line in differences(one, contents(folder))), column
    manifest = tmp_path / "one" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"rows": 10', '"rows": 11'))
    with pytest.raises(ValueError, match="the manifest says 11"):
        contents(tmp_path / "one")
