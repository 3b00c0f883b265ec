from __future__ import annotations

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.utils import wrpcap

from kafkasniff.errors import CaptureError
from tests.capture.files import SECOND, START, pcap, pcap_header, pcap_record
from tests.capture.reading import read, read_bytes
from tests.capture.segments import MACS, frames, numbers

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


def test_files_that_scapy_writes(tmp_path) -> None:
    packets = [Ether(**MACS) / IP(src="10.0.0.1", dst="10.0.0.2") / TCP(seq=n) / Raw(b"%d" % n) for n in range(5)]
    for packet, time in zip(packets, (1.5, 2.25, 2.25, 3, 1), strict=True):
        packet.time = time
    for nano in (False, True):
        path = tmp_path / f"scapy-{nano}.pcap"
        wrpcap(str(path), packets, nano=nano)
        result = read(path)
        # In file order, which is not the order of times.
        assert [(row.seq, row.time_ns) for row in result.rows] == [
            (0, 1_500_000_000), (1, 2_250_000_000), (2, 2_250_000_000), (3, 3_000_000_000), (4, 1_000_000_000)
        ]  # fmt: skip


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


def test_file_without_packets() -> None:
    result = read_bytes(pcap_header())
    assert (result.rows, result.notes, result.packets, result.broken) == ([], [], 0, False)


@pytest.mark.parametrize("data", [b"\xd4", b"\xd4\xc3\xb2\xa1", pcap_header()[:-1]])
def test_a_file_cut_within_its_header_is_not_a_capture(data: bytes) -> None:
    with pytest.raises(CaptureError, match="stdin: is "):
        read_bytes(data)


def test_a_large_snap_length_allows_large_records() -> None:
    data = frames(1)[0] + bytes(300_000)  # padding
    head = pcap_header(snaplen=1 << 20)
    assert read_bytes(head + pcap_record(data) + pcap_record(frames(1)[0])).packets == 2


@pytest.mark.parametrize("wire", [0, 1, 53])
def test_records_that_claim_fewer_bytes_on_the_wire_than_captured_are_read(wire: int) -> None:
    """As in libpcap and tshark; some capture programs and converters write such lengths."""
    records = [pcap_record(data, START + n * SECOND, wire=wire) for n, data in enumerate(frames(5))]
    result = read_bytes(pcap_header() + b"".join(records))
    assert numbers(result.payloads) == [0, 1, 2, 3, 4]
    assert [row.wire_length for row in result.rows] == [len(row.payload) for row in result.rows]
    assert result.notes == []
    assert not result.broken


def test_a_single_odd_length_among_good_records_is_read() -> None:
    data = frames(5)
    records = [pcap_record(one, START, wire=7 if n == 2 else len(one)) for n, one in enumerate(data)]
    assert numbers(read_bytes(pcap_header() + b"".join(records)).payloads) == [0, 1, 2, 3, 4]


def test_an_odd_length_that_leads_to_no_record_is_corrupt() -> None:
    """A header in the middle of garbage looks the same; the bytes that follow decide."""
    data = frames(6)
    good = [pcap_record(one, START + n * SECOND) for n, one in enumerate(data)]
    odd = pcap_record(data[2] + b"\xff" * 100, START, wire=10)
    cut = odd[: -len(data[2]) - 60]
    result = read_bytes(pcap_header() + b"".join([*good[:2], cut, *good[3:]]))
    assert numbers(result.payloads) == [0, 1, 3, 4, 5]
    assert [note.value.kind for note in result.notes] == ["capture-broken"]
