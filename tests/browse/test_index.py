"""The columns of the explorer's list: they say what the exchanges say, in any order, within bounds."""

from __future__ import annotations

import pytest

import kafkasniff
from kafkasniff.browse import index as module
from kafkasniff.browse.index import COLUMNS, ExchangeIndex
from kafkasniff.model import Exchange
from tests.browse.opened import path_of, rows_of

EXCHANGES = list(kafkasniff.read(path_of("java-errors")))


def asked(exchange: Exchange) -> tuple[int, int]:
    assert exchange.request is not None
    assert exchange.request.time_ns is not None
    return exchange.request.time_ns, exchange.request.first_packet


def index_of(exchanges: list[Exchange]) -> ExchangeIndex:
    index = ExchangeIndex()
    for exchange in exchanges:
        index.add(exchange)
    assert len(index) == 0
    index.publish()
    return index


@pytest.fixture
def filled() -> ExchangeIndex:
    return index_of(EXCHANGES)


def test_rows_say_what_the_exchanges_say(filled: ExchangeIndex) -> None:
    for row, exchange in zip(rows_of(filled), sorted(EXCHANGES, key=asked), strict=True):
        request, response = exchange.request, exchange.response
        assert request is not None
        assert (row.packet, row.exchange_id, row.connection, row.latency) == (
            request.first_packet, exchange.exchange_id, exchange.connection, exchange.latency_ns)  # fmt: skip
        assert (row.api, row.client_id) == (f"{request.api} v{request.api_version}", request.client_id)
        assert row.request == request.size
        assert row.response == (response.size if response else None)
        assert row.error == (response.errors[0].name if response and response.errors else "" if response else row.error)
        assert filled.ends(row) == (request.client, request.broker)
    assert {row.subject for row in rows_of(filled)} >= {"errors", "no-such-topic"}


def test_order(filled: ExchangeIndex) -> None:
    for column in COLUMNS:
        for descending in (False, True):
            places = filled.order(column, descending=descending).tolist()
            assert sorted(places) == [*range(len(filled))], column
            values = [getattr(filled.row(place), column) for place in places]
            known = [value for value in values if value is not None]
            assert known == sorted(known, reverse=descending), column
            # Equal values stay in order.
            pairs = zip(values, values[1:], places, places[1:], strict=False)
            assert all(before < after for one, other, before, after in pairs if one == other), column


def test_chunks(filled: ExchangeIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = rows_of(filled)
    monkeypatch.setattr(module, "CHUNK", 4)
    index = ExchangeIndex()
    for exchange in sorted(EXCHANGES, key=asked):
        index.add(exchange)
        if exchange.exchange % 3:
            index.publish()
    index.publish()
    assert rows_of(index) == wanted
    assert [wanted[place] for place in index.order("latency")] == sorted(wanted, key=lambda row: row.latency or -1)
    assert index.start == filled.start == wanted[0].time


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(module, "MAX_NUMBER", asked(EXCHANGES[9])[1])
        index = index_of(EXCHANGES)
        assert index.is_full
        assert 0 < len(index) < len(EXCHANGES)
    monkeypatch.setattr(module, "MAX_EXCHANGES", 5)
    monkeypatch.setattr(module, "MAX_WORDS", 3)
    index = index_of(EXCHANGES)
    assert len(index) == 5
    assert index.is_full
    assert {row.client for row in rows_of(index)} == {"…"}
