"""The documented columns of the data source's tables are the actual ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kafkasniff.spark.options import SourceOptions
from kafkasniff.spark.tables import NOTES, PACKETS, PIPELINE, ddl

DOCUMENT = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()


@pytest.mark.parametrize(("table", "columns"), [("packets", PACKETS), ("notes", NOTES)])
def test_documented_columns(table: str, columns: dict[str, str]) -> None:
    section = DOCUMENT.split(f"\n### {table}\n", 1)[1].split("\n##", 1)[0]
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| (\w+) \|", section, re.M)
    assert {name: kind for names, kind in rows for name in re.findall(r"`(\w+)`", names)} == columns


def test_documented_options_are_taken(tmp_path: Path) -> None:
    section = DOCUMENT.split("\n| option ", 1)[1].split("\n\n", 1)[0]
    documented = dict(re.findall(r"^\| `(\w+)` \| `?(\w+)`? \|", section, re.M))
    assert len(documented) == 12
    given = {name: default for name, default in documented.items() if default not in {"all", "none"}}
    assert SourceOptions.of({"path": "a", **given}) == SourceOptions.of({"path": "a"})
    keys = tmp_path / "keys"
    keys.touch()
    for name, default in documented.items():
        value = {name: str(keys), "table": "exchanges"} if default == "none" else {name: given.get(name, "")}
        SourceOptions.of(value)


def test_a_schema_in_words() -> None:
    assert ddl({"a": "int", "b": "string"}) == "a int, b string"
    assert ddl(PACKETS, ["payload", "seq"]) == "payload binary, seq bigint"
    assert set(PACKETS) - set(PIPELINE) == {"capture", "time", "connection_hash"}
