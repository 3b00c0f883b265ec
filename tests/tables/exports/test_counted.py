"""Rows of captures without a folder: those of an export, in any batches, and with an end."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest

from kafkasniff.capture import open_captures
from kafkasniff.enrich import Catalog
from kafkasniff.filters.expression import parse_filter as parse
from kafkasniff.tables.exports.counted import CountedRows
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.transport import TABLE as TRANSPORT
from tests.conftest import ROOT
from tests.craft import kafka_bytes as kafka
from tests.craft.batches import batch
from tests.craft.conversation import Conversation

CAPTURE = str(ROOT / "captures" / "java-codecs.pcap")
TABLES = ("exchanges", "records", "connections", "problems")


def counted(
    split: int | None = None, tables: tuple[str, ...] = TABLES, **options: Any
) -> dict[str, list[dict[str, Any]]]:
    """All rows by table, in an order that does not depend on batches."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)

    def take(rows: pa.RecordBatch, table: str) -> None:
        assert len(rows)
        found[table] += rows.to_pylist()

    rows = CountedRows(ExportOptions(tables=tables), take, **options)
    with open_captures([CAPTURE]) as source:
        for packets in source:
            rest = packets
            while split and len(rest) > split:
                part, rest = rest.split(split)
                rows.feed(part)
            rows.feed(rest)
    rows.end()
    return {table: sorted(some, key=repr) for table, some in found.items()}


def test_batches_change_nothing() -> None:
    whole = counted()
    assert counted(split=7) == whole
    assert set(whole) <= set(TABLES)
    assert whole["exchanges"]
    assert whole["records"]


def test_only_the_tables_that_are_wanted() -> None:
    assert set(counted(tables=("connections",))) == {"connections"}


def test_only_bodies_that_are_wanted() -> None:
    rows = counted(wants_body=lambda message: message.api == "Metadata")["exchanges"]
    assert {row["api"] for row in rows if row["request_body"] is not None} == {"Metadata"}
    assert len({row["api"] for row in rows}) > 2


def test_events_and_transport_on_the_side() -> None:
    events: list[object] = []
    rows = counted(events=events.extend, transport=True)
    assert rows.keys() >= {"exchanges", TRANSPORT}
    assert len(events) > len(rows["exchanges"])
    plain = counted()
    assert {name: rows[name] for name in plain} == plain


def test_filters_select_exchanges() -> None:
    rows = counted(predicate=parse('api == "Produce"'))["exchanges"]
    assert {row["api"] for row in rows} == {"Produce"}


def test_names_that_were_learned() -> None:
    talk = Conversation()
    talk.handshake()
    topic = bytes(range(16))
    talk.exchange(
        kafka.metadata_request_by_id(1, [(topic, None)]), kafka.metadata_response_with_ids(1, [(topic, "orders")])
    )
    rows = CountedRows(ExportOptions(), lambda *_: None)
    rows.feed(batch(talk.packets))
    assert rows.summary.requests == 1
    learned = rows.end()
    assert learned.topic("AAECAwQFBgcICQoLDA0ODw") == "orders"


def test_rows_of_open_exchanges_come_at_the_end() -> None:
    talk = Conversation()
    talk.handshake()
    talk.send("client", kafka.metadata_request(1, ["orders"]))
    found: list[str] = []
    rows = CountedRows(
        ExportOptions(), lambda some, table: found.extend(some.to_pylist() if table == "exchanges" else ())
    )
    rows.feed(batch(talk.packets))
    assert found == []
    rows.end()
    assert [row["status"] for row in found] == ["open"]  # type: ignore[index]


@pytest.mark.parametrize("given", [{"A" * 22: "orders"}, {}])
def test_a_catalog_of_the_caller(given: dict[str, str]) -> None:
    catalog = Catalog(given)
    CountedRows(ExportOptions(), lambda *_: None, catalog=catalog).end()
    assert catalog.learned_facts is not None
