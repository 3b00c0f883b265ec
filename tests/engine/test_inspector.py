"""The inspector on crafted connections: pairing, boundaries, and what is kept between batches."""

from __future__ import annotations

import struct
from collections import Counter

import pytest

from kafkasniff.engine import emitting, inspector_state
from kafkasniff.engine.emitting import SLICE
from kafkasniff.engine.inspector import Inspector
from kafkasniff.model import Exchange, Message, Problem
from kafkasniff.tcp.packets import Note
from kafkasniff.tcp.plan import indexed_end
from tests.craft import kafka_bytes as kb
from tests.engine.inspected import BATCH, GREETING, Talk, flaws, greeted, inspect, messages, problems, statuses
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


@pytest.mark.parametrize("segment", [1, 3, 7])
def test_segments_do_not_matter(segment: int) -> None:
    talk = greeted(segment=segment).send(0, kb.produce_request(2, "t", BATCH)).send(1, kb.produce_response(2, "t", 9))
    out = inspect(talk.end())
    assert messages(out) == [*GREETING, ("request", "Produce", 3, 2, 2), ("response", "Produce", 3, 2, 2)]
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


def produces(*numbers: int) -> tuple[int, bytes]:
    return 0, b"".join(kb.produce_request(number, "t", BATCH, acks=0) for number in numbers)


NUMBERS = 2**31 - 1, -(2**31), -1, 0
PAIRED = [
    ("acks 0", [produces(2, 3, 4), requests(5), responses(5)], "2 answered, 3 no_response", ""),
    ("many with acks 0", [produces(*range(2, 202))], "1 answered, 200 no_response", ""),
    ("acks 0, answered", [produces(2), (1, kb.produce_response(2, "t", 0))], "2 answered", "response-to-acks-0"),
    ("many in a segment", [requests(*range(2, 30)), responses(*range(2, 30))], "29 answered", ""),
    ("ids wrap", [one for number in NUMBERS for one in (requests(number), responses(number))], "5 answered", ""),
    ("no answer", [requests(2)], "1 answered, 1 unanswered", "request-unanswered"),
    ("no request", [responses(99)], "1 answered, 1 orphan", "orphan-response"),
    ("out of order", [requests(2, 3), responses(3, 2)], "3 answered", "response-out-of-order"),
    (
        "one out of order",
        [requests(*range(2, 40)), responses(*range(3, 40))],
        "38 answered, 1 unanswered",
        "response-out-of-order request-unanswered",
    ),
    ("captured before its request", [responses(2), requests(2)], "2 answered", "latency-negative"),
]
"""What is said after the greeting, statuses of exchanges, and problems."""


@pytest.mark.parametrize(("said", "expected", "kinds"), [one[1:] for one in PAIRED], ids=[one[0] for one in PAIRED])
def test_pairing(said: list[tuple[int, bytes]], expected: str, kinds: str) -> None:
    talk = greeted()
    for sender, data in said:
        talk.send(sender, data)
    out = inspect(talk.end())
    found = Counter(status for _, status in statuses(out))
    assert ", ".join(f"{found[status]} {status}" for status in sorted(found)) == expected
    assert [*flaws(out), *problems(out)] == kinds.split()
    asked = {m.exchange: m for m in out if isinstance(m, Message) and m.type == "request"}
    for m in out:
        if isinstance(m, Message) and m.type == "response" and m.exchange in asked:
            assert (m.api, m.correlation_id) == (asked[m.exchange].api, asked[m.exchange].correlation_id)
            assert m.latency_ns is not None
            assert (m.latency_ns < 0) == ("latency-negative" in kinds and m.exchange == 2)
        elif isinstance(m, Message) and m.type == "response":
            assert (m.api, m.api_key, m.body, m.correlation_id) == (None, None, None, 99)


def test_a_request_is_open_at_the_end_of_the_capture() -> None:
    out = inspect(greeted().send(*requests(2)))
    assert statuses(out) == [(1, "answered"), (2, "open")]
    assert not problems(out)


def test_a_response_lost_in_a_gap() -> None:
    talk = greeted().send(*requests(2, 3, 4)).lose(1, len(responses(2)[1])).send(*responses(3)).acknowledge(0)
    out = inspect(talk.send(*responses(4)).end())
    assert sorted(statuses(out)) == [(1, "answered"), (2, "lost"), (3, "answered"), (4, "answered")]
    assert problems(out) == ["tcp-gap", "response-lost"]


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


def test_a_gap_within_a_frame_costs_that_frame_only() -> None:
    talk = greeted(segment=50)
    big = kb.produce_request(2, "topic", kb.record_batch([kb.record(0, None, b"x" * 500)]))
    talk.send(0, big[:100]).lose(0, 50).send(0, big[150:]).acknowledge(1)
    talk.metadata(3)
    out = inspect(talk.end())
    assert messages(out)[2:] == [
        ("request", "Produce", 3, 2, 2), ("request", "Metadata", 1, 3, 3), ("response", "Metadata", 1, 3, 3),
    ]  # fmt: skip
    produce = next(m for m in out if isinstance(m, Message) and m.api == "Produce")
    assert "frame-incomplete" in [p.kind for p in produce.problems]
    assert produce.body is not None
    assert produce.body["acks"] == -1
    first = next(p for p in out if isinstance(p, Problem))
    assert (first.kind, first.bytes, first.direction) == ("tcp-gap", 50, "request")
    assert "stream-resync" not in problems(out)


def test_resync_after_a_gap() -> None:
    talk = greeted(segment=40)
    lost = kb.metadata_request(2, ["a"]) + kb.metadata_request(3, ["b"])[:11]
    rest = kb.metadata_request(3, ["b"])[11:]
    talk.lose(0, len(lost)).send(0, rest).acknowledge(1)
    talk.send(1, kb.metadata_response(2, "h", 1, []) + kb.metadata_response(3, "h", 1, []))
    talk.metadata(4, 5)
    out = inspect(talk.end())
    assert [m for m in messages(out) if m[0] == "request"][1:] == [
        ("request", "Metadata", 1, 4, 2), ("request", "Metadata", 1, 5, 5),
    ]  # fmt: skip
    assert ("tcp-gap", len(lost)) in [(p.kind, p.bytes) for p in out if isinstance(p, Problem)]
    assert ("stream-resync", len(rest)) in [(p.kind, p.bytes) for p in out if isinstance(p, Problem)]
    assert sorted(status for _, status in statuses(out)) == ["answered"] * 3 + ["orphan"] * 2


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


@pytest.mark.parametrize("cut", [0, 1, 9])
def test_mid_stream_start(cut: int) -> None:
    talk = Talk(handshake=False, segment=30)
    stream = kb.metadata_request(2, ["some"]) + kb.produce_request(3, "t", BATCH) + kb.metadata_request(4, None)
    talk.send(0, stream[cut:])
    talk.send(1, kb.metadata_response(2, "h", 1, [])[5:] + kb.produce_response(3, "t", 5))
    talk.send(1, kb.metadata_response(4, "h", 1, []))
    out = inspect(talk)
    requests = [m[1:4] for m in messages(out) if m[0] == "request"]
    expected = [("Metadata", 1, 2), ("Produce", 3, 3), ("Metadata", 1, 4)]
    assert requests == (expected if cut == 0 else expected[1:])
    assert [m[1:4] for m in messages(out) if m[0] == "response"] == [("Produce", 3, 3), ("Metadata", 1, 4)]


def test_the_brokers_direction_alone() -> None:
    talk = Talk(handshake=False)
    for i in range(10, 15):
        talk.send(1, kb.metadata_response(i, "h", 1, []))
    out = inspect([p for p in talk.packets if p.sender == 1])
    assert [m[3] for m in messages(out)] == [10, 11, 12, 13, 14]
    assert statuses(out) == [(n, "orphan") for n in range(1, 6)]
    two = (
        Talk(handshake=False).send(1, kb.metadata_response(1, "h", 1, [])).send(1, kb.metadata_response(2, "h", 1, []))
    )
    assert not messages(inspect(two))
    assert messages(inspect(two, ports=[9092]))


def test_the_clients_direction_alone() -> None:
    talk = greeted().send(0, kb.metadata_request(2, None))
    out = inspect([p for p in talk.packets if p.sender == 0])
    assert [m[1:4] for m in messages(out)] == [("ApiVersions", 0, 1), ("Metadata", 1, 2)]


def test_a_frame_of_impossible_size() -> None:
    talk = greeted().send(0, struct.pack(">i", -5) + b"garbage").send(0, kb.metadata_request(3, None))
    talk.send(1, kb.metadata_response(3, "h", 1, []))
    out = inspect(talk.end())
    assert messages(out)[2:] == [("request", "Metadata", 1, 3, 2), ("response", "Metadata", 1, 3, 2)]
    assert problems(out)[:2] == ["frame-size", "stream-resync"]


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


def test_names_and_brokers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspector_state, "MAX_NAMES", 2)
    monkeypatch.setattr(inspector_state, "MAX_ENDPOINTS", 2)
    state = Inspector()._state
    for number in range(5):
        state.add_name(f"10.0.0.{number}", f"host-{number}")
        state.note_broker((0, number, 9092))
    assert state.names == {"10.0.0.0": "host-0", "10.0.0.1": "host-1"}
    assert set(map(indexed_end, state.known_brokers)) == {(0, 0, 9092), (0, 1, 9092)}
