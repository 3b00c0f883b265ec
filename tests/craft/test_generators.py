"""The benchmark's captures are sound: what they are said to hold is there, in packets without a flaw."""

from __future__ import annotations

import io
from pathlib import Path

from scapy.layers.inet import IP, TCP
from scapy.utils import rdpcap

from benchmarks import small_messages
from benchmarks.resegment import resegment
from tests.craft.outcome import files_outcome
from tests.craft.packet import ACK, SYN
from tests.craft.read import read_packets
from tests.craft.samples import mixed
from tests.craft.streams import stream_bytes
from tests.craft.write import pcap_bytes, write_pcap


def test_small_messages_have_the_stated_content(tmp_path: Path) -> None:
    path = tmp_path / "C.pcap"
    facts = small_messages.write(path, connections=30, wanted=4000, seed=3)
    packets = read_packets(path)
    assert len(packets) == facts["packets"]
    assert 3500 < len(packets) <= 4000
    assert [packet.time_ns for packet in packets] == sorted(packet.time_ns for packet in packets)
    following: dict[object, int] = {}
    for packet in packets:
        assert packet.seq == following.get(packet.stream, packet.seq)
        following[packet.stream] = packet.end
        if packet.flags & ACK and not packet.flags & SYN:
            src, sport, dst, dport = packet.stream
            assert packet.ack == following[dst, dport, src, sport]
    outcome = files_outcome([path])
    assert (outcome.summary.requests, outcome.summary.responses) == (facts["requests"], facts["responses"])
    assert outcome.summary.kafka_connections == 30
    assert outcome.summary.problems == 0
    again = tmp_path / "again.pcap"
    small_messages.write(again, connections=30, wanted=4000, seed=3)
    assert again.read_bytes() == path.read_bytes()


def test_small_messages_have_true_checksums(tmp_path: Path) -> None:
    path = tmp_path / "C.pcap"
    small_messages.write(path, connections=5, wanted=200)
    for packet in rdpcap(io.BytesIO(path.read_bytes())):
        reported = (packet[IP].chksum, packet[TCP].chksum)
        del packet[IP].chksum
        del packet[TCP].chksum
        computed = packet.__class__(bytes(packet))
        assert reported == (computed[IP].chksum, computed[TCP].chksum)


def test_resegmented_streams_are_the_same(tmp_path: Path) -> None:
    large = write_pcap(tmp_path / "A.pcap", mixed(), nanoseconds=True)
    small = tmp_path / "B.pcap"
    resegment(large, small, 100)
    packets = read_packets(small)
    assert max(len(packet.payload) for packet in packets) == 100
    assert len(packets) > len(mixed())
    assert stream_bytes(packets) == stream_bytes(mixed())
    assert pcap_bytes(packets, nanoseconds=True) == small.read_bytes()
