"""Bounds of what a connection keeps, and of what it reports."""

from __future__ import annotations

import pytest

from kafkasniff.kafka.connection import candidates, detail, events, segmented_bytes
from kafkasniff.kafka.connection.events import ExchangeEvent, MessageEvent, ProblemEvent, VerdictEvent
from kafkasniff.kafka.connection.framing import Frame
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.tcp.segments import TcpProblem
from tests.craft.kafka_bytes import frame, produce_request, record, record_batch
from tests.kafka.segments import Talk, run_of
from tests.oracle.kafka import early, exchange
from tests.oracle.kafka.early import EarlyResponses
from tests.oracle.kafka.event_log import EventLog
from tests.oracle.kafka.framer import SMALL_PART, Framer
from tests.oracle.kafka.outline import request, response


def of_response(first_time: int, data: bytes = b"\0\0\0\1", around: bytes = b"") -> Frame:
    place = len(around), len(around) + len(data), len(data)
    return Frame(0, 1, around + data + around, *place, 1, 1, first_time, first_time, 1)


def times(frames: list[Frame]) -> list[int]:
    return [each.first_time for each in frames]


def test_responses_that_wait_for_their_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Either bound releases the oldest."""
    monkeypatch.setattr(early, "MAX_EARLY", 5)
    monkeypatch.setattr(early, "MAX_EARLY_BYTES", 1000)
    waiting = EarlyResponses()
    for number in range(5):
        assert not waiting.add(number, of_response(number))
    assert times(waiting.add(-1, of_response(-1))) == [0]
    assert len(waiting) == 5
    waiting = EarlyResponses()
    assert not waiting.add(1, of_response(1, bytes(500)))
    assert not waiting.add(2, of_response(2, bytes(500)))
    assert times(waiting.add(3, of_response(3))) == [1]
    # A response larger than the bound does not wait at all.
    assert times(waiting.add(4, of_response(4, bytes(1001)))) == [2, 3, 4]
    assert not waiting.add(5, of_response(5))


def test_the_batch_around_a_response_is_not_kept() -> None:
    waiting = EarlyResponses()
    waiting.add(1, of_response(1, b"\0\0\0\1abc", around=b"x" * 1000))
    ((_, kept),) = [found for found in [waiting.find(1, 0, may_precede=False)] if found is not None]
    assert (kept.data, kept.start, kept.end, kept.size) == (b"\0\0\0\1abc", 0, 7, 7)


def ends(talk: Talk) -> dict[int, str]:
    return {one.ordinal: one.status for one in talk.events if isinstance(one, ExchangeEvent)}


def test_outstanding_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest end, as lost if there was no response at all; those without a response have a bound of their own."""
    monkeypatch.setattr(exchange, "MAX_OUTSTANDING", 4)
    monkeypatch.setattr(exchange, "MAX_SILENT", 2)
    talk = Talk()
    talk.send(0, [request(number) for number in range(6)])
    assert ends(talk) == {0: "lost", 1: "lost"}
    talk.send(1, [response(3)])
    talk.send(0, [request(number) for number in (6, 7, 8)])
    assert ends(talk) == {0: "lost", 1: "lost", 3: "answered", 2: "unanswered", 4: "unanswered"}
    batch = record_batch([record(0, None, b"v")])
    talk.send(0, [produce_request(number, "orders", batch, acks=0) for number in (20, 21, 22)])
    assert ends(talk)[9] == "no_response"
    assert 10 not in ends(talk)


def problem(order: int, kind: str) -> TcpProblem:
    return TcpProblem(order, 0, kind, f"problem {order}", packet=10 * order, time_ns=100 * order, bytes=order)


def test_problems_before_the_verdict() -> None:
    """They are reported at their own packets, and bounded by kind."""
    log = EventLog(client=None)
    log.hold(problem(1, "tcp-gap"))
    for order in range(2, events.MAX_HELD + 12):
        log.hold(problem(order, "tcp-out-of-window"))
    log.at(9, 900, 90)
    assert log.take() == []
    log.client = 0
    log.report_held()
    first, *others = log.take()
    # Their order is that of the packet at which they became known to concern Kafka.
    assert first == ProblemEvent(9, "tcp-gap", "problem 1", 100, 10, is_request=True, bytes=1)
    assert len(others) == events.MAX_HELD
    assert others[-1].detail == f"problem {events.MAX_HELD + 1} (further ones are not reported)"  # type: ignore[union-attr]
    log.report_held()
    assert log.take() == []


def test_the_order_of_events_never_decreases() -> None:
    """A frame that was complete earlier may be processed later: its time and packet are its own, its order is not."""
    log = EventLog(client=None)
    log.at(7, 700, 70)
    log.at(5, 500, 50)
    log.verdict(True, "requests")
    assert log.take() == [VerdictEvent(7, True, None, "requests", 500, 50)]


def test_bytes_that_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segmented_bytes, "MAX_SEARCH", 1000)
    monkeypatch.setattr(candidates, "SEARCH_LIMIT", 6000)
    talk = Talk()
    # The beginning of a large request, which is possible until it does not end.
    talk.send(0, [b"\0\0\xff\xff" + request(1)[4:], *[b"\xff" * 90] * 50])
    assert talk.connection.verdict == "undecided"
    assert talk.connection.buffered <= 1000
    talk.send(0, [request(2)])
    assert talk.connection.verdict == "kafka"
    (resync,) = (one for one in talk.events if isinstance(one, ProblemEvent))
    assert resync.bytes == 33 + 50 * 90
    assert [one.decoded.correlation_id for one in talk.events if isinstance(one, MessageEvent)] == [2]
    other = Talk()
    other.send(0, [b"\xff" * 90] * 66)
    other.send(1, [b"\xff" * 90] * 66)
    assert other.connection.verdict == "undecided"
    other.send(0, [b"\xff" * 90])
    other.send(1, [b"\xff" * 90])
    assert (other.connection.verdict, other.connection.buffered) == ("not-kafka", 0)


@pytest.mark.parametrize("length", [1, 7, SMALL_PART - 1, SMALL_PART])
def test_small_parts_of_a_frame_are_joined(length: int) -> None:
    """Storing single bytes as objects would take forty bytes each."""
    framer = Framer(0)
    data = frame(bytes(10 * SMALL_PART))[:-1]
    run = run_of([data[start : start + length] for start in range(0, len(data), length)])
    assert framer.cut(run, run.first, run.last) == []
    assert len(framer._parts) <= 2 * len(data) // SMALL_PART + 2
    assert b"".join(framer._parts) == data


@pytest.mark.parametrize(("size", "found"), [(-1, 1), (0x7FFFFFFF, 1), (1001, 1), (1000, 2)])
@pytest.mark.parametrize("length", [1, 3, 2000])
def test_sizes_of_frames(size: int, found: int, length: int) -> None:
    """A stream loses its frames at an impossible size, wherever segments begin."""
    data = frame(b"good") + size.to_bytes(4, "big", signed=True) + bytes(1000)
    run = run_of([data[start : start + length] for start in range(0, len(data), length)])
    framer = Framer(0, max_size=1000)
    assert len(framer.cut(run, run.first, run.last)) == found
    assert (framer.lost_at is None) == (found == 2)
    assert found == 2 or framer.lost_size == size


def test_bodies_decoded_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detail, "AHEAD_BYTES", 100)
    kept = detail.Detail(DecodeOptions("full"))
    assert [kept.keeps(size) for size in (60, 41, 40, 1)] == [True, False, True, False]
    kept.ahead = 0
    assert kept.keeps(100)
