"""PacketDecoder: all link types and tunnels by columns, and the reassembly of fragments built by scapy."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.dot11 import Dot11, RadioTap
from scapy.layers.inet import IP, TCP, UDP, fragment
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop, PadN, fragment6
from scapy.layers.l2 import GRE, LLC, SNAP, Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet, Raw

from kafkasniff.capture.link import decode as bounds
from kafkasniff.capture.link.decode import MAX_DROPS_REPORTED, Fragment, FragmentTable
from tests.capture.files import SECOND, START, enhanced, interface, option, pcap, pcap_header, pcap_record, section
from tests.capture.link.test_layers import CASES, PAYLOAD
from tests.capture.reading import Result, read_bytes
from tests.capture.segments import MACS, frame, frames, marked, numbers, segment


def changed(data: bytes, at: int, value: bytes) -> bytes:
    return data[:at] + value + data[at + len(value) :]


@pytest.mark.parametrize("chunk_size", [1, 1 << 24])
def test_packets_cut_within_their_headers_are_reported_once(chunk_size: int) -> None:
    data = frame(marked(0))
    six = bytes(Ether(type=0x86DD, **MACS) / IPv6() / TCP() / Raw(marked(0)))
    sizes = [(data, n) for n in (10, 14, 20, 33, 34, 53)] + [(six, n) for n in (14, 53, 73)]
    records = [pcap_record(whole[:n], wire=len(whole)) for whole, n in sizes] + [pcap_record(data)]
    result = read_bytes(pcap_header() + b"".join(records), chunk_size=chunk_size)
    assert numbers(result.payloads) == [0]
    assert result.kinds == ["packet-cut-headers"]
    problem = result.problem("packet-cut-headers")
    assert f"{len(sizes)} packets" in problem.detail
    assert problem.capture == "stdin"
    assert [note.order for note in result.notes] == [len(records)]
    assert not result.broken


@pytest.mark.parametrize(
    "broken",
    [
        changed(frame(b"x"), 14, b"\x44"),  # IPv4 header shorter than the minimum
        changed(frame(b"x"), 14, b"\x55"),  # version 5
        changed(frame(b"x"), 16, b"\0\x13"),  # IPv4 length shorter than its header
        changed(frame(b"x"), 16, b"\0\x20"),  # … than TCP's header
        changed(frame(b"x"), 14 + 20 + 12, b"\x40"),  # TCP header shorter than the minimum
        changed(frame(b"x"), 14 + 20 + 12, b"\xf0"),  # … longer than the packet
        frame(b"x")[:30],  # a runt
        bytes.fromhex("020000000002 020000000001") + bytes.fromhex("8100 0001") * 9 + b"\x08\0" + segment(b"x"),
        bytes.fromhex("020000000002 020000000001 8847") + bytes.fromhex("00010040") * 17 + segment(b"x"),
        bytes(Ether(type=0x86DD, **MACS) / IPv6(nh=60)) + bytes.fromhex("3c00 0000 00000000") * 17 + bytes(20),
    ],
)
def test_malformed_packets_are_reported_once(broken: bytes) -> None:
    result = read_bytes(pcap([*frames(2), broken, broken, *frames(2)]))
    assert numbers(result.payloads) == [0, 1, 0, 1]
    assert result.kinds == ["packet-malformed"]
    assert "2 packets" in result.problem("packet-malformed").detail


def test_each_unknown_link_type_is_one_problem() -> None:
    names = [option(2, b"can0"), b""]
    data = section() + interface(1) + interface(227, names[0]) + interface(65_000)
    for number in range(3):
        data += enhanced(b"\1" * 16, number, 1) + enhanced(frame(marked(number)), number, 0) + enhanced(bytes(9), 5, 2)
    for chunk_size in (1, 1 << 24):
        result = read_bytes(data, chunk_size=chunk_size)
        assert numbers(result.payloads) == [0, 1, 2]
        assert result.packets == 9
        assert [(note.order, note.value.kind, note.value.packet) for note in result.notes] == [
            (0, "link-type-unknown", 1),
            (2, "link-type-unknown", 3),
        ]
        assert "interface 1 (can0) has link type 227" in result.notes[0].value.detail
        assert "interface 2 has link type 65000" in result.notes[1].value.detail


@pytest.mark.parametrize("link", [105, 127])
def test_scapy_reads_rare_link_types(link: int) -> None:
    """A frame of a wireless network, which only scapy can read here."""
    network = Dot11(type=2, subtype=0, FCfield=1) / LLC(dsap=0xAA, ssap=0xAA, ctrl=3) / SNAP(code=0x0800)
    packets = [bytes(network) + segment(marked(n)) for n in range(3)]
    if link == 127:
        packets = [bytes(RadioTap()) + packet for packet in packets]
    result = read_bytes(pcap([packets[0], b"\x08", *packets[1:]], link=link))
    assert numbers(result.payloads) == [0, 1, 2]
    assert [row.number for row in result.rows] == [1, 3, 4]
    assert result.notes == []


def test_a_rare_link_type_without_scapy(monkeypatch: pytest.MonkeyPatch) -> None:
    from kafkasniff.capture.link import scapy_layers

    monkeypatch.setattr(scapy_layers, "_scapy", lambda: None)
    result = read_bytes(pcap([b"\x08\x01" + bytes(60)], link=105))
    assert "IEEE 802.11" in result.problem("link-type-unknown").detail


@pytest.mark.parametrize("name", ["ip-options", "ip-ah", "ipv6-ah", "ipv6-all", "gre-key-sequence"])
def test_cut_anywhere(name: str) -> None:
    """Counted as cut until the TCP header is whole, and never as malformed."""
    link, packet = CASES[name]
    data = bytes(packet)
    head = data.index(PAYLOAD)
    records = [pcap_record(data[:size], wire=len(data)) for size in range(1, head + 2)]
    result = read_bytes(pcap_header(link=link) + b"".join(records))
    assert [len(row.payload) for row in result.rows] == [0, 1]
    assert {row.wire_length for row in result.rows} == {len(PAYLOAD)}
    assert result.kinds == ["packet-cut-headers"]
    assert f"{head - 1} packets" in result.problem("packet-cut-headers").detail


# Reassembly of fragments built by scapy: bounds, and reports of losses.

FRAGMENTED = random.Random(1).randbytes(1500)
ENDS = {"src": "10.0.0.1", "dst": "10.0.0.2"}
ENDS6 = {"src": "2001:db8::1", "dst": "2001:db8::2"}


def datagram(ident: int = 7, payload: bytes = FRAGMENTED, **changes: object) -> Packet:
    return IP(id=ident, **(ENDS | changes)) / TCP(sport=40000, dport=9092, seq=99) / Raw(payload)


def pieces(packet: Packet, size: int = 400) -> list[bytes]:
    return [bytes(part) for part in fragment(packet, fragsize=size)]


def pieces6(packet: Packet, size: int = 600) -> list[bytes]:
    return [bytes(part) for part in fragment6(packet, size)]


def whole6() -> Packet:
    options = IPv6ExtHdrHopByHop(options=[PadN(optdata=bytes(4))])
    destination = IPv6ExtHdrDestOpt(options=[PadN(optdata=bytes(4))])
    tcp = TCP(sport=40000, dport=9092, seq=99) / Raw(FRAGMENTED)
    return IPv6(fl=5, **ENDS6) / options / IPv6ExtHdrFragment(id=77) / destination / tcp


def check(result: Result, count: int, number: int) -> None:
    (row,) = result.rows
    assert (row.payload, row.wire_length, row.seq) == (FRAGMENTED, len(FRAGMENTED), 99)
    assert (row.sport, row.dport) == (40000, 9092)
    # The position is that of the packet that completed the datagram.
    assert (row.number, row.order) == (number, number - 1)
    assert result.packets == count
    assert result.notes == []


FRAGMENT_CASES = {
    "ipv4": pieces(datagram()),
    "ipv4-options": pieces(datagram(options=[b"\x01" * 4])),
    "ipv6": pieces6(whole6()),
}


@pytest.mark.parametrize("name", FRAGMENT_CASES)
@pytest.mark.parametrize("chunk_size", [1, 500, 1 << 24])
def test_in_any_order_and_across_batches(name: str, chunk_size: int) -> None:
    parts = FRAGMENT_CASES[name]
    assert len(parts) > 2
    for seed in range(6):
        shuffled = random.Random(seed).sample(parts, len(parts))
        check(read_bytes(pcap(shuffled, link=101), chunk_size=chunk_size), len(parts), len(parts))


def test_the_first_to_arrive_wins_where_fragments_overlap() -> None:
    first, second, third, *rest = pieces(datagram(), 400)
    # A forged copy of the second fragment, 8 bytes longer on both sides, arrives last but one and changes nothing.
    forged = bytearray(second + b"\xee" * 8)
    forged[2:4] = len(forged).to_bytes(2, "big")
    forged[20:] = b"\xee" * len(forged[20:])
    check(read_bytes(pcap([first, second, third, bytes(forged), *rest], link=101)), 4 + len(rest), 4 + len(rest))


def test_within_tunnels_and_after_link_layers() -> None:
    outer = {"src": "192.0.2.1", "dst": "192.0.2.2"}
    inside = [Ether(**MACS) / IP(**outer) / GRE() / Raw(part) for part in pieces(datagram())]
    for part in inside:
        part[GRE].proto = 0x0800
    check(read_bytes(pcap([bytes(part) for part in inside])), len(inside), len(inside))
    # The tunnel's packets are fragmented, and so are the packets inside.
    nested = []
    for number, part in enumerate(pieces(datagram())):
        packet = (
            IP(id=number, **outer) / UDP(sport=4000, dport=4789) / VXLAN(vni=1) / Ether(type=0x0800, **MACS) / Raw(part)
        )
        nested += pieces(packet, 160)
    for chunk_size in (100, 1 << 24):
        check(read_bytes(pcap(nested, link=101), chunk_size=chunk_size), len(nested), len(nested))


def test_missing_fragments_are_reported() -> None:
    parts = pieces(datagram())
    later = START + bounds.TIMEOUT_NS + 2 * SECOND
    frames = [pcap_record(parts[0]), pcap_record(parts[1], START + 5)]
    frames += [pcap_record(part, later) for part in pieces(datagram(8))]
    for chunk_size in (100, 1 << 24):
        result = read_bytes(pcap_header(link=101) + b"".join(frames), chunk_size=chunk_size)
        # Dropped when the first fragment after the timeout arrives, which is packet 3.
        problem = result.problem("ip-fragment-dropped")
        assert (problem.packet, problem.capture, problem.bytes, problem.time_ns) == (1, "stdin", 800, START)
        assert [note.order for note in result.notes] == [2]
        assert result.payloads == [FRAGMENTED]
    result = read_bytes(pcap(parts[:-1], link=101))
    assert result.problem("ip-fragment-dropped").packet == 1
    assert [note.order for note in result.notes] == [len(parts) - 1]


def test_many_missing_fragments_are_counted() -> None:
    result = read_bytes(pcap([pieces(datagram(number))[0] for number in range(MAX_DROPS_REPORTED + 3)], link=101))
    assert result.kinds == ["ip-fragment-dropped"] * (MAX_DROPS_REPORTED + 1)
    assert result.notes[-1].value.detail == "3 more fragmented IP datagrams were not reassembled"


def piece(ident: int, offset: int, size: int, *, more: bool = True, flow: int = 0) -> Fragment:
    header = bytearray(20)
    header[12:16] = flow.to_bytes(4, "big")
    return Fragment(4, bytes(header), 0, 6, ident, offset, more, bytes(size), size)


class Table(FragmentTable):
    """A table that records its reasons for dropping."""

    def __init__(self) -> None:
        super().__init__()
        self.reasons: list[str] = []
        self.packets = 0

    def take(self, fragment: Fragment, time_ns: int = 0) -> bytes | None:
        self.packets += 1
        whole, dropped = self.add(fragment, capture=0, packet=self.packets, time_ns=time_ns)
        self.reasons += [drop.reason for drop in dropped]
        return whole


@pytest.mark.parametrize(
    ("pieces", "dropped", "reason"),
    [
        (
            [piece(ident, 0, 8) for ident in range(bounds.MAX_FLOW_DATAGRAMS + 5)],
            5,
            "too many unfinished datagrams between its addresses",
        ),
        ([piece(1, 0, 8, flow=flow) for flow in range(bounds.MAX_DATAGRAMS + 5)], 5, "too many unfinished datagrams"),
        ([piece(1, number * 16, 8) for number in range(bounds.MAX_FRAGMENTS + 1)], 1, "too many fragments"),
        # The ping of death.
        ([piece(1, 0, 1000), piece(1, 65_528, 1000, more=False)], 1, "longer than the maximum size of a datagram"),
    ],
    ids=["flow", "datagrams", "fragments", "size"],
)
def test_bounds(pieces: list[Fragment], dropped: int, reason: str) -> None:
    table = Table()
    assert [table.take(one) for one in pieces] == [None] * len(pieces)
    assert table.reasons == [reason] * dropped


def test_the_bound_of_bytes() -> None:
    table = Table()
    for flow in range(bounds.MAX_HELD_BYTES // 60_000 + 3):
        table.take(piece(1, 0, 60_000, flow=flow))
    assert set(table.reasons) == {"too many bytes of unfinished datagrams"}
    assert sum(drop.held for drop in table.close()) <= bounds.MAX_HELD_BYTES


@given(st.data())
def test_any_cover_of_a_datagram_gives_its_bytes(data: st.DataObject) -> None:
    """Fragments of valid bytes that overlap in any way, in any order."""
    total = data.draw(st.integers(1, 200))
    true = random.Random(total).randbytes(total)
    spans = data.draw(st.lists(st.tuples(st.integers(0, total - 1), st.integers(1, 60)), max_size=20))
    spans += [(at, 16) for at in range(0, total, 16)]
    table = FragmentTable()
    found = None
    for offset, size in data.draw(st.permutations(spans)):
        bytes_ = true[offset : offset + size]
        last = offset + size >= total
        fragment = Fragment(4, bytes(20), 0, 6, 1, offset, not last, bytes_, len(bytes_))
        whole, _ = table.add(fragment, capture=0, packet=1, time_ns=0)
        found = found or whole
    assert found is not None
    assert found[20:] == true
