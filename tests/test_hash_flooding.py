"""Hash flooding: endpoints that an attacker chose so that all have one hash, or one place in a table."""

from __future__ import annotations

import itertools
from typing import Final

import numpy as np
import pytest
from numpy.typing import NDArray

from kafkasniff.engine.inspector import Inspector
from kafkasniff.kafka.messages.plausibility import begins_with_request
from kafkasniff.native.feed import NONE
from kafkasniff.native.feed_calls import Feed
from kafkasniff.native.library import kernel
from kafkasniff.tcp.packets import COLUMNS, SYN, PacketBatch
from kafkasniff.tcp.plan import End, Key, endpoint_hash, index_of
from kafkasniff.timing.watch import LinkWatch

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
    inspector, watch = Inspector(), LinkWatch()
    inspector.feed(batch)
    watch.feed(batch)
    for table in (inspector.reassembler._table, watch._halves):
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


@pytest.mark.skipif(kernel() is None, reason="no native kernel here")
def test_places_in_the_table_of_the_kernel() -> None:
    """Occupied places in a row are what a look-up compares: hundreds with a hash that attackers know."""
    native = kernel()
    assert native is not None
    broker = (0, MAPPED | 0x0A000001, 9092)
    feed = Feed(native, lambda _: 0, begins_with_request, idle=1, max_frame=1 << 20, every_end=False)
    for end in together(2_000, broker):
        feed.add((end, broker))
    occupied = np.flatnonzero(feed._table != NONE)
    assert len(occupied) == 2_000
    borders = np.flatnonzero(np.diff(occupied, prepend=-2) > 1)
    assert np.diff(np.append(borders, len(occupied))).max() < 50
