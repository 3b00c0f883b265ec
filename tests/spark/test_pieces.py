"""Pieces become batches in capture order again, without a session."""

from __future__ import annotations

import pytest

from kafkasniff.spark import pieces
from tests.craft.batches import batch
from tests.craft.packet import Packet

PIECES = [[0, 1, 4, 5, 8], [2, 3, 6, 12], [7, 9, 10, 11], [13]]
"""Places of their packets."""


@pytest.mark.parametrize("size", [0, 300, 1 << 20])
def test_pieces_that_overlap(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "MERGE_BYTES", size)
    packets = [Packet(place, "10.0.0.1", 50_000, "10.0.0.2", 9_092, 1, 1, 0, b"%d," % place) for place in range(14)]
    parts = [batch([packets[place] for place in places], places) for places in PIECES]
    for part in parts:
        part.clock = part.time_ns
    found = []
    for whole in pieces.in_capture_order(parts):
        ends = zip(whole.offset.tolist(), (whole.offset + whole.length).tolist(), strict=True)
        found += [whole.buffer[begin:end] for begin, end in ends]
    assert found == [packet.payload for packet in packets]
