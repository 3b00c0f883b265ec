"""Captures written from packets of captures, and files that may be overwritten until they are complete."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from kafkasniff.capture import open_captures
from kafkasniff.capture.formats.raw import Interface, RawPackets
from kafkasniff.capture.write.capture_writer import CaptureWriter, form_of
from kafkasniff.capture.write.patched_file import KEPT, PatchedFile
from kafkasniff.errors import OutputError
from kafkasniff.tcp.packets import NO_TIME
from tests.craft.samples import mixed
from tests.craft.write import LINKS, link_bytes

DATA = [link_bytes(packet, LINKS["ethernet"])[0] for packet in mixed()[:9]]
INTERFACES = {0: Interface(1, 0, "eth0"), 1: Interface(1, 1, "eth1", 65_535), 2: Interface(113, 2)}


def packets(times: list[int], interfaces: list[int]) -> RawPackets:
    data = DATA[: len(times)]
    sizes = np.array([len(one) for one in data], np.int64)
    return RawPackets.build(
        b"".join(data),
        np.cumsum(sizes) - sizes,
        sizes,
        sizes + 5,
        np.array(times, np.int64),
        link=1,
        interface=np.array(interfaces, np.int32),
        capture=0,
        first_number=1,
    )


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


def test_nothing_written(tmp_path: Path) -> None:
    for name in ("a.pcap", "a.pcapng"):
        assert written(tmp_path / name, [], []) == []
        assert read(tmp_path / name) == []


def test_an_overwritten_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    with PatchedFile(str(path)) as file:
        assert [file.append(b"a" * 10), file.append(bytes(KEPT)), file.append(b"b" * 10)] == [0, 10, KEPT + 10]
        file.patch(2, b"XY")
        file.settle()
        assert file.settled == file.size == KEPT + 20
        file.patch(4, b"Z")
        assert file.append(b"c") == KEPT + 20
        file.patch(KEPT + 20, b"d")
        assert (file.read(0, 6), file.read(KEPT + 20, 1)) == (b"aaXYZa", b"d")
        assert path.read_bytes() == b"before"
        file.commit()
    assert path.read_bytes() == b"aaXYZaaaaa" + bytes(KEPT) + b"b" * 10 + b"d"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_an_abandoned_file(tmp_path: Path) -> None:
    with PatchedFile(str(tmp_path / "file")) as file:
        file.append(struct.pack(">I", 7))
        file.settle(everything=True)
        assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []
