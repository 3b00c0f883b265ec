"""Exchanges by the packets that their messages came in, to compare a capture with what is left of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from kafkasniff.engine.inspector import Inspector
from kafkasniff.model import Exchange, Message, Problem, Status
from kafkasniff.packets import PacketBatch
from tests.craft.batches import batch
from tests.craft.packet import Packet

Span = tuple[int, int]
"""The first and the last packet of a message, numbered from 1."""


class Pair(NamedTuple):
    client: str
    broker: str
    request: Span | None
    response: Span | None
    correlation_id: int | None
    status: Status
    latency_ns: int | None
    duration_ns: int | None
    clean: bool
    """Neither message has a problem."""

    def is_part_of(self, packet: Packet, number: int) -> bool:
        """Whether one of its messages has bytes in a packet."""
        source, target = endpoint(packet.src, packet.sport), endpoint(packet.dst, packet.dport)
        if (source, target) == (self.client, self.broker):
            span = self.request
        elif (source, target) == (self.broker, self.client):
            span = self.response
        else:
            return False
        return span is not None and span[0] <= number <= span[1]


class Pairing(NamedTuple):
    """All exchanges of a capture, in the order of their ends, and how many problems of which kind there are."""

    pairs: list[Pair]
    kinds: Counter[str]


def endpoint(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def pairing(packets: Sequence[Packet], without: Collection[int] = ()) -> Pairing:
    """The exchanges of `packets`, of which those at the places `without` are missing; the others keep their numbers."""
    places = [place for place in range(len(packets)) if place not in without]
    return pairing_of_batches([batch([packets[place] for place in places], places)])


def pairing_of_batches(batches: Iterable[PacketBatch]) -> Pairing:
    inspector = Inspector()
    events = [event for one in batches for event in inspector.feed(one)]
    events += inspector.close()
    kinds: Counter[str] = Counter()
    for event in events:
        if isinstance(event, Problem):
            kinds[event.kind] += 1
        elif isinstance(event, Message):
            kinds.update(problem.kind for problem in event.problems)
    return Pairing([_pair(event) for event in events if isinstance(event, Exchange)], kinds)


def _pair(exchange: Exchange) -> Pair:
    messages = [message for message in (exchange.request, exchange.response) if message is not None]
    first, clean = messages[0], not any(message.problems for message in messages)
    spans = _span(exchange.request), _span(exchange.response)
    times = exchange.latency_ns, exchange.duration_ns
    return Pair(str(first.client), str(first.broker), *spans, first.correlation_id, exchange.status, *times, clean)


def _span(message: Message | None) -> Span | None:
    if message is None or message.first_packet is None or message.last_packet is None:
        return None
    return message.first_packet, message.last_packet
