"""What clients and brokers say in tests of engines: exchanges, usual and not, and beginnings of connections."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

from kafkasniff.packets import PacketBatch
from tests.craft import kafka_bytes as kafka
from tests.craft.batches import batch
from tests.craft.conversation import START_NS, Conversation
from tests.craft.from_layout import request_bytes, response_bytes
from tests.craft.packet import Packet

RECORDS = kafka.record_batch([kafka.record(0, b"k", b"v" * 30)])
TOPIC_ID = bytes(range(16))

Say = Callable[[Conversation, int], None]
"""Says something on a connection, with this correlation id."""


def exchange_of(
    request: Callable[[int], bytes], response: Callable[[int], bytes], sizes: Sequence[int] = (1448,)
) -> Say:
    def say(talk: Conversation, number: int) -> None:
        talk.exchange(request(number), response(number), sizes)

    return say


def sent(*parts: tuple[str, Callable[[int], bytes]]) -> Say:
    """One after the other, each in one segment."""

    def say(talk: Conversation, number: int) -> None:
        for side, data in parts:
            talk.send(side, data(number), 65_000)

    return say


def _heartbeat(number: int, **header: object) -> bytes:
    body = kafka.string("group") + kafka.int32(3) + kafka.string("member")
    return kafka.request(12, 0, number, body, **header)


def _heard(number: int, error: int = 0) -> bytes:
    return kafka.response(number, kafka.int16(error))


def said_by(client_id: str, wait_ns: int = 0) -> Say:
    """A request of a client, and its response after a while."""

    def say(talk: Conversation, number: int) -> None:
        talk.send("client", _heartbeat(number, client_id=client_id))
        talk.wait(wait_ns)
        talk.send("broker", _heard(number))

    return say


produce = exchange_of(
    lambda n: kafka.produce_request(n, "orders", RECORDS), lambda n: kafka.produce_response(n, "orders", n)
)
USUAL: dict[str, Say] = {
    "produce": produce,
    "produce 9": exchange_of(
        lambda n: kafka.produce_request(n, "orders", RECORDS, version=9),
        lambda n: kafka.produce_response(n, "orders", n, version=9),
    ),
    "fetch": exchange_of(
        lambda n: kafka.fetch_request(n, "orders", n), lambda n: kafka.fetch_response(n, "orders", RECORDS, n + 1)
    ),
    "fetch by id": exchange_of(
        lambda n: kafka.fetch_request_by_id(n, [(TOPIC_ID, [0])]),
        lambda n: kafka.fetch_response_by_id(n, [(TOPIC_ID, 0, RECORDS)]),
    ),
    "metadata": exchange_of(
        lambda n: kafka.metadata_request_by_id(n, [(kafka.NO_ID, "orders")]),
        lambda n: kafka.metadata_response_with_ids(n, [(TOPIC_ID, "orders")], [(1, "broker", 9092)]),
    ),
    "heartbeat": exchange_of(_heartbeat, _heard),
    "without a client id": exchange_of(lambda n: _heartbeat(n, client_id=None), _heard),
}


def _changed(message: bytes, at: int, value: bytes) -> bytes:
    return message[:at] + value + message[at + len(value) :]


def beats(numbers: Iterable[int]) -> bytes:
    return b"".join(map(_heartbeat, numbers))


def all_heard(numbers: Iterable[int]) -> bytes:
    return b"".join(map(_heard, numbers))


def _shut_down(number: int) -> bytes:
    """ControlledShutdown v0, whose header has no client id."""
    return kafka.frame(kafka.int16(7) + kafka.int16(0) + kafka.int32(number) + kafka.int32(1))


def _listed(number: int) -> bytes:
    """ListGroups v3 with a tagged header field that also reads as a body if it is taken for one."""
    header = kafka.int16(16) + kafka.int16(3) + kafka.int32(number) + kafka.string("c")
    return kafka.frame(header + bytes.fromhex("01 01 03 03 aa bb") + b"\0")


def without_answer(number: int) -> bytes:
    return kafka.produce_request(number, "orders", RECORDS, acks=0)


UNUSUAL: dict[str, Say] = {
    "error": exchange_of(_heartbeat, lambda n: _heard(n, 27)),
    "an invalid code": exchange_of(_heartbeat, lambda n: _heard(n, 999)),
    "in a row": sent(
        ("client", lambda n: beats(range(n * 1000, n * 1000 + 5))),
        ("broker", lambda n: all_heard(range(n * 1000, n * 1000 + 5))),
    ),
    "crossing": sent(
        ("client", lambda n: _heartbeat(n * 1000)),
        ("client", lambda n: _heartbeat(n * 1000 + 1)),
        ("broker", lambda n: _heard(n * 1000)),
        ("client", lambda n: _heartbeat(n * 1000 + 2)),
        ("broker", lambda n: all_heard((n * 1000 + 1, n * 1000 + 2))),
    ),
    "acks 0": sent(("client", without_answer)),
    "acks 0, version 9": sent(("client", lambda n: kafka.produce_request(n, "orders", RECORDS, acks=0, version=9))),
    "acks 0, many": sent(("client", lambda n: b"".join(without_answer(n * 1000 + at) for at in range(70)))),
    "acks 0, answered": sent(
        ("client", lambda n: without_answer(n) + _heartbeat(n + 500)),
        ("broker", lambda n: kafka.produce_response(n, "orders", n) + _heard(n + 500)),
    ),
    "acks 0, all the same id": sent(
        ("client", lambda n: without_answer(7) + _heartbeat(7)),
        ("broker", lambda n: _heard(7)),
        ("client", lambda n: kafka.produce_request(7, "orders", RECORDS, acks=0, version=9) + _heartbeat(7)),
        ("broker", lambda n: _heard(7)),
    ),
    "in pieces": exchange_of(_heartbeat, _heard, [7, 3]),
    "one and a piece": exchange_of(lambda n: beats((n, n + 500)), lambda n: all_heard((n, n + 500)), [40, 30]),
    "another id": exchange_of(_heartbeat, lambda n: _heard(n + 100)),
    "the same id": exchange_of(lambda n: _heartbeat(7), lambda n: _heard(7)),
    "backwards": exchange_of(lambda n: beats((n, n + 500)), lambda n: all_heard((n + 500, n))),
    "an answer first": sent(("broker", _heard), ("client", _heartbeat)),
    "no answer": sent(("client", _heartbeat)),
    "a client id in Latin-1": exchange_of(
        lambda n: kafka.frame(kafka.int16(12) + kafka.int16(0) + kafka.int32(n) + b"\0\3f\xfcr" + _heartbeat(0)[21:]),
        _heard,
    ),
    "a client id too long": exchange_of(lambda n: _changed(_heartbeat(n), 12, b"\x7f\xff"), _heard),
    "a client id below null": exchange_of(lambda n: _changed(_heartbeat(n), 12, b"\xff\xf0"), _heard),
    "the first header": exchange_of(_shut_down, lambda n: kafka.response(n, kafka.int16(0) + kafka.int32(0))),
    "the first header, no body": exchange_of(
        lambda n: kafka.frame(_shut_down(n)[4:12]), lambda n: kafka.response(n, b"")
    ),
    "tags in a header": exchange_of(_listed, lambda n: kafka.response(n, b"\0\0\0\0\0\0\0\1\0", flexible=True)),
    "tags in the answer's": exchange_of(
        lambda n: kafka.request(16, 3, n, b"\0", flexible=True),
        lambda n: kafka.response(n, b"\1\5\1x" + b"\0\0\0\0\0\0\1\0"),
    ),
    "a body cut": exchange_of(
        lambda n: kafka.request(12, 0, n, kafka.string("group")), lambda n: kafka.response(n, b"")
    ),
    "ahead, more than a body": sent(
        ("client", lambda n: _heartbeat(n * 1000)),
        ("client", lambda n: _heartbeat(n * 1000 + 1)),
        ("client", lambda n: _heartbeat(n * 1000 + 2)),
        ("client", lambda n: _heartbeat(n * 1000 + 3)),
        ("broker", lambda n: kafka.response(n * 1000, kafka.int16(0) + b"more")),
        ("broker", lambda n: all_heard(range(n * 1000 + 1, n * 1000 + 4))),
    ),
    "more than a body": exchange_of(_heartbeat, lambda n: kafka.response(n, kafka.int16(0) + b"more")),
    "a version of tomorrow": exchange_of(lambda n: kafka.request(12, 9, n, b"whatever", flexible=True), _heard),
    "an API of tomorrow": exchange_of(lambda n: kafka.request(120, 0, n, b"whatever"), _heard),
    "an API of much later": exchange_of(lambda n: kafka.request(900, 0, n, b"whatever"), _heard),
    "records of tomorrow": exchange_of(
        lambda n: kafka.request(1, 30, n, b"whatever", flexible=True),
        lambda n: kafka.response(n, b"what\xffever", flexible=True),
    ),
    "Produce of tomorrow": exchange_of(lambda n: kafka.request(0, 30, n, b"\0\0\0", flexible=True), _heard),
    "secrets of tomorrow": exchange_of(lambda n: kafka.request(51, 9, n, b"secret", flexible=True), _heard),
    "configurations of tomorrow": exchange_of(lambda n: kafka.request(32, 9, n, b"any", flexible=True), _heard),
    "versions": exchange_of(lambda n: kafka.api_versions_request(n, 3), lambda n: kafka.api_versions_response(n, 3)),
    "a size of nothing": sent(("broker", lambda n: kafka.frame(b""))),
    "a size of three": sent(("broker", lambda n: kafka.frame(b"abc"))),
    "a size below zero": sent(("client", lambda n: b"\xff\xff\xff\xf0" + b"x" * 20)),
    "many in a segment": sent(
        ("client", lambda n: beats(range(n * 1000, n * 1000 + 70))),
        ("broker", lambda n: all_heard(range(n * 1000, n * 1000 + 70))),
    ),
    "large": exchange_of(
        lambda n: kafka.produce_request(n, "o" * 1000, RECORDS), lambda n: kafka.produce_response(n, "o" * 1000, n)
    ),
}


def _assignment() -> bytes:
    data = kafka.int16(0) + kafka.array([kafka.string("orders") + kafka.array([kafka.int32(0)])]) + kafka.int32(-1)
    return kafka.int32(len(data)) + data


UNUSUAL |= {
    "versions refused": exchange_of(
        lambda n: kafka.api_versions_request(n, 3), lambda n: kafka.response(n, kafka.int16(35) + kafka.int32(0))
    ),
    "versions of tomorrow": exchange_of(
        lambda n: kafka.request(18, 9, n, b"whatever", flexible=True),
        lambda n: kafka.response(n, kafka.int16(35) + kafka.array([kafka.int16(18) + kafka.int16(0) + kafka.int16(4)])),
    ),
    "versions of tomorrow, answered in full": exchange_of(
        lambda n: kafka.request(18, 9, n, b"whatever", flexible=True), lambda n: kafka.api_versions_response(n, 3)
    ),
    "versions in error": exchange_of(
        lambda n: kafka.api_versions_request(n, 3),
        lambda n: _changed(kafka.api_versions_response(n, 3), 8, kafka.int16(42)),
    ),
}


GROUP: dict[str, Say] = {
    "join": exchange_of(
        lambda n: request_bytes(
            *(11, 0, n), group_id="g", protocol_type="of our own", session_timeout_ms=9, protocols=[{"name": "range"}]
        ),
        lambda n: response_bytes(11, 0, n, generation_id=3, protocol_name="range", leader="leader", member_id="member"),
    ),
    "sync": exchange_of(
        lambda n: request_bytes(14, 0, n, group_id="g", generation_id=3, member_id="member"),
        lambda n: kafka.response(n, kafka.int16(0) + _assignment()),
    ),
}
"""A classic group: the first response says what the bytes in the second are."""
SAID = USUAL | UNUSUAL | GROUP


def talks(said: Sequence[Sequence[str]], skew_ns: int = 0, words: Mapping[str, Say] = SAID) -> list[list[Packet]]:
    """Packets of connections: a common beginning, then these messages, by a broker whose clock differs."""
    before, after = [], []
    for place, what in enumerate(said):
        start = START_NS + place * 1_700
        talk = Conversation(("10.0.0.5", 50_000 + place), ("10.0.0.9", 9092), start_ns=start)
        talk.handshake()
        for number in range(3):
            produce(talk, number)
        known = len(talk.packets)
        for number, one in enumerate(what, start=10):
            words[one](talk, number)
        before += talk.packets[:known]
        after += talk.packets[known:]
    before.sort(key=lambda packet: packet.time_ns)
    after.sort(key=lambda packet: packet.time_ns)
    return [before, [one._replace(time_ns=one.time_ns + skew_ns) if one.sport == 9092 else one for one in after]]


def opened(place: int, *said: str, port: int = 9092) -> list[Packet]:
    """A connection from its SYN on."""
    talk = Conversation(("10.0.0.5", 50_000 + place), ("10.0.0.9", port), start_ns=START_NS + place * 1_300)
    talk.handshake()
    for number, one in enumerate(said):
        SAID[one](talk, number)
    return talk.packets


def together(*parts: list[Packet]) -> list[Packet]:
    return sorted(chain.from_iterable(parts), key=lambda packet: packet.time_ns)


def ended(packets: list[Packet]) -> list[Packet]:
    """The broker closes the connection after these packets."""
    client, broker = (
        next(one for one in reversed(packets) if (one.sport == 9092) is is_broker) for is_broker in (False, True)
    )
    broker_seq = broker.seq + len(broker.payload) + (broker.flags & 2 > 0)
    client_seq = client.seq + len(client.payload) + (client.flags & 2 > 0)
    end = broker._replace(seq=broker_seq, ack=client_seq, payload=b"", flags=0x11)
    last = client._replace(seq=client_seq, ack=broker_seq + 1, payload=b"", flags=0x11)
    times = [packets[-1].time_ns + 1_000, packets[-1].time_ns + 2_000]
    return [*packets, *(one._replace(time_ns=time_ns) for one, time_ns in zip((end, last), times, strict=True))]


def _without(packets: list[Packet], place: int) -> list[Packet]:
    return [*packets[:place], *packets[place + 1 :]]


_HELLO = bytes.fromhex("16 03 01 00 c8 01 00 00 c4 03 03") + bytes(189)
BEGINNINGS: dict[str, list[Packet]] = {
    **{name: opened(0, name, "produce", name) for name in SAID},
    "a greeting that is answered, and the end": ended(opened(18, "versions")),
    "a greeting, and the end": ended(opened(19, "versions")[:4]),
    "a greeting that is refused": opened(20, "versions refused"),
    "a greeting that is refused, and the end": ended(opened(21, "versions refused")),
    "a greeting that is refused, and another": opened(22, "versions refused", "versions", "produce"),
    "a greeting with an error": ended(opened(23, "versions in error")),
    "a greeting, a request and the end": ended(opened(24, "versions", "no answer")),
    "a request without an answer, and the end": ended(opened(25, "no answer")),
    "two greetings": opened(26, "versions", "produce", "versions", "produce"),
    "nothing more": opened(1),
    "a SYN": opened(2)[:1],
    "a SYN twice": [opened(3, "produce")[0], *opened(3, "produce")],
    "a SYN of other numbers": [opened(4, "produce")[0]._replace(seq=77), *opened(4, "produce")],
    "an answer that does not fit": [
        one._replace(ack=one.ack + 1) if place == 1 else one for place, one in enumerate(opened(5, "produce"))
    ],
    "an answer twice": [*opened(6)[:2], *opened(6, "produce")[1:]],
    "without the SYN": opened(7, "produce", "fetch")[1:],
    "without the answer": _without(opened(8, "produce", "fetch"), 1),
    "without the third": _without(opened(9, "produce", "fetch"), 2),
    "without the first request": _without(opened(10, "produce", "fetch"), 3),
    "data with the SYN": [opened(11)[0]._replace(payload=b"early"), *opened(11, "produce")[1:]],
    "a SYN in its midst": [*opened(12, "produce"), opened(12)[0]._replace(seq=5), *opened(12, "fetch")[3:]],
    "refused": [opened(13)[0], opened(13)[1]._replace(flags=0x14)],
    "TLS": [*opened(14), *(one._replace(payload=_HELLO) for one in opened(14, "produce")[3:4])],
    "no Kafka": [*opened(15), *(one._replace(payload=b"GET / HTTP/1.1\r\n") for one in opened(15, "produce")[3:4])],
    "another port": opened(16, "produce", "heartbeat", port=9093),
    "from a port that is Kafka's": [
        one._replace(sport=one.dport, dport=one.sport, src=one.dst, dst=one.src) for one in opened(17, "produce")
    ],
}


def packets_of(packets: Sequence[Sequence[Packet]], cuts: Sequence[int]) -> list[PacketBatch]:
    """Batches: the first part, and the second one, cut in percent of all packets."""
    whole = batch([*packets[0], *packets[1]])
    size = len(whole)
    parts = []
    gone = 0
    for border in sorted({len(packets[0]), *(size * cut // 100 for cut in cuts)} - {0, size}):
        head, whole = whole.split(border - gone)
        parts.append(head)
        gone = border
    return [*parts, whole]


def talk_from(port: int, start: int) -> Conversation:
    """A connection from this port on; `start`: nanoseconds after the usual time."""
    found = Conversation(("10.0.0.6", port), ("10.0.0.9", 9092), start_ns=START_NS + start)
    found.handshake()
    return found
