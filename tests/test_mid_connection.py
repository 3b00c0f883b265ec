"""Captures that begin within connections: pairs are right, and messages present are found. A recorded capture is cut
before a packet, and the pairs of the rest are compared with those of the whole."""

from __future__ import annotations

import functools

import pytest

from kafkasniff.engine.inspector import Inspector
from kafkasniff.model import Exchange, Message
from tests.choice import ALL, DEEP, one_in
from tests.conftest import shipped_captures
from tests.craft.batches import batch
from tests.craft.conversation import Conversation
from tests.craft.kafka_bytes import int16, int32, metadata_request, metadata_response, string
from tests.craft.packet import Packet
from tests.craft.read import is_cut
from tests.craft.read import shipped_packets as packets_of

WHOLE = [path.name for path in shipped_captures() if not is_cut(path)]
STARTS = 5 if ALL else 3
"""Places at which each capture is cut; each of them in `deep`."""

Side = tuple[int, int, str | None]
"""Packet, correlation id and API."""
Pair = tuple[Side, Side]


def outputs(packets: list[Packet], start: int = 0, **options: object) -> list[object]:
    """Output for the packets from `start` on, which keep their numbers."""
    inspector = Inspector(records="skip", **options)  # type: ignore[arg-type]
    return [*inspector.feed(batch(packets[start:], range(start, len(packets)))), *inspector.close()]


def side(message: Message) -> Side:
    assert message.first_packet is not None
    assert message.correlation_id is not None
    return message.first_packet, message.correlation_id, message.api


def pairs(out: list[object]) -> set[Pair]:
    found = [one for one in out if isinstance(one, Exchange)]
    return {(side(one.request), side(one.response)) for one in found if one.request is not None and one.response}


@functools.cache
def whole(name: str) -> set[Pair]:
    return pairs(outputs(packets_of(name)))


def is_copy(pair: Pair, of: Pair) -> bool:
    """The same exchange with a retransmitted request: the capture begins between the two copies."""
    return pair[1] == of[1] and pair[0][1:] == of[0][1:] and of[0][0] < pair[0][0] < pair[1][0]


def starts(name: str) -> list[int]:
    count = len(packets_of(name))
    step = 1 if DEEP else max(count // STARTS, 1)
    return list(range(sum(map(ord, name)) % step, count, step))


def wrong(found: set[Pair], expected: set[Pair]) -> set[Pair]:
    return {pair for pair in found - expected if not any(is_copy(pair, other) for other in expected)}


@pytest.mark.parametrize("name", one_in(8, WHOLE))
def test_from_any_packet_on_pairs_are_those_of_the_whole(name: str) -> None:
    expected = whole(name)
    for start in starts(name):
        found = pairs(outputs(packets_of(name), start))
        assert not wrong(found, expected), f"from packet {start + 1} on"
        answered = {pair[1] for pair in found}
        missing = {one for one in expected if one[0][0] > start and one[1][0] > start and one[1] not in answered}
        assert not missing, f"from packet {start + 1} on"


def test_responses_before_the_first_request_are_not_paired_with_it() -> None:
    """java-0.8.2.pcap: all correlation ids are 0, so that the response to the previous request would fit."""
    assert any(pair[0][1] == 0 for pair in whole("java-0.8.2.pcap"))
    for start in (174, 175, 178, 180, 182, 183, 188):
        found = pairs(outputs(packets_of("java-0.8.2.pcap"), start))
        assert found <= whole("java-0.8.2.pcap")


# -- crafted


def odd(request: bytes, more: bytes = b"\0") -> bytes:
    return framed(request[4:] + more)


def framed(message: bytes) -> bytes:
    return int32(len(message)) + message


def talk(*messages: tuple[str, bytes], handshake: bool = False) -> list[Packet]:
    """A connection, usually without its beginning."""
    conversation = Conversation()
    conversation.handshake()
    if not handshake:
        conversation.packets.clear()
    for who, data in messages:
        conversation.send("client" if who == ">" else "broker", data)
    return conversation.packets


ANSWER = metadata_response(7, "broker-1", 9092, ["orders"])


def test_frames_of_another_protocol_with_equal_ids_are_not_kafka() -> None:
    """Length, command, id: a common layout of protocols. The numbers are those of Metadata, the rest is not."""
    head = int16(3) + int16(1)
    answers = [("<", framed(int32(number) + bytes(range(16)))) for number in (1, 2)]
    for body in (bytes(range(22)), string("worker") + bytes(24)):
        frames = [(">", framed(head + int32(number) + body)) for number in (1, 2)]
        out = outputs(talk(*[one for both in zip(frames, answers, strict=True) for one in both]))
        assert not pairs(out)
        assert body.startswith(string("worker")) or not reported(out)


# -- the user says that the port is Kafka's

PORT = 9092


def reported(out: list[object]) -> list[tuple[str, str | None, int | None, int | None]]:
    return [(one.type, one.api, one.api_version, one.correlation_id) for one in out if isinstance(one, Message)]


def asked(key: int, version: int, correlation_id: int, body: bytes = b"any", client_id: str | None = "some") -> bytes:
    return framed(int16(key) + int16(version) + int32(correlation_id) + string(client_id) + body)


def answered(correlation_id: int, body: bytes) -> bytes:
    return framed(int32(correlation_id) + body)


SHOWN: dict[str, tuple[list[tuple[str, bytes]], list[tuple[str, str | None, int | None, int]]]] = {
    "lone": ([("<", ANSWER)], [("response", None, None, 7)]),
    "lone-odd": ([("<", answered(3, b"\x01\x02\x03"))], [("response", None, None, 3)]),
    "version": ([(">", asked(77, 99, 1))], [("request", "ShareGroupDescribe", 99, 1)]),
    "key": ([(">", asked(500, 2, 1))], [("request", None, 2, 1)]),
    "no-client-id": ([(">", asked(500, 2, 1, client_id=None))], [("request", None, 2, 1)]),
    "key-answered": (
        [(">", asked(500, 2, 1)), ("<", answered(1, b"something"))],
        [("request", None, 2, 1), ("response", None, 2, 1)],
    ),
    "odd-bodies": (
        [(">", asked(3, 1, 1, int32(9) + string("cut"))), ("<", answered(1, b"no metadata"))],
        [("request", "Metadata", 1, 1), ("response", "Metadata", 1, 1)],
    ),
    "in-flight": (
        [("<", answered(4, b"first")), (">", metadata_request(7, ["orders"])), ("<", ANSWER)],
        [("response", None, None, 4), ("request", "Metadata", 1, 7), ("response", "Metadata", 1, 7)],
    ),
}


@pytest.mark.parametrize("handshake", [True, False])
def test_with_a_given_port_messages_are_shown(handshake: bool) -> None:
    for name, (messages, expected) in SHOWN.items():
        found = reported(outputs(talk(*messages, handshake=handshake), ports=[PORT]))
        assert sorted(found, key=str) == sorted(expected, key=str), name


GARBAGE = {
    "http": b"GET /metrics HTTP/1.1\r\nHost: kafka\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)) * 2,
    "ssh": b"SSH-2.0-OpenSSH_9.2p1\r\n",
    "zeros": b"\1" + bytes(64),
    "count": bytes(range(256)) * 4,
    "ones": b"\xff" * 100,
    "no-key": asked(2000, 1, 1, b""),
    "no-version": asked(3, 300, 1, b""),
    "no-text": asked(3, 1, 1, b"", "so\1me"),
    "no-length": framed(int16(3) + int16(1) + int32(1) + int16(500) + b"some"),
}


@pytest.mark.parametrize("handshake", [True, False])
def test_with_a_given_port_garbage_is_not_shown(handshake: bool) -> None:
    for name, first in GARBAGE.items():
        # After a frame's length, the broker's bytes may be a response of any kind.
        messages = [(">", first)] if first[:3] == bytes(3) else [(">", first), ("<", first)]
        packets = talk(*messages, handshake=handshake)
        assert not reported(outputs(packets, ports=[PORT])), name
        assert not reported(outputs(packets)), name


@pytest.mark.parametrize("garbage", range(1, 10))
def test_a_request_that_begins_in_a_short_first_segment(garbage: int) -> None:
    """The rest of a frame and the first bytes of a request: too few to look for a request."""
    made, request = Conversation(), metadata_request(7, ["orders"])
    made.send("client", b"\xff" * garbage + request[: 13 - garbage])
    made.send("client", request[13 - garbage :])
    made.send("broker", ANSWER)
    assert len(pairs(outputs(made.packets, exchanges=True))) == 1
