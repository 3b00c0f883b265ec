"""IP headers by columns: lengths, options, extension headers, fragments, and what is inside them."""

from __future__ import annotations

import socket

import numpy as np
import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_NOP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop, IPv6ExtHdrRouting, PadN
from scapy.layers.ipsec import AH
from scapy.layers.l2 import GRE
from scapy.packet import Packet, Raw

from kafkasniff.capture.link import internet
from kafkasniff.capture.link.internet import ip
from kafkasniff.capture.link.walk import Layer, LayerSpan, LinkWalk

SEGMENT = TCP(sport=51334, dport=9092, seq=7, flags="PA") / Raw(b"payload")
V4 = {"src": "10.1.2.3", "dst": "10.4.5.6"}
V6 = {"src": "2001:db8::1", "dst": "2001:db8:0:1::abcd"}


def walked(*packets: Packet | bytes, wire: int = 0) -> LinkWalk:
    """All packets at the IP layer; `wire`: bytes that each had more on the wire."""
    raw = [bytes(packet) for packet in packets]
    ends = np.cumsum([len(one) for one in raw], dtype=np.int64)
    starts = ends - np.array([len(one) for one in raw], np.int64)
    walk = LinkWalk(b"".join(raw))
    ip(walk, LayerSpan(np.arange(len(raw)), starts, ends, ends + wire))
    return walk


def segments(walk: LinkWalk) -> dict[int, dict[str, int]]:
    """Columns of the TCP segments by packet."""
    return {
        int(row): {name: int(column[index]) for name, column in one.items()}
        for one in walk.segments
        for index, row in enumerate(one["rows"])
    }


def rows(arrays: list[np.ndarray]) -> list[int]:  # type: ignore[type-arg]
    return sorted(int(row) for array in arrays for row in array)


def address(found: dict[str, int], side: str) -> str:
    raw = found[f"{side}_hi"].to_bytes(8, "big") + found[f"{side}_lo"].to_bytes(8, "big")
    if raw.startswith(bytes(10) + b"\xff\xff"):
        return socket.inet_ntop(socket.AF_INET, raw[12:])
    return socket.inet_ntop(socket.AF_INET6, raw)


PLAIN: dict[str, Packet] = {
    "ipv4": IP(**V4) / SEGMENT,
    "options": IP(options=[IPOption_NOP()] * 7, **V4) / SEGMENT,
    "ipv6": IPv6(**V6) / SEGMENT,
    "hop by hop": IPv6(**V6) / IPv6ExtHdrHopByHop(options=[PadN(optdata=bytes(12))]) / SEGMENT,
    "chain": IPv6(**V6) / IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt() / IPv6ExtHdrRouting() / SEGMENT,
    "ah": IPv6(**V6) / AH(nh=6, payloadlen=4, icv=bytes(12)) / SEGMENT,
    "ah after ipv4": IP(proto=51, **V4) / AH(nh=6, payloadlen=4, icv=bytes(12)) / SEGMENT,
    "atomic fragment": IPv6(**V6) / IPv6ExtHdrFragment(id=3) / SEGMENT,
}


def test_every_header_in_one_batch() -> None:
    walk = walked(*PLAIN.values())
    found = segments(walk)
    assert sorted(found) == list(range(len(PLAIN)))
    for row, packet in enumerate(PLAIN.values()):
        expected = V6 if IPv6 in packet else V4
        assert {side: address(found[row], side) for side in ("src", "dst")} == expected
        assert (found[row]["src_port"], found[row]["dst_port"], found[row]["seq"]) == (51334, 9092, 7)
        at = found[row]["offset"]
        assert walk.buffer[at : at + found[row]["length"]] == b"payload"
    assert rows(walk.cut) == rows(walk.malformed) == []


@pytest.mark.parametrize("version", [4, 6])
def test_bytes_after_the_datagram_are_padding(version: int) -> None:
    packet = bytes(IP(**V4) / SEGMENT) if version == 4 else bytes(IPv6(**V6) / SEGMENT)
    (found,) = segments(walked(packet + bytes(6))).values()
    assert (found["length"], found["wire_length"]) == (7, 7)


@pytest.mark.parametrize("version", [4, 6])
def test_without_a_length_all_bytes_belong_to_it(version: int) -> None:
    """Segmentation offload fills the length in later."""
    raw = bytearray(bytes(IP(**V4) / SEGMENT) if version == 4 else bytes(IPv6(**V6) / SEGMENT))
    place = 2 if version == 4 else 4
    raw[place : place + 2] = bytes(2)
    (found,) = segments(walked(bytes(raw), wire=1000)).values()
    assert (found["length"], found["wire_length"]) == (7, 1007)


@pytest.mark.parametrize(
    ("length", "wire"), [(100_000, 100_000), (0xFFFF_FFFF, internet.LARGEST_JUMBO)], ids=["jumbo", "hostile"]
)
def test_jumbo_payloads(length: int, wire: int) -> None:
    head = bytes([6, 0, 0xC2, 4]) + length.to_bytes(4, "big")
    raw = bytearray(bytes(IPv6(nh=0, **V6)) + head + bytes(SEGMENT))
    raw[4:6] = bytes(2)
    (found,) = segments(walked(bytes(raw), wire=1 << 31)).values()
    assert found["wire_length"] == wire - 8 - 20


@pytest.mark.parametrize(
    "raw",
    [
        b"\x55" + bytes(60),
        b"\x44" + bytes(IP(**V4) / SEGMENT)[1:],
        bytes(IP(**V4) / SEGMENT)[:2] + b"\0\x13" + bytes(IP(**V4) / SEGMENT)[4:],
        bytes(IPv6(nh=60, **V6)) + bytes.fromhex("3c00 0000 00000000") * 17 + bytes(20),
    ],
    ids=["version 5", "header too short", "length too short", "endless extensions"],
)
def test_headers_that_contradict_themselves(raw: bytes) -> None:
    """The other packets of the batch are read."""
    walk = walked(raw, PLAIN["ipv4"])
    assert rows(walk.malformed) == [0]
    assert sorted(segments(walk)) == [1]


@pytest.mark.parametrize("name", PLAIN)
def test_cut_anywhere(name: str) -> None:
    """Counted as cut, until the TCP header is whole."""
    raw = bytes(PLAIN[name])
    head = len(raw) - len(b"payload")
    for size in range(1, len(raw)):
        walk = walked(raw[:size], wire=len(raw) - size)
        assert rows(walk.cut) == ([0] if size < head else [])
        assert sorted(segments(walk)) == ([] if size < head else [0])
        assert rows(walk.malformed) == []


def test_fragments_leave_the_walk() -> None:
    four = IP(id=77, proto=6, frag=3, flags="MF", **V4) / Raw(b"x" * 16)
    six = IPv6(**V6) / IPv6ExtHdrFragment(id=88, nh=6, offset=5, m=0) / Raw(b"y" * 8)
    walk = walked(four, PLAIN["ipv4"], six)
    assert sorted(segments(walk)) == [1]
    first, second = walk.fragments
    assert (first.span.rows.tolist(), second.span.rows.tolist()) == ([0], [2])
    assert (first.offset.tolist(), first.more.tolist(), first.ident.tolist()) == ([24], [True], [77])
    assert (second.offset.tolist(), second.more.tolist(), second.ident.tolist()) == ([40], [False], [88])
    assert (first.protocol.tolist(), second.protocol.tolist()) == ([6], [6])
    assert (first.version, second.version) == (4, 6)
    assert walk.byte(second.span.at).tobytes() == b"y"
    # Reassembly overwrites this byte with the protocol after the fragment header.
    assert walk.byte(second.next_at).tolist() == [44]


@pytest.mark.parametrize(
    ("packet", "layer", "depth"),
    [
        (IP(**V4) / UDP(dport=4789), Layer.UDP, 0),
        (IPv6(**V6) / UDP(dport=4789), Layer.UDP, 0),
        (IP(**V4) / IP(**V4) / SEGMENT, Layer.IP, 1),
        (IP(**V4) / IPv6(**V6) / SEGMENT, Layer.IP, 1),
        (IP(**V4) / GRE() / IP(**V4), Layer.GRE, 0),
        (IP(proto=137, **V4) / Raw(bytes(8)), Layer.MPLS, 1),
        (IP(proto=97, **V4) / Raw(bytes(18)), Layer.ETHERNET, 1),
    ],
)
def test_tunnels_are_layers(packet: Packet, layer: Layer, depth: int) -> None:
    walk = walked(packet)
    ((found, span),) = walk.pending
    assert (found, span.depth, span.rows.tolist()) == (layer, depth, [0])
    assert walk.segments == []


def test_other_protocols_are_ignored() -> None:
    walk = walked(IP(**V4) / ICMP(), IPv6(nh=59, **V6))
    assert (walk.pending, walk.segments, rows(walk.malformed), rows(walk.cut)) == ([], [], [], [])
