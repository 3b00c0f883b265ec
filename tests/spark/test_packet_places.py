"""Places of packets: they are in order, and cut batches where packets precede them."""

from __future__ import annotations

import pytest

from kafkasniff.capture.timeline.locations import find_captures, open_capture
from kafkasniff.capture.timeline.parts import plan_captures
from kafkasniff.spark.packet_places import place_of, rows_before
from kafkasniff.spark.reading import packets_of, parts_of
from kafkasniff.tcp.packets import PacketBatch
from tests.tables.exports.exported import CAPTURES


@pytest.fixture(scope="module")
def batch() -> PacketBatch:
    plan = plan_captures(find_captures([str(CAPTURES / "java-codecs.pcap")]), open_capture)
    (part,) = parts_of(plan, 1 << 30)
    (found,) = packets_of(part)
    return found


def test_packets_before_a_place(batch: PacketBatch) -> None:
    places = [place_of(batch, row) for row in range(len(batch))]
    assert places == sorted(places)
    assert [place.number for place in places] == batch.number.tolist()
    assert [rows_before(batch, place) for place in places] == list(range(len(batch)))


def test_places_between_packets(batch: PacketBatch) -> None:
    at = place_of(batch, 5)
    assert rows_before(batch, at._replace(clock=at.clock - 1)) <= 5
    assert rows_before(batch, at._replace(capture=at.capture - 1)) == 5
    assert rows_before(batch, at._replace(number=at.number + 1)) == 6
    # Clocks decide before captures do, and captures before numbers.
    assert rows_before(batch, at._replace(capture=at.capture + 1, number=0)) >= 6
    assert rows_before(batch, at._replace(clock=at.clock - 10**12, capture=9, number=10**9)) == 0
    assert rows_before(batch, at._replace(clock=2**62, capture=0, number=0)) == len(batch)
