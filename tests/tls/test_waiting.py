"""When waiting for a hello or for keys is useless, and the reason given then."""

from __future__ import annotations

import ssl

import pytest

from kafkasniff.tls import record, waiting
from kafkasniff.tls.failing import INCOMPLETE
from kafkasniff.tls.half import Half
from kafkasniff.tls.keylog import KeyLog
from kafkasniff.tls.negotiation import Negotiation
from kafkasniff.tls.record import Mark, Record
from kafkasniff.tls.waiting import MAX_FLIGHT, MAX_WAITING, reason_at_end, why_useless
from kafkasniff.tls.wording import NO_ANSWER, NO_KEYS, OTHER_KEYS
from tests.tls.reading import keys
from tests.tls.test_negotiation import negotiated

V12, V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
NONE = KeyLog()
OTHERS = keys(b"CLIENT_RANDOM " + b"ab" * 32 + b" " + b"cd" * 48 + b"\n")
LATE = keys(b"", grows=True)


def put(half: Half, size: int, kind: int = record.APPLICATION_DATA) -> None:
    half.queue.append(Record(kind, 0x303, bytes(size), (Mark(1, 1, 1, 1, 1),)))
    half.held += size


def both(client: Half, server: Half) -> tuple[Half, Half]:
    return (client, server) if client.direction == 0 else (server, client)


def test_nothing_waits() -> None:
    halves = Half(0), Half(1)
    assert why_useless(Negotiation(halves), halves, NONE, 9) is None


def test_without_a_hello_only_the_bounds_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    halves = Half(0), Half(1)
    talk = Negotiation(halves)
    put(halves[0], MAX_WAITING)
    assert why_useless(talk, halves, NONE, 9) is None
    put(halves[0], 1)
    assert why_useless(talk, halves, NONE, 9) == "its ClientHello was not captured"
    halves[0].die()
    assert why_useless(talk, halves, NONE, 9) is None
    monkeypatch.setattr(waiting, "MAX_WAITING_RECORDS", 3)
    for _ in range(4):
        put(halves[1], 0)
    assert why_useless(talk, halves, NONE, 9) == "its ClientHello was not captured"


def test_without_keys_the_other_sides_part_is_awaited() -> None:
    talk, client, server = negotiated(V13)
    halves = both(client, server)
    put(server, 100)
    assert why_useless(talk, halves, NONE, 9) is None, "the client may send an alert"
    put(server, MAX_FLIGHT)
    reason = why_useless(talk, halves, NONE, 9)
    assert reason is not None
    assert reason.startswith(NO_KEYS)


def test_keys_that_may_come_are_awaited_up_to_the_bound() -> None:
    talk, client, server = negotiated(V13)
    halves = both(client, server)
    put(client, 500)
    put(server, MAX_FLIGHT)
    assert why_useless(talk, halves, LATE, 9) is None
    put(server, MAX_WAITING)
    reason = why_useless(talk, halves, LATE, 9)
    assert reason is not None


def test_keys_of_other_connections() -> None:
    talk, client, server = negotiated(V13)
    halves = both(client, server)
    put(server, MAX_FLIGHT + 1)
    assert why_useless(talk, halves, OTHERS, 9) == OTHER_KEYS


def test_at_the_end_nothing_is_concluded_from_missing_records() -> None:
    talk, client, server = negotiated(V13)
    halves = both(client, server)
    put(server, MAX_FLIGHT + 1)
    assert why_useless(talk, halves, NONE, 9, ended=True) is None


def test_before_change_cipher_spec_no_keys_are_needed() -> None:
    talk, client, server = negotiated(V12)
    halves = both(client, server)
    put(server, MAX_FLIGHT + 1)
    assert why_useless(talk, halves, NONE, 9) is None
    talk.change_cipher(client)
    talk.change_cipher(server)
    put(client, 50)
    assert (why_useless(talk, halves, NONE, 9) or "").startswith(NO_KEYS)


def test_reasons_at_the_end() -> None:
    halves = Half(0), Half(1)
    assert reason_at_end(Negotiation(halves), halves, NONE, 9) == "its ClientHello was not captured"
    talk, client, server = negotiated(V13)
    halves = both(client, server)
    assert reason_at_end(talk, halves, NONE, 9) == INCOMPLETE
    put(client, 10)
    assert reason_at_end(talk, halves, NONE, 9).startswith(NO_KEYS)
    talk.server = None
    assert reason_at_end(talk, halves, NONE, 9).startswith(NO_ANSWER)
