"""Captures with a snap length: every request with a complete header is paired with its response."""

from __future__ import annotations

import pytest

from kafkasniff.engine.inspector import Inspector
from kafkasniff.model import Exchange
from tests.choice import in_turn
from tests.craft.batches import batch
from tests.craft.packet import Packet
from tests.craft.read import shipped_packets

ONE_BY_ONE = ("sarama.pcap", "kraft-4.0.pcap", "kafkajs.pcap", "java-sasl.pcap", "librdkafka-codecs.pcap")
"""Captures whose clients send one request in a segment: of several, the header of the second may be cut off."""

Pair = tuple[int | None, int | None, str | None, int | None]


def cut(packet: Packet, length: int) -> Packet:
    left = len(packet.payload) - length
    return packet if left <= 0 else packet.but(payload=packet.payload[:length], cut=packet.cut + left)


def pairs(packets: list[Packet]) -> set[Pair]:
    """Packet and correlation id of requests, with their API and the first packet of the response."""
    inspector = Inspector(records="skip")
    out = [*inspector.feed(batch(packets)), *inspector.close()]
    return {
        (one.request.first_packet, one.request.correlation_id, one.request.api, one.response.first_packet)
        for one in out
        if isinstance(one, Exchange) and one.request is not None and one.response is not None
    }


@pytest.mark.parametrize(("name", "length"), in_turn(ONE_BY_ONE, [20, 30, 58], 3))
def test_headers_are_enough_to_pair(name: str, length: int) -> None:
    packets = shipped_packets(name)
    assert pairs([cut(packet, length) for packet in packets]) == pairs(packets)


def test_a_response_after_a_lost_request_is_paired() -> None:
    """The bodies are truncated, so only ids and positions show which request it answers: no response is missing."""
    packets = shipped_packets("librdkafka-snaplen-128.pcap")
    whole, seen = pairs(packets), set()
    for place, packet in enumerate(packets):
        if not packet.payload or packet.connection in seen:
            continue
        seen.add(packet.connection)
        rest = [*packets[:place], *packets[place + 1 :]]
        moved = {
            (first - (first > place + 1), number, api, answer - (answer > place + 1))
            for first, number, api, answer in whole
        }
        lost = {one for one in moved if one[0] == place + 1}
        assert pairs(rest) == moved - lost
    assert len(seen) > 3
