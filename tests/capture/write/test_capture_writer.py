"""Captures written from packets, and files that may be overwritten until they are complete."""

from __future__ import annotations

import io
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.capture import open_captures
from kafkasniff.capture.formats.pcap import Interface, RawPackets
from kafkasniff.capture.live.frames import HEADER, Frames
from kafkasniff.capture.write import capture_writer
from kafkasniff.capture.write.capture_writer import (
    MAX_COMMENT,
    CaptureWriter,
    commented,
    form_of,
    packet_blocks,
    section,
)
from kafkasniff.capture.write.output_files import PatchedFile
from kafkasniff.errors import OutputError
from kafkasniff.model import NO_TIME
from tests.capture.fake_interface import Captured, raw_packets
from tests.capture.files import START
from tests.craft.samples import mixed
from tests.craft.write import LINKS, link_bytes

DATA = [link_bytes(packet, LINKS["ethernet"])[0] for packet in mixed()[:9]]
INTERFACES = {0: Interface(1, 0, "eth0"), 1: Interface(1, 1, "eth1", 65_535), 2: Interface(113, 2)}


def packets(times: list[int], interfaces: list[int]) -> RawPackets:
    made = raw_packets([(one, len(one) + 5, time) for one, time in zip(DATA, times, strict=False)])
    return made._replace(interface=np.array(interfaces, np.int32))


def written(path: Path, times: list[int], interfaces: list[int]) -> list[bytes]:
    """Bytes in the file at the places that the writer reports."""
    with PatchedFile(str(path)) as file:
        writer = CaptureWriter(file, form_of(str(path)), lambda _, index: INTERFACES[index])
        places = writer.write(packets(times, interfaces)).tolist()
        writer.close()
        file.commit()
    data = path.read_bytes()
    return [data[at : at + len(one)] for at, one in zip(places, DATA, strict=False)]


def read(path: Path) -> list[tuple[int, int, int, str | None]]:
    """Time, captured length, wire length and interface of each packet."""
    with open_captures([path]) as source:
        found = []
        for _ in source:
            raw = source.packets
            columns = (raw.time_ns, raw.captured, raw.wire, raw.interface)
            for time, captured, wire, index in zip(*(column.tolist() for column in columns), strict=True):
                found.append((time, captured, wire, source.interface(0, index).name))
    return found


@pytest.mark.parametrize("name", ["a.pcap", "a.CAP", "a.pcapng", "a", "a.pcap.1"])
def test_packets_with_times(name: str, tmp_path: Path) -> None:
    path, times = tmp_path / name, [5, 1_781_000_000_123_456_789, 7]
    assert written(path, times, [0, 0, 0]) == DATA[:3]
    name_of = None if form_of(name) == "pcap" else "eth0"
    assert read(path) == [(time, len(one), len(one) + 5, name_of) for time, one in zip(times, DATA, strict=False)]
    assert (form_of(name) == "pcap") == name.lower().endswith((".pcap", ".cap"))


def test_packets_without_times_use_the_first_interface_of_a_section(tmp_path: Path) -> None:
    times = [1, NO_TIME, NO_TIME, 2, NO_TIME, NO_TIME, 3]
    interfaces = [0, 0, 1, 1, 1, 0, 1]
    path = tmp_path / "a.pcapng"
    assert written(path, times, interfaces) == DATA[:7]
    found = read(path)
    assert [one[0] for one in found] == times
    assert [one[3] for one in found] == [f"eth{number}" for number in interfaces]
    # The length of a simple block's packet follows from the block's own length, a multiple of four.
    assert [one[2] for one in found] == [len(one) + 5 for one in DATA[:7]]


@pytest.mark.parametrize("times", [[NO_TIME], [-1], [1 << 62]])
def test_times_that_pcap_cannot_represent(times: list[int], tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"\.pcapng"):
        written(tmp_path / "a.pcap", times, [0])
    assert list(tmp_path.iterdir()) == []


actions = st.lists(st.tuples(st.sampled_from(["append", "settle", "patch"]), st.binary(max_size=6), st.integers(0, 99)))


@given(actions)
def test_against_bytes_in_memory(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, bytes, int]]) -> None:
    path, expected = tmp_path_factory.mktemp("patched") / "out", bytearray()
    with PatchedFile(str(path)) as file:
        for action, data, number in steps:
            if action == "append":
                assert file.append(data) == len(expected)
                expected += data
            elif action == "settle":
                file.settle(everything=True)
                assert file.settled == len(expected)
            elif data and len(data) <= len(expected):
                # A patch lies on one side of the border.
                low, high = (0, file.settled) if number % 2 else (file.settled, len(expected))
                if high - low >= len(data):
                    at = low + number % (high - low - len(data) + 1)
                    file.patch(at, data)
                    expected[at : at + len(data)] = data
                    assert file.read(at, len(data)) == data
            assert file.size == len(expected)
        assert not path.exists()
        file.commit()
    assert path.read_bytes() == expected
    assert os.listdir(path.parent) == ["out"]


def test_without_a_commit_nothing_is_left(tmp_path: Path) -> None:
    with PatchedFile(str(tmp_path / "out")) as file:
        file.append(b"data")
        file.settle(everything=True)
        assert len(os.listdir(tmp_path)) == 1
    assert os.listdir(tmp_path) == []
    file.close()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """Another user could have put it there for a name that can be guessed."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"untouched")
    (tmp_path / f".out.{os.getpid()}.partial").symlink_to(victim)
    with pytest.raises(OutputError):
        PatchedFile(str(tmp_path / "out"))
    assert victim.read_bytes() == b"untouched"


def test_a_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with PatchedFile(str(tmp_path / "out")) as file:
        file.append(b"data")
        monkeypatch.setattr(os, "pwrite", fails)
        with pytest.raises(OutputError, match="No space left on device"):
            file.commit()
    assert os.listdir(tmp_path) == []


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
    # Merged, in the order of an index.
    halves = [Frames.ethernet(raw_packets(bare[part]), kernel[part]) for part in (slice(3, None), slice(3))]
    order = np.roll(np.arange(len(bare)), 3)
    assert packet_blocks(Frames.merge(halves, order)).data == blocks.data
    assert packet_blocks(Frames.merge(halves[::-1])).data == blocks.data
    some = kernel.copy()
    some["status"][3:] = 0
    blocks = packet_blocks(Frames.ethernet(raw_packets(bare), some))
    assert [packet[0] for packet in read_by_scapy(section(ETHERNET) + blocks.data)] == [
        packet[0] for packet in tagged[:3] + bare[3:]
    ]


def test_packets_without_link_headers_get_those_of_cooked_capture() -> None:
    """As tests/craft writes them: interface 2, Ethernet, sent to us, six address bytes."""
    bare, cooked = crafted("raw"), crafted("sll2")
    kernel = heads(len(bare), protocol=0x0800, interface=2, hardware=1, kind=0, address_size=6)
    kernel["address"] = np.void(bytes.fromhex("020000000001") + bytes(2))
    described = [Interface(276, 0, "any", 262_164)]
    blocks = packet_blocks(Frames.cooked(raw_packets(bare, link=101), kernel))
    assert read_by_scapy(section(described) + blocks.data) == [(*packet, 276) for packet in cooked]
    kernel = heads(1, status=1 << 4, vlan_control=100, protocol=0x86DD, interface=3, hardware=772)
    blocks = packet_blocks(Frames.cooked(raw_packets(bare[:1], link=101), kernel))
    ((data, *_),) = read_by_scapy(section(described) + blocks.data)
    assert (data[:10], data[20:24]) == (struct.pack(">HHIH", 0x8100, 0, 3, 772), struct.pack(">HH", 100, 0x86DD))


def test_comments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever pieces the file is read in; a comment is inserted before earlier ones, and cut between characters."""
    path, texts = tmp_path / "out.pcapng", {1: b"one", 3: "ü".encode() * MAX_COMMENT, 4: b"four"}
    written(path, [START, START + 1, START + (5 << 32), NO_TIME], [0, 1, 0, 0])
    before, seen = read(path), []

    def comment(number: int, time_ns: int, options: bytes) -> bytes | None:
        seen.append((number, time_ns, options))
        return texts.get(number)

    made = b"".join(commented(io.BytesIO(path.read_bytes()), comment))
    # The last packet has no time, and its simple block no options.
    assert seen == [(1, START, b""), (2, START + 1, b""), (3, START + (5 << 32), b"")]
    monkeypatch.setattr(capture_writer, "_READ_BYTES", 50)
    assert b"".join(commented(io.BytesIO(path.read_bytes()), comment)) == made
    path.write_bytes(made)
    assert read(path) == before
    assert made.count("ü".encode()) == (MAX_COMMENT - 3) // 2
    assert "üü…".encode() + bytes(1) in made
    seen.clear()
    again = b"".join(commented(io.BytesIO(made), lambda number, _, options: seen.append(options) or b"first"))
    path.write_bytes(again)
    assert read(path) == before
    one = struct.pack("<HH", 1, 3) + b"one\0"
    assert seen[:2] == [one + bytes(4), b""]
    assert again.count(struct.pack("<HH", 1, 5) + b"first\0\0\0" + one + bytes(4)) == 1
