"""Packets as rows and back: nothing is lost, and the rows are what the packets are."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kafkasniff.capture import open_captures
from kafkasniff.capture.timeline.parts import Place, PlacedNote
from kafkasniff.errors import UsageError
from kafkasniff.model import Problem
from kafkasniff.spark.packet_rows import NOTES_SCHEMA, PACKETS_SCHEMA, note_rows, packet_batches, packet_rows, payloads
from kafkasniff.spark.tables import PACKETS, PIPELINE
from kafkasniff.tcp.packets import COLUMNS, NO_TIME, PacketBatch
from kafkasniff.tcp.plan import connection_hash
from tests.capture.reading import batch_rows

CAPTURES = Path(__file__).parents[2] / "captures"


def batches(name: str) -> list[PacketBatch]:
    with open_captures([CAPTURES / name]) as source:
        return list(source)


def longest(name: str) -> PacketBatch:
    return max(batches(name), key=len)


def row(time_ns: int = 5_000, **changes: Any) -> PacketBatch:
    """A batch of one packet."""
    columns: dict[str, Any] = {name: np.array([changes.get(name, 1)], dtype) for name, dtype in COLUMNS.items()}
    columns["time_ns"] = np.array([time_ns], np.int64)
    return PacketBatch(columns, b"xyz", captures=("a", "b"), end_order=2, packets=1)


@pytest.mark.parametrize("name", ["librdkafka-ipv6-ns.pcapng", "librdkafka-snaplen-128.pcap", "sarama.pcap"])
def test_there_and_back(name: str) -> None:
    for batch in batches(name):
        rows = packet_rows(batch)
        assert rows.schema.equals(PACKETS_SCHEMA)
        back = packet_batches(rows, batch.captures, int(batch.order[0]))
        assert batch_rows(back) == [
            found._replace(order=int(batch.order[0]) + number) for number, found in enumerate(batch_rows(batch))
        ]
        assert batch.clock is not None
        assert back.clock is not None
        assert back.clock.tolist() == batch.clock.tolist()
        assert back.captures == batch.captures
        assert (back.packets, back.end_order) == (len(batch), int(batch.order[0]) + len(batch))


def test_rows_say_what_the_packets_are() -> None:
    batch = longest("sarama.pcap")
    found = packet_rows(batch).to_pylist()
    for got, expected in zip(found, batch_rows(batch), strict=True):
        assert got["capture"].endswith("sarama.pcap")
        assert (got["src_ip"], got["src_port"], got["dst_ip"], got["dst_port"]) == expected[4:8]
        assert (got["seq"], got["ack"], got["flags"], got["window"]) == expected[8:12]
        assert got["payload"] == expected.payload
        assert (got["length"], got["wire_length"]) == (len(expected.payload), expected.wire_length)
        assert got["time_ns"] == expected.time_ns
        assert got["time"].timestamp() == pytest.approx(expected.time_ns / 1e9, abs=1e-6)
    by_connection: dict[int, set[frozenset[tuple[str, int]]]] = {}
    for got in found:
        ends = frozenset([(got["src_ip"], got["src_port"]), (got["dst_ip"], got["dst_port"])])
        by_connection.setdefault(got["connection_hash"], set()).add(ends)
    assert len(by_connection) > 1
    assert all(len(ends) == 1 for ends in by_connection.values())


def test_the_hash_is_the_same_for_both_directions_and_stays() -> None:
    there = row(src_lo=0xFFFF_0A00_0001, dst_lo=0xFFFF_0A00_0002, src_hi=0, dst_hi=0, src_port=40_000, dst_port=9_092)
    back = row(src_lo=0xFFFF_0A00_0002, dst_lo=0xFFFF_0A00_0001, src_hi=0, dst_hi=0, src_port=9_092, dst_port=40_000)
    assert connection_hash(there)[0] == connection_hash(back)[0]
    # Processes of other machines have to agree: no seed, no width of an integer comes in.
    together = (plainly(0xFFFF_0A00_0001, 40_000) + plainly(0xFFFF_0A00_0002, 9_092)) % 2**64
    (found,) = packet_rows(there).column("connection_hash").to_pylist()
    assert found % 2**64 == together


def plainly(low: int, port: int) -> int:
    """The hash of an IPv4 endpoint, in integers of any size."""
    value = (low * 0x9E3779B97F4A7C15 + port) % 2**64
    value = (value ^ value >> 32) * 0xD6E8FEB86659FD93 % 2**64
    return value ^ value >> 32


@pytest.mark.parametrize("address", ["::", "::1", "2001:db8::ffff", "0.0.0.0", "255.255.255.255", "fe80::1:2"])
def test_addresses(address: str) -> None:
    number = int(ipaddress.ip_address(address))
    if ":" not in address:
        number |= 0xFFFF << 32
    batch = row(src_hi=number >> 64, src_lo=number & 0xFFFF_FFFF_FFFF_FFFF)
    rows = packet_rows(batch)
    assert rows.column("src_ip").to_pylist() == [address]
    back = packet_batches(rows)
    assert (int(back.src_hi[0]), int(back.src_lo[0])) == (int(batch.src_hi[0]), int(batch.src_lo[0]))


def test_times_that_are_missing_are_null() -> None:
    rows = packet_rows(row(NO_TIME))
    assert rows.select(["time", "time_ns", "clock_ns"]).to_pylist() == [
        {"time": None, "time_ns": None, "clock_ns": None}
    ]
    back = packet_batches(rows)
    assert back.clock is not None
    assert (int(back.time_ns[0]), int(back.clock[0])) == (NO_TIME, NO_TIME)


def test_times_before_1970_are_rounded_down() -> None:
    assert packet_rows(row(-1)).column("time").cast(pa.int64()).to_pylist() == [-1]


def test_only_some_ports_and_columns() -> None:
    batch = longest("sarama.pcap")
    ports = sorted({int(port) for port in batch.src_port.tolist()})[-1:]
    rows = packet_rows(batch, ["dst_port", "payload", "src_port"], ports=ports)
    assert rows.schema.names == ["dst_port", "payload", "src_port"]
    expected = [found for found in batch_rows(batch) if found.sport in ports or found.dport in ports]
    assert 0 < len(expected) < len(batch)
    assert rows.column("payload").to_pylist() == [found.payload for found in expected]


def test_rows_in_any_order_of_their_bytes() -> None:
    """Those of datagrams that were put together lie elsewhere."""
    batch = longest("sarama.pcap")
    turned = np.arange(len(batch))[::-1]
    other = PacketBatch(
        {name: getattr(batch, name)[turned] for name in COLUMNS},
        batch.buffer,
        captures=batch.captures,
        end_order=batch.end_order,
        packets=batch.packets,
    )
    assert (
        packet_rows(other, ["payload"]).column(0).to_pylist()
        == packet_rows(batch, ["payload"]).column(0).to_pylist()[::-1]
    )


def test_rows_in_any_order_if_some_are_empty() -> None:
    """Without gaps, a payload begins where empty ones before it do."""
    batch = packet_batches(packet_rows(longest("sarama.pcap"), PIPELINE))
    assert (batch.length == 0).any()
    expected = packet_rows(batch, ["payload"]).column(0).to_pylist()
    for seed in range(5):
        rows = np.random.default_rng(seed).permutation(len(batch))[: seed * 100 + 1]
        assert payloads(batch, rows).to_pylist() == [expected[row] for row in rows.tolist()]


def test_slices_and_wide_columns_come_back() -> None:
    batch = longest("sarama.pcap")
    rows = packet_rows(batch, PIPELINE)
    cut = rows.slice(7, 100)
    payload = cut.schema.get_field_index("payload")
    wide = cut.set_column(payload, "payload", cut.column("payload").cast(pa.large_binary()))
    expected = [found.payload for found in batch_rows(batch)][7:107]
    assert [found.payload for found in batch_rows(packet_batches(cut, batch.captures))] == expected
    assert [found.payload for found in batch_rows(packet_batches(wide, batch.captures))] == expected
    assert len(packet_batches(cut).buffer) == sum(map(len, expected))
    assert len(packet_batches(rows.slice(0, 0))) == 0


def test_a_column_that_is_needed() -> None:
    batch = longest("sarama.pcap")
    with pytest.raises(UsageError, match="ident, seq"):
        packet_batches(packet_rows(batch, [name for name in PACKETS if name not in {"seq", "ident"}]))


def test_notes() -> None:
    notes = [
        PlacedNote(Place(NO_TIME, 0, 1), ("10.0.0.1", "one")),
        PlacedNote(Place(9, 1, 4), Problem("capture-loss", "lost", capture="b", packet=4, bytes=3)),
        PlacedNote(Place(9, 2, 0), b"secret"),
    ]
    rows = note_rows(notes, {0: "a", 1: "b"})
    assert rows.schema.equals(NOTES_SCHEMA)
    name, problem, secrets = rows.to_pylist()
    assert (name["note"], name["capture"], name["clock_ns"], name["address"], name["name"]) == (
        "name",
        "a",
        None,
        "10.0.0.1",
        "one",
    )
    assert (problem["note"], problem["kind"], problem["detail"], problem["packet"], problem["bytes"]) == (
        "problem",
        "capture-loss",
        "lost",
        4,
        3,
    )
    assert (secrets["note"], secrets["bytes"], secrets["secrets"], secrets["capture"]) == ("secrets", 6, None, None)
    assert note_rows(notes, {}, show_secrets=True).column("secrets").to_pylist()[2] == b"secret"
