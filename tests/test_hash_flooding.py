"""Hash flooding: endpoints that an attacker chose so that all have one hash, or one place in a table."""

from __future__ import annotations

import itertools
import time
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kafkasniff.engine.inspector import Inspector
from kafkasniff.engine.stream_feeding import StreamFeeder
from kafkasniff.engine.stream_questions import StreamQuestions
from kafkasniff.native.library import kernel
from kafkasniff.packets import COLUMNS, SYN, End, Key, PacketBatch, endpoint_hash, index_of
from kafkasniff.tls.keylog import KeyLog

MODULUS: Final = (1 << 61) - 1
"""Python's hash of an integer is its remainder (`sys.hash_info.modulus`)."""
MAPPED: Final = 0xFFFF << 32


def equal_for_python() -> list[Key]:
    """IPv6 endpoints whose tuples of integers all have the same hash."""
    values = [1 + MODULUS * number for number in range(8)]
    ends = [(high, low, 9092) for high, low in itertools.product(values, values)]
    return [(one, other) for one, other in itertools.product(ends, ends) if one < other]


def syns(keys: list[Key]) -> PacketBatch:
    """A SYN between the endpoints of each key."""
    count = len(keys)
    columns = {name: np.zeros(count, kind) for name, kind in COLUMNS.items()}
    for number, end in enumerate(("src", "dst")):
        for part, name in enumerate(("hi", "lo", "port")):
            columns[f"{end}_{name}"][:] = [key[number][part] for key in keys]
    columns["order"][:] = columns["number"][:] = np.arange(count)
    columns["time_ns"][:] = 1_000_000_000 + np.arange(count)
    columns["flags"][:] = SYN
    return PacketBatch(columns, b"", packets=count, end_order=count)


def test_indices_of_endpoints_have_other_hashes_than_their_numbers() -> None:
    keys = equal_for_python()
    assert len(keys) > 2_000
    assert len(set(map(hash, keys))) == 1
    assert len({hash(index_of(key)) for key in keys}) == len(keys)


def test_tables_of_connections() -> None:
    """Each of their entries has a hash of its own: a look-up compares it with no other."""
    keys = equal_for_python()
    batch = syns(keys)
    inspector = Inspector()
    inspector.feed(batch)
    assert isinstance(inspector._feeder, StreamFeeder)
    table = inspector._feeder._events.by_ends
    assert len(table) >= len(keys)
    assert len(set(map(hash, table))) == len(table)


def together(count: int, broker: End) -> list[End]:
    """IPv4 endpoints whose stable hash, with the one of this broker, ends with the same ten bits."""
    low: NDArray[np.uint64] = np.uint64(MAPPED) | np.arange(1 << 21, dtype=np.uint64)
    zeros, ports = np.zeros(len(low), np.uint64), np.full(len(low), 1024, np.uint16)
    (high, own, port) = broker
    other = endpoint_hash(np.array([high], np.uint64), np.array([own], np.uint64), np.array([port], np.uint16))
    found = low[(endpoint_hash(zeros, low, ports) + other) & np.uint64(1023) == 0]
    assert len(found) >= count
    return [(0, address, 1024) for address in found[:count].tolist()]


def test_connections_of_the_stream_engine() -> None:
    """Endpoints that share a place under a hash that attackers know cost what others cost."""
    broker = (0, MAPPED | 0x0A000001, 9092)

    def seconds(keys: list[Key]) -> float:
        batch, times = syns(keys), []
        for _ in range(3):
            native = kernel()
            asked = StreamQuestions(native, KeyLog, max_frame=1 << 20, ports=frozenset())
            begin = time.process_time()
            asked.engine.take(batch)
            times.append(time.process_time() - begin)
            assert len(asked.engine) == len(keys)
        return max(min(times), 0.002)

    ends = together(2_000, broker)
    keys = [(min(end, broker), max(end, broker)) for end in ends]
    assert seconds(keys) < 24 * seconds(keys[:250])
