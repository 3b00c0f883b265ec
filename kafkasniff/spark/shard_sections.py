"""Sections: a shard that is much larger than the others is decoded by several tasks, each of which has a part in time.

A task can decode from the middle of a connection only if it has the state there. The task of the shard finds it: once
it has decoded its share, it follows the rest of the packets without making rows, which takes about a quarter of the
time, and hands on the state at the beginning of each section (`section_runs`).

What it finds is checked: a section counts only if it begins with the state that decoding the one before has ended with.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa

from kafkasniff.capture.timeline.parts import Place
from kafkasniff.engine.run_parts import begin_part, comparable_connections
from kafkasniff.spark.packet_places import place_of
from kafkasniff.tables.checkpoint import dump
from kafkasniff.tables.checkpoint.carried import ShardState
from kafkasniff.tables.exports.beginning import load_state
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.shard import parts
from kafkasniff.tables.exports.staging import new_stager, settle, stage
from kafkasniff.tcp.packets import PacketBatch

__all__ = [
    "LEAST_BYTES",
    "SECTION_BYTES",
    "FoundSections",
    "SectionSizes",
    "section_sizes",
    "section_state",
    "state_hash",
]

LEAST_BYTES: Final = 2 << 30
"""The task of a shard decodes at least this many bytes of packets: other tasks cost a second reading of captures."""
SECTION_BYTES: Final = 1 << 30
"""Bytes of packets in a section."""


class SectionSizes(NamedTuple):
    """When a shard is divided."""

    own: int
    """Bytes that its task decodes itself."""
    section: int
    """Bytes of a section."""


def section_sizes(size: int, parallel: int) -> SectionSizes:
    """For a run of this many bytes and tasks at once.

    A task that decodes keeps about two cores busy. With no more than its share for two, other cores would wait for it.
    """
    return SectionSizes(max(LEAST_BYTES, 2 * size // parallel), SECTION_BYTES)


class FoundSections:
    """Follows the packets of a shard from where its task stops decoding them."""

    def __init__(self, state: ShardState, options: ExportOptions, size: int) -> None:
        """`state`: after `staging.settle`; `size`: bytes of a section."""
        self._state = state
        # Without tables nothing is made of what it takes.
        self._stager = new_stager(state, msgspec.structs.replace(options, tables=()), None, _Nowhere())
        self._size = size
        self._bytes = 0
        self.begins: list[Place] = []
        """The places of the sections' first packets."""

    def take(self, batch: PacketBatch) -> Iterator[bytes]:
        """Follow the next packets. Yields the state before them, dumped, if a section begins."""
        if not self.begins or self._bytes >= self._size:
            settle(self._state, self._stager)
            self.begins.append(place_of(batch, 0))
            self._bytes = 0
            yield section_state(self._state)
        for part in parts(batch):
            stage(self._state, self._stager, part)
        self._bytes += batch.nbytes


class _Nowhere:
    """Takes no rows."""

    def write(self, table: str, batch: pa.RecordBatch) -> None:
        """Called by nothing that stages without tables."""
        raise AssertionError(table)

    def close(self) -> None:
        """There is nothing to do."""


def section_state(state: ShardState) -> bytes:
    """The state for a section that begins here, dumped; from here on `state` counts from zero, too."""
    state.enricher.count_into(begin_part(state.inspector))
    return dump(state)


def state_hash(dumped: bytes, options: ExportOptions) -> bytes:
    """Equal for states whose connections are the same, except for problems counted before.

    Names are not compared: rows without them get them later, whichever task has learned them. Raises UsageError as
    `load_state`.
    """
    state = load_state(dumped, options)
    begin_part(state.inspector)
    connections, numbers = comparable_connections(state.inspector)
    missed = sorted(numbers[one] for one in state.enricher.missed if one in numbers)
    found = hashlib.blake2b(repr((missed, sorted(state.inspector.state.known_brokers))).encode(), digest_size=16)
    for one in connections:
        found.update(dump(one))
    if state.links is not None:
        found.update(dump(state.links))
    return found.digest()
