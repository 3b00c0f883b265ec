"""Rows of captures without a folder: those of an export, in any batches, and with an end."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa

from kafkasniff.capture import open_captures
from kafkasniff.enrich import Catalog
from kafkasniff.filters.expression import parse_filter as parse
from kafkasniff.tables.exports.counted import CountedRows
from kafkasniff.tables.exports.options import ExportOptions
from tests.conftest import ROOT
from tests.craft import kafka_bytes as kafka
from tests.craft.batches import batch
from tests.craft.conversation import Conversation

CAPTURE = str(ROOT / "captures" / "java-codecs.pcap")
TABLES = ("exchanges", "records", "connections", "transport", "problems")


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


def test_rows_do_not_depend_on_batches_and_what_else_is_wanted() -> None:
    whole = counted()
    assert counted(split=7) == whole
    assert set(TABLES) >= set(whole) >= {"exchanges", "records"}
    assert set(counted(tables=("connections",))) == {"connections"}
    events: list[object] = []
    more = counted(events=events.extend)
    assert more["transport"]
    assert len(events) > len(more["exchanges"])
    assert {name: more[name] for name in whole} == whole


def test_only_what_is_wanted() -> None:
    rows = counted(wants_body=lambda message: message.api == "Metadata")["exchanges"]
    assert {row["api"] for row in rows if row["request_body"] is not None} == {"Metadata"}
    assert len({row["api"] for row in rows}) > 2
    rows = counted(predicate=parse('api == "Produce"'))["exchanges"]
    assert {row["api"] for row in rows} == {"Produce"}


def test_names_and_open_exchanges_come_at_the_end() -> None:
    talk = Conversation()
    talk.handshake()
    asked = kafka.metadata_request_by_id(1, [(bytes(range(16)), None)])
    talk.exchange(asked, kafka.metadata_response_with_ids(1, [(bytes(range(16)), "orders")]))
    talk.send("client", kafka.metadata_request(2, ["orders"]))
    found: list[Any] = []
    catalog = Catalog({"A" * 22: "orders"})
    options = ExportOptions(tables=("exchanges",))
    rows = CountedRows(options, lambda some, _: found.extend(some.to_pylist()), catalog=catalog)
    rows.feed(batch(talk.packets))
    assert (len(found), rows.summary.requests) == (0, 2)
    learned = rows.end()
    assert catalog.learned_facts is not None
    assert learned.topic("AAECAwQFBgcICQoLDA0ODw") == "orders"
    assert [row["status"] for row in found] == ["answered", "open"]
