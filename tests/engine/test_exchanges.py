"""What becomes of traffic: roles, exchanges and their ends, tokens, and problems, as the inspector reports them."""

from __future__ import annotations

import pytest

from kafkasniff.engine import emitting
from kafkasniff.engine.emitting import SLICE
from kafkasniff.engine.inspector import Inspector
from kafkasniff.kafka.connection.events import CLOSED_BEFORE
from kafkasniff.model import Exchange, Message, Problem
from kafkasniff.packets import Note
from tests.craft import kafka_bytes as kafka
from tests.craft.batches import batch
from tests.craft.conversation import Conversation, Side
from tests.craft.packet import ACK, FIN
from tests.engine.outline import (
    MS,
    Step,
    answers,
    asks,
    closes,
    events,
    handshake,
    lost,
    odd,
    outline,
    packets_of,
    request,
    response,
    sends,
    snapped,
)
from tests.oracle.inspector import ByPython
from tests.oracle.kafka.early import EARLY_FRAMES

NOISE = b"\xff" * 30
"""No size begins with these bytes."""
BATCH = kafka.record_batch([kafka.record(0, None, b"v")])
PROXY = b"PROXY TCP4 10.0.0.7 10.0.0.8 5000 9092\r\n"
WRAPPING = 2**31 - 1, -(2**31), -1, 0
HTTP = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
UNKNOWN_VERSION = kafka.frame(b"\x00\x03\x00\x63" + kafka.int32(5) + b"\x00\x01a" + bytes(9))


def far_ahead(side: Side, *parts: bytes) -> Step:
    """The stream continues 100 MB later, more than any window has."""

    def skip(talk: Conversation) -> None:
        talk._next[side] += 100_000_000
        sends(side, *parts)(talk)

    return skip


def produces(number: int) -> Step:
    """A Produce request that wants no response."""
    return sends("client", kafka.produce_request(number, "orders", BATCH, acks=0))


def begins_to_close(after_ms: int) -> Step:
    """The broker closes its side, and then time passes."""
    return lambda talk: (talk._add("broker", FIN | ACK), talk.wait(after_ms * MS))


FROM_THE_START: dict[str, tuple[list[Step], list[str]]] = {
    "in turn": ([asks(1), answers(1), asks(2), answers(2), closes("client")], ["1 answered", "2 answered"]),
    "a request that is never answered delays no other, and overtaking is reported once": (
        [asks(*range(8)), answers(1, 2, 3, 5, 6, 4, 7)],
        [
            *("1 answered response-out-of-order", "2 answered", "3 answered", "5 answered response-out-of-order"),
            *("6 answered", "4 answered", "7 answered", "0 open"),
        ],
    ),
    "equal ids are answered in order": ([asks(7, 8, 7), answers(7, 8, 7)], ["7 answered", "8 answered", "7 answered"]),
    "ids wrap": (
        [step for number in WRAPPING for step in (asks(number), answers(number))],
        [f"{number} answered" for number in WRAPPING],
    ),
    "many in a segment": (
        [sends("client", b"".join(map(request, range(30)))), sends("broker", b"".join(map(response, range(30))))],
        [f"{number} answered" for number in range(30)],
    ),
    "a response before its request": (
        [asks(1), answers(1), answers(2), asks(2)],
        ["1 answered", "2 answered latency-negative"],
    ),
    "a response that answers nothing waits for some frames": (
        [asks(1), answers(1, 9), asks(*range(2, EARLY_FRAMES + 2)), answers(2)],
        ["1 answered", "9 orphan orphan-response", "2 answered", *(f"{n} open" for n in range(3, EARLY_FRAMES + 2))],
    ),
    "closed": ([asks(1), answers(1), asks(2), closes("client")], ["1 answered", "2 unanswered request-unanswered"]),
    "reset": (
        [asks(1), answers(1), asks(2), lambda talk: talk.reset("broker")],
        ["1 answered", "2 unanswered request-unanswered"],
    ),
    "the capture ends": ([asks(1, 2), answers(1)], ["1 answered", "2 open"]),
    "after the broker has closed": (
        [asks(1), answers(1), begins_to_close(5), asks(2)],
        ["1 answered", "2 unanswered request-unanswered"],
    ),
    "after a forged end of the broker": (
        [asks(1, 2), lambda talk: talk._add("broker", FIN | ACK, seq=talk._next["broker"] + (1 << 30)), answers(1, 2)],
        ["tcp-fin-ignored", "1 answered", "2 answered"],
    ),
    "acks 0 ends with the next response": ([produces(1), asks(2), answers(2)], ["1 no_response", "2 answered"]),
    "acks 0 ends with the connection": (
        [asks(1), answers(1), produces(2), closes("client")],
        ["1 answered", "2 no_response"],
    ),
    "many with acks 0": ([*map(produces, range(200))], [f"{number} no_response" for number in range(200)]),
    "acks 0 is answered": (
        [asks(1), answers(1), produces(2), sends("broker", kafka.produce_response(2, "orders", 5))],
        ["1 answered", "2 answered response-to-acks-0"],
    ),
    "raw tokens": (
        [
            *handshake("PLAIN"),
            *(sends("client", kafka.frame(b"\0user\0password")), sends("broker", kafka.frame(b""))),
            *(asks(1), answers(1)),
        ],
        ["1 answered", "request token PLAIN", "response token PLAIN", "1 answered"],
    ),
    "raw tokens of a mechanism without rules": (
        [
            *handshake("LATER"),
            *(sends("client", kafka.frame(b"\xff" * 20)), sends("broker", kafka.frame(b"\xff" * 9))),
            *(asks(1), answers(1)),
        ],
        ["1 answered", "request token LATER", "response token LATER", "1 answered"],
    ),
    "raw tokens after a lost handshake": (
        [
            *(asks(7), answers(7), handshake("PLAIN")[0], lost(handshake("PLAIN")[1])),
            *(sends("client", kafka.frame(b"\0user\0password")), sends("broker", kafka.frame(b""))),
            *(asks(8), answers(8)),
        ],
        ["7 answered", "request token PLAIN", "tcp-gap 21", "stream-resync 4", "1 lost response-lost", "8 answered"],
    ),
    "a request after a lost handshake": (
        [asks(7), answers(7), handshake("PLAIN")[0], lost(handshake("PLAIN")[1]), asks(8), answers(8)],
        ["7 answered", "tcp-gap 21", "1 lost response-lost", "8 answered"],
    ),
    "the stream continues far ahead": (
        [asks(1), answers(1), far_ahead("client", request(2), request(3), request(4), request(5)), answers(4, 5)],
        ["1 answered", "tcp-out-of-window 33", "tcp-gap 100000066", "4 answered", "5 answered"],
    ),
    "a few segments far ahead": (
        [asks(1), answers(1), far_ahead("client", request(2), request(3))],
        ["1 answered", "tcp-out-of-window 33"],
    ),
    "a frame without a request": (
        [asks(1), answers(1), sends("client", kafka.frame(b"\x7f\xff" + bytes(20))), asks(2), answers(2)],
        ["1 answered", "frame-unreadable 22", "2 answered"],
    ),
    "a frame without a response": (
        [asks(1), answers(1), asks(2), sends("broker", kafka.frame(b"\1\2")), answers(2)],
        ["1 answered", "frame-unreadable 2", "2 answered"],
    ),
    "a size of the client's that is impossible": (
        [asks(1), answers(1), sends("client", NOISE), asks(2), answers(2)],
        ["1 answered", "frame-size", "stream-resync 30", "2 answered"],
    ),
    "a size of the broker's that is impossible": (
        [asks(1), answers(1), sends("broker", NOISE), asks(2, 3), answers(2, 3)],
        ["1 answered", "frame-size", "stream-resync 30", "2 answered", "3 answered"],
    ),
    "a stream ends within a frame": (
        [asks(1), answers(1), sends("client", request(2)[:9]), closes("client")],
        ["1 answered", "stream-cut 9"],
    ),
    "one odd request": ([sends("client", odd(7)), answers(7)], ["7 answered trailing-bytes"]),
    "a load balancer's header": (
        [sends("client", PROXY[:10], PROXY[10:] + request(7)), answers(7)],
        ["proxy-protocol 40", "7 answered"],
    ),
    "two of its headers": ([sends("client", PROXY + PROXY + request(7)), answers(7)], []),
    "such a header of the broker's": (
        [asks(7), sends("broker", PROXY + response(7))],
        ["frame-size", "stream-resync 40", "7 answered"],
    ),
    "HTTP": ([sends("client", HTTP), sends("broker", NOISE)], []),
    "TLS": ([sends("client", b"\x16\x03\x01\x02\x00\x01\x00"), sends("broker", NOISE)], []),
    "the client's stream decides, even if its first request is not whole yet": (
        [sends("client", request(1)[:20]), sends("broker", NOISE), sends("client", request(1)[20:]), asks(2)],
        ["frame-size", "stream-cut 7", "1 open", "2 open"],
    ),
    "a lost response": (
        [asks(1, 2), lost(answers(1)), answers(2)],
        ["tcp-gap 74", "1 lost response-lost", "2 answered"],
    ),
    "all responses are lost": (
        [asks(1), lost(answers(1)), asks(2), lost(answers(2)), closes("client")],
        ["tcp-gap 148", "1 lost response-lost", "2 lost response-lost"],
    ),
    "a gap within a response loses only that": (
        [
            *(asks(1, 2, 3), answers(1), sends("broker", response(2)[:20])),
            *(lost(sends("broker", response(2)[20:30])), sends("broker", response(2)[30:]), answers(3)),
        ],
        ["1 answered", "tcp-gap 10", "2 answered frame-incomplete array-too-long", "3 answered"],
    ),
    "a lost request": (
        [asks(1), answers(1), lost(asks(2)), answers(2), asks(3), answers(3)],
        ["1 answered", "tcp-gap 33", "2 orphan orphan-response", "3 answered"],
    ),
    "a gap within a request": (
        [
            *(asks(1), answers(1), sends("client", request(2)[:20]), lost(sends("client", request(2)[20:30]))),
            *(sends("client", request(2)[30:]), answers(2), asks(3), answers(3)),
        ],
        ["1 answered", "tcp-gap 10", "2 answered frame-incomplete header-truncated", "3 answered"],
    ),
    "a gap within the header of a request": (
        [
            *(asks(1), answers(1), sends("client", request(2)[:10]), lost(sends("client", request(2)[10:30]))),
            *(sends("client", request(2)[30:]), answers(2), asks(3), answers(3)),
        ],
        ["1 answered", "tcp-gap 20", "frame-unreadable 29", "2 orphan orphan-response", "3 answered"],
    ),
    "no more requests with an id wait than ever before": (
        [asks(7, 7), answers(7, 7), asks(7, 7, 7), lost(answers(7)), answers(7)],
        ["7 answered", "7 answered", "tcp-gap 74", "7 lost response-lost", "7 answered", "7 lost response-lost"],
    ),
    "two odd requests in a row after a gap": (
        [asks(1), answers(1), lost(asks(2)), sends("client", NOISE, odd(3), odd(4)), answers(3)],
        ["1 answered", "tcp-gap 33", "stream-resync 30", "3 answered trailing-bytes", "4 open trailing-bytes"],
    ),
    "truncated requests with responses": (
        [snapped("client", request(7), 20), answers(7), snapped("client", request(8), 20), answers(8)],
        [f"{number} answered frame-incomplete header-truncated" for number in (7, 8)],
    ),
    "a truncated request alone": ([snapped("client", request(7), 20)], []),
    "two truncated requests": (
        [snapped("client", request(7), 20), snapped("client", request(8), 20)],
        [f"{number} open frame-incomplete header-truncated" for number in (7, 8)],
    ),
    "truncated segments that are not Kafka": (
        [snapped("client", kafka.int32(40) + b"\x03\xe7\0\0" + kafka.int32(7) + bytes(32), 20), answers(7)],
        [],
    ),
    "a truncated segment whose client id would be longer than its frame": (
        [snapped("client", kafka.int32(60) + b"\0\3\0\1" + kafka.int32(7) + kafka.int16(200) + bytes(50), 30)] * 2,
        [],
    ),
    "truncated responses": (
        [asks(1, 2), snapped("broker", response(1), 30), snapped("broker", response(2), 6)],
        ["1 answered frame-incomplete body-truncated", "frame-unreadable 70", "2 open"],
    ),
}

FROM_THE_MIDDLE: dict[str, tuple[list[Step], list[str]]] = {
    "requests": ([asks(1), answers(1)], ["1 answered"]),
    "after other bytes": (
        [sends("client", NOISE, request(7)), sends("broker", NOISE, response(7))],
        ["stream-resync 30", "stream-resync 30", "7 answered"],
    ),
    "within segments": (
        [sends("client", NOISE + request(7)), sends("broker", NOISE + response(7))],
        ["stream-resync 30", "stream-resync 30", "7 answered"],
    ),
    "rising responses that begin segments": (
        [sends("broker", NOISE), answers(1, 2, 3)],
        ["stream-resync 30", *(f"{number} orphan orphan-response" for number in (1, 2, 3))],
    ),
    "two responses prove nothing": ([sends("broker", NOISE), answers(1, 2)], []),
    "nor do ids that fall": ([sends("broker", NOISE), answers(2, 1, 3)], []),
    "nor do responses within segments": ([sends("broker", NOISE + response(1) + response(2) + response(3))], []),
    "an odd request proves nothing": ([sends("client", NOISE, odd(7))], []),
    "nor does a plausible header": ([sends("client", NOISE, UNKNOWN_VERSION)], []),
    "an odd request and its response": (
        [sends("client", NOISE, odd(7)), sends("broker", NOISE, response(7))],
        ["stream-resync 30", "stream-resync 30", "7 answered trailing-bytes"],
    ),
    "not a response before it": ([sends("broker", NOISE, response(7)), sends("client", NOISE, odd(7))], []),
    "a load balancer's header": ([sends("client", PROXY + request(7)), answers(7)], ["stream-resync 40", "7 answered"]),
}


@pytest.mark.parametrize("name", FROM_THE_START)
def test_from_the_start(name: str) -> None:
    steps, expected = FROM_THE_START[name]
    assert outline(packets_of(*steps)) == expected


@pytest.mark.parametrize("name", FROM_THE_MIDDLE)
def test_from_the_middle(name: str) -> None:
    steps, expected = FROM_THE_MIDDLE[name]
    assert outline(packets_of(*steps, begins=False)) == expected


def test_the_users_ports_are_accepted_as_kafka() -> None:
    """There, a plausible header at a segment's start is enough."""
    separate, joined = sends("client", NOISE, UNKNOWN_VERSION), sends("client", NOISE + UNKNOWN_VERSION)
    assert outline(packets_of(separate, begins=False), ports=[9092]) == ["stream-resync 30", "5 open version-unknown"]
    assert outline(packets_of(joined, begins=False), ports=[9092]) == []
    assert outline(packets_of(asks(1), answers(1)), ports=[9093]) == []


@pytest.mark.parametrize(("after_ms", "text"), [(5, "5.1 ms"), (2_500, "2.5 s")])
def test_a_request_after_the_broker_had_closed(after_ms: int, text: str) -> None:
    found = events(asks(1), answers(1), begins_to_close(after_ms), asks(2))
    (detail,) = (one.problems[0].detail for one in found if isinstance(one, Exchange) and one.problems)
    assert detail.endswith(f"{CLOSED_BEFORE} {text} before the request")


def test_bytes_of_frames_that_are_not_messages_are_not_shown() -> None:
    for bad in (
        sends("broker", kafka.frame(b"\x7f\xff\xff\xff secret")),
        sends("client", kafka.frame(b"\x7f\xff secret")),
    ):
        found = events(asks(1), answers(1), asks(2), bad)
        (problem,) = (one for one in found if isinstance(one, Problem))
        assert problem.kind == "frame-unreadable"
        assert "secret" not in repr(found)


def test_frames_are_bounded() -> None:
    large = kafka.produce_request(2, "t", kafka.record_batch([kafka.record(0, None, bytes(900))]))
    found = outline(packets_of(asks(1), answers(1), sends("client", large)), max_frame=400)
    assert found == ["1 answered", "frame-size", f"stream-cut {len(large)}"]


# -- slices and notes of batches ---------------------------------------------------------------------------------------


def test_slices_have_all_events_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = range(1, 2 * SLICE)
    packets = batch(packets_of(*(step for number in numbers for step in (asks(number), answers(number)))))
    slices = list(Inspector().feed_slices(packets))
    assert [event for part in slices for event in part] == Inspector().feed(packets)
    # An event may be two outputs: a message and the exchange that ends with it.
    assert max(map(len, slices)) <= 2 * SLICE
    monkeypatch.setattr(emitting, "SLICE_BYTES", 1)
    few = batch(packets_of(asks(1), answers(1), asks(2), answers(2)))
    assert max(sum(isinstance(one, Message) for one in part) for part in ByPython().feed_slices(few)) == 1


def test_notes_keep_their_places_and_are_counted() -> None:
    packets = batch(packets_of()[:2])
    first, second = Problem("capture-loss", "first"), Problem("capture-loss", "second")
    packets.notes += [Note(0, first), Note(1, ("10.0.0.1", "host")), Note(2, second)]
    inspector = Inspector()
    assert inspector.feed(packets) == [first, second]
    assert inspector.names == {"10.0.0.1": "host"}
    assert inspector.summary.problems == 2
