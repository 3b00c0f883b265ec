"""Requests on connections that the peer has closed, and look-alikes; recorded and crafted."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkasniff.engine.inspector import Inspector
from kafkasniff.model import Connection, Exchange, Problem
from tests.craft.batches import batch
from tests.craft.conversation import Conversation
from tests.craft.kafka_bytes import int16, int32, string
from tests.craft.outcome import files_outcome
from tests.craft.packet import ACK, FIN, RST, Packet

FAULTS = Path(__file__).parents[1] / "captures" / "faults"


def framed(message: bytes) -> bytes:
    return int32(len(message)) + message


def list_groups(correlation_id: int) -> bytes:
    return framed(int16(16) + int16(0) + int32(correlation_id) + string("writer"))


def no_groups(correlation_id: int) -> bytes:
    return framed(int32(correlation_id) + int16(0) + int32(0))


def answered() -> Conversation:
    """A connection with one exchange."""
    talk = Conversation()
    talk.handshake()
    talk.exchange(list_groups(1), no_groups(1))
    return talk


def ends(packets: list[Packet]) -> tuple[list[str], list[Problem]]:
    """States of the exchanges, and problems of streams and exchanges; the same in one batch and in many."""
    found = []
    for batches in ([batch(packets)], [batch([one], [at]) for at, one in enumerate(packets)]):
        inspector = Inspector(connections=True)
        out = [one for each in batches for one in inspector.feed(each)]
        out += inspector.close()
        assert len([one for one in out if isinstance(one, Connection)]) == 1
        found.append(
            (
                [str(one.status) for one in out if isinstance(one, Exchange)],
                [one for one in out if isinstance(one, Problem)],
            )
        )
    assert found[0] == found[1]
    return found[0]


def reported(problems: list[Problem]) -> list[tuple[str, str]]:
    return [(problem.kind, problem.detail.rpartition(": ")[2]) for problem in problems]


def test_a_request_after_the_brokers_end() -> None:
    talk = answered()
    talk._add("broker", FIN | ACK)
    talk.acknowledge("client")
    talk.wait(2_500_000_000)
    talk.send("client", list_groups(2), acknowledge=False)
    # The capture may end here, or with the RST that answers the request.
    for reset in ([], [talk.reset("broker").but(flags=RST)]):
        states, problems = ends([*talk.packets[: len(talk.packets) - len(reset)], *reset])
        assert states == ["answered", "unanswered"]
        assert reported(problems) == [("request-unanswered", "the broker had closed it 2.5 s before the request")]


def test_a_request_before_the_brokers_end() -> None:
    talk = answered()
    talk.send("client", list_groups(2), acknowledge=False)
    talk._add("broker", FIN | ACK)
    talk.acknowledge("client")
    assert ends(talk.packets) == (["answered", "open"], [])
    talk._add("client", FIN | ACK)
    states, problems = ends(talk.packets)
    assert states == ["answered", "unanswered"]
    assert reported(problems) == [("request-unanswered", "the connection ended without a response to this request")]


def test_an_answer_after_a_forged_end() -> None:
    talk = answered()
    talk.send("client", list_groups(2), acknowledge=False)
    talk._add("broker", FIN | ACK, seq=talk._next["broker"] + (1 << 30))
    talk.send("broker", no_groups(2))
    states, problems = ends(talk.packets)
    assert (states, [problem.kind for problem in problems]) == (["answered", "answered"], ["tcp-fin-ignored"])


@pytest.mark.parametrize(
    ("name", "connections", "kinds"),
    [
        ("close-answers-unread", 3, set()),
        ("close-answers-on-their-way", 3, {"request-unanswered", "tcp-data-after-rst"}),
        ("broker-killed-requests-on-their-way", 1, {"request-unanswered", "tcp-data-after-rst"}),
        ("idle-then-written", 1, {"request-unanswered"}),
        ("request-closes-connection", 1, {"request-unanswered"}),
    ],
)
def test_recorded_ends(name: str, connections: int, kinds: set[str]) -> None:
    outcome = files_outcome([FAULTS / f"{name}.pcap"])
    assert {line["kind"] for line in outcome.problems} == kinds
    assert outcome.summary.connections == outcome.summary.kafka_connections == connections
    late = [line for line in outcome.problems if "the broker had closed it" in line["detail"]]
    assert [line["detail"][-45:] for line in late] == (
        ["broker had closed it 2.3 s before the request"] if name == "idle-then-written" else []
    )
