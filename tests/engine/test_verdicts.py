"""The inspector on crafted connections: what is Kafka, odd bodies after gaps, and raw SASL tokens."""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from kafkasniff.engine.inspector import Inspector
from kafkasniff.kafka.connection.events import MAX_HELD
from kafkasniff.model import Connection, Exchange, Message, Problem, SaslToken
from kafkasniff.tcp.packets import RST
from tests.craft import kafka_bytes as kb
from tests.engine.inspected import GREETING, Talk, flaws, greeted, inspect, messages, problems, statuses
from tests.oracle.tcp.batches import batch

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
    chance = random.Random(1)
    for handshake in (True, False):
        talk = Talk(handshake=handshake, segment=60_000)
        for _ in range(150):
            talk.send(chance.randint(0, 1), chance.randbytes(60_000))
        inspector = Inspector()
        out = inspector.feed(batch(talk.packets)) + inspector.close()
        assert out == []
        assert inspector.summary.not_kafka == 1


def test_bytes_that_are_searched() -> None:
    """A stream that was not seen from its beginning may become Kafka within `SEARCH_LIMIT` of each side."""

    def verdict(*sent: int) -> str:
        talk = Talk(handshake=False, segment=60_000)
        for side, count in enumerate(sent):
            for _ in range(count):
                talk.send(side, b"\xff" * 60_000)
        talk.send(0, kb.metadata_request(2, ["t"])).send(1, kb.metadata_response(2, "h", 1, ["t"])).end()
        (found,) = (one for one in inspect(talk, connections=True) if isinstance(one, Connection))
        return found.verdict

    assert verdict(69, 69) == "kafka"
    assert verdict(70, 70) == "not_kafka"


def test_problems_before_the_verdict_are_bounded_by_kind() -> None:
    talk = Talk(handshake=False)
    for _ in range(MAX_HELD + 10):
        talk.send(0, b"\xff" * 90).lose(0, 10).acknowledge(1)
    out = inspect(talk.send(0, kb.metadata_request(2, ["t"])).send(1, kb.metadata_response(2, "h", 1, ["t"])))
    found = [one for one in out if isinstance(one, Problem) and one.kind == "tcp-gap"]
    assert len(found) == MAX_HELD
    assert found[-1].detail.endswith("(further ones are not reported)")


def test_a_client_cut_off_after_one_odd_request_is_shown() -> None:
    odd = kb.request(kb.API_VERSIONS, 0, 1, b"extra")  # a body with extra bytes, as old clients sent
    out = inspect(Talk().send(0, odd).end())
    assert messages(out) == [("request", "ApiVersions", 0, 1, 1)]
    assert flaws(out) == ["trailing-bytes"]


@pytest.mark.parametrize(
    "prologue",
    [
        b"PROXY TCP4 192.0.2.7 198.51.100.1 4711 9092\r\n",
        b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c"
        + bytes([192, 0, 2, 7, 198, 51, 100, 1])
        + struct.pack(">HH", 4711, 9092),
    ],
)
@pytest.mark.parametrize("segment", [1, 1000])
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
    """Unless its id is not the only one: then it is an orphan."""
    out = after_a_gap([2, 3, 4], answer)
    assert statuses(out) == [(1, "answered"), (2, "answered"), (3, "answered"), (4, "answered")]
    (last,) = [m for m in out if isinstance(m, Message) and m.type == "response" and m.correlation_id == 4]
    assert last.api == "Metadata"
    assert last.problems
    out = after_a_gap([2, 2, 2], answer)
    assert {status for _, status in statuses(out)[-2:]} == {"orphan", "lost"}


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


def test_late_messages() -> None:
    """A request is shown; a response that arrives after a later one stays lost, and other bytes are not shown."""
    out = inspect(late(kb.metadata_request(2, ["t"]), sender=0))
    assert ("request", "Metadata", 1, 2) in [m[:4] for m in messages(out)]
    without = messages(inspect(late()))
    whole = kb.metadata_response(2, "h", 1, ["t"])
    out = inspect(late(whole))
    assert [e.status for e in out if isinstance(e, Exchange) and e.request and e.request.correlation_id == 2] == [
        "lost"
    ]
    assert [m[:4] for m in messages(out)] == [m[:4] for m in without]
    for data in (b"x" * 60, kb.metadata_response(9, "h", 1, ["t"]), whole[:-1]):
        assert messages(inspect(late(data))) == without


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


@pytest.mark.parametrize("snap", [20, 58, 100])
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
    talk.metadata(2)
    out = inspect(talk.end())
    assert tokens(out) == [("request", 12, "PLAIN"), ("response", 0, "PLAIN")]
    assert [m[:4] for m in messages(out)][2:] == [("request", "Metadata", 1, 2), ("response", "Metadata", 1, 2)]
    assert all(t.token is None for t in out if isinstance(t, SaslToken))
    shown = inspect(talk, show_secrets=True)
    assert next(t.token for t in shown if isinstance(t, SaslToken)) == b"\0user\0secret"


def test_gssapi_from_the_start() -> None:
    talk = Talk().send(0, kb.frame(FIRST_OF_GSSAPI)).send(1, kb.frame(b"\x60\x10" + bytes(40)))
    talk.send(0, kb.frame(b"")).send(1, kb.frame(bytes(32))).send(0, kb.frame(bytes(32))).send(1, kb.frame(b""))
    talk.metadata(2)
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
    talk.metadata(2)
    out = inspect(talk.end())
    assert [direction for direction, _, _ in tokens(out)] == ["request", "response"] * 2
    assert [m[:4] for m in messages(out)][2:] == [("request", "Metadata", 1, 2), ("response", "Metadata", 1, 2)]


# -- the end --------------------------------------------------------------------------------------------------------


def test_reset_and_truncated_frames_are_reported() -> None:
    talk = greeted().send(0, kb.metadata_request(2, ["topic"])[:15])
    talk.end(RST)
    out = inspect(talk)
    assert [(p.kind, p.bytes) for p in out if isinstance(p, Problem)] == [("stream-cut", 15)]
