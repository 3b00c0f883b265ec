"""The network of connections by their packets: handshakes, round trips, trouble, where each begins and ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kafkasniff.engine import stream_feeding
from kafkasniff.engine.inspector import Inspector
from kafkasniff.model import NO_TIME
from kafkasniff.tables.rows.transport import transport_rows
from tests.craft import kafka_bytes as kafka
from tests.craft.batches import batch
from tests.craft.packet import ACK, RST, SYN, Packet
from tests.timing.timeline import Timeline, at


def rows(packets: Sequence[Packet], **options: Any) -> list[dict[str, Any]]:
    """The rows of `transport` of all connections."""
    inspector = Inspector(network="links", **options)
    inspector.feed(batch(packets))
    inspector.close()
    links = inspector.take_links()
    return transport_rows(links).to_pylist() if len(links) else []


def only(packets: Sequence[Packet]) -> dict[str, Any]:
    (row,) = rows(packets)
    return row


def trips(row: dict[str, Any]) -> tuple[int | None, int | None]:
    return row["broker_round_trip_us"], row["client_round_trip_us"]


def test_a_handshake() -> None:
    line = Timeline()
    line.open(12, 0.02)
    row = only(line.packets)
    assert trips(row) == (12_000, 20)
    assert (row["opening"], row["syns"], row["time_ns"], row["end_time_ns"]) == ("answered", 1, at(0), at(12.02))


def test_a_syn_that_is_sent_again() -> None:
    """The round trip is that of the SYN that was answered; of a copy of one packet there is one."""
    line = Timeline()
    line.open(1030, 1)
    syn = line.packets[0]
    line.add(0, syn)
    line.add(1000, syn.but(ident=77))
    row = only(line.in_order())
    assert (row["syns"], *trips(row)) == (2, 30_000, 1_000)


def test_refused_and_without_an_answer() -> None:
    refused, silent, half = (Timeline(client=("10.0.0.5", port)) for port in (50_001, 50_002, 50_003))
    for line in (refused, silent, half):
        line.at(0)._add("client", SYN)
    refused._seen["broker"] = refused._next["client"]
    refused.at(1)._add("broker", RST | ACK)
    silent.add(1000, silent.packets[0].but(ident=9))
    half.packets.clear()
    half.data("client", 5, b"in the midst")
    found = rows([*refused.packets, *silent.packets, *half.packets])
    assert [row["opening"] for row in found] == ["refused", "unanswered", None]
    assert [row["syns"] for row in found] == [1, 2, 0]
    assert [row["ended_with"] for row in found] == [None, None, None], "none of them was open, or ended"


def test_who_is_the_client() -> None:
    """Messages show it, then the handshake; without both it is the end with the higher port."""
    upside_down = Timeline(client=("10.0.0.5", 1024))
    upside_down.data("client", 0, kafka.metadata_request(1, ["orders"]))
    upside_down.data("broker", 5, kafka.metadata_response(1, "broker", 9092, ["orders"]))
    assert only(upside_down.packets)["client_port"] == 1024
    begun = Timeline(client=("10.0.0.5", 1025))
    begun.open(1, 1)
    assert only(begun.packets[1:])["client_port"] == 1025, "by the SYN-ACK alone"
    guessed = Timeline(client=("10.0.0.5", 1026))
    guessed.data("client", 0, b"anything")
    assert only(guessed.packets)["client_port"] == 9092


def test_round_trips_by_acknowledgements() -> None:
    """The lowest for each side's data; retransmitted data is not measured (Karn)."""
    line = Timeline()
    line.data("client", 0, b"a" * 100)
    line.acked("broker", 20)
    assert trips(only(line.packets)) == (20_000, None)
    line.data("client", 30, b"b" * 100)
    line.acked("broker", 42)
    lost = line.data("client", 50, b"c" * 100)
    line.add(60, lost.but(ident=5))
    line.acked("broker", 61)
    line.data("broker", 70, b"d" * 100)
    line.acked("client", 70.5)
    assert trips(only(line.packets)) == (12_000, 500)


def test_what_came_again_and_what_came_late() -> None:
    line = Timeline()
    first = line.data("client", 0, b"a" * 100)
    second = line.data("client", 1, b"b" * 100)
    third = line.data("client", 2, b"c" * 100)
    line.packets.clear()
    line.add(0, first)
    line.add(2, third)
    line.add(9, second)  # lost in front of the capture point, or overtaken
    line.add(10, third.but(ident=99))
    line.add(10, third.but(ident=99))  # the same packet, captured twice
    line.add(30, first.but(ident=98))
    row = only(line.packets)
    assert (row["client_late"], row["client_again"], row["broker_again"]) == (1, 2, 0)


def test_a_hole_that_is_filled_in_pieces() -> None:
    line = Timeline()
    whole = line.data("client", 0, b"x" * 10)
    line.packets.clear()
    begin = whole.seq + 10
    for time, offset, length in ((0, 0, 10), (1, 40, 10), (2, 20, 10), (3, 10, 10), (4, 30, 10), (5, 30, 10)):
        line.add(time, whole.but(seq=begin - 10 + offset, payload=b"x" * length, ident=time))
    row = only(line.packets)
    assert (row["client_late"], row["client_again"]) == (3, 1)


def test_closed_windows() -> None:
    """The broker's answer comes, the client does not read: it says so, and later that it does again."""
    line = Timeline()
    line.data("broker", 0, b"x" * 1000)
    for time, window in ((10, 0), (15, 0), (30, 5000), (50, 0), (60, 1)):
        line.window = window
        line.acked("client", time)
    row = only(line.packets)
    assert (row["client_closed"], row["client_closed_us"], row["broker_closed"]) == (2, 30_000, 0)


def test_times_are_remembered_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Problems beyond it are only counted."""
    monkeypatch.setattr(stream_feeding, "MAX_REMEMBERED", 3)
    line = Timeline()
    line.open(1, 1)
    first = line.data("client", 5, kafka.metadata_request(1, ["orders"]))
    for number in range(5):
        line.add(6 + number, first.but(ident=100 + number))
    line.data("broker", 20, kafka.metadata_response(1, "broker", 9092, ["orders"]))
    inspector = Inspector(network="exchanges")
    inspector.feed(batch(line.packets))
    assert inspector.networks().one(0).again == [3, 0]
    assert transport_rows(inspector.open_links()).column("client_again").to_pylist() == [5]


def test_ports_that_are_used_again() -> None:
    one, other = Timeline(), Timeline(isn=(5_000, 6_000))
    one.open(10, 1)
    one.data("client", 20, b"x" * 10)
    one.at(30).close()
    other.open(20, 1, begin=100)
    found = rows([*one.packets, *other.packets])
    assert [row["broker_round_trip_us"] for row in found] == [10_000, 20_000]
    assert [row["ended_with"] for row in found] == ["fin", None]


def test_silence_ends_a_connection() -> None:
    line = Timeline()
    line.data("client", 0, b"a")
    line.data("client", 3_600_001, b"b")
    assert [row["client_packets"] for row in rows(line.packets)] == [1, 1]


def test_packets_after_the_end_belong_to_it() -> None:
    """The client's last acknowledgement, and copies of the FIN, for a minute."""
    line = Timeline()
    line.open(1, 1)
    line.at(30).close()
    late = line.packets[-1].but(time_ns=at(30_000))
    row = only([*line.packets, late])
    assert row["client_packets"] + row["broker_packets"] == len(line.packets) + 1
    assert (row["end_time_ns"], row["ended_ns"]) == (at(30_000), at(30))


def test_connections_of_other_ports_are_not_followed() -> None:
    line = Timeline()
    line.open(1, 1)
    assert rows(line.packets, ports=[9093]) == []
    assert len(rows(line.packets, ports=[9092])) == 1


def test_packets_without_times_are_not_followed() -> None:
    line = Timeline()
    line.open(1, 1)
    packets, inspector = batch(line.packets), Inspector(network="links")
    packets.time_ns[:] = NO_TIME
    inspector.feed(packets)
    assert len(inspector.open_links()) == len(inspector.take_links()) == 0
