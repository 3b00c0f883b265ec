"""What an inspector keeps between batches: numbers, names within their bounds, captures, known brokers."""

from __future__ import annotations

import pytest

from kafkasniff.engine import inspector_state
from kafkasniff.engine.inspector_state import InspectorState
from kafkasniff.kafka.connection.recognition import ConnectionOptions
from kafkasniff.tcp.segments import PACKET_SHIFT
from kafkasniff.tls.keylog import KeyLog
from tests.tcp.batches import Raw, batch


def new_state() -> InspectorState:
    return InspectorState(
        ConnectionOptions(),
        ports=frozenset(),
        show_secrets=False,
        want_exchanges=True,
        want_connections=False,
        keys=KeyLog(),
    )


def test_exchanges_are_numbered_from_one() -> None:
    state = new_state()
    assert [state.next_exchange() for _ in range(3)] == [1, 2, 3]


def test_the_capture_of_a_packet() -> None:
    state = new_state()
    assert state.capture_of(0) is None
    packets = batch([Raw(0, 1, b"x")])
    packets.captures = ("a.pcap",)
    state.use_captures(packets)
    assert state.only_capture == "a.pcap"
    packets.captures = ("a.pcap", "b.pcap")
    state.use_captures(packets)
    assert state.only_capture is None
    assert [state.capture_of(index << PACKET_SHIFT | 7) for index in range(3)] == ["a.pcap", "b.pcap", None]
    # A batch that names none does not change them.
    packets.captures = ()
    state.use_captures(packets)
    assert state.captures == ("a.pcap", "b.pcap")


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspector_state, "MAX_NAMES", 2)
    monkeypatch.setattr(inspector_state, "MAX_ENDPOINTS", 2)
    state = new_state()
    for number in range(5):
        state.add_name(f"10.0.0.{number}", f"host-{number}")
        state.note_broker((0, number, 9092))
    assert state.names == {"10.0.0.0": "host-0", "10.0.0.1": "host-1"}
    assert state.known_brokers == {(0, 0, 9092), (0, 1, 9092)}
