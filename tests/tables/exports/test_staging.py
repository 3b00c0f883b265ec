"""Packets through a shard's state to staged rows: bounds, selections and times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from kafkasniff.enrich import Catalog
from kafkasniff.filters.expression import parse_filter
from kafkasniff.model import NO_TIME
from kafkasniff.packets import PacketBatch
from kafkasniff.tables.checkpoint import ShardState
from kafkasniff.tables.exports import staging
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.staging import (
    ROW_BYTES,
    ROWS_PART,
    Stager,
    new_stager,
    new_state,
    stage,
    stage_rest,
    together_bytes,
)
from tests.craft.batches import batch
from tests.craft.conversation import START_NS, Conversation
from tests.craft.from_layout import request_bytes, response_bytes
from tests.craft.samples import mixed, producer
from tests.tables.exports.exported import StagedRows

OPTIONS = ExportOptions()
EXCHANGES = {"ApiVersions": 2, "Metadata": 2, "Produce": 12, "Fetch": 8}
"""In `mixed()`, as its conversations describe them."""


class Staging:
    def __init__(self, options: ExportOptions = OPTIONS, predicate: str | None = None, **more: Any) -> None:
        self.files = StagedRows()
        self.options = options
        self.state: ShardState = new_state(options, Catalog(), sessions=False)
        for name, value in more.items():
            setattr(self.state, name, value)
        self.predicate = None if predicate is None else parse_filter(predicate)
        self.stager: Stager = new_stager(self.state, options, self.predicate, self.files)

    def take(self, *batches: PacketBatch) -> Staging:
        for one in batches:
            stage(self.state, self.stager, one)
        return self

    def end(self) -> StagedRows:
        stage_rest(self.state, self.stager, self.files)
        assert self.files.closed
        return self.files


def cut(packets: PacketBatch, size: int) -> list[PacketBatch]:
    parts = []
    while len(packets) > size:
        part, packets = packets.split(size)
        parts.append(part)
    return [*parts, packets]


def staged(packets: Sequence[Any], *arguments: Any, **more: Any) -> StagedRows:
    return Staging(*arguments, **more).take(batch(packets)).end()


def test_memory_bounds_groups_and_the_waiting_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row counts as a kilobyte of a sixteenth of the budget."""
    state = Staging().state
    state.inspector.limit_memory(64 << 20)
    assert together_bytes(state.inspector) == (64 << 20) // ROWS_PART
    state.inspector.limit_memory(64 << 30)
    assert together_bytes(state.inspector) == staging.TOGETHER_BYTES
    # Exchanges one by one.
    options = ExportOptions(records=True)
    limited = Staging(options)
    limited.stager = Stager(options, limited.state.enricher, limited.files, memory=5 * ROW_BYTES * ROWS_PART)
    sizes = limited.take(batch(mixed())).end().sizes("exchanges")
    assert max(sizes) <= 5
    assert sum(sizes) == sum(EXCHANGES.values())
    monkeypatch.setattr(staging, "MAX_ROWS", 10)
    files = staged(mixed(), options)
    assert files.sizes("exchanges")[:2] == [10, 10]
    # Records come in batches: they are checked after each exchange.
    assert all(size >= 40 for size in files.sizes("records"))
    monkeypatch.setattr(staging, "MAX_BYTES", 1)
    assert staged(mixed(), options).sizes("exchanges") == [1] * 24


def test_connections_of_selected_exchanges() -> None:
    """Also of those that an earlier run has selected. All connections are learned from."""
    files = staged(mixed(), OPTIONS, 'api == "Fetch"')
    assert {row["api"] for row in (*files.rows("exchanges"), *files.rows("records"))} == {"Fetch"}
    assert [row["client_ip"] for row in files.rows("connections")] == ["10.0.0.6"]
    files = staged(producer().packets, OPTIONS, 'api == "Heartbeat"', selected={1})
    assert [row["client_port"] for row in files.rows("connections")] == [51_334]
    made = Staging(OPTIONS, 'api == "Heartbeat"').take(batch(mixed()))
    assert made.end().rows("connections") == []
    learned = made.state.enricher.catalog.learned_facts
    assert ("10.0.0.9", 9092) in learned.kafka
    assert ("10.0.0.80", 80) not in learned.kafka


def test_relative_times_count_from_the_first_packet_with_a_time() -> None:
    made = Staging(OPTIONS, 'time < "+2.5ms"')
    timeless, timed, later = cut(batch(producer().packets), 3)[0], *cut(batch(producer().packets[3:]), 6)[:2]
    timeless.time_ns = np.full(3, NO_TIME)
    timed.time_ns = np.array([NO_TIME, *timed.time_ns[1:]])
    made.take(timeless, timed, later)
    assert made.state.start_ns == START_NS + 4 * 100_000
    # What a resumed run filters by.
    for one in (made.stager, new_stager(made.state, OPTIONS, parse_filter('time < "+1s"'), made.files)):
        assert one._selector.start_ns == made.state.start_ns


def test_numbers_that_json_lacks() -> None:
    for value, text in ((1.5, "1.5"), (math.nan, '"NaN"'), (-math.inf, '"-Infinity"')):
        talk = Conversation()
        talk.handshake()
        entry = {"entity": [], "values": [{"key": "producer_byte_rate", "value": value}]}
        asked = request_bytes(48, 0, 1, components=[], strict=False)
        talk.exchange(asked, response_bytes(48, 0, 1, entries=[entry]))
        (row,) = staged(talk.packets).rows("exchanges")
        assert f'"value":{text}' in row["response_body"]
