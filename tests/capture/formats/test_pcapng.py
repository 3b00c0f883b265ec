from __future__ import annotations

import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.utils import PcapNgWriter

from kafkasniff.errors import CaptureError
from kafkasniff.tcp.packets import NO_TIME
from tests.capture.files import block, enhanced, interface, obsolete, option, padded, pcap, section, simple
from tests.capture.reading import read, read_bytes
from tests.capture.segments import MACS, frame, frames, marked, numbers, segment

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
    ("resolution", "ticks", "time_ns"),
    [
        (6, 1_700_000_000_123_456, 1_700_000_000_123_456_000),
        (9, 1_700_000_000_123_456_789, 1_700_000_000_123_456_789),
        (3, 1_700_000_000_123, 1_700_000_000_123_000_000),
        (0, 1_700_000_000, 1_700_000_000_000_000_000),
        (12, 1_700_000_123_456_789_999, 1_700_000_123_456_789),
        (30, 2**64 - 1, 0),
        (0x80, 1_700_000_000, 1_700_000_000_000_000_000),
        (0x80 | 10, (1_700_000_000 << 10) | 512, 1_700_000_000_500_000_000),
        (0x80 | 32, (1_700_000_000 << 32) | 0xFFFFFFFF, 1_700_000_000_999_999_999),
        (0x80 | 63, 1 << 62, 500_000_000),
    ],
)
def test_resolution_of_times(order: str, resolution: int, ticks: int, time_ns: int) -> None:
    data = section(order) + interface(1, option(9, bytes([resolution]), order), order)
    (row,) = read_bytes(data + enhanced(frames(1)[0], ticks, order=order)).rows
    assert row.time_ns == time_ns


@ORDERS
@pytest.mark.parametrize("offset", [3600, -3600])
def test_offset_of_times(order: str, offset: int) -> None:
    options = option(14, struct.pack(order + "q", offset), order)
    data = section(order) + interface(1, options, order) + enhanced(frames(1)[0], 1_700_000_000_000_001, order=order)
    (row,) = read_bytes(data).rows
    assert row.time_ns == (1_700_000_000 + offset) * 1_000_000_000 + 1000


def test_interfaces_of_different_links_and_clocks() -> None:
    data = section() + interface(1) + interface(101, option(9, bytes([9])))
    data += enhanced(frame(marked(0)), 1, 0) + enhanced(segment(marked(1)), 2, 1) + enhanced(frame(marked(2)), 3, 0)
    result = read_bytes(data)
    assert numbers(result.payloads) == [0, 1, 2]
    assert [row.time_ns for row in result.rows] == [1000, 2, 3000]


def test_sections_have_their_own_byte_order_and_interfaces() -> None:
    data = section("<") + interface(1) + enhanced(frame(marked(0)), 1)
    data += section(">") + interface(101, order=">") + enhanced(segment(marked(1)), 2, order=">")
    data += section("<") + interface(1) + interface(101) + enhanced(segment(marked(2)), 3, 1)
    result = read_bytes(data)
    assert numbers(result.payloads) == [0, 1, 2]
    assert [row.number for row in result.rows] == [1, 2, 3]
    assert result.notes == []


def test_unknown_blocks_are_skipped() -> None:
    a, b = frames(2)
    unknown = (
        block(0x0BADCAFE, b"anything") + block(0x00000BAD, struct.pack("<I", 32473) + b"custom") + block(9, b"log")
    )
    result = read_bytes(section() + unknown + interface() + enhanced(a, 1) + unknown + enhanced(b, 2))
    assert numbers(result.payloads) == [0, 1]
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


def test_packets_of_an_undescribed_interface() -> None:
    a, b, c = frames(3)
    result = read_bytes(section() + interface() + enhanced(a, 1, 5) + enhanced(b, 2, 5) + enhanced(c, 3, 0))
    assert numbers(result.payloads) == [2]
    assert result.packets == 3
    assert "no block describes interface 5" in result.problem("link-type-unknown").detail


def test_cut_file() -> None:
    data = section() + interface() + b"".join(enhanced(f, n) for n, f in enumerate(frames(3)))
    result = read_bytes(data[:-5])
    assert numbers(result.payloads) == [0, 1]
    assert result.problem("capture-cut").packet == 2
    assert result.broken


@pytest.mark.parametrize("data", [section()[:4], section()[:8] + b"\0\0\0\0" + section()[12:]])
def test_no_section_header(data: bytes) -> None:
    with pytest.raises(CaptureError, match="file header"):
        read_bytes(data)


def test_file_that_scapy_writes(tmp_path: Path) -> None:
    path = tmp_path / "scapy.pcapng"
    writer = PcapNgWriter(str(path))
    for number in range(4):
        packet = Ether(**MACS) / IP(src="10.0.0.1", dst="10.0.0.2") / TCP(seq=number) / Raw(b"abc")
        packet.time = 1_700_000_000 + number
        writer.write(packet)
    writer.close()
    rows = read(path).rows
    assert [(row.seq, row.time_ns) for row in rows] == [(n, (1_700_000_000 + n) * 1_000_000_000) for n in range(4)]


@pytest.mark.tshark
@pytest.mark.parametrize("kind", ["pcapng", "nsecpcap", "pcap"])
def test_files_that_editcap_writes(kind: str, tmp_path: Path, require_tool: Callable[[str], str]) -> None:
    original = tmp_path / "original.pcap"
    original.write_bytes(pcap(frames(50), step=1_001_000))
    converted = tmp_path / f"converted.{kind}"
    subprocess.run([require_tool("editcap"), "-F", kind, str(original), str(converted)], check=True)
    assert [row[1:] for row in read(converted).rows] == [row[1:] for row in read(original).rows]
