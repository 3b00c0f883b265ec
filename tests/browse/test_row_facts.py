"""What the list shows of one exchange."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

import kafkasniff
from kafkasniff.browse.row_facts import MAX_PROBLEMS, MISSING, NUMBERS, TEXTS, exchange_row
from kafkasniff.model import Exchange, Problem
from tests.conftest import ROOT


@pytest.fixture(scope="module")
def exchanges() -> list[Exchange]:
    return list(kafkasniff.read(ROOT / "captures" / "java-errors.pcap"))


def facts(exchange: Exchange) -> dict[str, int | str]:
    """The row, with its texts."""
    words: list[str] = []

    def code(text: str) -> int:
        words.append(text)
        return len(words) - 1

    row = exchange_row(exchange, code)
    assert row is not None
    found: dict[str, int | str] = dict(zip((*NUMBERS, *TEXTS), row, strict=True))
    return found | {name: words[int(found[name])] for name in TEXTS}


def answered(exchanges: list[Exchange], api: str) -> Iterator[Exchange]:
    return (one for one in exchanges if one.request is not None and one.request.api == api and one.response is not None)


def test_texts(exchanges: list[Exchange]) -> None:
    exchange = next(answered(exchanges, "Produce"))
    assert exchange.request is not None
    row = facts(exchange)
    assert row["api"] == f"Produce v{exchange.request.api_version}"
    assert row["client_id"] == exchange.request.client_id
    assert row["subject"]


def test_missing_messages(exchanges: list[Exchange]) -> None:
    exchange = next(answered(exchanges, "Produce"))
    without = msgspec.structs.replace(exchange, response=None, latency_ns=None, status="unanswered")
    row = facts(without)
    assert (row["response"], row["latency"]) == (MISSING["response"], MISSING["latency"])
    assert row["error"] == "unanswered"
    assert exchange_row(msgspec.structs.replace(without, request=None), lambda _: 0) is None


def test_number_of_problems_is_bounded(exchanges: list[Exchange]) -> None:
    problem = Problem("frame-incomplete", "cut")
    many = msgspec.structs.replace(exchanges[0], problems=[problem] * (MAX_PROBLEMS + 9))
    assert facts(many)["problems"] == MAX_PROBLEMS
