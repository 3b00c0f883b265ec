"""The rows of captures for a consumer that counts them as they come, without a folder: step 1 of an export alone.

Rows are staged ones (`rows.staged`) and lack names that are learnt after they were made. All names are known when the
run is over; the consumer adds them then to the rows that it kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from kafkasniff.engine.inspector import Output
from kafkasniff.engine.pair_columns import PairColumns
from kafkasniff.engine.wanted_bodies import EVERY_BODY, WantedBodies
from kafkasniff.enrich import Catalog
from kafkasniff.enrich.catalog import LearnedFacts
from kafkasniff.model import Summary
from kafkasniff.packets import PacketBatch
from kafkasniff.runtime.memory_limits import checked_memory
from kafkasniff.tables.exports.beginning import new_state
from kafkasniff.tables.exports.merge import together
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.stager import ROWS_PART
from kafkasniff.tables.exports.staging import new_stager, stage, stage_rest
from kafkasniff.tables.rows.resolve import LearnedNames

if TYPE_CHECKING:
    from kafkasniff.filters import Predicate
    from kafkasniff.tls.keylog import KeyLog

__all__ = ["CountedRows"]

MANY_ROWS: Final = 1 << 14
MANY_BYTES: Final = 32 << 20
"""Rows of a table, and their bytes, that are passed on together: each batch costs its consumers a fixed time."""


class CountedRows:
    """Passes the rows of packets to `take(batch, table)`.

    `bodies`: those that are wanted as JSON, if `options` want bodies. `predicate`: selects exchanges; it may use names
    that `catalog` knows already. `keys`: secrets of TLS. `events` is called with the inspector's output, and with the
    exchanges that are columns. `memory`: budget in bytes, as for `Inspector`.
    """

    def __init__(
        self,
        options: ExportOptions,
        take: Callable[[pa.RecordBatch, str], object],
        *,
        catalog: Catalog | None = None,
        bodies: WantedBodies = EVERY_BODY,
        predicate: Predicate | None = None,
        keys: KeyLog | None = None,
        events: Callable[[Sequence[Output | PairColumns]], object] | None = None,
        memory: int | None = None,
    ) -> None:
        catalog = Catalog() if catalog is None else catalog
        if catalog.learned_facts is None:
            catalog.learned_facts = LearnedFacts()
        self._learned_facts = catalog.learned_facts
        self._given: Mapping[str, str] = catalog.given
        self._take = take
        self._waiting: dict[str, list[pa.RecordBatch]] = {}
        self._events = events
        self._state = new_state(options, catalog, sessions=predicate is not None)
        budget = checked_memory(memory)
        self._most_bytes = min(MANY_BYTES, budget // ROWS_PART)
        self._state.limit_memory(budget)
        if keys is not None:
            self._state.inspector.follow_key_log(keys)
        self._stager = new_stager(self._state, options, predicate, self, bodies=bodies)

    @property
    def summary(self) -> Summary:
        """The summary so far."""
        return self._state.inspector.summary

    @property
    def start_ns(self) -> int | None:
        """Time of the first packet, which relative filters count from."""
        return self._state.start_ns

    def feed(self, batch: PacketBatch) -> None:
        """Take the next packets."""
        stage(self._state, self._stager, batch, self._events)

    def end(self) -> LearnedNames:
        """Flush the rows of open exchanges after the last packet. Returns the names that the run learnt."""
        stage_rest(self._state, self._stager, self, self._events)
        return LearnedNames(self._learned_facts, self._given)

    def write(self, table: str, batch: pa.RecordBatch) -> None:
        """Take rows from the stager, and pass them on when there are many."""
        waiting = self._waiting.setdefault(table, [])
        waiting.append(batch)
        if sum(map(len, waiting)) >= MANY_ROWS or sum(one.nbytes for one in waiting) >= self._most_bytes:
            self._pass_on(table)

    def close(self) -> None:
        """Pass on the rows that wait."""
        for table in self._waiting:
            self._pass_on(table)

    def _pass_on(self, table: str) -> None:
        waiting, self._waiting[table] = self._waiting[table], []
        rows = [one for one in waiting if len(one)]
        if rows:
            self._take(together(rows), table)
