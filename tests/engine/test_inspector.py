"""The inspector on crafted connections: verdicts, boundaries, pairing, SASL, and reports of incomplete data."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from kafkasniff.engine.inspector import Inspector
from kafkasniff.model import Exchange, Message, Problem, SaslToken
from kafkasniff.tcp.packets import ACK, FIN, RST, SYN
from tests.craft import kafka_bytes as kb
from tests.tcp.batches import Raw, batch

BATCH = kb.record_batch([kb.record(0, b"k", b"value")])


class Talk:
    """Packets of one connection, in the order in which they are sent."""

    def __init__(self, *, conversation: int = 0, handshake: bool = True, segment: int = 1460) -> None:
        self.seq = [1000, 2000]
        self.packets: list[Raw] = []
        self.segment = segment
        self.conversation = conversation
        if handshake:
            self.packets += [
                self._raw(0, self.seq[0] - 1, flags=SYN),
                self._raw(1, self.seq[1] - 1, flags=SYN | ACK, ack=self.seq[0]),
            ]

    def _raw(self, sender: int, seq: int, payload: bytes = b"", **fields: Any) -> Raw:
        return Raw(sender, seq, payload, conversation=self.conversation, **fields)

    def send(self, sender: int, data: bytes, *, snap: int | None = None) -> Talk:
        for at in range(0, len(data), self.segment):
            part = data[at : at + self.segment]
            kept = part if snap is None else part[:snap]
            self.packets.append(self._raw(sender, self.seq[sender], kept, wire=len(part), ack=self.seq[1 - sender]))
            self.seq[sender] += len(part)
        return self

    def lose(self, sender: int, count: int) -> Talk:
        """Bytes that were sent but not captured, acknowledged often enough to be known as lost."""
        self.seq[sender] += count
        return self

    def acknowledge(self, sender: int, times: int = 40) -> Talk:
        self.packets += [self._raw(sender, self.seq[sender], ack=self.seq[1 - sender]) for _ in range(times)]
        return self

    def end(self, flags: int = FIN | ACK) -> Talk:
        for sender in (0, 1):
            self.packets.append(self._raw(sender, self.seq[sender], flags=flags, ack=self.seq[1 - sender]))
            self.seq[sender] += 1
        return self


def inspect(packets: list[Raw] | Talk, **options: Any) -> list[Any]:
    """Events of the inspector; fails if one batch and packet by packet differ."""
    if isinstance(packets, Talk):
        packets = packets.packets
    inspector = Inspector(**options)
    whole = inspector.feed(batch(packets)) + inspector.close()
    inspector = Inspector(**options)
    single: list[Any] = []
    for index, packet in enumerate(packets):
        single += inspector.feed(batch([packet._replace(time_ns=(index + 1) * 1000)], start=index))
    single += inspector.close()
    assert single == whole
    return whole


def messages(out: list[Any]) -> list[tuple[Any, ...]]:
    return [(m.type, m.api, m.api_version, m.correlation_id, m.exchange) for m in out if isinstance(m, Message)]


def statuses(out: list[Any]) -> list[tuple[int, str]]:
    return [(e.exchange, e.status) for e in out if isinstance(e, Exchange)]


def problems(out: list[Any]) -> list[str]:
    return [p.kind for p in out if isinstance(p, Problem)]


def greeted(**options: Any) -> Talk:
    return Talk(**options).send(0, kb.api_versions_request(1)).send(1, kb.api_versions_response(1))


GREETING = [("request", "ApiVersions", 0, 1, 1), ("response", "ApiVersions", 0, 1, 1)]


def test_an_exchange() -> None:
    out = inspect(greeted().send(0, kb.metadata_request(2, None)).send(1, kb.metadata_response(2, "h", 1, ["t"])).end())
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


@pytest.mark.parametrize("segment", [1, 2, 3, 5, 7, 100])
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


def test_several_messages_in_a_segment() -> None:
    talk = greeted().send(0, b"".join(kb.metadata_request(i, None) for i in range(2, 30)))
    talk.send(1, b"".join(kb.metadata_response(i, "h", 1, []) for i in range(2, 30)))
    out = inspect(talk)
    assert messages(out)[2:] == [("request", "Metadata", 1, i, i) for i in range(2, 30)] + [
        ("response", "Metadata", 1, i, i) for i in range(2, 30)
    ]


def test_acks_0_has_no_response() -> None:
    talk = greeted()
    for i in (2, 3, 4):
        talk.send(0, kb.produce_request(i, "t", BATCH, acks=0))
    talk.send(0, kb.metadata_request(5, None)).send(1, kb.metadata_response(5, "h", 1, []))
    out = inspect(talk.end())
    assert statuses(out) == [
        (1, "answered"),
        (2, "no_response"),
        (3, "no_response"),
        (4, "no_response"),
        (5, "answered"),
    ]
    assert not problems(out)


def test_acks_0_with_a_response() -> None:
    talk = greeted().send(0, kb.produce_request(2, "t", BATCH, acks=0)).send(1, kb.produce_response(2, "t", 0))
    out = inspect(talk.end())
    assert statuses(out) == [(1, "answered"), (2, "answered")]
    assert [p.kind for m in out if isinstance(m, Message) for p in m.problems] == ["response-to-acks-0"]


def test_repeated_correlation_ids_pair_in_order() -> None:
    talk = greeted()
    talk.send(0, kb.metadata_request(7, None) + kb.produce_request(7, "t", BATCH))
    talk.send(1, kb.metadata_response(7, "h", 1, []) + kb.produce_response(7, "t", 0))
    out = inspect(talk.end())
    assert messages(out)[2:] == [
        ("request", "Metadata", 1, 7, 2), ("request", "Produce", 3, 7, 3),
        ("response", "Metadata", 1, 7, 2), ("response", "Produce", 3, 7, 3),
    ]  # fmt: skip


def test_correlation_ids_that_wrap() -> None:
    talk = greeted()
    for i in (2**31 - 1, -(2**31), -1, 0):
        talk.send(0, kb.metadata_request(i, None)).send(1, kb.metadata_response(i, "h", 1, []))
    assert [status for _, status in statuses(inspect(talk.end()))] == ["answered"] * 5


def test_messages_are_the_same_without_exchanges() -> None:
    talk = greeted().send(0, kb.produce_request(2, "t", BATCH, acks=0) + kb.metadata_request(3, None))
    talk.send(1, kb.metadata_response(3, "h", 1, []) + kb.metadata_response(77, "h", 1, []))
    talk.send(0, kb.metadata_request(4, None)).end()
    with_ends = [event for event in inspect(talk) if not isinstance(event, Exchange)]
    assert inspect(talk, exchanges=False) == with_ends
    assert len(with_ends) == 8


def test_unanswered_open_and_orphan() -> None:
    out = inspect(greeted().send(0, kb.metadata_request(2, None)).end())
    assert statuses(out) == [(1, "answered"), (2, "unanswered")]
    assert problems(out) == ["request-unanswered"]
    out = inspect(greeted().send(0, kb.metadata_request(2, None)))
    assert statuses(out) == [(1, "answered"), (2, "open")]
    assert not problems(out)
    out = inspect(greeted().send(1, kb.metadata_response(99, "h", 1, [])).end())
    assert statuses(out) == [(1, "answered"), (2, "orphan")]
    orphan = next(m for m in out if isinstance(m, Message) and m.exchange == 2)
    assert (orphan.api, orphan.api_key, orphan.body, orphan.correlation_id) == (None, None, None, 99)
    assert [p.kind for p in orphan.problems] == ["orphan-response"]


def test_a_response_out_of_order_is_paired_and_reported() -> None:
    talk = greeted().send(0, kb.metadata_request(2, None) + kb.metadata_request(3, None))
    talk.send(1, kb.metadata_response(3, "h", 1, []) + kb.metadata_response(2, "h", 1, []))
    out = inspect(talk.end())
    assert sorted(statuses(out)) == [(1, "answered"), (2, "answered"), (3, "answered")]
    assert [p.kind for m in out if isinstance(m, Message) for p in m.problems] == ["response-out-of-order"]


def test_an_unanswered_request_makes_one_response_out_of_order() -> None:
    talk = greeted().send(0, b"".join(kb.metadata_request(i, None) for i in range(2, 40)))
    out = inspect(talk.send(1, b"".join(kb.metadata_response(i, "h", 1, []) for i in range(3, 40))).end())
    assert [p.kind for m in out if isinstance(m, Message) for p in m.problems] == ["response-out-of-order"]
    assert problems(out) == ["request-unanswered"]


def test_many_requests_with_acks_0_in_a_row() -> None:
    talk = greeted()
    for i in range(2, 202):
        talk.send(0, kb.produce_request(i, "t", BATCH, acks=0))
    out = inspect(talk.end())
    assert [status for _, status in statuses(out)] == ["answered"] + ["no_response"] * 200
    assert not problems(out)


def test_a_response_captured_before_its_request() -> None:
    talk = greeted().send(1, kb.metadata_response(2, "h", 1, [])).send(0, kb.metadata_request(2, None))
    out = inspect(talk.end())
    assert statuses(out) == [(1, "answered"), (2, "answered")]
    response = next(m for m in out if isinstance(m, Message) and m.type == "response" and m.exchange == 2)
    assert response.latency_ns == -1000
    assert [p.kind for p in response.problems] == ["latency-negative"]


# -- boundaries -----------------------------------------------------------------------------------------------------


def test_a_gap_within_a_frame_costs_that_frame_only() -> None:
    talk = greeted(segment=50)
    big = kb.produce_request(2, "topic", kb.record_batch([kb.record(0, None, b"x" * 500)]))
    talk.send(0, big[:100]).lose(0, 50).send(0, big[150:]).acknowledge(1)
    talk.send(0, kb.metadata_request(3, None)).send(1, kb.metadata_response(3, "h", 1, []))
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
    for i in (4, 5):
        talk.send(0, kb.metadata_request(i, None)).send(1, kb.metadata_response(i, "h", 1, []))
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


def test_a_response_lost_in_a_gap() -> None:
    talk = greeted().send(0, b"".join(kb.metadata_request(i, None) for i in (2, 3, 4)))
    talk.lose(1, len(kb.metadata_response(2, "h", 1, []))).send(1, kb.metadata_response(3, "h", 1, [])).acknowledge(0)
    talk.send(1, kb.metadata_response(4, "h", 1, []))
    out = inspect(talk.end())
    assert sorted(statuses(out)) == [(1, "answered"), (2, "lost"), (3, "answered"), (4, "answered")]
    assert "response-lost" in problems(out)


@pytest.mark.parametrize("cut", [0, 1, 3, 9, 17])
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


def test_short_snap_length_still_shows_headers() -> None:
    talk = Talk(segment=2000)
    big = kb.record_batch([kb.record(0, None, b"x" * 1500)])
    for i in range(1, 5):
        talk.send(0, kb.produce_request(i, "topic", big), snap=60).send(1, kb.produce_response(i, "topic", i), snap=60)
    out = inspect(talk.end())
    # The verdict is reached with the second request: earlier messages are emitted then, and so follow it.
    assert sorted(m[:4] for m in messages(out)) == sorted(
        (kind, "Produce", 3, i) for i in range(1, 5) for kind in ("request", "response")
    )
    assert [status for _, status in statuses(out)] == ["answered"] * 4
    assert "tcp-gap" not in problems(out)


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
    talk.send(0, kb.metadata_request(2, None)).send(1, kb.metadata_response(2, "h", 1, []))
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
    talk = greeted().send(0, kb.metadata_request(2, None)).send(1, kb.metadata_response(2, "h", 1, []))
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


# -- verdicts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "word"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP"),
        (bytes.fromhex("160301020001 0001fc0303".replace(" ", "")) + bytes(500), "TLS"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "SSH"),
        (b"\x00\x00\x00\x05hello", "not Kafka"),
    ],
)
def test_other_protocols(head: bytes, word: str) -> None:
    stranger = Talk(conversation=1).send(0, head).send(1, b"whatever comes back")
    assert inspect(stranger) == []  # a port unrelated to Kafka: counted only
    kind = "tls-not-decrypted" if word == "TLS" else "not-kafka"
    (problem,) = inspect(stranger, ports=[9092])
    assert problem.kind == kind
    assert word in problem.detail
    (problem,) = (x for x in inspect([*greeted().packets, *stranger.packets]) if isinstance(x, Problem))
    assert problem.kind == kind


@pytest.mark.parametrize("handshake", [True, False])
def test_other_protocols_are_not_quoted(handshake: bool) -> None:
    """The start of a stream may be a raw SASL token whose handshake took another path or was not captured."""
    token = kb.frame(b"\0user\0secret")
    talk = Talk(handshake=handshake, segment=60_000).send(0, token)
    for _ in range(80):  # without a SYN the verdict needs more data
        talk.send(0, b"\xff" * 60_000)
    (problem,) = inspect(talk, ports=[9092])
    assert problem.kind == "not-kafka"
    for secret in (b"user", b"secret", token[4:8]):
        assert secret.hex() not in problem.detail.replace(" ", "")


def test_forced_ports_exclude_others() -> None:
    assert messages(inspect(greeted(), ports=[9092])) == GREETING
    assert not inspect(greeted(), ports=[9093])


def test_random_bytes_are_not_kafka() -> None:
    import random

    chance = random.Random(1)
    for handshake in (True, False):
        talk = Talk(handshake=handshake, segment=60_000)
        for _ in range(200):
            talk.send(chance.randint(0, 1), chance.randbytes(60_000))
        inspector = Inspector()
        out = inspector.feed(batch(talk.packets)) + inspector.close()
        assert out == []
        assert inspector.summary.not_kafka == 1


def test_a_client_cut_off_after_one_odd_request_is_shown() -> None:
    odd = kb.request(kb.API_VERSIONS, 0, 1, b"extra")  # a body with extra bytes, as old clients sent
    out = inspect(Talk().send(0, odd).end())
    assert messages(out) == [("request", "ApiVersions", 0, 1, 1)]
    assert [p.kind for m in out if isinstance(m, Message) for p in m.problems] == ["trailing-bytes"]


@pytest.mark.parametrize(
    "prologue",
    [
        b"PROXY TCP4 192.0.2.7 198.51.100.1 4711 9092\r\n",
        b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c"
        + bytes([192, 0, 2, 7, 198, 51, 100, 1])
        + struct.pack(">HH", 4711, 9092),
    ],
)
@pytest.mark.parametrize("segment", [1, 6, 1000])
def test_proxy_protocol(prologue: bytes, segment: int) -> None:
    talk = Talk(segment=segment).send(0, prologue).send(0, kb.api_versions_request(1))
    out = inspect(talk.send(1, kb.api_versions_response(1)))
    assert messages(out) == GREETING
    (problem,) = (x for x in out if isinstance(x, Problem))
    assert problem.kind == "proxy-protocol"
    assert "192.0.2.7 port 4711" in problem.detail


# -- odd bodies after a gap -------------------------------------------------------------------------------------------


def odd_response(correlation_id: int) -> bytes:
    return kb.frame(kb.metadata_response(correlation_id, "h", 1, ["t"])[4:] + b"more")


def broken_response(correlation_id: int) -> bytes:
    return kb.frame(kb.metadata_response(correlation_id, "h", 1, ["t"])[4:-3])


def after_a_gap(ids: list[int], answer: Callable[[int], bytes]) -> list[Any]:
    """The response to the first of three requests lacks bytes in its middle; the one to the third is `answer`."""
    talk = greeted()
    whole = kb.metadata_response(ids[0], "h" * 50, 1, ["t"])
    talk.send(0, kb.metadata_request(ids[0], ["t"])).send(1, whole[:20]).lose(1, 30).send(1, whole[50:])
    talk.acknowledge(0)
    talk.send(0, kb.metadata_request(ids[1], ["t"])).send(1, kb.metadata_response(ids[1], "h", 1, ["t"]))
    talk.send(0, kb.metadata_request(ids[2], ["t"])).send(1, answer(ids[2]))
    return inspect(talk.end())


@pytest.mark.parametrize("answer", [odd_response, broken_response])
def test_after_a_gap_an_odd_response_finds_its_request(answer: Callable[[int], bytes]) -> None:
    out = after_a_gap([2, 3, 4], answer)
    assert statuses(out) == [(1, "answered"), (2, "answered"), (3, "answered"), (4, "answered")]
    (last,) = [m for m in out if isinstance(m, Message) and m.type == "response" and m.correlation_id == 4]
    assert last.api == "Metadata"
    assert last.problems


@pytest.mark.parametrize("answer", [odd_response, broken_response])
def test_after_a_gap_an_odd_response_with_a_repeated_id_is_an_orphan(answer: Callable[[int], bytes]) -> None:
    out = after_a_gap([2, 2, 2], answer)
    assert [status for _, status in statuses(out)][-2:] in (["orphan", "lost"], ["lost", "orphan"])


@pytest.mark.parametrize("answer", [odd_response, broken_response])
def test_the_last_response_after_a_gap_is_found_by_id_and_length(answer: Callable[[int], bytes]) -> None:
    def talk(last: bytes) -> Talk:
        one = greeted().send(0, kb.metadata_request(2, ["t"])).lose(1, 60).acknowledge(0)
        return one.send(0, kb.metadata_request(3, ["t"])).send(1, last).acknowledge(0).end()

    found = [m[:4] for m in messages(inspect(talk(answer(3))))]
    assert found[-1] == ("response", "Metadata", 1, 3)
    for other in (answer(3)[:-1], answer(3) + b"more", answer(9), b"x" * 40):
        assert not [m for m in messages(inspect(talk(other))) if m[0] == "response" and m[1] == "Metadata"]


def late(*missing: bytes, sender: int = 1) -> Talk:
    """Two exchanges; segments of one side arrive long after a gap was declared."""
    talk = greeted().acknowledge(0)
    frames = [kb.metadata_request(2, ["t"]), kb.metadata_response(2, "h", 1, ["t"])]
    place = talk.seq[sender]
    if sender == 1:
        talk.send(0, frames[0]).lose(1, len(frames[1]))
    else:
        talk.lose(0, len(frames[0])).send(1, frames[1])
    talk.send(0, kb.metadata_request(3, ["t"])).send(1, kb.metadata_response(3, "h", 1, ["t"]))
    talk.acknowledge(0).acknowledge(1)
    for data in missing:
        talk.packets.append(talk._raw(sender, place, data, ack=talk.seq[1 - sender], ident=len(talk.packets)))
        place += len(data)
    return talk.acknowledge(0, 1)


def test_a_segment_long_after_its_gap_fills_the_missing_bytes() -> None:
    first, second = (kb.metadata_response(number, "h" * 40, 1, ["t"]) for number in (2, 3))
    talk = greeted().acknowledge(0).send(0, kb.metadata_request(2, ["t"])).send(0, kb.metadata_request(3, ["t"]))
    place = talk.seq[1]
    talk.lose(1, len(first)).send(1, second[:30]).acknowledge(0).acknowledge(1)
    talk.packets.append(talk._raw(1, place, first, ack=talk.seq[0]))
    talk.send(1, second[30:]).acknowledge(0)
    out = inspect(talk)
    answered = [e for e in out if isinstance(e, Exchange) and e.request and e.request.api == "Metadata"]
    assert [(e.request and e.request.correlation_id, e.status) for e in answered] == [(2, "answered"), (3, "answered")]


def test_a_response_that_arrives_after_a_later_one_stays_lost() -> None:
    out = inspect(late(kb.metadata_response(2, "h", 1, ["t"])))
    assert [m[:4] for m in messages(out)] == [m[:4] for m in messages(inspect(late()))]
    assert [e.status for e in out if isinstance(e, Exchange) and e.request and e.request.correlation_id == 2] == [
        "lost"
    ]


def test_a_late_request_is_shown() -> None:
    out = inspect(late(kb.metadata_request(2, ["t"]), sender=0))
    assert ("request", "Metadata", 1, 2) in [m[:4] for m in messages(out)]


@pytest.mark.parametrize("sender", [0, 1])
def test_a_late_segment_counts_once(sender: int) -> None:
    data = kb.metadata_response(2, "h", 1, ["t"]) if sender else kb.metadata_request(2, ["t"])
    for times, missing in ((0, len(data)), (1, 0), (3, 0)):
        talk = late(*[data] * min(times, 1), sender=sender)
        talk.packets += talk.packets[-2:-1] * max(times - 1, 0)
        inspector = Inspector()
        inspector.feed(batch(talk.packets))
        inspector.close()
        summary = inspector.summary
        assert summary.bytes_lost == missing
        assert summary.bytes_decoded + summary.bytes_skipped + summary.bytes_lost == summary.bytes_stream
        assert summary.bytes_repeated == len(data) * max(times - 1, 0)


@pytest.mark.parametrize(
    "data", [b"x" * 60, kb.metadata_response(9, "h", 1, ["t"]), kb.metadata_response(2, "h", 1, ["t"])[:-1]]
)
def test_a_late_segment_that_is_not_a_response_is_not_shown(data: bytes) -> None:
    found = messages(inspect(late(data)))
    assert found == messages(inspect(late()))


def test_responses_whose_requests_were_held_back_are_found() -> None:
    """Both streams lack a segment; the data after it is released at the end, the broker's first."""
    talk = greeted().acknowledge(0)
    first = talk.packets[0]
    assert first.sender == 0
    lost = kb.metadata_request(2, ["t"])
    talk.lose(0, len(lost)).lose(1, len(kb.metadata_response(2, "h", 1, ["t"])))
    for number in (3, 4):
        talk.send(0, kb.metadata_request(number, ["t"])).send(1, kb.metadata_response(number, "h", 1, ["t"]))
    # The ports the other way round: the stream of the lower endpoint is released first.
    turned = [packet._replace(sender=1 - packet.sender) for packet in talk.packets]
    for packets in (talk.packets, turned):
        out = inspect(packets)
        pairs = Counter(m.exchange for m in out if isinstance(m, Message) and m.api == "Metadata")
        assert list(pairs.values()) == [2, 2]
        assert not [m for m in out if isinstance(m, Message) and m.correlation_id == 2]


@pytest.mark.parametrize("snap", [20, 30, 58, 100])
@pytest.mark.parametrize("client_id", ["crafted", "a client whose name is longer than what is kept of it, as some are"])
def test_one_exchange_truncated_by_the_snap_length(snap: int, client_id: str) -> None:
    request = kb.request(3, 1, 5, kb.array([kb.string("a topic with a long name")] * 5), client_id=client_id)
    talk = Talk().send(0, request, snap=snap).send(1, kb.metadata_response(5, "h" * 100, 1, ["t"]), snap=snap)
    out = inspect(talk.end())
    assert [m[:4] for m in messages(out)] == [("request", "Metadata", 1, 5), ("response", "Metadata", 1, 5)]
    other = Talk().send(0, request, snap=snap).send(1, kb.metadata_response(6, "h" * 100, 1, ["t"]), snap=snap)
    assert not messages(inspect(other.end()))


# -- raw SASL -------------------------------------------------------------------------------------------------------


def handshake_v0(mechanism: str) -> Talk:
    talk = Talk().send(0, kb.request(17, 0, 1, kb.string(mechanism)))
    return talk.send(1, kb.response(1, kb.int16(0) + kb.array([kb.string(mechanism)])))


def tokens(out: list[Any]) -> list[tuple[str, int, str | None]]:
    return [(t.direction, t.size, t.mechanism) for t in out if isinstance(t, SaslToken)]


def test_raw_plain() -> None:
    talk = handshake_v0("PLAIN").send(0, kb.frame(b"\0user\0secret")).send(1, kb.frame(b""))
    talk.send(0, kb.metadata_request(2, None)).send(1, kb.metadata_response(2, "h", 1, []))
    out = inspect(talk.end())
    assert tokens(out) == [("request", 12, "PLAIN"), ("response", 0, "PLAIN")]
    assert [m[:4] for m in messages(out)][2:] == [("request", "Metadata", 1, 2), ("response", "Metadata", 1, 2)]
    assert all(t.token is None for t in out if isinstance(t, SaslToken))
    shown = inspect(talk, show_secrets=True)
    assert next(t.token for t in shown if isinstance(t, SaslToken)) == b"\0user\0secret"


def test_raw_scram() -> None:
    talk = handshake_v0("SCRAM-SHA-256")
    for client, broker in ((b"n,,n=user,r=abc", b"r=abcdef,s=c2FsdA==,i=4096"), (b"c=biws,r=abcdef,p=cHI=", b"v=c2ln")):
        talk.send(0, kb.frame(client)).send(1, kb.frame(broker))
    talk.send(0, kb.metadata_request(2, None)).send(1, kb.metadata_response(2, "h", 1, []))
    out = inspect(talk.end())
    assert len(tokens(out)) == 4
    assert messages(out)[-1][:4] == ("response", "Metadata", 1, 2)


def test_gssapi_from_the_start() -> None:
    first = b"\x60\x82\x01\x00\x06\x09\x2a\x86\x48\x86\xf7\x12\x01\x02\x02" + bytes(100)
    talk = Talk().send(0, kb.frame(first)).send(1, kb.frame(b"\x60\x10" + bytes(40)))
    talk.send(0, kb.frame(b"")).send(1, kb.frame(bytes(32))).send(0, kb.frame(bytes(32))).send(1, kb.frame(b""))
    talk.send(0, kb.metadata_request(2, None)).send(1, kb.metadata_response(2, "h", 1, []))
    out = inspect(talk.end())
    assert [direction for direction, _, _ in tokens(out)] == ["request", "response"] * 3
    assert {mechanism for _, _, mechanism in tokens(out)} == {"GSSAPI"}
    assert [m[:4] for m in messages(out)] == [("request", "Metadata", 1, 2), ("response", "Metadata", 1, 2)]


FIRST_OF_GSSAPI = b"\x60\x82\x01\x00\x06\x09\x2a\x86\x48\x86\xf7\x12\x01\x02\x02" + bytes(100)


def odd_request(correlation_id: int) -> bytes:
    """Metadata with an extra byte, as librdkafka sends it."""
    return kb.frame(kb.metadata_request(correlation_id, ["t"])[4:] + b"\0")


def broken_request(correlation_id: int) -> bytes:
    """Metadata of three topics that ends after the first."""
    return kb.request(3, 1, correlation_id, kb.int32(3) + kb.string("t"))


@pytest.mark.parametrize("first", [odd_request, broken_request])
@pytest.mark.parametrize("mechanism", ["GSSAPI", "OAUTHBEARER", "PLAIN", None])
def test_a_request_with_any_body_ends_raw_tokens(first: Callable[[int], bytes], mechanism: str | None) -> None:
    talk = Talk() if mechanism is None else handshake_v0(mechanism)
    talk.send(0, kb.frame(FIRST_OF_GSSAPI)).send(1, kb.frame(b"" if mechanism == "PLAIN" else b"\x60\x10" + bytes(40)))
    for number in (2, 3):
        talk.send(0, first(number)).send(1, kb.metadata_response(number, "h", 1, ["t"]))
    # A frame that is not a request is no longer a token, and is not shown.
    talk.send(0, kb.frame(b"\x60" + bytes(30)))
    out = inspect(talk.end())
    assert [direction for direction, _, _ in tokens(out)] == ["request", "response"]
    found = [m for m in messages(out) if m[1] == "Metadata"]
    assert [m[:4] for m in found] == [
        (side, "Metadata", 1, number) for number in (2, 3) for side in ("request", "response")
    ]
    assert "frame-unreadable" in problems(out)


def test_a_truncated_request_ends_raw_tokens() -> None:
    talk = handshake_v0("GSSAPI").send(0, kb.frame(FIRST_OF_GSSAPI)).send(1, kb.frame(b"\x60\x10"))
    talk.send(0, kb.metadata_request(2, ["topic"] * 20), snap=60).send(
        1, kb.metadata_response(2, "h", 1, ["topic"] * 20)
    )
    out = inspect(talk.end())
    assert [m[:4] for m in messages(out)][2:] == [("request", "Metadata", 1, 2), ("response", "Metadata", 1, 2)]


@pytest.mark.parametrize(
    "token",
    [
        b"\x05\x04\x04\xff\x00\x0c\x00\x00" + bytes(24),
        bytes(32),
        bytes(10) + b"\xff\xff" + bytes(20),
        b"\0\3\0\1\0\0\0\2\0\5\xff\xfe\xfd\xfc\xfb" + bytes(20),
        b"\0\3\0\1\0\0\0\2\0\0",
        b"\0\3\0\x63\0\0\0\2\0\4name" + bytes(4),
        b"\0\xc8\0\1\0\0\0\2\0\4name" + bytes(4),
    ],
    ids=["wrap", "zeros", "no-client-id", "no-text", "no-body", "version", "key"],
)
def test_tokens_that_resemble_requests_are_tokens(token: bytes) -> None:
    talk = handshake_v0("GSSAPI").send(0, kb.frame(FIRST_OF_GSSAPI)).send(1, kb.frame(b"\x60\x10" + bytes(40)))
    talk.send(0, kb.frame(token)).send(1, kb.frame(b""))
    talk.send(0, kb.metadata_request(2, None)).send(1, kb.metadata_response(2, "h", 1, []))
    out = inspect(talk.end())
    assert [direction for direction, _, _ in tokens(out)] == ["request", "response"] * 2
    assert [m[:4] for m in messages(out)][2:] == [("request", "Metadata", 1, 2), ("response", "Metadata", 1, 2)]


# -- the end --------------------------------------------------------------------------------------------------------


def test_reset_and_truncated_frames_are_reported() -> None:
    talk = greeted().send(0, kb.metadata_request(2, ["topic"])[:15])
    talk.end(RST)
    out = inspect(talk)
    assert [(p.kind, p.bytes) for p in out if isinstance(p, Problem)] == [("stream-cut", 15)]


def test_bytes_add_up() -> None:
    talk = greeted(segment=50).send(0, kb.metadata_request(2, ["t"])).lose(0, 77).acknowledge(1)
    talk.send(0, b"junk" * 40).send(0, kb.metadata_request(3, None)).acknowledge(1)
    inspector = Inspector()
    inspector.feed(batch(talk.packets))
    inspector.close()
    summary = inspector.summary
    assert summary.bytes_stream == talk.seq[0] + talk.seq[1] - 3000
    assert summary.bytes_lost == 77
    assert summary.bytes_decoded + summary.bytes_skipped + summary.bytes_lost == summary.bytes_stream


def test_connections_are_numbered_by_first_packet() -> None:
    late = greeted(conversation=1)
    early = greeted(conversation=2)
    packets = [late.packets[0], early.packets[0], *early.packets[1:], *late.packets[1:]]
    seen = {(m.connection, m.client.port) for m in inspect(packets) if isinstance(m, Message) and m.client}
    assert seen == {(1, 1001), (2, 1002)}
