"""Every link layer, IP variant and tunnel: packets built by scapy and read back, compared with tshark."""

from __future__ import annotations

import socket
import struct

import pytest
from scapy.contrib.erspan import ERSPAN_I, ERSPAN_II, ERSPAN_III
from scapy.contrib.geneve import GENEVE
from scapy.contrib.mpls import MPLS
from scapy.layers.inet import IP, TCP, UDP, IPOption_NOP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop, IPv6ExtHdrRouting, PadN
from scapy.layers.ipsec import AH
from scapy.layers.l2 import GRE, LLC, SNAP, CookedLinux, CookedLinuxV2, Dot1AD, Dot1Q, Dot3, Ether
from scapy.layers.ppp import PPP, PPPoE
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet, Raw

from tests.capture.files import pcap, pcap_header, pcap_record
from tests.capture.reading import Row, read_bytes
from tests.capture.segments import MACS

PAYLOAD = bytes(range(256)) * 2
OUTER4 = {"src": "192.0.2.1", "dst": "192.0.2.2"}
OUTER6 = {"src": "2001:db8:ffff::1", "dst": "2001:db8:ffff::2"}
INNER4 = {"src": "10.1.2.3", "dst": "10.255.254.253"}
INNER6 = {"src": "2001:db8::1", "dst": "2001:db8:0:1::abcd"}


def tcp(**changes: object) -> Packet:
    fields = {"sport": 51334, "dport": 9092, "seq": 0xFEDCBA98, "ack": 0x12345678, "flags": "PA", "window": 502}
    return TCP(**(fields | changes)) / Raw(PAYLOAD)


def ip4(**changes: object) -> Packet:
    return IP(id=0xBEEF, **INNER4, **changes) / tcp()


def ip6(*extensions: Packet) -> Packet:
    packet = IPv6(fl=0xABCDE, **INNER6)
    for extension in extensions:
        packet /= extension
    return packet / tcp()


def nested(levels: int) -> Packet:
    packet = ip4()
    for _ in range(levels):
        packet = IP(**OUTER4) / packet
    return packet


ETHER = Ether(**MACS)
# name → (link type, packet); the packet ends with `ip4()` or `ip6()`.
CASES: dict[str, tuple[int, Packet | bytes]] = {
    "ethernet": (1, ETHER / ip4()),
    "ethernet-6": (1, ETHER / ip6()),
    "ethernet-padded": (1, bytes(ETHER / ip4()) + b"\xa5" * 30),
    "llc-snap": (1, Dot3(**MACS) / LLC(dsap=0xAA, ssap=0xAA, ctrl=3) / SNAP(OUI=0, code=0x0800) / ip4()),
    "vlan": (1, ETHER / Dot1Q(vlan=100) / ip4()),
    "vlan-6": (1, ETHER / Dot1Q(vlan=100) / ip6()),
    "qinq": (1, ETHER / Dot1Q(vlan=7) / Dot1Q(vlan=100) / ip4()),
    "802.1ad": (1, ETHER / Dot1AD(vlan=7) / Dot1Q(vlan=100) / ip6()),
    "9100": (1, bytes(Ether(type=0x9100, **MACS)) + bytes(Dot1Q(vlan=7) / Dot1Q(vlan=100) / ip4())),
    "sll": (113, CookedLinux(pkttype=4, lladdrtype=1) / ip4()),
    "sll-6": (113, CookedLinux(pkttype=4, lladdrtype=1) / ip6()),
    "sll-vlan": (113, CookedLinux(pkttype=4, lladdrtype=1, proto=0x8100) / Dot1Q(vlan=5) / ip4()),
    "sll2": (276, CookedLinuxV2(ifindex=3) / ip4()),
    "sll2-6": (276, CookedLinuxV2(ifindex=3) / ip6()),
    "raw": (101, ip4()),
    "raw-6": (101, ip6()),
    "raw-12": (12, ip4()),
    "raw-14": (14, ip6()),
    "raw-228": (228, ip4()),
    "raw-229": (229, ip6()),
    "null-little": (0, struct.pack("<I", 2) + bytes(ip4())),
    "null-big": (0, struct.pack(">I", 2) + bytes(ip4())),
    "null-macos-6": (0, struct.pack("<I", 30) + bytes(ip6())),
    "null-freebsd-6": (0, struct.pack("<I", 28) + bytes(ip6())),
    "null-netbsd-6": (0, struct.pack(">I", 24) + bytes(ip6())),
    "loop": (108, struct.pack(">I", 2) + bytes(ip4())),
    "enc": (109, struct.pack("<III", 2, 0, 0) + bytes(ip4())),
    "ppp": (9, b"\xff\x03\x00\x21" + bytes(ip4())),
    "ppp-bare": (9, b"\x00\x57" + bytes(ip6())),
    "ppp-short": (9, b"\x21" + bytes(ip4())),
    "ppp-mpls": (9, b"\xff\x03\x02\x81" + bytes(MPLS(label=16, s=1) / ip4())),
    "ppp-serial": (50, b"\xff\x03\x00\x57" + bytes(ip6())),
    "ppp-serial-cisco": (50, b"\x0f\x00\x08\x00" + bytes(ip4())),
    "ppp-pppd": (166, b"\x01\x03\x00\x21" + bytes(ip4())),
    "ppp-with-direction": (204, b"\x01\xff\x03\x00\x57" + bytes(ip6())),
    "ppp-with-direction-bare": (204, b"\x00\x00\x21" + bytes(ip4())),
    "cisco-hdlc": (104, b"\x0f\x00\x86\xdd" + bytes(ip6())),
    "pppoe": (1, ETHER / PPPoE(sessionid=9) / PPP() / ip4()),
    "pppoe-vlan-6": (1, ETHER / Dot1Q(vlan=35) / PPPoE(sessionid=9) / PPP() / ip6()),
    "mpls": (1, ETHER / MPLS(label=16, s=1) / ip4()),
    "mpls-stack": (1, ETHER / MPLS(label=16, s=0) / MPLS(label=17, s=0) / MPLS(label=18, s=1) / ip6()),
    "mpls-pseudo-wire": (1, bytes(ETHER / MPLS(label=16, s=1)) + bytes(4) + bytes(ETHER / ip4())),
    "mpls-pseudo-wire-bare": (1, ETHER / MPLS(label=16, s=1) / ETHER / Dot1Q(vlan=4) / ip6()),
    "mpls-link": (219, MPLS(label=16, s=1) / ip4()),
    "gre": (1, ETHER / IP(**OUTER4) / GRE() / ip4()),
    "gre-6-in-6": (1, ETHER / IPv6(**OUTER6) / GRE() / ip6()),
    "gre-key-sequence": (1, ETHER / IP(**OUTER4) / GRE(key_present=1, key=7, seqnum_present=1) / ip4()),
    "gre-checksum": (1, ETHER / IP(**OUTER4) / GRE(chksum_present=1) / ip4()),
    "gre-bridged": (1, ETHER / IP(**OUTER4) / GRE(proto=0x6558) / ETHER / Dot1Q(vlan=3) / ip4()),
    "gre-mpls": (1, ETHER / IP(**OUTER4) / GRE(proto=0x8847) / MPLS(label=16, s=1) / ip4()),
    "erspan-1": (1, ETHER / IP(**OUTER4) / GRE(proto=0x88BE) / ERSPAN_I() / ETHER / ip4()),
    "erspan-2": (1, ETHER / IP(**OUTER4) / GRE(proto=0x88BE, seqnum_present=1) / ERSPAN_II() / ETHER / ip4()),
    "erspan-3": (1, ETHER / IP(**OUTER4) / GRE(proto=0x22EB, seqnum_present=1) / ERSPAN_III() / ETHER / ip6()),
    "erspan-3-platform": (
        1,
        bytes(ETHER / IP(proto=47, len=20 + 8 + 20 + len(ETHER / ip4()), **OUTER4))
        + bytes.fromhex("1000 22eb 00000001")  # GRE with a sequence number
        + bytes.fromhex("2000 0000 00000000 0000 0001")  # ERSPAN III whose O bit is set
        + bytes(8)
        + bytes(ETHER / ip4()),
    ),
    "vxlan": (1, ETHER / IP(**OUTER4) / UDP(sport=40000, dport=4789) / VXLAN(vni=5) / ETHER / ip4()),
    "vxlan-linux-port": (1, ETHER / IP(**OUTER4) / UDP(sport=40000, dport=8472) / bytes(VXLAN(vni=5) / ETHER / ip4())),
    "vxlan-6": (
        1,
        ETHER / IPv6(**OUTER6) / UDP(sport=40000, dport=4789) / VXLAN(vni=5) / ETHER / Dot1Q(vlan=2) / ip6(),
    ),
    "geneve": (1, ETHER / IP(**OUTER4) / UDP(sport=40000, dport=6081) / GENEVE(vni=5, proto=0x6558) / ETHER / ip4()),
    "geneve-options": (
        1,
        ETHER
        / IP(**OUTER4)
        / UDP(sport=40000, dport=6081)
        / bytes.fromhex("02 00 0800 000005 00 0102 80 01 deadbeef")
        / ip4(),
    ),
    "ip-in-ip": (1, ETHER / IP(**OUTER4) / ip4()),
    "6-in-4": (1, ETHER / IP(**OUTER4) / ip6()),
    "4-in-6": (1, ETHER / IPv6(**OUTER6) / ip4()),
    "6-in-6": (1, ETHER / IPv6(**OUTER6) / ip6()),
    "8-tunnels": (101, nested(8)),
    "etherip": (101, IP(proto=97, **OUTER4) / bytes.fromhex("3000") / ETHER / ip4()),
    "mpls-in-ip": (101, IP(proto=137, **OUTER4) / MPLS(label=16, s=1) / ip4()),
    "ip-options": (1, ETHER / ip4(options=[IPOption_NOP()] * 12)),
    "ip-offload": (1, ETHER / ip4(len=0)),
    "ipv6-offload": (1, ETHER / IPv6(fl=0xABCDE, plen=0, **INNER6) / tcp()),
    "ip-ah": (1, ETHER / IP(id=0xBEEF, proto=51, **INNER4) / AH(nh=6, payloadlen=4, icv=bytes(12)) / tcp()),
    "ipv6-hop-by-hop": (1, ETHER / ip6(IPv6ExtHdrHopByHop(options=[PadN(optdata=bytes(20))]))),
    "ipv6-destination": (1, ETHER / ip6(IPv6ExtHdrDestOpt(options=[PadN(optdata=bytes(4))]))),
    "ipv6-routing": (1, ETHER / ip6(IPv6ExtHdrRouting(type=2, segleft=0, addresses=["2001:db8::9"]))),
    "ipv6-atomic-fragment": (1, ETHER / ip6(IPv6ExtHdrFragment(id=7))),
    "ipv6-ah": (1, ETHER / ip6(AH(nh=6, payloadlen=4, icv=bytes(12)))),
    "ipv6-all": (
        1,
        ETHER
        / ip6(
            IPv6ExtHdrHopByHop(options=[PadN(optdata=bytes(4))]),
            IPv6ExtHdrDestOpt(options=[PadN(optdata=bytes(12))]),
            IPv6ExtHdrRouting(type=2, segleft=0, addresses=["2001:db8::9"]),
            IPv6ExtHdrFragment(id=7),
            AH(nh=6, payloadlen=4, icv=bytes(12)),
        ),
    ),
    "tcp-options": (1, ETHER / IP(id=0xBEEF, **INNER4) / tcp(options=[("Timestamp", (1, 2)), ("SAckOK", b"")])),
    "pktap": (258, struct.pack("<III", 108, 1, 1) + bytes(96) + bytes(ETHER / ip4())),
    "pflog": (117, bytes([61, 2, 0, 0]) + bytes(60) + bytes(ip4())),
}


def is_six(packet: Packet | bytes) -> bool:
    return socket.inet_pton(socket.AF_INET6, INNER6["src"]) in bytes(packet)


@pytest.mark.parametrize("name", CASES)
def test_each_layer_leads_to_the_segment(name: str) -> None:
    link, packet = CASES[name]
    frame = bytes(packet)
    result = read_bytes(pcap([frame], link=link))
    assert [note.value for note in result.notes] == []
    (row,) = result.rows
    ends = INNER6 if is_six(CASES[name][1]) else INNER4
    # The checksum on the wire is scapy's. It follows the window and precedes the urgent pointer.
    at = frame.index(PAYLOAD)
    size = 32 if name == "tcp-options" else 20
    checksum = int.from_bytes(frame[at - size + 16 : at - size + 18], "big")
    ident = (0xBCDE if is_six(CASES[name][1]) else 0xBEEF) << 16 | checksum
    assert row == Row(
        0, 0, 1, 1_700_000_000_000_000_000, ends["src"], 51334, ends["dst"], 9092,
        0xFEDCBA98, 0x12345678, 0x18, 502, PAYLOAD, len(PAYLOAD), ident,
    )  # fmt: skip


def test_all_layers_in_one_file_of_a_link_type() -> None:
    """Mixed packets are decoded along different paths and must be yielded in their order."""
    names = [name for name, (link, _) in CASES.items() if link == 1]
    frames = [bytes(CASES[name][1]) for name in names]
    result = read_bytes(pcap(frames * 3))
    assert result.payloads == [PAYLOAD] * len(names) * 3
    assert [row.number for row in result.rows] == list(range(1, 3 * len(names) + 1))
    expected = [INNER6["src"] if is_six(CASES[name][1]) else INNER4["src"] for name in names] * 3
    assert [row.src for row in result.rows] == expected


def test_other_packets_are_only_counted() -> None:
    arp = bytes.fromhex("ffffffffffff 020000000001 0806 0001080006040001") + bytes(20)
    udp = bytes(ETHER / IP(**INNER4) / UDP(sport=1, dport=53) / Raw(b"x" * 40))
    icmp = bytes(ETHER / IP(proto=1, **INNER4) / Raw(bytes(8)))
    six = bytes(ETHER / IPv6(nh=59, **INNER6))
    pptp = bytes(ETHER / IP(**OUTER4) / GRE(version=1, proto=0x880B) / Raw(bytes(40)))
    stp = bytes(Dot3(**MACS) / LLC(dsap=0x42, ssap=0x42, ctrl=3) / Raw(bytes(35)))
    result = read_bytes(pcap([arp, udp, bytes(ETHER / ip4()), icmp, six, pptp, stp]))
    assert result.packets == 7
    assert [row.number for row in result.rows] == [3]
    assert result.notes == []


def test_jumbo_payload() -> None:
    payload = bytes(range(250)) * 280  # 70,000 bytes: more than IPv6's own length field can express
    segment = bytes(TCP(sport=1, dport=9092, seq=5, flags="A", chksum=1) / Raw(payload))
    option = bytes([6, 0, 0xC2, 4]) + struct.pack(">I", 8 + len(segment))
    packet = bytes(IPv6(plen=0, nh=0, **INNER6)) + option + segment
    for trailer in (b"", b"\xa5" * 6):
        (row,) = read_bytes(pcap([bytes(Ether(type=0x86DD, **MACS)) + packet + trailer])).rows
        assert row.payload == payload


@pytest.mark.parametrize("fcs", [2, 4])
def test_frame_check_sequence_is_cut_off(fcs: int) -> None:
    """If the IP header has no length, only the link type's field says where the packet ends."""
    frame = bytes(ETHER / ip4(len=0)) + b"\xfc" * fcs
    header = pcap_header(link=1 | 0x0400_0000 | (fcs // 2) << 28)
    (row,) = read_bytes(header + pcap_record(frame)).rows
    assert row.payload == PAYLOAD
    # Cut by the snap length, within the check sequence and before it.
    (row,) = read_bytes(header + pcap_record(frame[:-1], wire=len(frame))).rows
    assert (row.payload, row.wire_length) == (PAYLOAD, len(PAYLOAD))
    (row,) = read_bytes(header + pcap_record(frame[: -fcs - 10], wire=len(frame))).rows
    assert (row.payload, row.wire_length) == (PAYLOAD[:-10], len(PAYLOAD))
