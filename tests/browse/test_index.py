"""The columns of the explorer's list: they say what the exchanges say, in any order, within bounds."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import numpy as np
import pytest

import kafkasniff
from kafkasniff.browse import index as module
from kafkasniff.browse.index import COLUMNS, Brush, ExchangeIndex, latency_bins, time_bins
from kafkasniff.browse.packed_columns import MAX_PROBLEMS
from kafkasniff.model import Exchange, Problem
from tests.browse.opened import capture, fill, path_of, rows_of
from tests.choice import one_in
from tests.sinks.messages import message

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


def test_missing_messages_and_many_problems() -> None:
    exchange = next(one for one in EXCHANGES if one.request and one.request.api == "Produce" and one.response)
    without = msgspec.structs.replace(exchange, response=None, latency_ns=None, status="unanswered")
    [row] = rows_of(index_of([without]))
    assert (row.response, row.latency, row.error) == (None, None, "unanswered")
    assert rows_of(index_of([msgspec.structs.replace(without, request=None)])) == []
    problems = [Problem("frame-incomplete", "cut")] * (MAX_PROBLEMS + 9)
    [row] = rows_of(index_of([msgspec.structs.replace(exchange, problems=problems)]))
    assert row.problems == MAX_PROBLEMS


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


def test_same(filled: ExchangeIndex) -> None:
    for column in ("api", "connection", "client"):
        like = getattr(filled.row(3), column)
        same = [getattr(filled.row(place), column) == like for place in range(len(filled))]
        assert filled.same(column, 3)(np.arange(len(filled))).tolist() == same


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


MAKE = {"time": time_bins, "latency_ms": latency_bins}


@pytest.mark.parametrize("most", one_in(2, [1, 2, 7, 1000, 80]))
@pytest.mark.parametrize("field", ["time", "latency_ms"])
def test_a_range_selects_what_it_counts(field: str, most: int) -> None:
    reading = capture("java-errors")
    brush = MAKE[field](fill(reading), most)
    bins = brush.bins
    assert 0 < len(bins) <= most
    assert sum(one.exchanges for one in bins) == 49
    assert all(one.high == after.low for one, after in pairwise(bins))
    assert bins[0].exchanges > 0
    assert bins[-1].exchanges > 0
    for first, last in {(0, len(bins) - 1), (0, len(bins) // 2), (len(bins) // 2, len(bins) - 1)}:
        wanted = sum(one.exchanges for one in bins[first : last + 1])
        assert len(fill(reading, brush.expression(first, last))) == wanted


def index_of_values(*values: tuple[int | None, int | None]) -> ExchangeIndex:
    index = ExchangeIndex()
    for number, (time, latency) in enumerate(values):
        request = message(time_ns=time)
        index.add(Exchange(number, 1, "answered", request, None, latency_ns=latency, exchange_id=number))
    index.publish()
    return index


def counts(brush: Brush) -> list[int]:
    return [one.exchanges for one in brush.bins]


def test_unknown_and_extreme_values() -> None:
    for make in MAKE.values():
        assert make(ExchangeIndex(), 80).bins == []
        assert make(index_of_values((None, None)), 80).bins == []
        assert counts(make(index_of_values((5, 5), (5, 5)), 80)) == [2]
    times = time_bins(index_of_values((-(1 << 62), 0), ((1 << 62), 0), (None, 0)), 10)
    assert counts(times) == [1, 0, 0, 0, 0, 0, 0, 0, 0, 1]
    latencies = latency_bins(index_of_values((0, -7), (0, 0), (0, 1), (0, 10**15)), 80)
    assert sum(counts(latencies)) == 4
    assert latencies.bins[0].low == -7
    assert latencies.bins[-1].high == 10**15 + 1
    assert latencies.expression(0, 0).startswith("latency_ms >= -0.000007 and ")
