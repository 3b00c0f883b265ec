"""The columns of the explorer's list."""

from __future__ import annotations

import numpy as np
import pytest

import kafkasniff
from kafkasniff.browse import index as module
from kafkasniff.browse.index import COLUMNS, ExchangeIndex
from kafkasniff.model import Exchange
from tests.conftest import ROOT

EXCHANGES = list(kafkasniff.read(ROOT / "captures" / "java-errors.pcap"))


def asked(exchange: Exchange) -> tuple[int, int]:
    assert exchange.request is not None
    assert exchange.request.time_ns is not None
    return exchange.request.time_ns, exchange.request.first_packet


@pytest.fixture
def filled() -> ExchangeIndex:
    index = ExchangeIndex()
    for exchange in EXCHANGES:
        index.add(exchange)
    assert len(index) == 0
    index.publish()
    return index


def test_rows_say_what_the_exchanges_say(filled: ExchangeIndex) -> None:
    assert len(filled) == len(EXCHANGES)
    for place, exchange in enumerate(sorted(EXCHANGES, key=asked)):
        row = filled.row(place)
        assert exchange.request is not None
        assert (row.packet, row.exchange_id, row.connection, row.latency) == (
            exchange.request.first_packet, exchange.exchange_id, exchange.connection, exchange.latency_ns)  # fmt: skip
        assert row.request == exchange.request.size
        assert row.response == (exchange.response.size if exchange.response else None)
        errors = exchange.response.errors if exchange.response else ()
        assert row.error == (errors[0].name if errors else "" if exchange.response else row.error)
        assert filled.ends(row) == (exchange.request.client, exchange.request.broker)


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("descending", [False, True])
def test_order(filled: ExchangeIndex, column: str, descending: bool) -> None:
    values = [getattr(filled.row(int(place)), column) for place in filled.order(column, descending=descending)]
    assert len(values) == len(filled)
    known = [value for value in values if value is not None]
    assert known == sorted(known, reverse=descending)


def test_equal_values_stay_in_order(filled: ExchangeIndex) -> None:
    for descending in (False, True):
        seen: dict[str, int] = {}
        for place in filled.order("api", descending=descending).tolist():
            api = filled.row(place).api
            assert seen.get(api, -1) < place
            seen[api] = place


def test_same(filled: ExchangeIndex) -> None:
    for column in ("api", "connection", "client"):
        like = getattr(filled.row(3), column)
        same = [getattr(filled.row(place), column) == like for place in range(len(filled))]
        assert filled.same(column, 3)(np.arange(len(filled))).tolist() == same


def test_chunks(filled: ExchangeIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [filled.row(place) for place in range(len(filled))]
    monkeypatch.setattr(module, "CHUNK", 4)
    index = ExchangeIndex()
    for exchange in sorted(EXCHANGES, key=asked):
        index.add(exchange)
        if exchange.exchange % 3:
            index.publish()
    index.publish()
    assert [index.row(place) for place in range(len(index))] == wanted
    assert [wanted[place] for place in index.order("latency")] == sorted(wanted, key=lambda row: row.latency or -1)
    assert index.start == filled.start == wanted[0].time


def test_a_number_that_is_too_large_ends_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    index = ExchangeIndex()
    monkeypatch.setattr(module, "MAX_NUMBER", asked(EXCHANGES[9])[1])
    for exchange in EXCHANGES:
        index.add(exchange)
    index.publish()
    assert index.is_full
    assert 0 < len(index) < len(EXCHANGES)


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_EXCHANGES", 5)
    monkeypatch.setattr(module, "MAX_WORDS", 3)
    index = ExchangeIndex()
    for exchange in EXCHANGES:
        index.add(exchange)
    index.publish()
    assert len(index) == 5
    assert index.is_full
    assert {index.row(place).client for place in range(5)} == {"…"}
