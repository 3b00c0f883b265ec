"""Rows of captures without a folder: those of an export, in any batches."""

from __future__ import annotations

import contextlib
import zlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from benchmarks import small_messages
from benchmarks.trouble_messages import write_trouble
from kafkasniff.analysis.detectors import Detectors
from kafkasniff.analysis.detectors.finding import Numbers
from kafkasniff.analysis.overview import Overview
from kafkasniff.capture import open_captures
from kafkasniff.engine.message_table import PairColumns
from kafkasniff.engine.roles import WantedBodies
from kafkasniff.enrich.catalog import LearnedFacts
from kafkasniff.filters.expression import parse_filter as parse
from kafkasniff.sinks.jsonl import body_json
from kafkasniff.tables.exports import staging
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.staging import CountedRows
from kafkasniff.tables.rows.resolve import Resolver
from kafkasniff.tables.rows.sessions import HeldSessions
from tests.baseline.inputs import DISTURBANCES
from tests.choice import fewer, one_in
from tests.conftest import ROOT, shipped_captures
from tests.craft.read import read_packets
from tests.craft.samples import mixed
from tests.craft.write import pcap_bytes
from tests.oracle.inspector import by_python

CAPTURE = str(ROOT / "captures" / "java-codecs.pcap")


def feed(rows: CountedRows, capture: Path | str, split: int | None) -> LearnedFacts:
    """All packets of a capture, at most `split` at a time; what was learned from them."""
    with open_captures([str(capture)]) as source:
        for packets in source:
            rest = packets
            while split and len(rest) > split:
                part, rest = rest.split(split)
                rows.feed(part)
            rows.feed(rest)
    return rows.end()


@pytest.mark.parametrize("bound", ["MANY_ROWS", "MANY_BYTES"])
def test_rows_of_many_batches_are_passed_on_together(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def batches() -> tuple[int, int]:
        sizes: list[int] = []
        feed(CountedRows(ExportOptions(tables=("exchanges",)), lambda some, _: sizes.append(len(some))), CAPTURE, 7)
        return len(sizes), sum(sizes)

    few, whole = batches()
    assert few == 1
    monkeypatch.setattr(staging, bound, 1)
    many, again = batches()
    assert many > 1
    assert again == whole


def test_only_what_is_wanted() -> None:
    def exchanges(**options: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        counted = CountedRows(
            ExportOptions(tables=("exchanges",)), lambda some, _: found.extend(some.to_pylist()), **options
        )
        feed(counted, CAPTURE, None)
        return found

    rows = exchanges(bodies=WantedBodies({("request", "Metadata"): None}))
    assert {row["api"] for row in rows if row["request_body"] is not None} == {"Metadata"}
    assert not any(row["response_body"] for row in rows)
    assert len({row["api"] for row in rows}) > 2
    assert {row["api"] for row in exchanges(predicate=parse('api == "Produce"'))} == {"Produce"}
    few = ("api", "latency_us", "topics")
    for path in (contextlib.nullcontext(), by_python()):
        with path:
            assert exchanges(columns=few) == [
                {name: value if name in few else [] if isinstance(value, list) else None for name, value in row.items()}
                for row in exchanges()
            ]


def every_row(capture: Path, split: int | None) -> tuple[dict[str, list[dict[str, Any]]], Numbers, int]:
    """The rows that `stats` gets, with the names that are known at the end; numbers; exchanges in columns."""
    found: dict[str, list[pa.RecordBatch]] = defaultdict(list)
    numbers, columns = Numbers(), 0

    def seen(events: Sequence[Any]) -> None:
        nonlocal columns
        columns += sum(len(one.asked) for one in events if isinstance(one, PairColumns))
        numbers.feed(events)

    def take(rows: pa.RecordBatch, table: str) -> None:
        found[table].append(rows)

    rows = CountedRows(ExportOptions(), take, bodies=Overview().bodies | Detectors().bodies, events=seen)
    learned = feed(rows, capture, split)
    final: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for table, some in found.items():
        whole = pa.Table.from_batches(some)
        if table == "exchanges":
            whole = whole.sort_by([("connection_id", "ascending"), ("exchange_id", "ascending")])
        resolver = Resolver(learned, HeldSessions(), body_json)
        for one in (done for part in whole.combine_chunks().to_batches() for done in resolver.rows(table, part)):
            final[table] += one.to_pylist()
    return {table: sorted(rows, key=repr) for table, rows in final.items()}, numbers, columns


def numbered(numbers: Numbers, rows: Sequence[dict[str, Any]]) -> list[tuple[int | None, int | None]]:
    places = [(row["connection_id"], row["exchange_id"]) for row in rows]
    return [(numbers.connection(one), numbers.exchange(one, exchange)) for one, exchange in places]


def check_columns(capture: Path, split: int | None) -> int:
    """Compare exchanges in columns with exchanges one by one; returns how many were columns."""
    found, numbers, columns = every_row(capture, split)
    with by_python():
        expected, alone, none = every_row(capture, None)
    assert not none
    for table in expected:
        assert found[table] == expected[table], table
    # Only the kernel follows the network of connections.
    assert found.keys() - {"transport"} == expected.keys()
    assert numbered(numbers, found["exchanges"]) == numbered(alone, expected["exchanges"])
    return columns


@pytest.mark.parametrize(("write", "least"), [(small_messages.write, 400), (write_trouble, 200)])
def test_columns_are_the_rows_of_exchanges_one_by_one(write: Callable[..., Any], least: int, tmp_path: Path) -> None:
    """Which bodies are there, and the numbers that `decode` shows, included."""
    capture = tmp_path / "small.pcap"
    write(capture, connections=12, wanted=1_500)
    assert check_columns(capture, 300) > least


@pytest.mark.parametrize("capture", shipped_captures()[:: fewer(14, 8)], ids=lambda path: path.name)
def test_shipped_captures(capture: Path) -> None:
    check_columns(capture, 40)


@pytest.mark.parametrize("kind", one_in(9, list(DISTURBANCES)))
def test_disturbed_captures(kind: str, tmp_path: Path) -> None:
    random = Random(zlib.crc32(kind.encode()))
    path = tmp_path / "disturbed.pcap"
    small_messages.write(path, connections=6, wanted=300)
    for packets in (mixed(), read_packets(path)):
        path.write_bytes(pcap_bytes(DISTURBANCES[kind](packets, random), nanoseconds=True))
        check_columns(path, 50)
