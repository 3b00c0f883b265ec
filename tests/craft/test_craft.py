"""The tools of these tests against scapy, and the disturbances against what they promise."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.inet6 import IPv6
from scapy.packet import Packet as ScapyPacket
from scapy.utils import rdpcap

from tests.craft import damage, disturb, intrude
from tests.craft.batches import batch
from tests.craft.packet import ACK, FIN, RST, Packet
from tests.craft.read import raw_packets, read_packets, tcp_packet
from tests.craft.samples import mixed
from tests.craft.streams import stream_bytes
from tests.craft.write import LINKS, as_ipv6, compressed, pcap_bytes, pcapng_bytes, write_rotated

Disturbance = Callable[[Sequence[Packet], Random], list[Packet]]

SAME_BYTES: list[Disturbance] = [
    disturb.reordered,
    disturb.skewed,
    disturb.duplicated,
    disturb.retransmitted,
    disturb.resegmented,
    disturb.single_bytes,
    disturb.merged,
    disturb.overlapped,
    disturb.wrapped,
    disturb.kept_alive,
    disturb.without_handshake,
    intrude.forged_resets,
    intrude.forged_ends,
    intrude.out_of_window,
    intrude.conflicting,
]
LOSSY: list[Disturbance] = [
    damage.requests_only,
    damage.responses_only,
    damage.cut,
    damage.late,
    damage.late_at_request,
    damage.lossy,
    damage.lossy_in_runs,
    damage.unacknowledged,
    damage.snapped,
]


def dissected(data: bytes) -> list[ScapyPacket]:
    return list(rdpcap(io.BytesIO(data)))


@pytest.mark.parametrize("link", sorted(LINKS))
@pytest.mark.parametrize("ipv6", [False, True])
@pytest.mark.parametrize(("nanoseconds", "order"), [(False, "<"), (True, ">")])
def test_scapy_reads_the_packets_that_were_written(link: str, ipv6: bool, nanoseconds: bool, order: str) -> None:
    packets = as_ipv6(mixed()[:40]) if ipv6 else mixed()[:40]
    for packet, seen in zip(
        packets, dissected(pcap_bytes(packets, link, nanoseconds=nanoseconds, order=order)), strict=True
    ):
        # scapy knows the number of IPv6 in null headers only as its own system has it.
        ip = IPv6(bytes(seen)[4:]) if ipv6 and IPv6 not in seen else seen[IPv6 if ipv6 else IP]
        tcp = ip[TCP]
        assert (ip.src, tcp.sport, ip.dst, tcp.dport) == packet.stream
        assert (tcp.seq, tcp.ack, int(tcp.flags), tcp.window) == (packet.seq, packet.ack, packet.flags, packet.window)
        assert bytes(tcp.payload)[: len(packet.payload)] == packet.payload
        written = bytes(ip)[: 40 + (20 if ipv6 else 0) + len(packet.payload)]
        del tcp.chksum
        if not ipv6:
            del ip.chksum
        rebuilt = bytes(ip.__class__(bytes(ip)[: len(written)]))
        assert rebuilt == written, "scapy computes other checksums"


@pytest.mark.parametrize("link", ["ethernet", "sll", "sll2", "null", "loop", "raw", "vlan", "qinq"])
def test_written_files_can_be_read(link: str) -> None:
    packets = [packet.but(cut=5 if index % 7 == 0 else 0) for index, packet in enumerate(mixed())]
    for data in (pcap_bytes(packets, link, nanoseconds=True), pcapng_bytes(packets, (link, "raw"), sections=2)):
        assert [tcp_packet(*raw) for raw in raw_packets(data)] == packets
    micros = [packet.but(time_ns=packet.time_ns // 1000 * 1000) for packet in packets]
    assert [tcp_packet(*raw) for raw in raw_packets(pcap_bytes(packets, link, order=">"))] == micros


@pytest.mark.parametrize(
    ("form", "suffix"), [("gzip", ".gz"), ("gzip-members", ".gz"), ("zstd", ".zst"), ("lz4", ".lz4")]
)
def test_compressed_and_rotated_files_are_read_again(tmp_path: Path, form: str, suffix: str) -> None:
    packets = mixed()
    path = tmp_path / f"all.pcap{suffix}"
    path.write_bytes(compressed(pcap_bytes(packets, nanoseconds=True), form))
    assert read_packets(path) == packets
    parts = write_rotated(tmp_path, packets, 3)
    assert [packet for part in parts for packet in read_packets(part)] == packets


def test_sample_is_a_sound_capture() -> None:
    packets = mixed()
    assert [packet.time_ns for packet in packets] == sorted(packet.time_ns for packet in packets)
    following: dict[object, int] = {}
    for packet in packets:
        if packet.stream in following:
            assert packet.seq == following[packet.stream]
        following[packet.stream] = packet.end
        if packet.flags & ACK:
            src, sport, dst, dport = packet.stream
            assert packet.ack == following[dst, dport, src, sport] or packet.payload
    assert any(packet.seq > packet.end for packet in packets), "the consumer's streams wrap"


@pytest.mark.parametrize("disturbance", SAME_BYTES, ids=lambda each: each.__name__)
def test_harmless_disturbances_keep_all_bytes(disturbance: Disturbance) -> None:
    packets = mixed()
    expected = stream_bytes(packets)
    changed = 0
    for seed in range(3):
        after = disturbance(packets, Random(seed))
        assert stream_bytes(after) == expected
        assert [packet.time_ns for packet in after] == sorted(packet.time_ns for packet in after)
        assert after == disturbance(packets, Random(seed)), "the same seed gives the same capture"
        changed += after != packets
    assert changed == 3


def test_disturbances_match_their_names() -> None:
    packets, rng = mixed(), Random(1)
    assert max(len(packet.payload) for packet in disturb.single_bytes(packets, rng, budget=10**9)) == 1
    assert len(disturb.merged(packets, rng)) < len(packets) < len(disturb.resegmented(packets, rng))
    assert sum(packet.flags & (RST | FIN) == RST for packet in intrude.forged_resets(packets, rng)) > 3
    wraps = disturb.wrapped(packets, rng)
    wrapping = {packet.stream for packet in wraps if packet.payload and packet.end < packet.seq}
    ending = {packet.stream for packet in wraps if packet.payload and packet.end == len(packet.payload)}
    assert wrapping | ending == {packet.stream for packet in packets if packet.payload}
    assert any(packet.window == 0 for packet in disturb.kept_alive(packets, rng))
    twice = disturb.reused(packets, rng)
    assert len(twice) == 2 * len(packets)
    assert {packet.stream for packet in twice} == {packet.stream for packet in packets}


@pytest.mark.parametrize("disturbance", LOSSY, ids=lambda each: each.__name__)
def test_damage_only_takes_away(disturbance: Disturbance) -> None:
    packets = mixed()
    known = {(packet.stream, packet.seq, packet.flags): packet.payload for packet in packets}
    for seed in range(5):
        after = disturbance(packets, Random(seed))
        assert sum(len(packet.payload) for packet in after) < sum(len(packet.payload) for packet in packets)
        for packet in after:
            assert known[packet.stream, packet.seq, packet.flags].startswith(packet.payload)


def test_late_at_request_begins_with_requests() -> None:
    for seed in range(20):
        first: dict[object, Packet] = {}
        for packet in damage.late_at_request(mixed(), Random(seed)):
            if packet.dport == 9092 and packet.payload:
                first.setdefault(packet.stream, packet)
        for packet in first.values():
            assert packet.payload[:2] == b"\0\0"
            assert packet.payload[4:6] in {b"\0\x00", b"\0\x01", b"\0\x03", b"\0\x12"}


def test_batch_has_the_packets_in_its_rows() -> None:
    packets = [*mixed()[:30], *as_ipv6(mixed()[30:40])]
    made = batch(packets)
    assert len(made) == made.packets == made.end_order == 40
    for index, packet in enumerate(packets):
        start = int(made.offset[index])
        assert made.buffer[start : start + int(made.length[index])] == packet.payload
        assert (made.seq[index], made.ack[index], made.flags[index]) == (packet.seq, packet.ack, packet.flags)
    assert made.src_lo[0] == 0xFFFF_0A00_0005
    assert made.src_hi[35] == 0x2001_0DB8_0000_0000
