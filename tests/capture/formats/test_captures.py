"""Captures byte by byte: pcap and pcapng, and finding the next record after corrupt places."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.capture.formats import pcapng as pcapng_format
from kafkasniff.capture.formats.pcap import FIRST_REACH, RESYNC_LIMIT
from kafkasniff.capture.formats.pcapng import read_blocks
from kafkasniff.errors import CaptureError
from kafkasniff.model import NO_TIME
from tests.capture.files import (
    SECOND,
    START,
    block,
    enhanced,
    interface,
    obsolete,
    option,
    padded,
    pcap,
    pcap_header,
    pcap_record,
    section,
    simple,
)
from tests.capture.reading import Result, read_bytes
from tests.capture.segments import frame, frames, marked, numbers, segment

FLAGS, DROPS = 2, 4
ORDERS = pytest.mark.parametrize("order", ["<", ">"])


@ORDERS
def test_all_packet_blocks(order: str) -> None:
    a, b, c = frames(3)
    data = section(order) + interface(order=order)
    data += enhanced(a, 5_000_001, order=order) + simple(b, order) + obsolete(c, 7_000_000, order=order)
    result = read_bytes(data)
    assert numbers(result.payloads) == [0, 1, 2]
    assert [row.time_ns for row in result.rows] == [5_000_001_000, NO_TIME, 7_000_000_000]
    assert [row.number for row in result.rows] == [1, 2, 3]
    assert result.notes == []


@ORDERS
@pytest.mark.parametrize(
    ("resolution", "ticks", "time_ns", "offset"),
    [
        (6, 1_700_000_000_123_456, 1_700_000_000_123_456_000, 0),
        (9, 1_700_000_000_123_456_789, 1_700_000_000_123_456_789, 0),
        (3, 1_700_000_000_123, 1_700_000_000_123_000_000, 0),
        (0, 1_700_000_000, 1_700_000_000_000_000_000, 0),
        (12, 1_700_000_123_456_789_999, 1_700_000_123_456_789, 0),
        (30, 2**64 - 1, 0, 0),
        (0x80, 1_700_000_000, 1_700_000_000_000_000_000, 0),
        (0x80 | 10, (1_700_000_000 << 10) | 512, 1_700_000_000_500_000_000, 0),
        (0x80 | 32, (1_700_000_000 << 32) | 0xFFFFFFFF, 1_700_000_000_999_999_999, 0),
        (0x80 | 63, 1 << 62, 500_000_000, 0),
        (6, 1_700_000_000_000_001, 1_700_003_600_000_001_000, 3600),
        (6, 1_700_000_000_000_001, 1_699_996_400_000_001_000, -3600),
    ],
)
def test_resolution_and_offset_of_times(order: str, resolution: int, ticks: int, time_ns: int, offset: int) -> None:
    options = option(9, bytes([resolution]), order) + option(14, struct.pack(order + "q", offset), order)
    data = section(order) + interface(1, options, order)
    (row,) = read_bytes(data + enhanced(frames(1)[0], ticks, order=order)).rows
    assert row.time_ns == time_ns


def test_sections_have_their_own_byte_order_and_interfaces() -> None:
    data = section("<") + interface(1) + enhanced(frame(marked(0)), 1)
    data += section(">") + interface(101, order=">") + enhanced(segment(marked(1)), 2, order=">")
    data += section("<") + interface(1) + interface(101) + enhanced(segment(marked(2)), 3, 1)
    result = read_bytes(data)
    assert numbers(result.payloads) == [0, 1, 2]
    assert [row.number for row in result.rows] == [1, 2, 3]
    assert result.notes == []


def test_secrets_and_names_keep_their_place() -> None:
    a, b = frames(2)
    keys = b"CLIENT_RANDOM 00 11\n"
    secrets = block(10, struct.pack("<II", 0x544C534B, len(keys)) + padded(keys))
    other = block(10, struct.pack("<II", 0x57474B4C, 4) + b"wire")
    records = option(1, bytes([10, 0, 0, 1]) + b"broker-1\0alias\0") + option(2, bytes(15) + b"\1" + b"localhost\0")
    names = block(4, records + option(1, bytes([10, 0, 0, 9]) + b"\0") + bytes(4))
    result = read_bytes(section() + interface() + names + enhanced(a, 1) + other + secrets + enhanced(b, 2))
    assert [(note.order, note.value) for note in result.notes] == [
        (0, ("10.0.0.1", "broker-1")),
        (0, ("::1", "localhost")),
        (1, keys),
    ]


def test_interface_statistics_show_capture_loss() -> None:
    def statistics(received: int, dropped: int, system: int) -> bytes:
        options = option(4, struct.pack("<Q", received)) + option(5, struct.pack("<Q", dropped))
        return block(5, struct.pack("<III", 0, 0, 0) + options + option(7, struct.pack("<Q", system)) + bytes(4))

    a, b = frames(2)
    name = option(2, b"eth7")
    data = section() + interface(1, name) + enhanced(a, 1) + statistics(9, 3, 4) + enhanced(b, 2)
    # Counters are cumulative: 7 of 10 drops were reported before.
    result = read_bytes(data + statistics(20, 5, 5) + statistics(20, 5, 5))
    assert result.kinds == ["capture-loss"] * 2
    assert [note.order for note in result.notes] == [1, 2]
    details = [note.value.detail for note in result.notes]
    assert "7 packets of interface 0 (eth7) were lost" in details[0]
    assert "3 packets of interface 0 (eth7) were lost" in details[1]
    assert not result.broken


@ORDERS
def test_drops_reported_with_packets(order: str) -> None:
    a, b, c = frames(3)
    count = option(DROPS, struct.pack(order + "Q", 11), order)
    data = section(order) + interface(order=order) + enhanced(a, 1, order=order)
    data += enhanced(b, 2, order=order, options=option(1, b"hello", order) + count + bytes(4))
    data += obsolete(c, 3, order=order, drops=6)
    result = read_bytes(data)
    assert [(note.order, note.value.kind, note.value.packet) for note in result.notes] == [
        (1, "capture-loss", 2),
        (2, "capture-loss", 3),
    ]
    assert "11 packets were lost" in result.notes[0].value.detail
    assert "6 packets were lost" in result.notes[1].value.detail


@ORDERS
@pytest.mark.parametrize("other", [False, True])
def test_frame_check_sequence_by_packet_and_by_interface(order: str, other: bool) -> None:
    """The packets' IP headers have no length (offload), so nothing else cuts off the four bytes."""
    whole = frame(marked(0))
    data = whole[:16] + b"\0\0" + whole[18:] + b"\xfc" * 4
    flags = option(FLAGS, struct.pack(order + "I", 4 << 5), order)
    options = (option(1, b"comment", order) if other else b"") + flags + bytes(4)
    head = section(order)
    by_packet = head + interface(order=order) + enhanced(data, 1, order=order, options=options)
    by_interface = head + interface(1, option(13, b"\4", order), order) + enhanced(data, 1, order=order)
    for capture in (by_packet, by_interface):
        assert read_bytes(capture).payloads == [marked(0)]


def test_simple_packets_are_cut_by_the_first_interface() -> None:
    data = frame(bytes(100))
    (row,) = read_bytes(section() + interface(snaplen=80) + simple(data[:80], wire=len(data))).rows
    assert (len(row.payload), row.wire_length) == (80 - 54, 100)


def test_cut_file() -> None:
    data = section() + interface() + b"".join(enhanced(f, n) for n, f in enumerate(frames(3)))
    result = read_bytes(data[:-5])
    assert numbers(result.payloads) == [0, 1]
    assert result.problem("capture-cut").packet == 2
    assert result.broken


LATE = 4_294_967_295 * SECOND + 999_999_999
"""The last nanosecond that the format can represent."""


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(("magic", "unit"), [(0xA1B2C3D4, 1000), (0xA1B23C4D, 1)])
def test_times_in_both_byte_orders(order: str, magic: int, unit: int) -> None:
    times = [0, 1000, START + 123_456_789, LATE]
    records = [pcap_record(data, time, order, unit=unit) for data, time in zip(frames(4), times, strict=True)]
    result = read_bytes(pcap_header(order, magic=magic) + b"".join(records))
    assert [row.time_ns for row in result.rows] == [time // unit * unit for time in times]
    assert numbers(result.payloads) == [0, 1, 2, 3]
    assert [row.number for row in result.rows] == [1, 2, 3, 4]


@pytest.mark.parametrize("order", ["<", ">"])
def test_modified_records_have_longer_headers(order: str) -> None:
    extra = bytes.fromhex("00000002 0800 00 00")
    records = [pcap_record(data, START, order, extra=extra) for data in frames(3)]
    result = read_bytes(pcap_header(order, magic=0xA1B2CD34) + b"".join(records))
    assert numbers(result.payloads) == [0, 1, 2]
    assert not result.broken


def test_snap_length_cuts_the_payload_but_not_its_length() -> None:
    (data,) = frames(1, size=1000)
    result = read_bytes(pcap_header(snaplen=100) + pcap_record(data[:100], wire=len(data)))
    (row,) = result.rows
    assert (len(row.payload), row.wire_length) == (100 - 54, 1000)
    assert result.notes == []


@pytest.mark.parametrize("cut", [1, 15, 16, 17, 60, 109])
def test_a_truncated_file_yields_its_complete_packets(cut: int) -> None:
    data = pcap(frames(3))
    record = 16 + 14 + 40 + 40
    result = read_bytes(data[:-cut])
    assert numbers(result.payloads) == [0, 1]
    assert result.broken
    problem = result.problem("capture-cut")
    assert (problem.capture, problem.packet) == ("stdin", 2)
    assert f"within packet 3 (at byte {24 + 2 * record}, {record - cut} bytes" in problem.detail


@pytest.mark.parametrize(
    ("data", "said"),
    [
        *((data, "stdin: is ") for data in (b"\xd4", b"\xd4\xc3\xb2\xa1", pcap_header()[:-1])),
        *((data, "file header") for data in (section()[:4], section()[:8] + bytes(4) + section()[12:])),
    ],
)
def test_a_file_cut_within_its_header_is_not_a_capture(data: bytes, said: str) -> None:
    with pytest.raises(CaptureError, match=said):
        read_bytes(data)


@pytest.mark.parametrize("wire", [0, 1, 53])
def test_records_that_claim_fewer_bytes_on_the_wire_than_captured_are_read(wire: int) -> None:
    """As in libpcap and tshark; some capture programs and converters write such lengths."""
    records = [pcap_record(data, START + n * SECOND, wire=wire) for n, data in enumerate(frames(5))]
    result = read_bytes(pcap_header() + b"".join(records))
    assert numbers(result.payloads) == [0, 1, 2, 3, 4]
    assert [row.wire_length for row in result.rows] == [len(row.payload) for row in result.rows]
    assert result.notes == []
    assert not result.broken


COUNT = 20
RECORD = 16 + 14 + 40 + 40


def pcapng(order: str = "<") -> tuple[bytes, int, int]:
    """A pcapng file of COUNT frames: (bytes, size of what precedes them, size of a block)."""
    head = section(order) + interface(order=order)
    blocks = [enhanced(data, n, order=order) for n, data in enumerate(frames(COUNT))]
    return head + b"".join(blocks), len(head), len(blocks[0])


def reported(result: Result) -> int:
    assert result.broken
    return result.problem("capture-broken").bytes or 0


@pytest.mark.parametrize("chunk_size", [1, 100, 1 << 24])
@pytest.mark.parametrize(
    ("name", "at", "damage"),
    [
        ("implausible length", 8, struct.pack("<I", 0x7FFFFFFF)),
        ("length of the next 100 MB", 8, struct.pack("<I", 100_000_000)),
        ("no bytes on the wire", 8, bytes(8)),
        ("fraction of more than a second", 4, struct.pack("<I", 0xFFFFFFFF)),
    ],
)
def test_a_corrupt_pcap_record_costs_only_itself(name: str, at: int, damage: bytes, chunk_size: int) -> None:
    data = bytearray(pcap(frames(COUNT)))
    place = 24 + 5 * RECORD + at
    data[place : place + len(damage)] = damage
    result = read_bytes(bytes(data), chunk_size=chunk_size)
    assert numbers(result.payloads) == [n for n in range(COUNT) if n != 5]
    problem = result.problem("capture-broken")
    assert reported(result) == RECORD
    assert problem.packet == 5
    assert f"at byte {24 + 5 * RECORD} (after packet 5)" in problem.detail
    # The problem is reported where the bytes are missing.
    assert [note.order for note in result.notes] == [5]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(
    ("at", "damage"),
    [
        (4, b"\xff\xff\xff\xff"),  # length
        (4, b"\0\0\0\0"),
        (20, b"\x7f\xff\xff\x7f"),  # captured length
        (-4, b"\0\0\0\1"),  # the length again
    ],
)
@pytest.mark.parametrize("chunk_size", [1, 100, 1 << 24])
def test_a_corrupt_pcapng_block_costs_only_itself(order: str, at: int, damage: bytes, chunk_size: int) -> None:
    whole, head, size = pcapng(order)
    data = bytearray(whole)
    place = head + 5 * size + at % size
    data[place : place + len(damage)] = damage
    result = read_bytes(bytes(data), chunk_size=chunk_size)
    assert numbers(result.payloads) == [n for n in range(COUNT) if n != 5]
    assert reported(result) == size


@pytest.mark.parametrize("size", [1, 7, 1000, 300_000])
def test_garbage_between_records(size: int) -> None:
    garbage = random.Random(size).randbytes(size)
    records = [pcap_record(data) for data in frames(COUNT)]
    result = read_bytes(pcap_header() + b"".join(records[:7]) + garbage + b"".join(records[7:]))
    assert numbers(result.payloads) == list(range(COUNT))
    assert reported(result) == size
    whole, head, block_size = pcapng()
    place = head + 7 * block_size
    result = read_bytes(whole[:place] + garbage + whole[place:])
    assert numbers(result.payloads) == list(range(COUNT))
    assert reported(result) == size


def test_zeros_to_the_end_are_skipped() -> None:
    """Padding that a file system leaves after a crash."""
    result = read_bytes(pcap(frames(3)) + bytes(100_000))
    assert numbers(result.payloads) == [0, 1, 2]
    assert reported(result) == 100_000
    assert "cannot be read" in result.problem("capture-broken").detail


def test_the_search_is_bounded() -> None:
    result = read_bytes(pcap(frames(2)) + b"\xff" * (RESYNC_LIMIT + (1 << 20)) + pcap(frames(9))[24:])
    assert numbers(result.payloads) == [0, 1]
    assert "cannot be read" in result.problem("capture-broken").detail


@given(
    st.lists(st.tuples(st.integers(0, COUNT * RECORD + 23), st.integers(0, 255)), min_size=1, max_size=8),
    st.sampled_from([1, 64, 1000]),
    st.booleans(),
)
def test_any_damage_gives_the_same_rows_for_any_chunk_size(
    damage: list[tuple[int, int]], chunk_size: int, ng: bool
) -> None:
    data = bytearray(pcapng()[0] if ng else pcap(frames(COUNT)))
    for place, value in damage:
        if place >= 28:  # the file header stays: without it this is not a capture
            data[place % len(data)] = value
    whole = read_bytes(bytes(data))
    assert read_bytes(bytes(data), chunk_size=chunk_size) == whole


def test_many_corrupt_blocks_do_not_cause_repeated_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = 0

    def counting(data: bytes, starts: Any, *rest: Any) -> Any:
        nonlocal looked_at
        looked_at += len(starts)
        return read_blocks(data, starts, *rest)

    monkeypatch.setattr(pcapng_format, "read_blocks", counting)
    count, body = 3_000, b"\xff" * 16
    blocks = [block(6, struct.pack("<5I", 0, 0, number, 16 + (number % 5 == 0), 17) + body) for number in range(count)]
    result = read_bytes(section() + interface() + b"".join(blocks))
    assert len(result.kinds) == count // 5
    assert result.packets == count - count // 5
    # As many as fit into the first read follow each.
    assert looked_at < count + count // 5 * (FIRST_REACH // len(blocks[0]) + 1)
