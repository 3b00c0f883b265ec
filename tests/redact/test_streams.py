"""Which bytes of a connection are shown, and in which of its packets."""

from __future__ import annotations

from collections.abc import Sequence

from kafkasniff.kafka.connection.detail import Detail
from kafkasniff.kafka.connection.recognition import ConnectionOptions
from kafkasniff.redact.message import Blanker
from kafkasniff.redact.stream_bytes import PayloadPlace
from kafkasniff.redact.streams import BlankedConnection
from kafkasniff.tcp.reassembly import Reassembler
from tests.craft import kafka_bytes as kafka
from tests.craft.batches import batch
from tests.craft.conversation import Conversation
from tests.craft.packet import Packet

PAYLOAD = b"nobody may see this"


class Page:
    """The payloads of a connection's packets as they are written: blank, until bytes are shown."""

    def __init__(self) -> None:
        self.reassembler = Reassembler()
        self.connection: BlankedConnection | None = None
        self.payloads: list[bytearray] = []
        self.encrypted = 0

    def _patch(self, place: PayloadPlace, at: int, data: bytes) -> None:
        self.payloads[place.at][at : at + len(data)] = data

    def feed(self, packets: Sequence[Packet], first: int) -> None:
        """Write packets, then read them, as `Matching` does. `first`: the order of the first one."""
        deltas = self.reassembler.feed(batch(packets, range(first, first + len(packets))))
        if self.connection is None:
            blanker = Blanker(secrets=False, payload=False)
            options = ConnectionOptions(Detail(blanker.options), every_end=False)
            (tcp,) = self.reassembler.opened
            self.connection = BlankedConnection(tcp, options, None, blanker, self._patch)
        for packet in packets:
            self.payloads.append(bytearray(len(packet.payload)))
            if packet.payload:
                # The broker's address is the higher one.
                direction = int(packet.sport == 9092)
                position = self.connection.position(direction, packet.seq)
                place = PayloadPlace(position, position + len(packet.payload), len(self.payloads) - 1, 0, 0)
                self.connection.written(direction, place)
        for _, items in deltas:
            self.encrypted += self.connection.feed(items)


def conversation() -> Conversation:
    line = Conversation()
    line.handshake()
    line.send("client", kafka.api_versions_request(1))
    line.send("broker", kafka.api_versions_response(1))
    produced = kafka.record_batch([kafka.record(0, b"key", PAYLOAD)])
    line.send("client", kafka.produce_request(2, "orders", produced), 60)
    return line


def written(packets: Sequence[Packet], sizes: Sequence[int]) -> Page:
    """A page of packets that come in batches of these sizes; the last size repeats."""
    page, first, turn = Page(), 0, 0
    while first < len(packets):
        size = sizes[min(turn, len(sizes) - 1)]
        page.feed(packets[first : first + size], first)
        first, turn = first + size, turn + 1
    return page


def test_messages_are_shown_without_payload() -> None:
    packets = conversation().packets
    whole = b"".join(packet.payload for packet in packets)
    page = written(packets, [len(packets)])
    shown = b"".join(page.payloads)
    assert PAYLOAD in whole
    assert PAYLOAD not in shown
    assert b"orders" in shown
    different = {at for at, (one, other) in enumerate(zip(whole, shown, strict=True)) if one != other}
    start = whole.index(PAYLOAD)
    assert set(range(start, start + len(PAYLOAD))) <= different
    assert len(different) < len(PAYLOAD) + 20  # and the key and the checksum
    # However the packets come, the same bytes are shown in them.
    for sizes in ([1], [3, 1], [2]):
        assert written(packets, sizes).payloads == page.payloads


def test_a_packet_that_comes_again_shows_the_same() -> None:
    """Also one that is written after its bytes were identified; whatever it holds."""
    packets = conversation().packets
    index = next(number for number, packet in enumerate(packets) if b"orders" in packet.payload)
    again = packets[index].but(ident=7_777, payload=bytes(len(packets[index].payload)))
    for sizes in ([1], [len(packets) + 1]):
        page = written([*packets, again], sizes)
        assert b"orders" in page.payloads[index]
        assert page.payloads[-1] == page.payloads[index]


def test_what_is_given_up_stays_blank() -> None:
    packets = conversation().packets
    index = next(number for number, packet in enumerate(packets) if b"orders" in packet.payload)
    page = Page()
    page.feed(packets[: index + 1], 0)
    assert page.connection is not None
    assert page.connection.buffered == len(packets[index].payload)
    page.connection.give_up()
    assert page.connection.buffered == 0
    page.feed(packets[index + 1 :], index + 1)
    assert not any(page.payloads[index])


def test_tls_is_not_changed() -> None:
    hello = b"\x16\x03\x01\x00\x30\x01\x00\x00\x2c\x03\x03" + bytes(range(41))
    line = Conversation()
    line.handshake()
    line.send("client", hello + hello)
    line.send("broker", b"\x17\x03\x03\x00\x10" + bytes(range(16)), 7)
    for sizes in ([1], [len(line.packets)]):
        page = written(line.packets, sizes)
        assert page.encrypted == 1
        assert b"".join(page.payloads) == b"".join(packet.payload for packet in line.packets)
