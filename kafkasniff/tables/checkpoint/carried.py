"""State that a run hands on: to the next run over later captures, and to itself if it is killed and resumed.

A connection does not end with the capture. Unfinished data (held segments, part of a frame, requests without a
response) is kept, and the next run continues as if the captures were one.
"""

from __future__ import annotations

import msgspec

from kafkasniff.engine.inspector import Inspector
from kafkasniff.enrich import Enricher
from kafkasniff.enrich.catalog import LearnedFacts
from kafkasniff.tables.rows.connections import Logins
from kafkasniff.tables.rows.sessions import Sessions


class ShardState(msgspec.Struct):
    """The state of one process: the connections of its share."""

    inspector: Inspector
    enricher: Enricher
    """Its catalog, and the names that it missed; its summary is the inspector's."""
    selected: set[int]
    start_ns: int | None = None
    """Time of the first packet, for relative filters."""
    logins: Logins | None = None
    """The authentication of open connections, for the table `connections`; None without it."""

    def limit_memory(self, size: int, processes: int = 1, whole: int | None = None) -> None:
        """From here on keep at most about this many bytes in all of `processes`, which share them evenly.

        `whole`: the run's budget, which bounds each message, if `size` is a part of it.
        """
        self.inspector.limit_memory(size // processes)
        # The bounds of names and of a message must not depend on the number of processes.
        self.inspector.limit_messages(size if whole is None else whole)
        self.enricher.limit_memory(size)
        self.inspector.count_beside(self.enricher)


class Carried(msgspec.Struct):
    """The state of all processes."""

    shards: list[bytes]
    """Dumped `ShardState`s."""
    sessions: Sessions
    learned_facts: LearnedFacts
    """The summary of all shards."""
    order: int = 0
    """Number of packets so far; later packets are counted from there."""
