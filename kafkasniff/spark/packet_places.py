"""Places of packets in the captures of a run, by which they are in order."""

from __future__ import annotations

import numpy as np

from kafkasniff.capture.timeline.parts import Place
from kafkasniff.packets import PacketBatch

__all__ = ["place_of", "rows_before"]


def place_of(batch: PacketBatch, row: int) -> Place:
    """The place of a packet."""
    assert batch.clock is not None
    return Place(int(batch.clock[row]), int(batch.capture[row]), int(batch.number[row]))


def rows_before(batch: PacketBatch, place: Place) -> int:
    """The number of packets of a batch that precede a place."""
    assert batch.clock is not None
    here = batch.clock == place.clock
    earlier = (batch.clock < place.clock) | (here & (batch.capture < place.capture))
    here &= batch.capture == place.capture
    return int(np.count_nonzero(earlier | (here & (batch.number < place.number))))
