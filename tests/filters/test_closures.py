"""Laws of compiled expressions on real exchanges: complement, and early decisions are final."""

from __future__ import annotations

import functools

from hypothesis import given

import kafkasniff
from kafkasniff.filters import Candidate, compiled
from kafkasniff.filters.expression import parse_filter
from kafkasniff.filters.fields import LATE
from kafkasniff.model import Exchange
from tests.conftest import ROOT
from tests.filters.expressions import ANSWERED, ATOMS, ORPHAN, REFUSED, UNANSWERED, exchange, expressions, holds
from tests.sinks.messages import PRODUCE, TIME_NS, message

CAPTURES = (
    "java-errors.pcap",
    "java-transactions.pcap",
    "java-group-consumer.pcap",
    "java-sasl.pcap",
    "java-0.9.pcap",
    "kafka-python-admin.pcap",
)


@functools.cache
def real_exchanges() -> tuple[Exchange, ...]:
    found: list[Exchange] = []
    for name in CAPTURES:
        found.extend(list(kafkasniff.read(ROOT / "captures" / name))[::7])
    return (ANSWERED, REFUSED, UNANSWERED, ORPHAN, *found)


def atoms_hold_for_every_exchange(expression: str) -> tuple[int, int]:
    """Number of exchanges for which an expression and its negation hold. Checks that early decisions are final."""
    tree = parse_filter(expression)
    test, complement = compiled(tree), compiled(parse_filter(f"not ({expression})"))
    counts = [0, 0]
    for of in real_exchanges():
        start = {"start_ns": TIME_NS - 5_000_000}
        ended = Candidate(request=of.request, response=of.response, ended=of, **start)
        answer = test(ended)
        assert answer is not None
        assert complement(ended) is not answer
        counts[not answer] += 1
        if of.request is not None:
            early = test(Candidate(request=of.request, unknown=LATE, **start))
            assert early in (None, answer), (expression, of)
    return counts[0], counts[1]


def test_each_comparison() -> None:
    for atom in ATOMS:
        held, failed = atoms_hold_for_every_exchange(atom)
        assert held + failed == len(real_exchanges())


@given(expressions())
def test_not_is_the_complement_and_the_request_decides_for_good(expression: str) -> None:
    atoms_hold_for_every_exchange(expression)


def test_only_the_start_of_a_long_value_is_searched() -> None:
    body = {**PRODUCE, "transactional_id": "a" * (1 << 16) + "b"}
    of = exchange(message(body=body), None)
    assert holds('request.transactional_id =~ "a$"', of) is True
    assert holds('request.transactional_id =~ "b"', of) is False
