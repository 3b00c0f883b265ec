"""Tables that fit their screen, waterfalls, results of queries, and names that would act on a terminal."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from operator import itemgetter
from pathlib import Path

import duckdb
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kafkasniff.cli.environment import Exit
from kafkasniff.cli.output import Output
from kafkasniff.cli.render.query_result import TEXT_ROWS, WRITERS
from kafkasniff.cli.render.tables import MIN_TEXT, FittedTable, as_text, wrapped
from kafkasniff.cli.render.waterfall import MAX_BAR, MIN_BAR, waterfall, who
from kafkasniff.report.answer_tables import ReportColumn
from kafkasniff.text.printable import display_width, printable
from kafkasniff.timing import Timed
from tests.analysis.exports import write_export
from tests.analysis.follow.test_follow import exchange, fetch, fetched, partition
from tests.analysis.tables import Row
from tests.choice import one_in
from tests.cli.commands.test_timing import packets
from tests.cli.console import environment, kafkasniff
from tests.test_hostile_strings import EVIL, harmless
from tests.timing.test_exchanges import of

NAME = ReportColumn("name", itemgetter(0))
COUNT = ReportColumn("count", itemgetter(1), number=True)
WHY = ReportColumn("why", itemgetter(2), level=1)
BOTH = ReportColumn("both", itemgetter(1), number=True, until=2)
SENT = ReportColumn("sent", itemgetter(1), number=True, level=2)


def shown(columns: list[ReportColumn], *rows: tuple[str, ...], width: int) -> list[str]:
    return as_text([FittedTable(columns, rows)], width=width, coloured=False).splitlines()


def test_the_highest_levels_are_hidden_first_and_named() -> None:
    columns, row = [NAME, COUNT, WHY, BOTH, SENT], ("orders", "12,345", "because it is slow")
    assert shown(columns, row, width=60) == [
        "name     count  why                   sent",
        "orders  12,345  because it is slow  12,345",
    ]
    assert shown(columns, row, width=42)[1:] == ["orders  12,345  because it is slow  12,345"]
    # What stands for a hidden column takes as much room here.
    assert shown(columns, row, width=41) == [
        "name     count    both",
        "orders  12,345  12,345",
        "hidden: why, sent (--wide)",
    ]
    assert shown([NAME, COUNT, WHY], row, width=20)[:2] == ["name     count", "orders  12,345"]


@given(
    st.lists(st.tuples(st.integers(1, 90), st.booleans(), st.integers(0, 3)), min_size=1, max_size=8),
    st.integers(20, 200),
)
def test_widths(columns: list[tuple[int, bool, int]], width: int) -> None:
    """A table is too wide only if its columns of level 0 are; no text is narrow while a level could be hidden."""
    made = [
        ReportColumn("h", itemgetter(place), number=number, level=level if place else 0)
        for place, (_, number, level) in enumerate(columns)
    ]
    table = FittedTable(made, [tuple("x" * size for size, _, _ in columns)])
    places, hidden = table._choice(width)
    widths = dict(zip(places, table._widths(places, width), strict=True))
    others = [column.level for place, column in enumerate(made) if place not in places]
    assert {made[place].level for place in places} <= set(range(min(others, default=9)))
    assert bool(hidden) == (len(places) < len(made))
    for place, wide in widths.items():
        assert wide <= columns[place][0]
        assert not made[place].number or wide == columns[place][0]
    least = [columns[place][0] if made[place].number else min(columns[place][0], MIN_TEXT) for place in places]
    if sum(least) + 2 * len(least) - 2 <= width:
        assert sum(widths.values()) + 2 * len(widths) - 2 <= width
        assert all(wide >= one for wide, one in zip(widths.values(), least, strict=True))
    else:
        assert all(made[place].level == 0 for place in places)


def test_a_clipped_column_keeps_one_line_per_row() -> None:
    columns = [NAME, ReportColumn("summary", itemgetter(1), clipped=True)]
    assert shown(columns, ("a", "word " * 30), width=40)[1:] == ["a     " + ("word " * 30)[:33] + "…"]


@given(
    st.lists(st.booleans(), min_size=1, max_size=4),
    st.lists(
        st.lists(st.sampled_from(["", "a", "12.5 kB", "größer", "東京", "a b  c", "[x]"]), min_size=4, max_size=4)
    ),
)
def test_rows_that_need_no_wrapping_are_those_of_rich(numbers: list[bool], rows: list[list[str]]) -> None:
    columns = [ReportColumn(f"c{place}", itemgetter(place), number=number) for place, number in enumerate(numbers)]
    oracle = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        oracle.add_column(column.heading, justify="right" if column.number else "left")
    for row in rows:
        oracle.add_row(*map(Text, row[: len(numbers)]))
    buffer = io.StringIO()
    Console(file=buffer, width=200, highlight=False, markup=False, emoji=False).print(oracle)
    assert shown(columns, *map(tuple, rows), width=200) == [line.rstrip() for line in buffer.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("connect-cluster-worker-1-shared-admin", 26, ["connect-cluster-worker-1-", "shared-admin"]),
        ("orders.payments_v2", 10, ["orders.", "payments_", "v2"]),
        ("one two three", 8, ["one two", "three"]),
        ("  current_leader_epoch", 12, ["  current_", "leader_epoch"]),
        ("abcdefgh", 3, ["abc", "def", "gh"]),
        ("漢字漢字", 5, ["漢字", "漢字"]),
    ],
)
def test_names_break_where_their_parts_end(text: str, width: int, lines: list[str]) -> None:
    assert wrapped(text, width).split("\n") == lines


@given(st.text("ab-_. 漢"), st.integers(2, 20))
def test_wrapped_text_fits_and_is_complete(text: str, width: int) -> None:
    lines = wrapped(text, width).split("\n")
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert all(display_width(line) <= width for line in lines) or text == lines[0]


def timed_exchanges() -> list[Timed]:
    return of(packets())


@pytest.mark.parametrize("width", [20, 60, 80, 100, 200])
def test_bars_follow_one_another(width: int) -> None:
    """Each begins where the previous one ends, and all are as wide as the screen allows."""
    for one in timed_exchanges():
        bars = re.findall("[·█]+", waterfall(one, width, coloured=False))
        columns = {len(bar) for bar in bars}
        assert len(columns) == 1
        assert MIN_BAR <= columns.pop() <= MAX_BAR
        for before, after in itertools.pairwise(bars):
            assert after.index("█") <= before.rindex("█") + 1
        assert bars[0].startswith("█")
        assert bars[-1].endswith("█")


def test_names_from_the_wire_are_escaped() -> None:
    (one, *_) = timed_exchanges()
    request = one.exchange.request
    evil = msgspec.structs.replace(request, client_id="a\x1b[31m b")
    changed = msgspec.structs.replace(one, exchange=msgspec.structs.replace(one.exchange, request=evil))
    assert "\x1b" not in waterfall(changed, 80, coloured=False)
    assert who(changed) == 'Metadata v1 of "a\\x1b[31m b"'
    nothing = msgspec.structs.replace(one.exchange, request=None)
    assert who(msgspec.structs.replace(one, exchange=nothing)).startswith("Metadata v1")
    orphan = msgspec.structs.replace(nothing, response=None)
    assert who(msgspec.structs.replace(one, exchange=orphan)) == "a response without its request"


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


def text(folder: Path, exchanges: list[Row], records: list[Row], *arguments: str, width: int = 120) -> str:
    export = write_export(folder / "export", exchanges=exchanges, records=records)
    result = kafkasniff("follow", "--key", "k", *arguments, export, width=width)
    assert (result.code, result.err) == (Exit.OK, "")
    return result.text


def test_many_deliveries(tmp_path: Path) -> None:
    exchanges = [fetch(number, number, 17) for number in range(1, 11)]
    found = text(tmp_path, exchanges, [fetched(number, number, 17) for number in range(1, 11)])
    assert found.count("delivered again to reader") == 3
    assert "  reader (10.0.0.5): 6 more deliveries\n" in found


@pytest.mark.parametrize("width", one_in(2, [60, 80]))
def test_names_from_the_wire(tmp_path: Path, width: int) -> None:
    everything = "".join(EVIL.values()) * 3
    exchanges, records = [], []
    for number, name in enumerate((*EVIL.values(), everything), 1):
        part = partition(name, offset=17, record_count=1)
        wire = {"client_id": name, "exchange_id": number, "partitions": [part], "connection_id": 2}
        exchanges += [
            exchange("Fetch", number, sender="client", **wire),
            exchange("OffsetCommit", number, **{**wire, "partitions": [{**part, "offset": 18}], "group_id": name}),
        ]
        records.append(fetched(number, number, 17, topic=name, key=name.encode("utf-8", "surrogatepass")))
    folder = write_export(tmp_path, exchanges=exchanges, records=records)
    for name in one_in(3, [*EVIL.values()]):
        for colours in ("never", "always"):
            result = kafkasniff("follow", "--key", name, "--color", colours, folder, width=width, stdout_tty=True)
            assert result.code == Exit.OK
            harmless(result.text)
            assert printable(name)[:6] in result.text
    result = kafkasniff("follow", "--key", everything, folder, width=width)
    harmless(result.text)
    harmless(kafkasniff("follow", "--key", f"{everything}x", folder).err)
