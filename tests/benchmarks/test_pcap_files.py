from __future__ import annotations

import struct
import subprocess
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from scapy.utils import RawPcapNgReader

from benchmarks.pcap_files import (
    FILE_HEADER,
    count_packets,
    packet_places,
    write_beginning,
    write_copies,
    write_pcapng,
)
from tests.craft.outcome import files_outcome
from tests.craft.packet import Packet
from tests.craft.read import read_packets
from tests.craft.samples import mixed
from tests.craft.write import as_ipv6, pcap_bytes, write_pcap


@pytest.fixture(params=["IPv4", "IPv6"])
def packets(request: pytest.FixtureRequest) -> list[Packet]:
    return mixed() if request.param == "IPv4" else as_ipv6(mixed())


@pytest.fixture
def path(packets: list[Packet], tmp_path: Path) -> Path:
    return write_pcap(tmp_path / "source.pcap", packets, nanoseconds=True)


def test_places_are_those_of_whole_packets(path: Path, packets: list[Packet]) -> None:
    data = path.read_bytes()
    places, lengths = packet_places(data)
    assert len(places) == len(packets) == count_packets(path)
    assert places[0] == FILE_HEADER
    assert places[-1] + 16 + lengths[-1] == len(data)
    for cut in (1, int(lengths[-1]), int(lengths[-1]) + 15):
        assert len(packet_places(data[:-cut])[0]) == len(packets) - 1
    assert len(packet_places(data[:FILE_HEADER])[0]) == 0


@pytest.mark.parametrize("cut", [1, 40, 60])
def test_a_last_packet_that_is_cut_does_not_count(path: Path, packets: list[Packet], cut: int) -> None:
    path.write_bytes(path.read_bytes()[:-cut])
    assert count_packets(path) == len(packets) - 1


def test_copies_differ_in_clients_and_times_alone(path: Path, packets: list[Packet], tmp_path: Path) -> None:
    target = tmp_path / "copies.pcap"
    ports = [9092, 80]
    assert write_copies(path.read_bytes(), target, 3, ports) == 3 * len(packets)
    copies = read_packets(target)
    assert len(copies) == 3 * len(packets)
    clients = defaultdict(set)
    span = copies[len(packets)].time_ns - copies[0].time_ns
    assert span > packets[-1].time_ns - packets[0].time_ns
    for place, packet in enumerate(copies):
        number, before = place // len(packets), packets[place % len(packets)]
        from_broker = before.sport in ports
        client, broker = (packet.dst, packet.src) if from_broker else (packet.src, packet.dst)
        clients[number].add(client)
        assert broker == (before.src if from_broker else before.dst)
        same = packet.but(time_ns=before.time_ns, src=before.src, dst=before.dst)
        assert same == before
        assert packet.time_ns - before.time_ns == number * span
    assert [len(found) for found in clients.values()] == [2, 2, 2]
    assert len(set().union(*clients.values())) == 6
    times = [packet.time_ns for packet in copies]
    assert times == sorted(times)
    assert files_outcome([target]).summary.requests == 3 * files_outcome([path]).summary.requests > 0


def test_a_beginning_ends_with_a_whole_packet(path: Path, packets: list[Packet], tmp_path: Path) -> None:
    target = tmp_path / "part.pcap"
    size = path.stat().st_size
    for wanted in (size, size - 1, size // 2, 200):
        count = write_beginning(path, target, wanted)
        assert target.stat().st_size <= wanted
        assert read_packets(target) == packets[:count]
        if count < len(packets):
            assert target.stat().st_size + len(pcap_bytes([packets[count]])) - FILE_HEADER > wanted
    with pytest.raises(ValueError, match="no whole packet"):
        write_beginning(path, target, 50)


@pytest.mark.parametrize("nanoseconds", [True, False])
def test_pcapng_has_the_same_packets(packets: list[Packet], nanoseconds: bool, tmp_path: Path) -> None:
    """Also by scapy's reader."""
    path = write_pcap(tmp_path / "source.pcap", packets, nanoseconds=nanoseconds)
    target = tmp_path / "same.pcapng"
    write_pcapng(path, target)
    assert read_packets(target) == read_packets(path)
    with RawPcapNgReader(str(target)) as reader:
        theirs = [(bytes(data), meta.tshigh << 32 | meta.tslow, meta.tsresol) for data, meta in reader]
    assert [len(data) for data, _, _ in theirs] == packet_places(path.read_bytes())[1].tolist()
    unit = 10**9 if nanoseconds else 10**6
    assert {resolution for _, _, resolution in theirs} == {unit}
    assert [time for _, time, _ in theirs] == [packet.time_ns * unit // 10**9 for packet in packets]


@pytest.mark.tshark
def test_tshark_reads_the_pcapng(path: Path, require_tool: Callable[[str], str], tmp_path: Path) -> None:
    tshark = require_tool("tshark")
    target = tmp_path / "same.pcapng"
    write_pcapng(path, target)
    command = [
        "-n",
        "-T",
        "fields",
        "-e",
        "frame.time_epoch",
        "-e",
        "frame.len",
        "-e",
        "tcp.seq_raw",
        "-e",
        "frame.cap_len",
    ]
    reported = [
        subprocess.run([tshark, "-r", str(file), *command], capture_output=True, check=True, timeout=60).stdout
        for file in (path, target)
    ]
    assert reported[0] == reported[1] != b""


def test_other_files_than_pcap_are_refused(tmp_path: Path) -> None:
    source = tmp_path / "garbage"
    source.write_bytes(struct.pack("<I", 0x0A0D0D0A) + bytes(60))
    with pytest.raises(ValueError, match="is not a little-endian pcap"):
        write_pcapng(source, tmp_path / "target")
