"""Input that tries to exhaust memory meets a bound, and the losses are reported. Bounds of single parsers are tested
with the parsers, the budget of the process in test_inspector_state.py, and those of connections here."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest

from kafkasniff.engine import inspector_state
from kafkasniff.engine.connection_stats import FollowedConnection
from kafkasniff.engine.inspector import Inspector
from kafkasniff.engine.message_table import Output
from kafkasniff.model import Problem
from kafkasniff.packets import Note
from kafkasniff.tls import gate as gate_module
from kafkasniff.tls import negotiation as waiting_module
from kafkasniff.tls.gate import TlsGate
from tests.craft import kafka_bytes as kafka
from tests.craft.batches import batch
from tests.craft.packet import ACK, RST, SYN, Packet
from tests.oracle.kafka.trial import MAX_TRIAL_BYTES

BROKER = ("10.0.0.9", 9092)
START_NS = 1_781_000_000_000_000_000
REQUEST = kafka.api_versions_request(1, 0)


def client(number: int) -> tuple[str, int]:
    return f"10.1.{number >> 8}.{number & 255}", 40_000


def packet(sender: int, seq: int, payload: bytes, flags: int = ACK, *, answer: bool = False, ident: int = 0) -> Packet:
    """A segment of client number `sender`. `answer`: sent by the broker to that client."""
    ends = (*BROKER, *client(sender)) if answer else (*client(sender), *BROKER)
    return Packet(START_NS + ident, *ends, seq, 1, flags, payload, ident=ident)


class Feeder:
    """Feeds packets to an inspector batch by batch and keeps none of them."""

    def __init__(self, **options: Any) -> None:
        self.inspector = Inspector(**options)
        self._order = 0

    def feed(self, packets: Sequence[Packet]) -> list[Output]:
        first, self._order = self._order, self._order + len(packets)
        return self.inspector.feed(batch(packets, range(first, self._order)))

    @property
    def connections(self) -> list[FollowedConnection]:
        return list(self.inspector._feeder._events.connections.values())

    @property
    def gates(self) -> list[TlsGate]:
        return list(self.inspector._feeder._questions.items.gates.values())

    @property
    def buffered(self) -> int:
        """Bytes of memory of all connections, without themselves."""
        return self.inspector._feeder.memory


def reported(events: Iterable[Output], kind: str) -> list[Problem]:
    return [event for event in events if isinstance(event, Problem) and event.kind == kind]


def by(packets: Sequence[Packet], count: int) -> Iterator[Sequence[Packet]]:
    for at in range(0, len(packets), count):
        yield packets[at : at + count]


# -- one connection


def test_a_closed_connection_keeps_no_bytes() -> None:
    feeder = Feeder()
    start = 1 + len(REQUEST)
    begun = (1 << 20).to_bytes(4) + b"\0\0\0\x09\0\0\0\x02\0\4hook"
    feeder.feed([packet(1, 0, b"", SYN), packet(1, 1, REQUEST), packet(1, start, begun)])
    assert feeder.buffered >= len(begun)
    events = feeder.feed([packet(1, start + len(begun), b"", RST)])
    (connection,) = feeder.connections
    assert connection.ended
    assert feeder.buffered < 3_000
    (cut,) = reported(events, "stream-cut")
    assert cut.bytes == len(begun)


def test_a_declared_size_allocates_little() -> None:
    """`stream_frames.RESERVED`."""
    feeder = Feeder()
    feeder.feed([packet(1, 0, b"", SYN), packet(1, 1, REQUEST)])
    tracemalloc.start()
    feeder.feed([packet(1, 1 + len(REQUEST), (99 << 20).to_bytes(4) + b"\0\0\0\x09\0\0\0\x02\0\4hook")])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000
    assert feeder.buffered < (16 << 10) + 10_000


def test_segments_after_holes() -> None:
    """At most 16,384 are held (`stream_delivery.MAX_HELD_SEGMENTS`)."""
    feeder = Feeder(connections=True)
    packets = [packet(1, 0, b"", SYN), packet(1, 1, REQUEST)]
    packets += [packet(1, 1_000 + 2 * (7 * number % 40_000), b"x", ident=number) for number in range(40_000)]
    sizes = []
    for part in by(packets, 4_000):
        feeder.feed(part)
        sizes.append(feeder.buffered)
    assert max(sizes) < 2 * sizes[3]


def test_responses_before_the_verdict() -> None:
    """A hole cuts the first response, and the client sends nothing recognizable."""
    feeder = Feeder()
    answer = kafka.api_versions_response(7, 0)
    packets = [
        packet(1, 0, b"", SYN),
        packet(1, 0, b"", SYN | ACK, answer=True),
        packet(1, 1, answer[:30], answer=True),
        packet(1, 41, answer[40:], answer=True),
    ]
    feeder.feed([*packets, *(packet(1, 1, b"", answer=True, ident=number) for number in range(300))])
    (connection,) = feeder.connections
    assert connection.verdict == "undecided"
    other = kafka.frame(bytes(3) + b"\1" + bytes(60_000))
    at, most = 1 + len(answer), 0
    for number in range(3 * MAX_TRIAL_BYTES // len(other)):
        feeder.feed([packet(1, at, other, answer=True, ident=number)])
        at += len(other)
        most = max(most, feeder.buffered)
    assert MAX_TRIAL_BYTES / 2 < most < 2 * MAX_TRIAL_BYTES


def test_one_byte_of_tls_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_module, "MAX_HELD", 100)
    feeder = Feeder()
    feeder.feed([packet(1, 0, b"", SYN), packet(1, 1, b"\x16\x03")])
    (gate,) = feeder.gates
    for part in range(20):
        feeder.feed([packet(1, 1, b"\x16\x03", ident=part * 10 + number + 1) for number in range(10)])
        assert len(gate._held) <= 100
    assert gate.plain


def test_empty_records_of_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_module, "MAX_WAITING_RECORDS", 50)
    feeder = Feeder()
    hello = b"\x16\x03\x01\0\x2f\x01\0\0\x2b\x03\x03" + bytes(32) + b"\0\0\2\x13\1\1\0\0\0"
    feeder.feed([packet(1, 0, b"", SYN), packet(1, 1, hello)])
    (connection,) = feeder.connections
    empty = b"\x17\x03\x03\0\0" * 10
    at = 1 + len(hello)
    assert connection.verdict == "undecided"
    for number in range(20):
        feeder.feed([packet(1, at, empty, ident=number)])
        at += len(empty)
    assert connection.verdict == "not-kafka"
    assert [gate.buffered for gate in feeder.gates] == [0]


def test_endless_tokens() -> None:
    feeder = Feeder(exchanges=False, connections=True)
    token = kafka.frame(b"\x60\x23\x06\x09\x2a\x86\x48\x86\xf7\x12\x01\x02\x02" + bytes(24))
    feeder.feed([packet(1, 0, b"", SYN), packet(1, 0, b"", SYN | ACK, answer=True)])
    at = 1
    sizes = []
    tracemalloc.start()
    for number in range(40):
        feeder.feed([packet(1, at, token * 100, ident=number)])
        at += 100 * len(token)
        sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert feeder.inspector.summary.sasl_tokens == 4_000
    assert sizes[-1] - sizes[9] < 20_000


# -- shared by all connections


def test_names_and_endpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspector_state, "MAX_NAMES", 3)
    monkeypatch.setattr(inspector_state, "MAX_ENDPOINTS", 3)
    feeder = Feeder()
    packets = []
    for number in range(10):
        ends = client(0)[0], 50_000 + number, f"10.2.0.{number}", 9092
        packets += [Packet(START_NS, *ends, 0, 0, SYN), Packet(START_NS, *ends, 1, 1, ACK, REQUEST)]
    part = batch(packets)
    part.notes = [Note(0, (f"10.2.0.{number}", f"broker-{number}")) for number in range(10)]
    feeder.inspector.feed(part)
    assert feeder.inspector.summary.kafka_connections == 10
    assert list(feeder.inspector.names.values()) == ["broker-0", "broker-1", "broker-2"]
    assert len(feeder.inspector._state.known_brokers) == 3
