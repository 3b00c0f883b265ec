"""Absences of brokers: their spans of time, and linear work over many connections."""

from __future__ import annotations

import sys

from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.analysis.detectors.absences import Spans, TcpLink, usual_absences

SPANS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)))


@given(SPANS, st.integers(-1, 21), st.integers(-1, 21))
def test_spans_match_a_naive_search(spans: list[tuple[int, int]], first: int, last: int) -> None:
    assert Spans(spans).surround(first, last) == any(start < first and end > last for start, end in spans)


def link(number: int, *, refused: bool) -> TcpLink:
    """Every third connect is refused; the others are answered and soon closed by the broker."""
    time = number * 3_000_000_000
    return TcpLink(
        connection_id=number,
        time_ns=time,
        end_time_ns=time + 1_000_000,
        client_ip=f"10.0.0.{number % 7}",
        client_port=40_000,
        opening="refused" if refused else "answered",
        syns=1,
        ended_by=None if refused else "broker",
        ended_with=None if refused else "fin",
        ended_ns=None if refused else time + 1_000_000,
        quiet_ns=0,
        broker_packets=2,
        broker_data=10,
    )


def steps(count: int) -> int:
    """Number of function calls that it takes to find the absences of a broker that keeps disappearing and returning."""
    links = [link(number, refused=number % 3 == 2) for number in range(count)]
    calls = 0

    def count_calls(frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count_calls)
    try:
        found = usual_absences(links)
    finally:
        sys.setprofile(before)
    assert len(found) == count // 3
    assert all(one.dropped for one in found)
    return calls


def test_work_is_linear_in_connections() -> None:
    assert steps(3000) < 12 * steps(300)
