"""What a run hands on: to the next run over later captures, and to itself should it be killed.

A connection does not end where a capture does. What is not finished then (segments held back, half a frame, requests
without a response) is kept, and the next run goes on as if there had been no end.
"""

from __future__ import annotations

import msgspec

from kafkasniff.enrich import Enricher
from kafkasniff.enrich.tellings import Tellings
from kafkasniff.inspector import Inspector
from kafkasniff.rows.sessions import Sessions
from kafkasniff.state import dump, load

__all__ = ["Carried", "ShardState"]


class ShardState(msgspec.Struct):
    """One process's part: the connections of its share."""

    inspector: Inspector
    enricher: Enricher
    """Its catalog, and what it missed; its summary is the inspector's."""
    selected: set[int]
    start_ns: int | None = None
    """Time of the first packet, for relative filters."""

    def limit_memory(self, size: int, processes: int = 1, whole: int | None = None) -> None:
        """From here on keep at most about so many bytes in all of `processes`, which share them evenly.

        `whole`: the budget of the run that bounds each message, where `size` is a part of it.
        """
        self.inspector.limit_memory(size // processes)
        # What is known and what a message may hold must not depend on the number of processes.
        self.inspector.limit_messages(size if whole is None else whole)
        self.enricher.limit_memory(size)
        self.inspector.count_beside(self.enricher)


class Carried(msgspec.Struct):
    """Everything."""

    shards: list[bytes]
    """Dumped `ShardState`s."""
    sessions: Sessions
    tellings: Tellings
    """Of all shards."""
    order: int = 0
    """Packets so far: what follows counts on from there."""

    def dump(self) -> bytes:
        """As bytes for a file."""
        return dump(self)

    @staticmethod
    def load(data: bytes) -> Carried:
        """Raises UsageError as `kafkasniff.state.load` does."""
        return load(data, Carried)
