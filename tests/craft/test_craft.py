"""The tools of these tests against scapy, and the disturbances against what they promise."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.inet6 import IPv6
from scapy.utils import rdpcap

from benchmarks.resegment import resegment
from tests.craft import damage, disturb, intrude
from tests.craft.batches import batch
from tests.craft.packet import ACK, FIN, RST, Packet
from tests.craft.read import raw_packets, read_packets, tcp_packet
from tests.craft.samples import mixed
from tests.craft.streams import stream_bytes
from tests.craft.write import LINKS, as_ipv6, compressed, pcap_bytes, pcapng_bytes, write_pcap, write_rotated

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


@pytest.mark.extended
@pytest.mark.parametrize("link", sorted(LINKS))
def test_scapy_reads_the_packets_that_were_written(link: str) -> None:
    for ipv6, nanoseconds, order in ((False, False, "<"), (True, True, ">")):
        packets = as_ipv6(mixed()[:40]) if ipv6 else mixed()[:40]
        seen = rdpcap(io.BytesIO(pcap_bytes(packets, link, nanoseconds=nanoseconds, order=order)))
        for packet, one in zip(packets, seen, strict=True):
            # scapy knows the number of IPv6 in null headers only as its own system has it.
            ip = IPv6(bytes(one)[4:]) if ipv6 and IPv6 not in one else one[IPv6 if ipv6 else IP]
            tcp = ip[TCP]
            assert (ip.src, tcp.sport, ip.dst, tcp.dport) == packet.stream
            numbers = packet.seq, packet.ack, packet.flags, packet.window
            assert (tcp.seq, tcp.ack, int(tcp.flags), tcp.window) == numbers
            assert bytes(tcp.payload)[: len(packet.payload)] == packet.payload
            written = bytes(ip)[: 40 + (20 if ipv6 else 0) + len(packet.payload)]
            del tcp.chksum
            if not ipv6:
                del ip.chksum
            assert bytes(ip.__class__(bytes(ip)[: len(written)])) == written, "scapy computes other checksums"


def test_written_files_can_be_read(tmp_path: Path) -> None:
    packets = [packet.but(cut=5 if index % 7 == 0 else 0) for index, packet in enumerate(mixed())]
    for link in ("ethernet", "sll", "sll2", "null", "loop", "raw", "vlan", "qinq"):
        for data in (pcap_bytes(packets, link, nanoseconds=True), pcapng_bytes(packets, (link, "raw"), sections=2)):
            assert [tcp_packet(*raw) for raw in raw_packets(data)] == packets, link
    micros = [packet.but(time_ns=packet.time_ns // 1000 * 1000) for packet in packets]
    assert [tcp_packet(*raw) for raw in raw_packets(pcap_bytes(packets, order=">"))] == micros
    whole = mixed()
    for form, suffix in (("gzip", "gz"), ("gzip-members", "gz"), ("zstd", "zst"), ("lz4", "lz4")):
        path = tmp_path / f"all.pcap.{suffix}"
        path.write_bytes(compressed(pcap_bytes(whole, nanoseconds=True), form))
        assert read_packets(path) == whole, form
    parts = write_rotated(tmp_path, whole, 3)
    assert [packet for part in parts for packet in read_packets(part)] == whole


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


def test_harmless_disturbances_keep_all_bytes() -> None:
    packets = mixed()
    expected = stream_bytes(packets)
    for disturbance in SAME_BYTES:
        after = disturbance(packets, Random(1))
        assert after != packets, disturbance
        assert stream_bytes(after) == expected, disturbance
        assert [packet.time_ns for packet in after] == sorted(packet.time_ns for packet in after), disturbance
        assert after == disturbance(packets, Random(1)), "the same seed gives the same capture"


def test_disturbances_match_their_names() -> None:
    packets, rng = mixed(), Random(1)
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


def test_damage_only_takes_away() -> None:
    packets = mixed()
    known = {(packet.stream, packet.seq, packet.flags): packet.payload for packet in packets}
    for disturbance in LOSSY:
        for seed in range(2):
            after = disturbance(packets, Random(seed))
            assert sum(len(packet.payload) for packet in after) < sum(len(packet.payload) for packet in packets)
            for packet in after:
                assert known[packet.stream, packet.seq, packet.flags].startswith(packet.payload), disturbance
    first: dict[object, Packet] = {}
    for packet in damage.late_at_request(packets, Random(3)):
        if packet.dport == 9092 and packet.payload:
            first.setdefault(packet.stream, packet)
    assert {packet.payload[4:6] for packet in first.values()} <= {b"\0\x00", b"\0\x01", b"\0\x03", b"\0\x12"}


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


def test_resegmented_streams_are_the_same(tmp_path: Path) -> None:
    large = write_pcap(tmp_path / "A.pcap", mixed(), nanoseconds=True)
    small = tmp_path / "B.pcap"
    resegment(large, small, 100)
    packets = read_packets(small)
    assert max(len(packet.payload) for packet in packets) == 100
    assert len(packets) > len(mixed())
    assert stream_bytes(packets) == stream_bytes(mixed())
    assert pcap_bytes(packets, nanoseconds=True) == small.read_bytes()
