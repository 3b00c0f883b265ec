"""Events to staged rows: which rows are made, when they are written, and what is left to the kernel's columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from kafkasniff.capture import open_captures
from kafkasniff.engine.inspector import Inspector
from kafkasniff.enrich import Catalog, Enricher
from kafkasniff.enrich.learned_facts import LearnedFacts
from kafkasniff.filters import Selector
from kafkasniff.filters.expression import parse_filter
from kafkasniff.model import Connection, Exchange, Message
from kafkasniff.redact.payload import Payload
from kafkasniff.tables.exports import stager as module
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.stager import ROW_BYTES, ROWS_PART, Stager
from kafkasniff.tables.rows import TABLE_NAMES
from kafkasniff.tables.rows.staged import StagedParts
from tests.conftest import ROOT
from tests.craft.batches import batch
from tests.craft.conversation import Conversation
from tests.craft.from_layout import request_bytes, response_bytes
from tests.craft.packet import Packet
from tests.craft.samples import bystander, mixed, producer
from tests.enrich import talks
from tests.native.kernel_and_walker import the_kernel
from tests.tables.exports.exported import StagedRows

OPTIONS = ExportOptions()
CODECS = ROOT / "captures" / "java-codecs.pcap"


def made(
    files: StagedRows, options: ExportOptions = OPTIONS, predicate: str | None = None, **more: Any
) -> tuple[Stager, Enricher]:
    enricher = Enricher(Catalog(learned_facts=LearnedFacts()), sessions=False)
    enricher.notes_missed = True
    selector = None if predicate is None else Selector(parse_filter(predicate))
    return Stager(options, enricher, files, selector, **more), enricher


def events(packets: Sequence[Packet], enricher: Enricher) -> list[Any]:
    inspector = Inspector(connections=True, records="columns")
    return [*enricher.feed(inspector.feed(batch(packets))), *enricher.feed(inspector.close())]


def taken(packets: Sequence[Packet], *arguments: Any, **more: Any) -> StagedRows:
    files = StagedRows()
    stager, enricher = made(files, *arguments, **more)
    stager.take(events(packets, enricher))
    stager.flush()
    return files


def test_each_event_has_its_rows() -> None:
    files = StagedRows()
    stager, enricher = made(files)
    found = events(mixed(), enricher)
    stager.take(found)
    stager.flush()
    assert len(files.rows("exchanges")) == sum(type(event) is Exchange for event in found) == 24
    assert len(files.rows("connections")) == sum(type(event) is Connection for event in found) == 3
    # Nine of the producer's batches were sent with these numbers of records, the consumer's had these.
    assert len(files.rows("records")) == sum(range(3, 9)) + 5 * 2 + 1 + (1 + 40 + 3 + 200 + 2)


@pytest.mark.parametrize("table", TABLE_NAMES)
def test_only_the_wanted_tables(table: str) -> None:
    files = taken(mixed(), ExportOptions(tables=(table,)))
    assert [name for name in TABLE_NAMES if files.rows(name)] == [table]
    # Problems of records are found where records are wanted.
    among = ("exchanges", "problems") if table == "exchanges" else TABLE_NAMES
    assert files.rows(table) == taken(mixed(), ExportOptions(tables=among)).rows(table)


def test_rows_wait_until_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ROWS", 10)
    files = StagedRows()
    stager, enricher = made(files)
    stager.take(events(mixed(), enricher))
    assert files.sizes("exchanges") == [10, 10]
    # Records come in batches: they are checked after each exchange.
    assert all(size >= 40 for size in files.sizes("records"))
    assert files.sizes("connections") == []
    stager.flush()
    assert files.sizes("exchanges") == [10, 10, 4]
    assert files.sizes("connections") == [3]
    stager.flush()
    assert files.sizes("connections") == [3]


def test_rows_wait_until_they_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 1)
    files = StagedRows()
    stager, enricher = made(files)
    stager.take(events(mixed(), enricher))
    assert files.sizes("exchanges") == [1] * 24
    assert sum(files.sizes("records")) == len(taken(mixed()).rows("records"))


def test_memory_bounds_the_waiting_rows() -> None:
    """Each row counts as a kilobyte of a sixteenth of the budget."""
    files = StagedRows()
    stager, enricher = made(files, memory=5 * ROW_BYTES * ROWS_PART)
    stager.take(events(mixed(), enricher))
    assert max(files.sizes("exchanges")) <= 5
    assert sum(files.sizes("exchanges")) >= 20


def test_selected_exchanges_and_their_connections() -> None:
    files = taken(mixed(), OPTIONS, 'api == "Fetch"')
    assert {row["api"] for row in files.rows("exchanges")} == {"Fetch"}
    assert {row["api"] for row in files.rows("records")} == {"Fetch"}
    assert [row["client_ip"] for row in files.rows("connections")] == ["10.0.0.6"]


def test_a_connection_that_was_selected_before() -> None:
    """By an earlier run, whose state has its number."""
    files, selected = StagedRows(), {1}
    stager, enricher = made(files, OPTIONS, 'api == "Heartbeat"', selected=selected)
    stager.take(events(producer().packets, enricher))
    stager.flush()
    assert [row["client_port"] for row in files.rows("connections")] == [51_334]
    assert selected == set()


def test_all_connections_are_learned_from() -> None:
    """A connection that is not selected may still say what an endpoint speaks."""
    files = StagedRows()
    stager, enricher = made(files, OPTIONS, 'api == "Heartbeat"')
    stager.take(events(mixed(), enricher))
    learned = enricher.catalog.learned_facts
    assert learned is not None
    assert ("10.0.0.9", 9092) in learned.kafka
    assert ("10.0.0.80", 80) not in learned.kafka
    stager.flush()
    assert files.rows("connections") == []


def test_relative_times_count_from_the_start() -> None:
    files = StagedRows()
    stager, enricher = made(files, OPTIONS, 'time >= "+1s"')
    talk = producer()
    stager.begins(talk.packets[0].time_ns - 10**9)
    stager.take(events(talk.packets, enricher))
    stager.flush()
    assert len(files.rows("exchanges")) == 15


def test_only_bodies_that_are_wanted() -> None:
    files = StagedRows()
    stager, enricher = made(files, wants_body=lambda message: message.correlation_id in {3, 5})
    assert stager.finder is None
    stager.take(events(producer().packets, enricher))
    stager.flush()
    rows = files.rows("exchanges")
    assert {row["correlation_id"] for row in rows if row["request_body"] is not None} == {3, 5}
    assert {row["correlation_id"] for row in rows if row["response_body"] is not None} == {3, 5}
    assert len(rows) == 15
    without = taken(producer().packets, ExportOptions(bodies=False)).rows("exchanges")
    assert all(row["request_body"] is None for row in without)


def test_names_that_are_missing_yet() -> None:
    """Such exchanges wait for the end of the run."""
    files = StagedRows()
    stager, enricher = made(files)
    found = events(talks.consumer().packets, enricher)
    assert enricher.missed
    stager.take(found)
    stager.flush()
    assert enricher.missed == set()
    waiting = [row for row in files.rows("exchanges") if row["_pending"] is not None]
    assert {row["api"] for row in waiting} == {"Fetch"}
    import msgspec

    parts = [msgspec.msgpack.decode(row["_pending"], type=StagedParts) for row in waiting]
    assert any(part.bodies and talks.ORDERS[1] in part.unnamed for part in parts)


def test_hidden_payload() -> None:
    shown, hidden = (
        taken(producer().packets, ExportOptions(payload=payload, records=True, tables=("exchanges", "records")))
        for payload in (Payload(), Payload("dropped"))
    )
    assert any(row["key"] for row in shown.rows("records"))
    assert not any(row["key"] for row in hidden.rows("records"))
    assert len(hidden.rows("exchanges")) == len(shown.rows("exchanges"))


def quotas(value: float) -> Conversation:
    """DescribeClientQuotas, whose values are floats."""
    talk = Conversation()
    talk.handshake()
    entry = {"entity": [], "values": [{"key": "producer_byte_rate", "value": value}]}
    talk.exchange(
        request_bytes(48, 0, 1, components=[], strict=False),
        response_bytes(48, 0, 1, entries=[entry]),
    )
    talk.close()
    return talk


@pytest.mark.parametrize(("value", "text"), [(1.5, "1.5"), (math.nan, '"NaN"'), (-math.inf, '"-Infinity"')])
def test_numbers_that_json_lacks(value: float, text: str) -> None:
    (row,) = taken(quotas(value).packets).rows("exchanges")
    assert f'"value":{text}' in row["response_body"]


@pytest.mark.parametrize(
    ("options", "selected", "by_columns"),
    [
        (OPTIONS, None, True),
        (ExportOptions(headers=True, tables=("exchanges",)), None, True),
        (ExportOptions(tables=("connections",)), None, True),
        (OPTIONS, 'api == "Fetch"', True),
        (ExportOptions(records=True), None, False),
        (ExportOptions(payload=Payload("dropped")), None, False),
        (OPTIONS, "exchange == 1", False),
        (ExportOptions(headers=True, tables=("exchanges",)), 'api == "Fetch"', False),
    ],
)
def test_what_is_left_to_columns(options: ExportOptions, selected: str | None, by_columns: bool) -> None:
    the_kernel()
    stager, _ = made(StagedRows(), options, selected)
    assert (stager.finder is not None) == by_columns


def test_without_a_kernel_there_are_no_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "kernel", lambda: None)
    assert made(StagedRows())[0].finder is None


def test_columns_wait_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows wait: each staged batch costs. All exchanges are counted, whatever became of their rows."""
    the_kernel()

    def sizes(few: int, options: ExportOptions = OPTIONS) -> tuple[Stager, list[int], StagedRows]:
        monkeypatch.setattr(module, "FEW_ROWS", few)
        files = StagedRows()
        stager, enricher = made(files, options)
        inspector = Inspector(connections=True, records="columns")
        with open_captures([str(CODECS)]) as source:
            for one in source:
                for found, columns in inspector.feed_columns(one, stager.finder):
                    stager.take(enricher.feed(found))
                    for some in columns:
                        stager.take_columns(some, one.captures)
        before = files.sizes("exchanges")
        stager.take(enricher.feed(inspector.close()))
        stager.flush()
        return stager, before, files

    waits, none_yet, whole = sizes(1 << 20)
    at_once, some, parts = sizes(1)
    assert waits.in_columns == at_once.in_columns > 5
    assert none_yet == []
    assert sum(some) >= at_once.in_columns
    assert whole.tables() == parts.tables()
    others, _, without = sizes(1, ExportOptions(tables=("connections",)))
    assert others.in_columns == waits.in_columns
    assert [table for table in TABLE_NAMES if without.rows(table)] == ["connections"]


def test_a_full_disk_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ROWS", 5)
    files = StagedRows()
    stager, enricher = made(files)
    found = events(mixed(), enricher)
    files.failing = OSError(28, "No space left on device")
    with pytest.raises(OSError, match="No space left"):
        stager.take(found)


def test_a_connection_that_is_not_kafka() -> None:
    files = taken(bystander().packets)
    (row,) = files.rows("connections")
    assert row["broker_port"] == 80
    assert not files.rows("exchanges")
    assert Message not in {type(event) for event in events(bystander().packets, Enricher(Catalog()))}
