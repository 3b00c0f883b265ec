"""The columns of the explorer's list."""

from __future__ import annotations

import pytest

import kafkasniff
from kafkasniff.browse import index as module
from kafkasniff.browse.index import COLUMNS, ExchangeIndex
from tests.conftest import ROOT

EXCHANGES = list(kafkasniff.read(ROOT / "captures" / "java-errors.pcap"))


@pytest.fixture
def filled() -> ExchangeIndex:
    index = ExchangeIndex()
    for exchange in EXCHANGES:
        index.add(exchange)
    return index


def test_rows_say_what_the_exchanges_say(filled: ExchangeIndex) -> None:
    assert len(filled) == len(EXCHANGES)
    for place, exchange in enumerate(EXCHANGES):
        row = filled.row(place)
        assert (row.exchange, row.connection, row.latency) == (
            exchange.exchange, exchange.connection, exchange.latency_ns)  # fmt: skip
        assert exchange.request is not None
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


def test_places(filled: ExchangeIndex) -> None:
    like = filled.row(3)
    assert filled.places("api", 3).tolist() == [n for n in range(len(filled)) if filled.row(n).api == like.api]
    assert filled.places("connection", 3).tolist() == [
        n for n in range(len(filled)) if filled.row(n).connection == like.connection
    ]


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_EXCHANGES", 5)
    monkeypatch.setattr(module, "MAX_WORDS", 3)
    index = ExchangeIndex()
    for exchange in EXCHANGES:
        index.add(exchange)
    assert len(index) == 5
    assert index.is_full
    assert {index.row(place).api for place in range(1, 5)} == {"…"}
