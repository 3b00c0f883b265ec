"""Packets through a shard's state to staged rows: in any batches, in groups that fit into memory, resumed or not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafkasniff.engine.inspector import Output
from kafkasniff.enrich import Catalog
from kafkasniff.filters.expression import parse_filter
from kafkasniff.model import Connection, Exchange, Message
from kafkasniff.runtime.confined_files import open_own_folder
from kafkasniff.tables.checkpoint import dump
from kafkasniff.tables.checkpoint.carried import ShardState
from kafkasniff.tables.exports import staging
from kafkasniff.tables.exports.beginning import load_state, new_state
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.staged import StagedTable
from kafkasniff.tables.exports.stager import ROWS_PART
from kafkasniff.tables.exports.staging import (
    inspected,
    new_stager,
    settle,
    stage,
    stage_rest,
    stage_unfinished,
    together_bytes,
)
from kafkasniff.tables.rows import TABLE_NAMES
from kafkasniff.tcp.packets import NO_TIME, PacketBatch
from tests.craft.batches import batch
from tests.craft.conversation import START_NS
from tests.craft.samples import consumer, mixed, producer
from tests.tables.exports.exported import Rows, StagedRows

OPTIONS = ExportOptions()
EXCHANGES = {"ApiVersions": 2, "Metadata": 2, "Produce": 12, "Fetch": 8}
"""In `mixed()`, as its conversations describe them."""


def state_of(options: ExportOptions = OPTIONS, **more: Any) -> ShardState:
    return new_state(options, Catalog(), sessions=False, **more)


def cut(packets: PacketBatch, size: int) -> list[PacketBatch]:
    parts = []
    while len(packets) > size:
        part, packets = packets.split(size)
        parts.append(part)
    return [*parts, packets]


def staged(batches: Sequence[PacketBatch], options: ExportOptions = OPTIONS) -> dict[str, Rows]:
    files, state = StagedRows(), state_of(options)
    stager = new_stager(state, options, None, files)
    for one in batches:
        stage(state, stager, one)
    stage_rest(state, stager, files)
    assert files.closed
    return files.tables()


def test_all_exchanges_become_rows() -> None:
    found = staged([batch(mixed())])
    assert Counter(row["api"] for row in found["exchanges"]) == EXCHANGES
    assert sorted(row["broker_port"] for row in found["connections"]) == [80, 9092, 9092]
    outcomes = Counter((row["api"], row["status"]) for row in found["exchanges"])
    assert {one for one in outcomes if one[1] != "answered"} == {("Produce", "no_response"), ("Fetch", "unanswered")}


@pytest.mark.parametrize("size", [1, 40])
def test_batches_change_no_row(size: int) -> None:
    packets = batch(mixed())
    assert staged(cut(packets, size)) == staged([batch(mixed())])


@pytest.mark.parametrize("most", [1, 20_000])
def test_groups_change_no_row(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = staged([batch(mixed())])
    monkeypatch.setattr(staging, "TOGETHER_BYTES", most)
    monkeypatch.setattr(staging, "TOGETHER", 1)
    assert staged([batch(mixed())]) == whole


def test_groups_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events are held until they take so much memory."""

    def groups() -> list[list[Output]]:
        state = state_of()
        return list(inspected(state, new_stager(state, OPTIONS, None, StagedRows()), batch(producer().packets)))

    (whole,) = groups()
    monkeypatch.setattr("kafkasniff.engine.emitting.SLICE_BYTES", 1, raising=True)
    monkeypatch.setattr(staging, "TOGETHER_BYTES", 0)
    parts = groups()
    assert len(parts) > 5
    kinds = [type(event) for part in parts for event in part]
    assert Counter(kinds) == Counter(type(event) for event in whole)
    assert all(parts)


def test_memory_for_groups_is_bounded() -> None:
    state = state_of()
    state.inspector.limit_memory(64 << 20)
    assert together_bytes(state.inspector) == (64 << 20) // ROWS_PART
    state.inspector.limit_memory(64 << 30)
    assert together_bytes(state.inspector) == staging.TOGETHER_BYTES


def test_events_are_yielded_and_not_taken() -> None:
    files, state = StagedRows(), state_of()
    stager = new_stager(state, OPTIONS, None, files)
    found = [event for events in inspected(state, stager, batch(mixed())) for event in events]
    assert Counter(type(event) for event in found)[Exchange] >= sum(EXCHANGES.values()) - 1
    stager.flush()
    assert files.rows("exchanges") == []
    stager.take(found)
    stage_rest(state, stager, files)
    assert Counter(row["api"] for row in files.rows("exchanges")) == EXCHANGES


def test_the_run_starts_with_the_first_packet_that_has_a_time() -> None:
    files, state = StagedRows(), state_of()
    stager = new_stager(state, OPTIONS, parse_filter('time < "+10ms"'), files)
    timeless, timed, later = cut(batch(producer().packets[:9]), 3)
    timeless.time_ns = np.full(3, NO_TIME)
    timed.time_ns = np.array([NO_TIME, *timed.time_ns[1:]])
    for one in (timeless, timed, later):
        stage(state, stager, one)
    assert state.start_ns == START_NS + 4 * 100_000
    # What a resumed run filters by.
    for one in (stager, new_stager(state, OPTIONS, parse_filter('time < "+1s"'), files)):
        assert one._selector is not None
        assert one._selector.start_ns == state.start_ns


def test_relative_filters_count_from_the_start_of_the_run() -> None:
    files, state = StagedRows(), state_of()
    state.start_ns = START_NS - 10**9
    stager = new_stager(state, OPTIONS, parse_filter('time < "+1.001s"'), files)
    stage(state, stager, batch(producer().packets))
    stage_rest(state, stager, files)
    times = [row["time_ns"] for row in files.rows("exchanges")]
    assert times
    assert max(times) < START_NS + 10**6


@pytest.mark.parametrize("size", [11, 30])
def test_a_settled_state_is_resumed(size: int) -> None:
    """Dumped after any batch, as a checkpoint is."""
    parts = cut(batch(mixed()), size)
    files, state = StagedRows(), state_of()
    for one in parts:
        stager = new_stager(state, OPTIONS, None, files)
        stage(state, stager, one)
        settle(state, stager)
        stager.flush()
        state.selected = stager.selected
        state = load_state(dump(state), OPTIONS)
    stage_rest(state, new_stager(state, OPTIONS, None, files), files)
    assert files.tables() == staged([batch(mixed())])


def test_unfinished_rows_are_staged_anew(tmp_path: Path) -> None:
    """Rows from an earlier end of the same state are replaced."""
    folder = open_own_folder(tmp_path) / "open"
    packets = consumer().packets[:-3]  # without its end, and the last request has no response
    state = state_of()
    stager = new_stager(state, OPTIONS, None, StagedRows())
    stage(state, stager, batch(packets))
    settle(state, stager)
    dumped = dump(state)
    for _ in range(2):
        stage_unfinished(load_state(dumped, OPTIONS), OPTIONS, None, folder)
        counts = {table: sum(StagedTable([folder], table).days().values()) for table in TABLE_NAMES}
        assert counts["connections"] == 1
        assert counts["exchanges"] == 1


def test_events_of_the_end_are_shown_as_well() -> None:
    files, state = StagedRows(), state_of()
    stager = new_stager(state, OPTIONS, None, files)
    stage(state, stager, batch(consumer().packets[:-3]))  # without its end
    seen: list[Output] = []
    stage_rest(state, stager, files, seen.extend)
    assert [type(event) for event in seen] == [Message, Exchange, Connection]
    assert files.sizes("connections") == [1]


def test_names_of_hosts_are_learned_at_the_end() -> None:
    files, state = StagedRows(), state_of()
    stager = new_stager(state, OPTIONS, None, files)
    state.inspector.names["10.0.0.9"] = "broker-9.example"
    stage_rest(state, stager, files)
    learned = state.enricher.catalog.learned_facts
    assert learned is not None
    assert learned.hosts == {"10.0.0.9": "broker-9.example"}


def test_a_full_disk_is_not_hidden() -> None:
    files, state = StagedRows(), state_of()
    stager = new_stager(state, OPTIONS, None, files)
    stage(state, stager, batch(producer().packets))
    files.failing = OSError(28, "No space left on device")
    with pytest.raises(OSError, match="No space left"):
        stage_rest(state, stager, files)
    assert not files.closed
