"""Predicates on many exchanges at once: the answers of `closures`, or bounds around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.filters import And, Candidate, Compare, Not, Or, compiled
from kafkasniff.filters.columns import FALSE, NONE, TRUE, Bools, FieldColumn, column_test
from kafkasniff.filters.fields import LATE
from kafkasniff.filters.tree import Moment, Predicate
from kafkasniff.model import Exchange
from tests.sinks.messages import TIME_NS, message

ANSWERS = {False: FALSE, None: NONE, True: TRUE}
NAMES = ("connection", "api_version", "client_id", "latency_ms", "time")
assert "latency_ms" in LATE


class Asked:
    """Exchanges, and which of their fields are available as columns."""

    def __init__(self, exchanges: Sequence[Exchange], unknown: dict[str, list[bool] | None]) -> None:
        self.start_ns: int | None = TIME_NS
        self._exchanges = exchanges
        self._unknown = unknown

    def __len__(self) -> int:
        return len(self._exchanges)

    def columns(self, field: str, *, ended: bool) -> tuple[list[FieldColumn], Bools | None] | None:
        if field in self._unknown and self._unknown[field] is None:
            return None
        requests = [one.request for one in self._exchanges]
        assert all(requests)
        values: list[Any]
        match field:
            case "connection":
                values = [one.connection for one in self._exchanges]
            case "latency_ms":
                values = [one.response.latency_ns if one.response and ended else None for one in self._exchanges]
            case "time":
                values = [one.time_ns for one in requests if one]
            case _:
                values = [getattr(one, field) for one in requests]
        mask = self._unknown.get(field)
        known = None if mask is None else ~np.array(mask, bool)
        if field == "client_id" or None in values:
            each = sorted({one for one in values if one is not None})
            which = np.array([-1 if one is None else each.index(one) for one in values], np.int64)
            return [FieldColumn(each, which)], known
        rows = np.arange(len(values))
        return [FieldColumn(np.array(values, np.int64), None, rows if field == "api_version" else None)], known


def exchange(connection: int, version: int, client: str | None, latency: int | None) -> Exchange:
    fields: dict[str, Any] = {"connection": connection, "api_version": version, "client_id": client}
    request = message(**fields)
    response = None if latency is None else message("response", latency_ns=latency, **fields)
    return Exchange(connection, connection, "answered" if response else "unanswered", request, response)


EXCHANGES = st.lists(
    st.builds(
        exchange,
        st.integers(0, 3),
        st.integers(0, 12),
        st.sampled_from(["a", "b", "aa", None]),
        st.none() | st.integers(-2, 5),
    ),
    min_size=1,
    max_size=6,
)
COMPARISONS = st.one_of(
    st.builds(
        Compare, st.sampled_from(["connection", "api_version", "latency_ms"]),
        st.sampled_from(["==", "!=", "<", "<=", ">", ">="]),
        st.integers(-3, 13) | st.sampled_from([0.5, -1.5, 2.0, 1e30, -1e30]),
    ),
    st.builds(
        Compare, st.sampled_from(["connection", "api_version", "latency_ms"]), st.sampled_from(["in", "not in"]),
        st.lists(st.integers(-3, 13), min_size=1, max_size=12).map(tuple),
    ),
    st.builds(Compare, st.just("client_id"), st.sampled_from(["==", "!=", "glob"]), st.sampled_from(["a", "b", "a*"])),
    st.builds(Compare, st.sampled_from(NAMES), st.just("exists")),
    st.builds(
        Compare, st.just("time"), st.sampled_from(["<", ">="]),
        st.sampled_from([Moment(offset_ns=0), Moment(offset_ns=1), TIME_NS]),
    ),
)  # fmt: skip
PREDICATES = st.recursive(
    COMPARISONS,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(And, st.lists(inner, min_size=1, max_size=3).map(tuple)),
        st.builds(Or, st.lists(inner, min_size=1, max_size=3).map(tuple)),
    ),
    max_leaves=5,
)


def answers(predicate: Predicate, exchanges: Sequence[Exchange], *, ended: bool) -> list[int]:
    """Answers of `closures` for each."""
    test = compiled(predicate)
    if ended:
        return [
            ANSWERS[test(Candidate(request=one.request, response=one.response, ended=one, start_ns=TIME_NS))]
            for one in exchanges
        ]
    return [ANSWERS[test(Candidate(request=one.request, unknown=LATE, start_ns=TIME_NS))] for one in exchanges]


@given(PREDICATES, EXCHANGES, st.booleans())
def test_the_answers_match_closures(predicate: Predicate, exchanges: list[Exchange], ended: bool) -> None:
    low, high = column_test(predicate)(Asked(exchanges, {}), ended)
    assert low.tolist() == high.tolist() == answers(predicate, exchanges, ended=ended)


@given(PREDICATES, EXCHANGES, st.booleans(), st.data())
def test_answers_lie_between_bounds(
    predicate: Predicate, exchanges: list[Exchange], ended: bool, data: st.DataObject
) -> None:
    """For a missing column, or one that is unknown for some exchanges."""
    count = len(exchanges)
    mask = st.none() | st.lists(st.booleans(), min_size=count, max_size=count)
    unknown = data.draw(st.dictionaries(st.sampled_from(NAMES), mask, min_size=1))
    low, high = column_test(predicate)(Asked(exchanges, unknown), ended)
    expected = answers(predicate, exchanges, ended=ended)
    assert all(least <= one <= most for least, one, most in zip(low, expected, high, strict=True))


@pytest.mark.parametrize("answered", [True, False])
def test_a_time_before_the_first_packet_has_a_time(answered: bool) -> None:
    asked = Asked([exchange(1, 1, "a", 1 if answered else None)], {})
    asked.start_ns = None
    low, high = column_test(Compare("time", ">", Moment(offset_ns=1)))(asked, True)
    assert (low.tolist(), high.tolist()) == ([FALSE], [TRUE])
