"""The inspector on crafted connections: pairing, boundaries, and what is kept between batches."""

from __future__ import annotations

import struct
from collections import Counter

import pytest

from kafkasniff.engine import emitting
from kafkasniff.engine.emitting import SLICE
from kafkasniff.engine.inspector import Inspector
from kafkasniff.model import Exchange, Message, Problem
from kafkasniff.tcp.packets import Note
from tests.craft import kafka_bytes as kb
from tests.engine.inspected import BATCH, GREETING, Talk, greeted, inspect, messages, problems, statuses
from tests.oracle.inspector import ByPython
from tests.oracle.tcp.batches import Raw, batch


def test_an_exchange() -> None:
    out = inspect(greeted().metadata(2).end())
    assert messages(out) == [*GREETING, ("request", "Metadata", 1, 2, 2), ("response", "Metadata", 1, 2, 2)]
    assert statuses(out) == [(1, "answered"), (2, "answered")]
    request, response = (m for m in out if isinstance(m, Message) and m.exchange == 2)
    assert str(request.client) == "10.0.0.1:1000"
    assert str(request.broker) == "10.0.0.2:9092"
    assert (request.first_packet, request.last_packet, request.time_ns) == (5, 5, 5000)
    assert (response.latency_ns, response.duration_ns) == (1000, 1000)
    assert request.latency_ns is None
    assert request.size == len(kb.metadata_request(2, None)) - 4
    assert not problems(out)


def test_latency_is_first_byte_duration_is_all() -> None:
    talk = greeted(segment=10)
    at = len(talk.packets)
    request, response = kb.metadata_request(2, ["topic"]), kb.metadata_response(2, "h", 1, ["topic"])
    talk.send(0, request).send(1, response)
    n, m = -(-len(request) // 10), -(-len(response) // 10)
    answer = next(x for x in inspect(talk) if isinstance(x, Message) and x.type == "response" and x.exchange == 2)
    assert answer.latency_ns == 1000  # last segment of the request to the next packet
    assert answer.duration_ns == (n + m - 1) * 1000
    assert (answer.first_packet, answer.last_packet) == (at + n + 1, at + n + m)


@pytest.mark.parametrize("segment", [1, 5, 4_000])
def test_frames_in_a_row_that_are_too_short_are_one_problem(segment: int) -> None:
    short = bytes(4 * 200) + b"\0\0\0\7" + bytes(7)
    talk = greeted(segment=segment).send(0, short).metadata(2).send(0, bytes(4)).send(1, bytes(4 * 3)).end()
    out = inspect(talk)
    found = [one for one in out if isinstance(one, Problem) and one.kind == "frame-unreadable"]
    what = "a frame of 0 bytes, too few for a"
    packet = 5 if segment > 8 else found[1].detail.split()[-2]
    assert [one.detail for one in found] == [
        f"{what} request",
        f"200 more frames in a row of less than 8 bytes, too few for a request, from packet {packet} on",
        f"{what} request",
        f"{what} response",
        found[-1].detail,
    ]
    assert found[-1].detail.startswith("2 more frames in a row of less than 4 bytes, too few for a response")
    assert [one.bytes for one in found] == [0, 4 * 199 + 11, 0, 0, 8]
    assert messages(out)[2:] == [("request", "Metadata", 1, 2, 2), ("response", "Metadata", 1, 2, 2)]


def requests(*numbers: int) -> tuple[int, bytes]:
    return 0, b"".join(kb.metadata_request(number, None) for number in numbers)


def responses(*numbers: int) -> tuple[int, bytes]:
    return 1, b"".join(kb.metadata_response(number, "h", 1, []) for number in numbers)


def test_repeated_correlation_ids_pair_in_order() -> None:
    talk = greeted()
    talk.send(0, kb.metadata_request(7, None) + kb.produce_request(7, "t", BATCH))
    talk.send(1, kb.metadata_response(7, "h", 1, []) + kb.produce_response(7, "t", 0))
    out = inspect(talk.end())
    assert messages(out)[2:] == [
        ("request", "Metadata", 1, 7, 2), ("request", "Produce", 3, 7, 3),
        ("response", "Metadata", 1, 7, 2), ("response", "Produce", 3, 7, 3),
    ]  # fmt: skip


def test_messages_are_the_same_without_exchanges() -> None:
    talk = greeted().send(0, kb.produce_request(2, "t", BATCH, acks=0) + kb.metadata_request(3, None))
    talk.send(1, kb.metadata_response(3, "h", 1, []) + kb.metadata_response(77, "h", 1, []))
    talk.send(0, kb.metadata_request(4, None)).end()
    with_ends = [event for event in inspect(talk) if not isinstance(event, Exchange)]
    assert inspect(talk, exchanges=False) == with_ends
    assert len(with_ends) == 8


# -- boundaries -----------------------------------------------------------------------------------------------------


def test_responses_wait_while_requests_are_searched_for() -> None:
    """After the gap a long request continues; the next requests are known only when all of it has arrived."""
    talk = greeted(segment=300)
    long = kb.produce_request(3, "t", kb.record_batch([kb.record(0, None, b"x" * 3000)]))
    talk.send(0, kb.metadata_request(2, None)).lose(0, 300).send(0, long[300:]).acknowledge(1)
    for i in range(4, 30):
        talk.send(0, kb.metadata_request(i, None))
    talk.send(1, kb.metadata_response(2, "h", 1, []) + kb.produce_response(3, "t", 0))
    for i in range(4, 30):
        talk.send(1, kb.metadata_response(i, "h", 1, []))
    out = inspect(talk.end())
    assert Counter(status for _, status in statuses(out)) == {"answered": 28, "orphan": 1}
    assert problems(out) == ["tcp-gap", "stream-resync"]


def test_a_beginning_that_might_be_tls_until_the_other_side_answers() -> None:
    """The answer decides what it is; the verdict is emitted there, whatever else the batch contains."""
    talk = greeted()
    begun = len(talk.packets)
    talk.metadata(2)
    stranger = Talk(conversation=1).send(0, b"\x16\x03\x01").send(0, b"\0")
    asked = len(stranger.packets)
    stranger.send(1, b"7.0.0.1, and no Kafka")
    parts = talk.packets[:begun], stranger.packets[:asked], talk.packets[begun:], stranger.packets[asked:]
    out = inspect([packet for part in parts for packet in part])
    assert problems(out) == ["not-kafka"]
    reported = next(place for place, one in enumerate(out) if isinstance(one, Problem))
    assert len(messages(out[:reported])) == 4


def test_an_impossible_size_beside_a_partial_frame() -> None:
    """One side loses its frames while the other is within a frame, whose partial bytes are counted once."""
    talk = greeted().metadata(2)
    request = kb.produce_request(3, "t", kb.record_batch([kb.record(0, None, bytes(900))]))
    begun = len(talk.send(0, request[:300]).packets)
    talk.send(0, request[300:600]).send(1, struct.pack(">i", -5) + b"garbage").send(0, request[600:])
    talk.send(1, kb.produce_response(3, "t", 0)).end()
    whole = Inspector()
    first, second = talk.packets[:begun], talk.packets[begun:]
    together = [*whole.feed(batch(first)), *whole.feed(batch(second, start=begun)), *whole.close()]
    single = Inspector()
    apart = [event for place, one in enumerate(talk.packets) for event in single.feed(batch([one], start=place))]
    assert together == [*apart, *single.close()]
    assert ("request", "Produce", 3, 3) in [message[:4] for message in messages(together)]


def test_frames_are_bounded() -> None:
    talk = greeted().send(0, kb.produce_request(2, "t", kb.record_batch([kb.record(0, None, bytes(5000))])))
    out = inspect(talk.end(), max_frame=4000)
    assert messages(out) == GREETING
    assert problems(out)[0] == "frame-size"


# -- batches, slices and what is kept between them ---------------------------------------------------------------------


def test_slices_have_all_events_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    packets = batch(greeted().metadata(*range(2, 3 * SLICE)).end().packets)
    whole = Inspector().feed(packets)
    slices = list(Inspector().feed_slices(packets))
    assert [event for events in slices for event in events] == whole
    # An event may be two outputs: a message and the exchange that ends with it.
    assert max(map(len, slices)) <= 2 * SLICE
    monkeypatch.setattr(emitting, "SLICE_BYTES", 1)
    few = batch(greeted().metadata(2, 3, 4).packets)
    assert max(sum(isinstance(one, Message) for one in part) for part in ByPython().feed_slices(few)) == 1


def test_notes_keep_their_places_and_are_counted() -> None:
    packets = batch([Raw(0, 1, b"x"), Raw(0, 2, b"x")])
    first, second = Problem("capture-loss", "first"), Problem("capture-loss", "second")
    packets.notes += [Note(0, first), Note(1, ("10.0.0.1", "host")), Note(2, second)]
    inspector = Inspector()
    assert inspector.feed(packets) == [first, second]
    assert inspector.names == {"10.0.0.1": "host"}
    assert inspector.summary.problems == 2


def test_connections_are_numbered_by_first_packet() -> None:
    late, early = greeted(conversation=1), greeted(conversation=2)
    packets = [late.packets[0], early.packets[0], *early.packets[1:], *late.packets[1:]]
    seen = {(m.connection, m.client.port) for m in inspect(packets) if isinstance(m, Message) and m.client}
    assert seen == {(1, 1001), (2, 1002)}
