"""Inspectors whose connections the stream engine follows, and those that Python follows: both yield the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

from kafkasniff.engine.inspector import Inspector
from kafkasniff.engine.stream_feeding import StreamFeeder
from kafkasniff.model import Summary
from kafkasniff.tcp.packets import PacketBatch
from tests.craft.packet import SEQUENCE, Packet
from tests.native.kernel_and_walker import records_by_python

__all__ = ["ByEngine", "ByPython", "by_python", "corrupted", "results", "split"]


class ByEngine(Inspector):
    """The stream engine follows all connections."""

    _follows_in_kernel = True


class ByPython(Inspector):
    """Python follows all connections: the specification."""

    _uses_kernel = False


@contextmanager
def by_python() -> Iterator[None]:
    """Python follows all connections of new inspectors, and reads all records."""
    with records_by_python(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Inspector, "_uses_kernel", False)
        yield


def results(kind: type[Inspector], batches: Iterable[PacketBatch], **options: Any) -> tuple[list[Any], Summary]:
    """Everything that an inspector yields for these packets."""
    inspector = kind(connections=True, **options)
    assert isinstance(inspector._feeder, StreamFeeder) is (kind is ByEngine)
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
