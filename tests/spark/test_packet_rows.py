"""Packets as rows and back, and filters that are applied while packets are read."""

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
from kafkasniff.model import NO_TIME, Problem
from kafkasniff.packets import COLUMNS, PacketBatch, connection_hash
from kafkasniff.spark.options import PACKETS, PIPELINE
from kafkasniff.spark.packet_rows import (
    NOTES_SCHEMA,
    PACKETS_SCHEMA,
    Condition,
    condition_of,
    keeper,
    note_rows,
    packet_batches,
    packet_rows,
)
from tests.capture.reading import batch_rows

pytest.importorskip("pyspark")
from pyspark.sql import datasource as words

CAPTURES = Path(__file__).parents[2] / "captures"


def batches(name: str) -> list[PacketBatch]:
    with open_captures([CAPTURES / name]) as source:
        return list(source)


def longest(name: str) -> PacketBatch:
    return max(batches(name), key=len)


def row(time_ns: int = 5_000, **changes: Any) -> PacketBatch:
    columns: dict[str, Any] = {name: np.array([changes.get(name, 1)], dtype) for name, dtype in COLUMNS.items()}
    columns["time_ns"] = np.array([time_ns], np.int64)
    return PacketBatch(columns, b"xyz", captures=("a", "b"), end_order=2, packets=1)


@pytest.mark.parametrize("name", ["librdkafka-ipv6-ns.pcapng", "librdkafka-snaplen-128.pcap"])
def test_there_and_back(name: str) -> None:
    for batch in batches(name):
        rows = packet_rows(batch)
        assert rows.schema.equals(PACKETS_SCHEMA)
        back = packet_batches(rows, batch.captures, int(batch.order[0]))
        assert batch_rows(back) == [
            found._replace(order=int(batch.order[0]) + number) for number, found in enumerate(batch_rows(batch))
        ]
        assert back.clock.tolist() == batch.clock.tolist()
        assert back.captures == batch.captures
        assert (back.packets, back.end_order) == (len(batch), int(batch.order[0]) + len(batch))


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


def test_addresses_and_times() -> None:
    for address in ("::", "::1", "2001:db8::ffff", "0.0.0.0", "255.255.255.255", "fe80::1:2"):
        number = int(ipaddress.ip_address(address))
        if ":" not in address:
            number |= 0xFFFF << 32
        batch = row(src_hi=number >> 64, src_lo=number & 0xFFFF_FFFF_FFFF_FFFF)
        rows = packet_rows(batch)
        assert rows.column("src_ip").to_pylist() == [address]
        back = packet_batches(rows)
        assert (int(back.src_hi[0]), int(back.src_lo[0])) == (int(batch.src_hi[0]), int(batch.src_lo[0]))
    rows = packet_rows(row(NO_TIME))
    assert rows.select(["time", "time_ns", "clock_ns"]).to_pylist() == [dict.fromkeys(("time", "time_ns", "clock_ns"))]
    back = packet_batches(rows)
    assert (int(back.time_ns[0]), int(back.clock[0])) == (NO_TIME, NO_TIME)
    # Times before 1970 are rounded down.
    assert packet_rows(row(-1)).column("time").cast(pa.int64()).to_pylist() == [-1]


def test_slices_and_wide_columns_come_back() -> None:
    batch = longest("sarama.pcap")
    rows = packet_rows(batch, PIPELINE)
    cut = rows.slice(7, 100)
    payload = cut.schema.get_field_index("payload")
    wide = cut.set_column(payload, "payload", cut.column("payload").cast(pa.large_binary()))
    expected = [found.payload for found in batch_rows(batch)][7:107]
    for some in (cut, wide):
        assert [found.payload for found in batch_rows(packet_batches(some, batch.captures))] == expected
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
    nothing = dict.fromkeys(NOTES_SCHEMA.names)
    places = [(None, 0, 1), (9, 1, 4), (9, 2, 0)]
    placed = [dict(zip(("clock_ns", "capture_index", "number"), place, strict=True)) for place in places]
    wanted = [
        {"note": "name", "capture": "a", "address": "10.0.0.1", "name": "one"},
        {"note": "problem", "kind": "capture-loss", "detail": "lost", "packet": 4, "bytes": 3, "capture": "b"},
        {"note": "secrets", "bytes": 6},
    ]
    assert rows.to_pylist() == [{**nothing, **one, **place} for one, place in zip(wanted, placed, strict=True)]
    assert note_rows(notes, {}, show_secrets=True).column("secrets").to_pylist()[2] == b"secret"


# -- filters -----------------------------------------------------------------------------------------------------------


def met(rows: list[dict[str, Any]], column: str, test: Any) -> list[int]:
    """Numbers of the rows whose value is not null and passes."""
    return [one["number"] for one in rows if one[column] is not None and test(one[column])]


PORT = ("dst_port",)
CASES: list[tuple[Any, Any]] = [
    (words.EqualTo(PORT, 9), lambda port: port == 9),
    (words.GreaterThan(("number",), 20), lambda number: number > 20),
    (words.GreaterThanOrEqual(("number",), 20), lambda number: number >= 20),
    (words.LessThan(("number",), 20), lambda number: number < 20),
    (words.LessThanOrEqual(("number",), 20), lambda number: number <= 20),
    (words.In(("number",), (3, 5, 7, 2**40)), lambda number: number in {3, 5, 7}),
    (words.Not(words.In(("number",), (3, 5))), lambda number: number not in {3, 5}),
    (words.Not(words.EqualTo(("src_ip",), "127.0.0.1")), lambda address: address != "127.0.0.1"),
    (words.EqualTo(("src_ip",), "127.0.0.1"), lambda address: address == "127.0.0.1"),
    (words.IsNotNull(("time_ns",)), lambda time: True),
    (words.IsNull(("time_ns",)), lambda time: False),
    (words.Not(words.Not(words.LessThan(("number",), 20))), lambda number: number < 20),
    (words.LessThan(("src_port",), 2**40), lambda port: True),
]


@pytest.mark.parametrize(("asked", "test"), CASES, ids=[str(case[0]) for case in CASES])
def test_rows_that_meet_a_condition(asked: Any, test: Any) -> None:
    batch = longest("sarama.pcap")
    condition = condition_of(asked)
    everything = packet_rows(batch).to_pylist()
    keep, looked_at = keeper([condition])
    rows = packet_rows(batch, ["number", "payload"], keep=keep, looked_at=looked_at).to_pylist()
    assert [one["number"] for one in rows] == met(everything, condition.column, test)
    payloads = {one["number"]: one["payload"] for one in everything}
    assert all(one["payload"] == payloads[one["number"]] for one in rows)


def test_all_of_several_together_with_ports() -> None:
    batch = longest("sarama.pcap")
    everything = packet_rows(batch).to_pylist()
    port = everything[0]["src_port"]
    keep, looked_at = keeper([Condition("number", "GreaterThan", 10), Condition("length", "GreaterThan", 0)])
    rows = packet_rows(batch, ["number"], ports=[port], keep=keep, looked_at=looked_at)
    assert rows.column(0).to_pylist() == [
        one["number"]
        for one in everything
        if one["number"] > 10 and one["length"] > 0 and port in {one["src_port"], one["dst_port"]}
    ]


@pytest.mark.parametrize("negated", [False, True])
@pytest.mark.parametrize(("operation", "value"), [("EqualTo", 5), ("In", (5, 6)), ("LessThan", 5)])
def test_what_is_null_meets_no_comparison(operation: str, value: Any, negated: bool) -> None:
    keep, looked_at = keeper([Condition("time_ns", operation, value, negated)])
    assert packet_rows(row(NO_TIME), ["number"], keep=keep, looked_at=looked_at).num_rows == 0


@pytest.mark.parametrize(
    "asked",
    [
        *(words.EqualTo((name,), value) for name, value in (("time", 5), ("payload", b"x"), ("nothing", 5))),
        *(words.EqualTo(("number",), value) for value in ("5", None)),
        words.EqualTo(("number", "inner"), 5),
        words.EqualNullSafe(("number",), 5),
        words.In(("number",), (1, None)),
        words.In(("number",), ()),
        words.Not(words.StringContains(("src_ip",), "1")),
        words.StringStartsWith(("src_ip",), "10."),
    ],
    ids=str,
)
def test_what_is_left_to_spark(asked: Any) -> None:
    assert condition_of(asked) is None


def test_no_condition() -> None:
    assert keeper([]) == (None, ())
