"""What is Kafka, odd bodies after gaps, late segments and raw SASL, as the inspector reports them."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence

import pytest

from kafkasniff.engine.inspector import Inspector
from kafkasniff.kafka.connection.events import MAX_HELD
from kafkasniff.model import Connection, Problem, SaslToken
from tests.craft import kafka_bytes as kafka
from tests.craft.batches import batch
from tests.craft.conversation import Conversation
from tests.craft.packet import Packet
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

PROXY = (
    b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + bytes([192, 0, 2, 7, 198, 51, 100, 1]) + struct.pack(">HH", 4711, 9092)
)
"""The binary form (HAProxy, PROXY protocol version 2)."""
KERBEROS = kafka.frame(b"\x60\x82\x01\x00\x06\x09\x2a\x86\x48\x86\xf7\x12\x01\x02\x02" + bytes(100))
ANSWER = kafka.frame(b"\x60\x10" + bytes(40))
BIG = kafka.produce_request(2, "t", kafka.record_batch([kafka.record(0, None, bytes(900))]))
NAMED = kafka.metadata_response(2, "h" * 50, 1, ["t"])
HALF_LOST = [sends("broker", NAMED[:20]), lost(sends("broker", NAMED[20:50])), sends("broker", NAMED[50:])]
ONE = [asks(1), answers(1)]


def more(number: int) -> bytes:
    """A response with surplus bytes."""
    return kafka.frame(response(number)[4:] + b"more")


def cut(number: int) -> bytes:
    """A response whose body ends early."""
    return kafka.frame(response(number)[4:-3])


def short(number: int) -> bytes:
    """Metadata of three topics that ends after the first."""
    return kafka.request(3, 1, number, kafka.int32(3) + kafka.string("t"))


TORN = ["1 answered", "tcp-gap 30", "2 answered frame-incomplete array-too-long"]
TOKENS = ["request token GSSAPI", "response token GSSAPI"]
CASES: dict[str, tuple[list[Step], list[str]]] = {
    "a client cut off after one odd request": (
        [sends("client", odd(7)), closes("client")],
        ["7 unanswered trailing-bytes request-unanswered"],
    ),
    "a load balancer's header, byte by byte": (
        [sends("client", *(PROXY[at : at + 1] for at in range(len(PROXY)))), asks(7), answers(7)],
        ["proxy-protocol 28", "7 answered"],
    ),
    "might be TLS until the other side answers": (
        [sends("client", b"\x16\x03\x01", b"\0"), sends("broker", b"7.0.0.1, and no Kafka")],
        [],
    ),
    "an impossible size beside a partial frame": (
        [
            *(*ONE, sends("client", BIG[:300], BIG[300:600]), sends("broker", b"\xff\xff\xff\xfbgarbage")),
            *(sends("client", BIG[600:]), sends("broker", kafka.produce_response(2, "t", 0))),
        ],
        ["1 answered", "frame-size", "stream-resync 11", "2 answered"],
    ),
    "reset within a frame": (
        [*ONE, sends("client", request(2)[:15]), lambda talk: talk.reset("broker")],
        ["1 answered", "stream-cut 15"],
    ),
    **{
        f"{answer.__name__}: an odd response after a gap": (
            [*ONE, asks(2), *HALF_LOST, asks(3), answers(3), asks(4), sends("broker", answer(4))],
            [
                "1 answered",
                "tcp-gap 30",
                "2 answered frame-incomplete array-too-long",
                "3 answered",
                f"4 answered {kind}",
            ],
        )
        for answer, kind in ((more, "trailing-bytes"), (cut, "array-too-long"))
    },
    **{
        f"{answer.__name__}: one whose id is not the only one is an orphan": (
            [*ONE, asks(2), *HALF_LOST, asks(2), answers(2), asks(2), sends("broker", answer(2))],
            [*TORN, "2 answered", "2 orphan orphan-response", "2 lost response-lost"],
        )
        for answer in (more, cut)
    },
    "the last response after a gap is found by id and length": (
        [*ONE, asks(2), lost(answers(2)), asks(3), sends("broker", more(3)), closes("client")],
        ["1 answered", "tcp-gap 74", "2 lost response-lost", "3 answered trailing-bytes"],
    ),
    **{
        f"not with another {what}": (
            [*ONE, asks(2), lost(answers(2)), asks(3), sends("broker", data), closes("client")],
            ["1 answered", "tcp-gap 74", f"stream-cut {len(data)}", "2 lost response-lost", "3 lost response-lost"],
        )
        for what, data in (("length", more(3)[:-1]), ("id", more(9)))
    },
    "both streams lack a segment": (
        [*ONE, lost(asks(2)), lost(answers(2)), asks(3), answers(3), asks(4), answers(4)],
        ["1 answered", "tcp-gap 33", "tcp-gap 74", "3 answered", "4 answered"],
    ),
    "Kerberos from the start": (
        [
            *(sends("client", KERBEROS), sends("broker", ANSWER), sends("client", kafka.frame(b""))),
            *(sends("broker", kafka.frame(bytes(32))), sends("client", kafka.frame(bytes(32)))),
            *(sends("broker", kafka.frame(b"")), asks(2), answers(2)),
        ],
        [*TOKENS * 3, "2 answered"],
    ),
    "a truncated request ends tokens": (
        [
            *(*handshake("GSSAPI"), sends("client", KERBEROS), sends("broker", ANSWER)),
            *(snapped("client", kafka.metadata_request(2, ["topic"] * 20), 60), answers(2)),
        ],
        ["1 answered", *TOKENS, "2 answered frame-incomplete body-truncated"],
    ),
    **{
        f"{first.__name__}: a request ends tokens of {mechanism}": (
            [
                *([] if mechanism is None else handshake(mechanism)),
                *(sends("client", KERBEROS), sends("broker", kafka.frame(b"") if mechanism == "PLAIN" else ANSWER)),
                *(step for number in (2, 3) for step in (sends("client", first(number)), answers(number))),
                # A frame that is not a request is no longer a token, and is not shown.
                sends("client", kafka.frame(b"\x60" + bytes(30))),
            ],
            [
                *([] if mechanism is None else ["1 answered"]),
                *(f"{side} token {mechanism or 'GSSAPI'}" for side in ("request", "response")),
                *(f"2 answered {kind}", f"3 answered {kind}", "frame-unreadable 31"),
            ],
        )
        for mechanism in ("GSSAPI", "OAUTHBEARER", "PLAIN", None)
        for first, kind in ((odd, "trailing-bytes"), (short, "array-too-long"))
    },
    **{
        f"a token that resembles a request: {name}": (
            [
                *(*handshake("GSSAPI"), sends("client", KERBEROS), sends("broker", ANSWER)),
                *(sends("client", kafka.frame(token)), sends("broker", kafka.frame(b"")), asks(2), answers(2)),
            ],
            ["1 answered", *TOKENS * 2, "2 answered"],
        )
        for name, token in {
            "wrapped": b"\x05\x04\x04\xff\x00\x0c\x00\x00" + bytes(24),
            "zeros": bytes(32),
            "no client id": bytes(10) + b"\xff\xff" + bytes(20),
            "no text": b"\0\3\0\1\0\0\0\2\0\5\xff\xfe\xfd\xfc\xfb" + bytes(20),
            "no body": b"\0\3\0\1\0\0\0\2\0\0",
            "a version of tomorrow": b"\0\3\0\x63\0\0\0\2\0\4name" + bytes(4),
            "an API of tomorrow": b"\0\xc8\0\1\0\0\0\2\0\4name" + bytes(4),
        }.items()
    },
}


@pytest.mark.parametrize("name", CASES)
def test_from_the_start(name: str) -> None:
    steps, expected = CASES[name]
    assert outline(packets_of(*steps)) == expected


@pytest.mark.parametrize(
    ("head", "word"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP"),
        (bytes.fromhex("1603010200010001fc0303") + bytes(500), "TLS"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "SSH"),
        (b"\x00\x00\x00\x05hello", "not Kafka"),
    ],
)
def test_other_protocols(head: bytes, word: str) -> None:
    """They are problems of ports that are Kafka's, because the user or other connections say so."""
    steps = sends("client", head), sends("broker", b"whatever comes back")
    assert events(*steps) == []
    kind = "tls-not-decrypted" if word == "TLS" else "not-kafka"
    (problem,) = events(*steps, ports=[9092])
    assert (problem.kind, word in problem.detail) == (kind, True)
    other = Conversation(("10.0.0.7", 50_001))
    other.handshake()
    for step in ONE:
        step(other)
    assert [line for line in outline([*other.packets, *packets_of(*steps)]) if kind in line] == [kind]


def floods(side: str, count: int) -> Step:
    return lambda talk: [talk.send(side, b"\xff" * 60_000, 60_000) for _ in range(count)]  # type: ignore[arg-type]


@pytest.mark.parametrize("begins", [True, False])
def test_other_protocols_are_not_quoted(begins: bool) -> None:
    """The start of a stream may be a raw SASL token whose handshake took another path or was not captured."""
    token = kafka.frame(b"\0user\0secret")
    (problem,) = events(sends("client", token), floods("client", 80), begins=begins, ports=[9092])
    assert problem.kind == "not-kafka"
    for secret in (b"user", b"secret", token[4:8]):
        assert secret.hex() not in problem.detail.replace(" ", "")


@pytest.mark.parametrize("begins", [True, False])
def test_random_bytes_are_not_kafka(begins: bool) -> None:
    chance, noise = random.Random(1), []
    for _ in range(150):
        noise.append(sends(chance.choice(["client", "broker"]), chance.randbytes(60_000)))  # type: ignore[arg-type]
    (connection,) = events(*noise, begins=begins, connections=True)
    assert connection.verdict == "not_kafka"


@pytest.mark.parametrize(("count", "verdict"), [(69, "kafka"), (70, "not_kafka")])
def test_bytes_that_are_searched(count: int, verdict: str) -> None:
    """A stream that was not seen from its beginning may become Kafka within `SEARCH_LIMIT` of each side."""
    found = events(floods("client", count), floods("broker", count), *ONE, begins=False, connections=True)
    assert [one.verdict for one in found if isinstance(one, Connection)] == [verdict]


def test_problems_before_the_verdict_are_bounded_by_kind() -> None:
    def waits(talk: Conversation) -> None:
        for _ in range(40):
            talk.acknowledge("broker")

    noise = sends("client", b"\xff" * 90), lost(sends("client", bytes(10))), sends("client", b"\xff" * 9), waits
    found = events(*noise * (MAX_HELD + 10), *ONE, begins=False)
    gaps = [one for one in found if isinstance(one, Problem) and one.kind == "tcp-gap"]
    assert len(gaps) == MAX_HELD
    assert gaps[-1].detail.endswith("(further ones are not reported)")


@pytest.mark.parametrize("size", [1, 5, 4_000])
def test_frames_in_a_row_that_are_too_short_are_one_problem(size: int) -> None:
    def sent(side: str, data: bytes) -> Step:
        return lambda talk: talk.send(side, data, size)  # type: ignore[arg-type]

    tiny = bytes(4 * 200) + b"\0\0\0\7" + bytes(7)
    found = events(*ONE, sent("client", tiny), asks(2), answers(2), sent("client", bytes(4)), sent("broker", bytes(12)))
    details = [one.detail for one in found if isinstance(one, Problem)]
    what = "a frame of 0 bytes, too few for a"
    assert [details[0], *details[2:4]] == [f"{what} request", f"{what} request", f"{what} response"]
    assert details[1].startswith("200 more frames in a row of less than 8 bytes, too few for a request, from packet ")
    assert details[4].startswith("2 more frames in a row of less than 4 bytes, too few for a response, from packet ")
    assert [one.bytes for one in found if isinstance(one, Problem)] == [0, 4 * 199 + 11, 0, 0, 8]


# -- segments that arrive long after their gap was declared ------------------------------------------------------------


def late(steps: Sequence[Step], place: int, change: Callable[[bytes], bytes] = bytes, times: int = 1) -> list[Packet]:
    """The packets of steps of which one comes last, changed, and several times."""
    whole = packets_of(*steps)
    found = packets_of(*(lost(step) if at == place else step for at, step in enumerate(steps)))
    captured = {(one.seq, one.sport) for one in found if one.payload}
    (missing,) = [one for one in whole if one.payload and (one.seq, one.sport) not in captured]
    last = missing.but(payload=change(missing.payload), time_ns=found[-1].time_ns + MS, ident=9_000)
    return [*found, *(last.but(time_ns=last.time_ns + at * MS, ident=9_000 + at) for at in range(times))]


AFTER = [step for number in range(3, 40) for step in (asks(number), answers(number))]
ANSWERED = [f"{number} answered" for number in (1, *range(3, 40))]


@pytest.mark.parametrize(
    ("place", "change", "expected"),
    [
        # A request is shown; its response did not wait.
        (2, bytes, ["tcp-gap 33", "2 orphan orphan-response", "2 open"]),
        (2, lambda data: b"x" * len(data), ["tcp-gap 33", "2 orphan orphan-response"]),
        # A response after a later one stays lost, whatever arrives.
        (3, bytes, ["tcp-gap 74", "2 lost response-lost"]),
        (3, lambda data: data[:-1], ["tcp-gap 74", "2 lost response-lost"]),
        (3, lambda data: b"x" * len(data), ["tcp-gap 74", "2 lost response-lost"]),
    ],
    ids=["request", "no request", "response", "cut response", "no response"],
)
def test_late_segments(place: int, change: Callable[[bytes], bytes], expected: list[str]) -> None:
    found = outline(late([*ONE, asks(2), answers(2), *AFTER], place, change))
    assert [line for line in found if line not in ANSWERED] == expected


@pytest.mark.parametrize("place", [2, 3])
def test_a_late_segment_counts_once(place: int) -> None:
    size = len(request(2) if place == 2 else response(2))
    for times, missing in ((0, size), (1, 0), (3, 0)):
        inspector = Inspector()
        inspector.feed(batch(late([*ONE, asks(2), answers(2), *AFTER], place, times=times)))
        inspector.close()
        summary = inspector.summary
        assert (summary.bytes_lost, summary.bytes_repeated) == (missing, size * max(times - 1, 0))
        assert summary.bytes_decoded + summary.bytes_skipped + summary.bytes_lost == summary.bytes_stream


def test_tokens_are_hidden() -> None:
    steps = [*handshake("PLAIN"), sends("client", kafka.frame(b"\0user\0secret")), sends("broker", kafka.frame(b""))]
    for shows, expected in ((False, [None, None]), (True, [b"\0user\0secret", b""])):
        found = events(*steps, show_secrets=shows)
        assert [one.token for one in found if isinstance(one, SaslToken)] == expected
        assert (b"secret" in repr(found).encode()) is shows
