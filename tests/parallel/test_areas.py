"""Areas: what is put into them comes out as it was, however large."""

from __future__ import annotations

import numpy as np
import pytest

from kafkasniff.model import Problem
from kafkasniff.packets import COLUMNS, Note, PacketBatch
from kafkasniff.parallel.areas import (
    LONG_PAYLOAD,
    Area,
    get_object,
    get_packets,
    own_payloads,
    put_objects,
    put_packets,
)
from kafkasniff.shards import share
from tests.craft.batches import batch
from tests.craft.conversation import Conversation
from tests.craft.samples import mixed
from tests.test_boundaries import cut


def same(found: PacketBatch, expected: PacketBatch) -> None:
    for name in COLUMNS:
        if name != "offset":
            assert np.array_equal(getattr(found, name), getattr(expected, name))
    for one, other in ((found, expected), (expected, found)):
        assert payloads(one) == payloads(other)
    for name in ("captures", "end_clock", "end_order", "packets", "notes"):
        assert getattr(found, name) == getattr(expected, name)
    assert found.clock is not None
    assert np.array_equal(found.clock, expected.time_ns if expected.clock is None else expected.clock)


def payloads(packets: PacketBatch) -> list[bytes]:
    pairs = zip(packets.offset.tolist(), packets.length.tolist(), strict=True)
    return [packets.buffer[offset : offset + length] for offset, length in pairs]


@pytest.mark.parametrize("rows", [[], [1, 7, 30], [50]])
def test_packets(rows: list[int]) -> None:
    area = Area()
    for one in cut(batch(mixed()), rows):
        one.notes = [Note(one.end_order, Problem("capture-truncated", "cut")), Note(0, ("10.0.0.1", "host"))]
        dealt = np.arange(len(one)) % 3
        found, shards = get_packets(area, put_packets(area, one, dealt))
        same(found, one)
        assert np.array_equal(shards, dealt)
    area.close()


@pytest.mark.parametrize("size", [100, LONG_PAYLOAD])
def test_payloads_outlive_the_area(size: int) -> None:
    talk = Conversation()
    talk.handshake()
    for number in range(9):
        talk.send("client", bytes([number]) * size, 65_000)
    area, packets = Area(), batch(talk.packets)
    found, _ = get_packets(area, put_packets(area, packets, np.zeros(len(packets), np.int64)))
    for part, expected in zip(share_of(found), share_of(packets), strict=True):
        own = own_payloads(part)
        same(own, expected)
        assert type(own.buffer) is bytes
        assert own_payloads(own) is own
    area.close()


def share_of(packets: PacketBatch) -> list[PacketBatch]:
    """Of two shards, and what one alone has."""
    return [share(packets, shard, 2) for shard in range(2)] + [share(packets, 0, 1)]


def test_a_batch_without_packets() -> None:
    area = Area()
    whole, none = batch(mixed()).split(len(mixed()))
    assert len(none) == 0
    assert len(whole) > 0
    same(get_packets(area, put_packets(area, none, np.empty(0, np.int64)))[0], none)


def test_objects_that_outgrow_the_area() -> None:
    area, large = Area(), np.arange(1_000_000)
    first = put_objects(area, ["small", {"a": 1}])
    assert [get_object(area, place) for place in first] == ["small", {"a": 1}]
    places = put_objects(area, [large, "behind"])
    assert np.array_equal(get_object(area, places[0]), large)
    assert get_object(area, places[1]) == "behind"
