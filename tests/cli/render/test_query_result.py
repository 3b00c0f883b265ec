"""Results of queries: every type of DuckDB has a form in each format."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import duckdb
import pytest

from kafkasniff.cli.output import Output
from kafkasniff.cli.render.query_result import TEXT_ROWS, WRITERS
from tests.choice import one_in
from tests.cli.console import environment

VALUES = {
    "sum(i) FROM range(3) t(i)": (3, "3"),
    "(1::HUGEINT << 70)": ("1180591620717411303424", "1180591620717411303424"),
    "1.25": (1.25, "1.25"),
    "true": (True, "true"),
    "NULL": (None, ""),
    "TIMESTAMPTZ '2026-11-21 07:10:24.5+00'": ("2026-11-21T07:10:24.500000Z", "2026-11-21T07:10:24.500000000Z"),
    "make_timestamp_ns(1795245024000000001)": ("2026-11-21T07:10:24", "2026-11-21T07:10:24.000000001Z"),
    "DATE '2026-11-21'": ("2026-11-21", "2026-11-21"),
    "INTERVAL '90061.5 seconds'": ("25:01:01.5", "25:01:01.5"),
    "INTERVAL '1 month 2 days'": ("1 month 2 days", "1 month 2 days"),
    "to_seconds(0)": ("00:00:00", "00:00:00"),
    "to_seconds(-1)": ("-00:00:01", "'-00:00:01"),
    "'text'::BLOB": ("text", "text"),
    "'\\xFF'::BLOB": ({"base64": "/w=="}, '{"base64":"/w=="}'),
    "[{'a': 1.5, 'b': 'x'::BLOB}]": ([{"a": 1.5, "b": "x"}], '[{"a":1.5,"b":"x"}]'),
    "MAP {'k': 1}": ([["k", 1]], '[["k",1]]'),
    "'=1+1'": ("=1+1", "'=1+1"),
    "'two' || chr(10) || 'lines'": ("two\nlines", "two\\x0alines"),
    "'ä'::ENUM('ä')": ("ä", "ä"),
    "uuid '00000000-0000-0000-0000-000000000001'": ("00000000-0000-0000-0000-000000000001",) * 2,
}


def written(query: str, form: str) -> str:
    world = environment()
    with Output(world) as stream, duckdb.connect() as connection:
        WRITERS[form](connection.sql(query).to_arrow_reader(1000), stream, colour="never", wide=False)
    return world.stdout.getvalue().decode()


@pytest.mark.parametrize("value", one_in(4, [*VALUES]))
def test_a_value_in_each_format(value: str, tmp_path: Path) -> None:
    query = f"SELECT {value.partition(' FROM ')[0]} AS one"
    query += f" FROM {value.partition(' FROM ')[2]}" if " FROM " in value else ""
    in_json, in_csv = VALUES[value]
    assert json.loads(written(query, "json")) == {"one": in_json}
    assert list(csv.reader(written(query, "csv").splitlines())) in ([["one"], [in_csv]], [["one"], []])
    assert written(query, "text").splitlines()[0].strip() == "one"


def test_a_name_may_appear_twice() -> None:
    assert written("SELECT 1 AS a, 2 AS a, 3 AS a_1", "csv") == "a,a_1,a_1_1\n1,2,3\n"


def test_a_long_result_is_several_tables() -> None:
    lines = written(f"SELECT i FROM range({2 * TEXT_ROWS}) t(i)", "text").splitlines()
    assert [place for place, line in enumerate(lines) if line.strip() == "i"] == [
        0,
        TEXT_ROWS + 1000 - TEXT_ROWS % 1000 + 1,
    ]
    assert len(lines) == 2 * TEXT_ROWS + 2
