"""The next record of a connection: the earliest one, unless it needs a hello or keys that are not there yet."""

from __future__ import annotations

import ssl

import pytest

from kafkasniff.tcp.segments import Gap
from kafkasniff.tls import record
from kafkasniff.tls.half import Half, Loss
from kafkasniff.tls.negotiation import MAX_FOREIGN, Negotiation
from kafkasniff.tls.protection import Epoch
from kafkasniff.tls.readiness import is_clear, next_ready, skips
from kafkasniff.tls.record import Mark, Record
from tests.tls.endpoints import Pair, kafka_talk
from tests.tls.reading import keys
from tests.tls.test_negotiation import negotiated

V12, V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
NO_KEYS = keys(b"")


def queued(order: int, kind: int = record.HANDSHAKE) -> Record:
    return Record(kind, 0x303, b"x", (Mark(1, order, order, order, order),))


def loss(order: int, direction: int = 0) -> Loss:
    return Loss(Gap(order, direction, 10, order, order, True, order), in_step=True)


@pytest.mark.parametrize("first", [0, 1])
def test_the_earliest_record_is_next(first: int) -> None:
    halves = Half(0), Half(1)
    talk = Negotiation(halves)
    assert next_ready(talk, halves, NO_KEYS, 0) is None
    halves[first].queue.append(queued(3))
    halves[1 - first].queue.append(queued(5))
    assert next_ready(talk, halves, NO_KEYS, 9) is halves[first]
    halves[first].queue.popleft()
    assert next_ready(talk, halves, NO_KEYS, 9) is halves[1 - first]


@pytest.mark.parametrize("kind", [record.CHANGE_CIPHER_SPEC, record.APPLICATION_DATA])
def test_before_the_hellos_the_other_stream_goes_first(kind: int) -> None:
    """Both kinds mean something else in TLS 1.3."""
    halves = Half(0), Half(1)
    talk = Negotiation(halves)
    halves[0].queue.append(queued(1, kind))
    assert next_ready(talk, halves, NO_KEYS, 9) is None
    halves[1].queue.append(queued(2))
    assert next_ready(talk, halves, NO_KEYS, 9) is halves[1]


@pytest.mark.parametrize(
    ("version", "kind", "ready"),
    [
        (V12, record.CHANGE_CIPHER_SPEC, True),
        (V12, record.APPLICATION_DATA, True),
        (V13, record.CHANGE_CIPHER_SPEC, True),
        (V13, record.APPLICATION_DATA, False),
    ],
)
def test_after_the_hellos(version: ssl.TLSVersion, kind: int, ready: bool) -> None:
    talk, client, server = negotiated(version)
    client.queue.append(queued(1, kind))
    assert (next_ready(talk, (client, server), NO_KEYS, 9) is client) is ready


def test_a_loss_waits_for_nothing() -> None:
    talk, client, server = negotiated(V13)
    client.queue.append(loss(1))
    assert next_ready(talk, (client, server), NO_KEYS, 9) is client


@pytest.mark.parametrize(
    ("phase", "kind", "clear"),
    [
        ("clear", record.APPLICATION_DATA, True),
        ("tls12", record.HANDSHAKE, False),
        ("tls12", record.APPLICATION_DATA, False),
        ("handshake", record.CHANGE_CIPHER_SPEC, True),
        ("application", record.ALERT, True),
        ("application", record.APPLICATION_DATA, False),
    ],
)
def test_unprotected_records(phase: str, kind: int, clear: bool) -> None:
    half = Half(0)
    half.enter(Epoch(phase))  # type: ignore[arg-type]  # the phases are literals
    assert is_clear(half, queued(1, kind)) is clear


def secrets(kind: bytes) -> tuple[Negotiation, Half, Half, bytes]:
    """Both hellos of a connection of TLS 1.3, and the lines of its key log with secrets of a kind."""
    pair = Pair(version=V13)
    made = pair.talk(kafka_talk(1))
    talk = Negotiation(halves := (Half(0), Half(1)))
    for half, (_, data) in zip(halves, made.flights[:2], strict=True):
        for message, body in half.handshake.add(data[5 : 5 + int.from_bytes(data[3:5])]):
            assert talk.message(half, message, body, clear=True) is None
    lines = b"".join(line for line in made.key_log.splitlines(keepends=True) if kind in line)
    assert lines
    return talk, *halves, lines


def test_protected_records_wait_for_their_secret() -> None:
    talk, client, server, log = secrets(b"SERVER_HANDSHAKE_TRAFFIC_SECRET")
    server.queue.append(queued(1, record.APPLICATION_DATA))
    assert next_ready(talk, (client, server), NO_KEYS, 9) is None
    assert next_ready(talk, (client, server), keys(log), 9) is server
    client.queue.append(queued(0, record.APPLICATION_DATA))
    assert next_ready(talk, (client, server), keys(log), 9) is server, "the client's secret is not there"


def test_a_handshake_without_secrets_is_skipped_if_those_of_the_data_are_there() -> None:
    talk, _, server, log = secrets(b"SERVER_TRAFFIC_SECRET_0")
    assert not skips(talk, server, NO_KEYS, 9)
    assert server.epoch.phase == "handshake"
    assert skips(talk, server, keys(log), 9)
    assert (server.epoch, server.skippable) == (Epoch("application"), MAX_FOREIGN)
    assert not skips(talk, server, keys(log), 9), "this is the data"
