from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.capture import open_captures
from kafkasniff.capture.formats.raw import Interface
from kafkasniff.capture.live.frames import Frames
from kafkasniff.capture.live.ring import HEADER
from kafkasniff.capture.write.pcapng_writer import packet_blocks, section, statistics_block
from tests.capture.fake_interface import Captured, raw_packets
from tests.capture.files import START
from tests.capture.reading import collect
from tests.craft.samples import mixed
from tests.craft.write import LINKS, link_bytes

ETHERNET = (Interface(1, 0, "eth0", 262_144),)


def read_by_scapy(data: bytes) -> list[tuple[bytes, int, int, int]]:
    """(packet, wire length, time in nanoseconds, link type), by an independent reader."""
    from scapy.utils import RawPcapNgReader

    found = []
    with RawPcapNgReader(io.BytesIO(data)) as reader:
        for packet, reported in reader:
            ticks = (reported.tshigh << 32 | reported.tslow) * 1_000_000_000 // reported.tsresol
            found.append((packet, reported.wirelen, ticks, reported.linktype))
    return found


@given(st.lists(st.tuples(st.binary(max_size=90), st.integers(0, 9), st.integers(0, (1 << 62) - 1))))
def test_another_reader_agrees(packets: list[tuple[bytes, int, int]]) -> None:
    given_ = [(data, len(data) + cut, time_ns) for data, cut, time_ns in packets]
    blocks = packet_blocks(Frames.plain(raw_packets(given_)))
    assert blocks.sizes.sum() == len(blocks.data)
    assert all(size % 4 == 0 for size in blocks.sizes.tolist())
    found = read_by_scapy(section(ETHERNET) + blocks.data)
    assert found == [(data, wire, time_ns, 1) for data, wire, time_ns in given_]


def test_padding_holds_no_bytes_of_other_packets() -> None:
    """The memory after a packet holds bytes of other packets."""
    packets = [(b"\xaa" * size, size, START) for size in range(1, 9)]
    data = packet_blocks(Frames.plain(raw_packets(packets))).data
    assert b"\xee" not in data
    assert data.count(b"\xaa") == sum(range(1, 9))


def heads(count: int, **columns: object) -> np.ndarray:
    found = np.zeros(count, HEADER)
    for name, column in columns.items():
        found[name] = column
    return found


def crafted(link: str) -> list[Captured]:
    return [(*link_bytes(packet, LINKS[link]), packet.time_ns) for packet in mixed()]


def test_tags_are_restored() -> None:
    """The kernel strips tags from packets; the metadata it reports restores the packet on the wire."""
    bare, tagged = crafted("ethernet"), crafted("vlan")
    status = [1 << 4 | (1 << 6 if number % 2 else 0) for number in range(len(bare))]
    kernel = heads(len(bare), status=status, vlan_control=100, vlan_type=0x8100)
    kernel["vlan_type"][::2] = 0  # unspecified: the default
    blocks = packet_blocks(Frames.ethernet(raw_packets(bare), kernel))
    assert read_by_scapy(section(ETHERNET) + blocks.data) == [(*packet, 1) for packet in tagged]
    some = kernel.copy()
    some["status"][3:] = 0
    blocks = packet_blocks(Frames.ethernet(raw_packets(bare), some))
    assert [packet[0] for packet in read_by_scapy(section(ETHERNET) + blocks.data)] == [
        packet[0] for packet in tagged[:3] + bare[3:]
    ]


def test_the_tag_of_a_packet_cut_within_its_addresses_is_omitted() -> None:
    kernel = heads(1, status=1 << 4, vlan_control=5)
    blocks = packet_blocks(Frames.ethernet(raw_packets([(b"12345678901", 99, START)]), kernel))
    assert read_by_scapy(section(ETHERNET) + blocks.data) == [(b"12345678901", 99, START, 1)]


def test_packets_without_link_headers_get_those_of_cooked_capture() -> None:
    """As tests/craft writes them: interface 2, Ethernet, sent to us, six address bytes."""
    bare, cooked = crafted("raw"), crafted("sll2")
    kernel = heads(len(bare), protocol=0x0800, interface=2, hardware=1, kind=0, address_size=6)
    kernel["address"] = np.void(bytes.fromhex("020000000001") + bytes(2))
    described = [Interface(276, 0, "any", 262_164)]
    blocks = packet_blocks(Frames.cooked(raw_packets(bare, link=101), kernel))
    assert read_by_scapy(section(described) + blocks.data) == [(*packet, 276) for packet in cooked]


@pytest.mark.tshark
def test_tshark_agrees(require_tool: Callable[[str], str], tmp_path: Path) -> None:
    packets = crafted("ethernet")
    described = [Interface(1, 0, "eth0", 262_144), Interface(1, 1, "bridge-ü", 262_144)]
    second = raw_packets(packets[3:5], capture=1)
    data = section(described, bpf="tcp port 9092") + packet_blocks(Frames.plain(raw_packets(packets[:3]))).data
    data += packet_blocks(Frames.plain(second)).data + statistics_block(1, START, START + 5, 12, 7)
    path = tmp_path / "written.pcapng"
    path.write_bytes(data)
    fields = ["frame.interface_name", "frame.time_epoch", "frame.len", "ip.src"]
    command = [require_tool("tshark"), "-n", "-r", str(path), "-T", "json", *(w for f in fields for w in ("-e", f))]
    reported = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert [packet["_source"]["layers"]["frame.interface_name"] for packet in reported] == 3 * [["eth0"]] + 2 * [
        ["bridge-ü"]
    ]
    assert [int(packet["_source"]["layers"]["frame.len"][0]) for packet in reported] == [
        wire for _, wire, _ in packets[:5]
    ]
    info = subprocess.run([require_tool("capinfos"), str(path)], capture_output=True, text=True, check=True).stdout
    assert "Number of packets:   5" in info
    assert "tcp port 9092" in info
    assert "Time precision = nanoseconds (9)" in info


def test_our_own_reader_reports_losses(tmp_path: Path) -> None:
    path = tmp_path / "written.pcapng"
    path.write_bytes(
        section(ETHERNET)
        + packet_blocks(Frames.plain(raw_packets(crafted("ethernet")))).data
        + statistics_block(0, START, START + 1, 100, 30)
    )
    with open_captures([path]) as source:
        result = collect(source)
    assert result.kinds == ["capture-loss"]
    assert "30 packets of interface 0 (eth0) were lost" in result.problem("capture-loss").detail
    assert len(result.rows) == len(mixed())
