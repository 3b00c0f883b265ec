"""Packets into capture files of every form: pcap and pcapng, link layers, compression, rotation."""

from __future__ import annotations

import dataclasses
import gzip
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import lz4.frame
import zstandard

from tests.capture import files
from tests.craft.packet import Packet, ip_bytes

CLIENT_MAC: Final = bytes.fromhex("020000000001")
BROKER_MAC: Final = bytes.fromhex("020000000002")


@dataclasses.dataclass(frozen=True)
class Link:
    """A link layer: its number in capture files and the bytes before the IP header."""

    number: int
    header: Callable[[Packet], bytes]
    trailer: bytes = b""


def ether_type(packet: Packet) -> bytes:
    return b"\x86\xdd" if packet.is_ipv6 else b"\x08\x00"


def macs(packet: Packet) -> bytes:
    """The lower port is the broker's; MAC addresses only have to differ."""
    return CLIENT_MAC + BROKER_MAC if packet.sport < packet.dport else BROKER_MAC + CLIENT_MAC


def _null(order: str) -> Callable[[Packet], bytes]:
    # AF_INET is 2 everywhere; AF_INET6 is 30 on macOS, where such captures come from.
    return lambda packet: struct.pack(f"{order}I", 30 if packet.is_ipv6 else 2)


LINKS: Final = {
    "ethernet": Link(1, lambda packet: macs(packet) + ether_type(packet)),
    "ethernet-padded": Link(1, lambda packet: macs(packet) + ether_type(packet), trailer=b"\xa5" * 10),
    "vlan": Link(1, lambda packet: macs(packet) + bytes.fromhex("8100 0064") + ether_type(packet)),
    "qinq": Link(1, lambda packet: macs(packet) + bytes.fromhex("88a8 0007 8100 0064") + ether_type(packet)),
    "sll": Link(113, lambda packet: struct.pack(">HHH8s", 0, 1, 6, CLIENT_MAC) + ether_type(packet)),
    "sll2": Link(276, lambda packet: ether_type(packet) + struct.pack(">HIHBB8s", 0, 2, 1, 0, 6, CLIENT_MAC)),
    "null": Link(0, _null("<")),
    "null-big-endian": Link(0, _null(">")),
    "loop": Link(108, _null(">")),
    "raw": Link(101, lambda packet: b""),
}


def link_bytes(packet: Packet, link: Link) -> tuple[bytes, int]:
    data = link.header(packet) + ip_bytes(packet) + (b"" if packet.cut else link.trailer)
    return data, len(data) + packet.cut


def pcap_bytes(
    packets: Sequence[Packet], link: str = "ethernet", *, nanoseconds: bool = False, order: str = "<"
) -> bytes:
    """`order`: struct's sign of the byte order, `<` or `>`. Without `nanoseconds`, times are cut to microseconds."""
    magic, unit = (0xA1B23C4D, 1) if nanoseconds else (0xA1B2C3D4, 1000)
    out = [files.pcap_header(order, magic=magic, link=LINKS[link].number)]
    for packet in packets:
        data, wire = link_bytes(packet, LINKS[link])
        out.append(files.pcap_record(data, packet.time_ns, order, unit=unit, wire=wire))
    return b"".join(out)


def pcapng_bytes(
    packets: Sequence[Packet], links: Sequence[str] = ("ethernet",), *, order: str = "<", sections: int = 1
) -> bytes:
    """Enhanced packet blocks with nanoseconds; packets go round the interfaces, one for each of `links`.

    With several sections, the second one has the other byte order; each has a block of an unknown kind.
    """
    out = []
    share = -(-len(packets) // sections) if packets else 1
    for section in range(sections):
        if section:
            order = "<" if order == ">" else ">"
        out.append(files.section(order))
        for link in links:
            options = files.option(9, b"\x09", order) + files.option(0, b"", order)
            out.append(files.interface(LINKS[link].number, options, order, snaplen=262_144))
        out.append(files.block(0x0BAD, b"unknown", order))
        for number, packet in enumerate(packets[section * share : (section + 1) * share]):
            interface = number % len(links)
            data, wire = link_bytes(packet, LINKS[links[interface]])
            out.append(files.enhanced(data, packet.time_ns, interface, order, wire=wire))
    return b"".join(out)


def write_pcap(path: Path, packets: Sequence[Packet], link: str = "ethernet", **options: bool | str) -> Path:
    path.write_bytes(pcap_bytes(packets, link, **options))  # type: ignore[arg-type]
    return path


def write_rotated(folder: Path, packets: Sequence[Packet], count: int = 3, link: str = "ethernet") -> list[Path]:
    """The packets in several pcap files with nanoseconds, one after the other, as `tcpdump -C` makes them."""
    share = max(1, -(-len(packets) // count))
    return [
        write_pcap(
            folder / f"rotated{index}.pcap", packets[index * share : (index + 1) * share], link, nanoseconds=True
        )
        for index in range(count)
    ]


def compressed(data: bytes, form: str) -> bytes:
    """`form`: gzip, gzip-members (two of them), zstd or lz4."""
    if form == "gzip":
        return gzip.compress(data, mtime=0)
    if form == "gzip-members":
        half = len(data) // 2
        return gzip.compress(data[:half], mtime=0) + gzip.compress(data[half:], mtime=0)
    if form == "zstd":
        return zstandard.ZstdCompressor().compress(data)
    return bytes(lz4.frame.compress(data))
