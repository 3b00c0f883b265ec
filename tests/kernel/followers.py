"""What inspectors yield, and packets that are changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Any

from kafkasniff.engine.inspector import Inspector
from kafkasniff.model import Summary
from kafkasniff.packets import PacketBatch
from tests.craft.packet import SEQUENCE, Packet


def results(kind: type[Inspector], batches: Iterable[PacketBatch], **options: Any) -> tuple[list[Any], Summary]:
    """Everything that an inspector yields for these packets."""
    inspector = kind(connections=True, **options)
    found = [output for batch in batches for output in inspector.feed(batch)]
    return found + inspector.close(), inspector.summary


def split(batch: PacketBatch, sizes: Iterable[int]) -> Iterator[PacketBatch]:
    """A batch in pieces of these numbers of packets."""
    rest = batch
    for size in sizes:
        if size >= len(rest):
            break
        head, rest = rest.split(size)
        yield head
    yield rest


def corrupted(packets: Sequence[Packet], random: Random) -> list[Packet]:
    """Some payload bytes, flags, sequence and acknowledgement numbers are replaced."""
    found: list[Packet] = []
    for packet in packets:
        changed = packet
        if packet.payload and random.random() < 0.02:
            data = bytearray(packet.payload)
            for _ in range(random.choice((1, 1, 4, 40))):
                data[random.randrange(len(data))] = random.choice((0, 255, random.randrange(256)))
            changed = changed._replace(payload=bytes(data))
        if random.random() < 0.004:
            near = (packet.seq + random.randrange(-3000, 3000)) % SEQUENCE
            changes: tuple[dict[str, Any], ...] = (
                {"flags": random.randrange(64)},
                {"seq": random.randrange(SEQUENCE)},
                {"seq": near},
                {"ack": random.randrange(SEQUENCE)},
            )
            changed = changed._replace(**random.choice(changes))
        found.append(changed)
    return found
