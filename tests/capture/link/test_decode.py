"""Unreadable and truncated packets: each kind is reported once per capture, and none raises."""

from __future__ import annotations

import struct

import pytest
from scapy.layers.dot11 import Dot11, RadioTap
from scapy.layers.inet import TCP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import LLC, SNAP, Ether
from scapy.packet import Raw

from tests.capture.files import enhanced, interface, option, pcap, pcap_header, pcap_record, section
from tests.capture.link.test_links import CASES, PAYLOAD
from tests.capture.reading import read_bytes
from tests.capture.segments import MACS, frame, frames, marked, numbers, segment


def changed(data: bytes, at: int, value: bytes) -> bytes:
    return data[:at] + value + data[at + len(value) :]


@pytest.mark.parametrize("chunk_size", [1, 1 << 24])
def test_packets_cut_within_their_headers_are_reported_once(chunk_size: int) -> None:
    data = frame(marked(0))
    six = bytes(Ether(type=0x86DD, **MACS) / IPv6() / TCP() / Raw(marked(0)))
    sizes = [(data, n) for n in (10, 14, 20, 33, 34, 53)] + [(six, n) for n in (14, 53, 73)]
    records = [pcap_record(whole[:n], wire=len(whole)) for whole, n in sizes] + [pcap_record(data)]
    result = read_bytes(pcap_header() + b"".join(records), chunk_size=chunk_size)
    assert numbers(result.payloads) == [0]
    assert result.kinds == ["packet-cut-headers"]
    problem = result.problem("packet-cut-headers")
    assert f"{len(sizes)} packets" in problem.detail
    assert problem.capture == "stdin"
    assert [note.order for note in result.notes] == [len(records)]
    assert not result.broken


@pytest.mark.parametrize(
    "broken",
    [
        changed(frame(b"x"), 14, b"\x44"),  # IPv4 header shorter than the minimum
        changed(frame(b"x"), 14, b"\x55"),  # version 5
        changed(frame(b"x"), 16, b"\0\x13"),  # IPv4 length shorter than its header
        changed(frame(b"x"), 16, b"\0\x20"),  # … than TCP's header
        changed(frame(b"x"), 14 + 20 + 12, b"\x40"),  # TCP header shorter than the minimum
        changed(frame(b"x"), 14 + 20 + 12, b"\xf0"),  # … longer than the packet
        frame(b"x")[:30],  # a runt
        bytes.fromhex("020000000002 020000000001") + bytes.fromhex("8100 0001") * 9 + b"\x08\0" + segment(b"x"),
        bytes.fromhex("020000000002 020000000001 8847") + bytes.fromhex("00010040") * 17 + segment(b"x"),
        bytes(Ether(type=0x86DD, **MACS) / IPv6(nh=60)) + bytes.fromhex("3c00 0000 00000000") * 17 + bytes(20),
    ],
)
def test_malformed_packets_are_reported_once(broken: bytes) -> None:
    result = read_bytes(pcap([*frames(2), broken, broken, *frames(2)]))
    assert numbers(result.payloads) == [0, 1, 0, 1]
    assert result.kinds == ["packet-malformed"]
    assert "2 packets" in result.problem("packet-malformed").detail


def test_each_unknown_link_type_is_one_problem() -> None:
    names = [option(2, b"can0"), b""]
    data = section() + interface(1) + interface(227, names[0]) + interface(65_000)
    for number in range(3):
        data += enhanced(b"\1" * 16, number, 1) + enhanced(frame(marked(number)), number, 0) + enhanced(bytes(9), 5, 2)
    for chunk_size in (1, 1 << 24):
        result = read_bytes(data, chunk_size=chunk_size)
        assert numbers(result.payloads) == [0, 1, 2]
        assert result.packets == 9
        assert [(note.order, note.value.kind, note.value.packet) for note in result.notes] == [
            (0, "link-type-unknown", 1),
            (2, "link-type-unknown", 3),
        ]
        assert "interface 1 (can0) has link type 227" in result.notes[0].value.detail
        assert "interface 2 has link type 65000" in result.notes[1].value.detail


@pytest.mark.parametrize("link", [105, 127])
def test_scapy_reads_rare_link_types(link: int) -> None:
    """A frame of a wireless network, which only scapy can read here."""
    network = Dot11(type=2, subtype=0, FCfield=1) / LLC(dsap=0xAA, ssap=0xAA, ctrl=3) / SNAP(code=0x0800)
    packets = [bytes(network) + segment(marked(n)) for n in range(3)]
    if link == 127:
        packets = [bytes(RadioTap()) + packet for packet in packets]
    result = read_bytes(pcap([packets[0], b"\x08", *packets[1:]], link=link))
    assert numbers(result.payloads) == [0, 1, 2]
    assert [row.number for row in result.rows] == [1, 3, 4]
    assert result.notes == []


def test_a_rare_link_type_without_scapy(monkeypatch: pytest.MonkeyPatch) -> None:
    from kafkasniff.capture.link import scapy_layers

    monkeypatch.setattr(scapy_layers, "_scapy", lambda: None)
    result = read_bytes(pcap([b"\x08\x01" + bytes(60)], link=105))
    assert "IEEE 802.11" in result.problem("link-type-unknown").detail


def test_split_distinguishes_duplicate_captures_from_retransmissions() -> None:
    first = segment(marked(0))
    again = changed(first, 4, struct.pack(">H", 2))  # another IP identification
    a, b, c = read_bytes(pcap([first, first, again], link=101)).rows
    assert a.ident == b.ident != c.ident


@pytest.mark.parametrize("name", ["ip-options", "ip-ah", "ipv6-ah", "ipv6-all", "gre-key-sequence"])
def test_cut_anywhere(name: str) -> None:
    """Counted as cut until the TCP header is whole, and never as malformed."""
    link, packet = CASES[name]
    data = bytes(packet)
    head = data.index(PAYLOAD)
    records = [pcap_record(data[:size], wire=len(data)) for size in range(1, head + 2)]
    result = read_bytes(pcap_header(link=link) + b"".join(records))
    assert [len(row.payload) for row in result.rows] == [0, 1]
    assert {row.wire_length for row in result.rows} == {len(PAYLOAD)}
    assert result.kinds == ["packet-cut-headers"]
    assert f"{head - 1} packets" in result.problem("packet-cut-headers").detail
