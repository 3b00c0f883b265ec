"""Form C-deep: many connections that pipeline small messages whose bodies differ; seeded, the same in every run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final

from benchmarks.deep_messages import BROKER_PORT, BROKERS, Client, make_client, make_exchange
from benchmarks.resegment import SEGMENT, write_packets
from benchmarks.small_messages import START_S
from tests.craft.packet import ACK, PSH, SEQUENCE, SYN, Packet

MOST_IN_FLIGHT: Final = 4
"""Requests that a client sends before the first answer."""

ROUND_NS: Final = 100_000_000
"""In each round every connection has 1 to `MOST_IN_FLIGHT` exchanges; they end within their round."""
SEND_NS: Final = ROUND_NS // 2
"""Clients begin in this part of a round."""
GAP_NS: Final = 20_000
"""Between two packets of one side."""
START_NS: Final = START_S * 1_000_000_000

Ends = tuple[str, int, str, int]


def write(path: Path, connections: int = 2000, exchanges: int = 200_000, seed: int = 1) -> dict[str, int]:
    """Write a nanosecond pcap of at least `exchanges` requests and their responses.

    Returns the numbers of packets, requests and responses. Each round is written before the next is made, so memory
    does not grow with the capture.
    """
    rng = Random(seed)
    talks = [_Talk(rng, number) for number in range(connections)]
    counts = {"packets": 0, "requests": 0, "responses": 0}

    def packets() -> Iterator[Packet]:
        number = 0
        yield from _counted(counts, [packet for talk in talks for packet in talk.handshake()])
        while counts["requests"] < exchanges:
            number += 1
            made: list[Packet] = []
            for talk in talks:
                count = talk.round(made, START_NS + number * ROUND_NS)
                counts["requests"] += count
                counts["responses"] += count
            yield from _counted(counts, made)

    write_packets(path, packets())
    return counts


def _counted(counts: dict[str, int], packets: list[Packet]) -> list[Packet]:
    """The packets of a round in order of time."""
    counts["packets"] += len(packets)
    return sorted(packets, key=lambda packet: packet.time_ns)


class _Talk:
    """One connection."""

    def __init__(self, rng: Random, number: int) -> None:
        self._rng = rng
        self._number = number
        self._client: Client = make_client(rng, number)
        address = f"10.1.{number // 250 % 250}.{number % 250 + 1}"
        broker = f"10.0.0.{number % BROKERS + 1}"
        self._up: Ends = (address, 20_000 + number % 40_000, broker, BROKER_PORT)
        self._down: Ends = (*self._up[2:], *self._up[:2])
        self._next = [rng.getrandbits(32), rng.getrandbits(32)]
        """The next sequence number of client and broker."""
        self._ids = 0

    def handshake(self) -> list[Packet]:
        """SYN, SYN-ACK, ACK."""
        time_ns = START_NS + self._number * 10_000
        client, broker = self._next
        return [
            Packet(time_ns, *self._up, (client - 1) % SEQUENCE, 0, SYN),
            Packet(time_ns + 3_000, *self._down, (broker - 1) % SEQUENCE, client, SYN | ACK),
            Packet(time_ns + 6_000, *self._up, client, broker, ACK),
        ]

    def round(self, packets: list[Packet], begin_ns: int) -> int:
        """Add the packets of one round; returns how many requests they hold."""
        rng = self._rng
        count = rng.randint(1, MOST_IN_FLIGHT)
        pairs = []
        for _ in range(count):
            pairs.append(make_exchange(rng, self._client, self._ids))
            self._ids += 1
        requests, answers = [request for request, _ in pairs], [response for _, response in pairs]
        if rng.random() < 0.5:
            # A client that writes them at once shares segments between them.
            requests = [b"".join(requests)]
        time_ns = begin_ns + rng.randrange(SEND_NS)
        for request in requests:
            time_ns = self._send(packets, 0, request, time_ns)
        time_ns += rng.randrange(50_000, ROUND_NS // 4)
        for answer in answers:
            time_ns = self._send(packets, 1, answer, time_ns) + rng.randrange(GAP_NS, 10 * GAP_NS)
        packets.append(Packet(time_ns, *self._up, self._next[0], self._next[1], ACK))
        return count

    def _send(self, packets: list[Packet], side: int, data: bytes, time_ns: int) -> int:
        """Add `data` in segments; returns the earliest time of the next packet."""
        ends = self._down if side else self._up
        for start in range(0, len(data), SEGMENT):
            piece = data[start : start + SEGMENT]
            flags = ACK | (PSH if start + len(piece) == len(data) else 0)
            packets.append(Packet(time_ns, *ends, self._next[side], self._next[1 - side], flags, piece))
            self._next[side] = (self._next[side] + len(piece)) % SEQUENCE
            time_ns += GAP_NS
        return time_ns
