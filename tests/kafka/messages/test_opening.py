"""Reports about connections that fail early: the reason, as far as the bytes show it, and no more."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafkasniff.engine.inspector import Inspector
from kafkasniff.kafka.messages.plausibility import LARGE, LARGE_BEFORE_AUTHENTICATION, refusal
from kafkasniff.model import Message, Problem
from tests.craft import kafka_bytes as kb
from tests.craft.batches import batch
from tests.craft.conversation import Conversation
from tests.craft.packet import Packet

TLS_ALERT = bytes.fromhex("15030300020250")
"""internal_error: sent by the SSLEngine of JDK 17 after a request without TLS. Clients log its size (KAFKA-4090)."""
CLIENT_SIZE = 352_518_912

KINDS = {"connection-rejected", "answer-not-kafka", "sasl-refused", "not-kafka"}


def inspect(packets: list[Packet], **options: object) -> list[object]:
    """The inspector's events, the same for one batch and packet by packet."""
    inspector = Inspector(**options)  # type: ignore[arg-type]
    whole = [*inspector.feed(batch(packets)), *inspector.close()]
    inspector = Inspector(**options)  # type: ignore[arg-type]
    single = [one for place, packet in enumerate(packets) for one in inspector.feed(batch([packet], [place]))]
    assert [*single, *inspector.close()] == whole
    return whole


def reported(talk: Conversation | list[Packet], **options: object) -> list[tuple[str, str]]:
    """(kind, detail) of the reports about a failed connection."""
    out = inspect(talk if isinstance(talk, list) else talk.packets, **options)
    problems = [one for one in out if isinstance(one, Problem)]
    problems += [problem for one in out if isinstance(one, Message) for problem in one.problems]
    return [(one.kind, one.detail) for one in problems if one.kind in KINDS]


def begun() -> Conversation:
    talk = Conversation()
    talk.handshake()
    return talk


def greeted(version: int = 3, **options: object) -> Conversation:
    talk = begun()
    talk.exchange(kb.api_versions_request(1, version), kb.api_versions_response(1, version, **options))  # type: ignore[arg-type]
    return talk


def opened() -> Conversation:
    talk = greeted()
    talk.exchange(kb.metadata_request(2, None), kb.metadata_response(2, "h", 9092, ["orders"]))
    return talk


def sasl_handshake(correlation_id: int, version: int = 1) -> bytes:
    return kb.request(17, version, correlation_id, kb.string("PLAIN"))


def sasl_handshake_answer(correlation_id: int, error: int = 0, mechanisms: tuple[str, ...] = ("PLAIN",)) -> bytes:
    return kb.response(correlation_id, kb.int16(error) + kb.array([kb.string(name) for name in mechanisms]))


def sasl_authenticate(correlation_id: int) -> bytes:
    return kb.request(36, 0, correlation_id, kb.int32(4) + b"\0u\0p")


def sasl_authenticate_answer(correlation_id: int, error: int = 0) -> bytes:
    return kb.response(correlation_id, kb.int16(error) + kb.string(None) + kb.int32(0))


def closed(talk: Conversation, how: str = "fin") -> Conversation:
    if how == "fin":
        talk.close("broker")
    else:
        talk.reset("broker")
    return talk


def asked(data: bytes, talk: Conversation | None = None) -> Conversation:
    """The client sends this, and gets no answer."""
    talk = talk or begun()
    talk.send("client", data)
    return talk


def handshaken(version: int = 1) -> Conversation:
    talk = begun()
    talk.exchange(sasl_handshake(1, version), sasl_handshake_answer(1))
    return talk


WITH_SASL = ((17, 0, 1), (18, 0, 3), (36, 0, 2))
HELLO, METADATA = kb.api_versions_request(1, 3), kb.metadata_request(2, None)
MANY = ("TLS", "max.connections.per.ip", "proxy", "0.10")
CLOSED_EARLY: dict[str, tuple[Callable[[], Conversation], tuple[str, ...]]] = {
    "no answer to ApiVersions 0": (
        lambda: asked(kb.api_versions_request(1, 0)),
        ("without an answer to ApiVersions v0", *MANY),
    ),
    "no answer to ApiVersions 3": (lambda: asked(HELLO), ("without an answer to ApiVersions v3", *MANY)),
    "without authentication": (
        lambda: asked(METADATA, greeted()),
        ("at Metadata v1, before any authentication: probably the listener wants SASL",),
    ),
    "without a greeting": (lambda: asked(METADATA), ("SASL", "TLS", "this version")),
    "other versions": (
        lambda: asked(METADATA, greeted(ranges=((3, 2, 9), (18, 0, 3)))),
        ("at Metadata v1: its answer to ApiVersions has only versions 2 to 9 of it",),
    ),
    "no such API": (
        lambda: asked(METADATA, greeted(ranges=((0, 0, 9), (18, 0, 3)))),
        ("at Metadata v1: its answer to ApiVersions does not have this API",),
    ),
    "after the greeting": (greeted, ("after its answer to ApiVersions, before any other request",)),
    "SASL in the wrong order": (
        lambda: asked(sasl_authenticate(2), greeted(ranges=WITH_SASL)),
        ("SASL in the wrong order",),
    ),
    "no answer to credentials": (
        lambda: asked(sasl_authenticate(2), handshaken()),
        ("did not accept the credentials",),
    ),
    "no SaslHandshake": (lambda: asked(sasl_handshake(1)), ("at SaslHandshake v1: probably it is older than 0.10",)),
    "no answer to a raw token": (lambda: asked(kb.frame(b"\0user\0secret"), handshaken(0)), ("client's token",)),
}


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("name", CLOSED_EARLY)
def test_connections_that_the_broker_closes_early(name: str, how: str) -> None:
    make, causes = CLOSED_EARLY[name]
    ((kind, detail),) = reported(closed(make(), how))
    assert kind == "connection-rejected"
    assert detail.startswith("the broker closed the connection ")
    for cause in causes:
        assert cause in detail
    assert "secret" not in detail
    # It answered without TLS, if it answered.
    assert ("TLS" in detail.replace("SASL_SSL", "")) is ("TLS" in causes)


def test_a_client_that_is_too_new() -> None:
    """Error 35, and the client tries no other version, or the older one, as clients do."""
    for side, tries in (("client", False), ("broker", False), ("client", True)):
        talk = begun()
        talk.exchange(HELLO, kb.api_versions_response(1, 0, error=35))
        if tries:
            talk.exchange(kb.api_versions_request(2, 0), kb.api_versions_response(2, 0))
        talk.close(side)  # type: ignore[arg-type]
        found = reported(talk)
        assert [kind for kind, _ in found] == ["connection-rejected"] * (not tries)
        assert tries or "too new" in found[0][1]


@pytest.mark.parametrize(
    ("request_", "answer", "said"),
    [
        (sasl_handshake(2), sasl_handshake_answer(2, 33, ("GSSAPI", "OTHER")), "it takes GSSAPI, OTHER"),
        (sasl_handshake(2), sasl_handshake_answer(2, 33, ()), "it takes none"),
        (sasl_handshake(2), sasl_handshake_answer(2, 34), "has no SASL"),
        (sasl_authenticate(2), sasl_authenticate_answer(2, 34), "wrong order"),
        (sasl_authenticate(2), sasl_authenticate_answer(2, 58), "did not accept the credentials"),
    ],
)
def test_refusals_with_an_error(request_: bytes, answer: bytes, said: str) -> None:
    talk = greeted(ranges=WITH_SASL)
    talk.exchange(request_, answer)
    # Reported once, although the broker closes the connection, too.
    ((kind, detail),) = reported(closed(talk))
    assert kind == "sasl-refused"
    assert said in detail


def test_a_brokers_list_of_names_is_bounded() -> None:
    names = [f"{number}{'x' * 1000}" for number in range(1000)]
    problem = refusal(17, {"error_code": 33, "mechanisms": names})
    assert problem is not None
    assert len(problem.detail) < 400
    assert refusal(17, {"error_code": 0, "mechanisms": names}) is refusal(17, None) is refusal(36, {}) is None


@pytest.mark.parametrize(
    ("before", "size", "is_reported"),
    [
        (greeted, LARGE_BEFORE_AUTHENTICATION, True),
        (greeted, LARGE_BEFORE_AUTHENTICATION - 1, False),
        (opened, LARGE, True),
        (opened, LARGE - 1, False),
    ],
)
def test_closed_within_a_large_request(before: Callable[[], Conversation], size: int, is_reported: bool) -> None:
    talk = before()
    whole = kb.produce_request(9, "orders", bytes(size))
    talk.send("client", kb.int32(size) + whole[4:3000])
    found = reported(closed(talk, "rst"))
    assert [kind for kind, _ in found] == ["connection-rejected"] * is_reported
    if is_reported:
        assert f"a request of {size:,} bytes" in found[0][1]
        assert "socket.request.max.bytes" in found[0][1]


@pytest.mark.parametrize("head", [b"pass", b"\xff\xfe\xfd\xfc", b"    "])
def test_an_invalid_size_is_not_shown(head: bytes) -> None:
    talk = opened()
    talk.send("client", head + b"word and more")
    (detail,) = (one.detail for one in inspect(talk.packets) if isinstance(one, Problem) and one.kind == "frame-size")
    assert detail == "a frame of impossible size; its stream is searched for the next frame"


@pytest.mark.parametrize("sizes", [1448, [1], [2, 5], [3, 1]])
def test_a_client_without_tls_at_a_listener_with(sizes: int | list[int]) -> None:
    talk = asked(HELLO)
    talk.send("broker", TLS_ALERT, sizes)
    ((kind, detail),) = reported(closed(talk))
    assert kind == "answer-not-kafka"
    assert "expects TLS" in detail
    assert f"{CLIENT_SIZE:,}" in detail


def unanswered(talk: Conversation) -> Conversation:
    return asked(kb.metadata_request(3, None), talk)


def test_connections_without_a_report() -> None:
    """They were open, the client closed them, nobody did, or the client was authenticated."""
    authenticated = greeted(ranges=((3, 0, 9), *WITH_SASL))
    authenticated.exchange(sasl_handshake(2), sasl_handshake_answer(2))
    authenticated.exchange(sasl_authenticate(3), sasl_authenticate_answer(3))
    for talk in (unanswered(opened()), opened(), unanswered(authenticated)):
        assert reported(closed(talk)) == []
    for talk in (greeted(), unanswered(greeted()), begun()):
        talk.close("client")
        assert reported(talk) == []
    assert reported(unanswered(greeted())) == []


def test_connections_without_a_beginning() -> None:
    talk = closed(unanswered(greeted()))
    for missing in (1, 2, 3):
        assert reported(talk.packets[missing:]) == []


def test_connections_with_a_gap() -> None:
    talk = closed(unanswered(greeted()))
    for place, packet in enumerate(talk.packets):
        if packet.payload:
            assert reported(talk.packets[:place] + talk.packets[place + 1 :]) == []
            cut = packet.but(payload=packet.payload[:-3], cut=3)
            assert reported([*talk.packets[:place], cut, *talk.packets[place + 1 :]]) == []
