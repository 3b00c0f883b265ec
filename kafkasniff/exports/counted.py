"""The rows of captures for somebody who counts them as they come, without a folder: step 1 of an export alone.

Rows are staged ones (`rows.staged`): names that are told later than needed are not in them. What a run was told is
known when it is over, and whoever counts puts names into what is left of the rows then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from kafkasniff.enrich import Catalog
from kafkasniff.enrich.tellings import Tellings
from kafkasniff.exports.beginning import new_state
from kafkasniff.exports.options import ExportOptions
from kafkasniff.exports.staging import inspected, new_stager, stage, stage_rest
from kafkasniff.exports.transport import TransportRows
from kafkasniff.inspector import Output
from kafkasniff.memory_limits import checked_memory
from kafkasniff.model import Message, Summary
from kafkasniff.packets import PacketBatch
from kafkasniff.rows.resolve import Names

if TYPE_CHECKING:
    from kafkasniff.filters import Predicate
    from kafkasniff.tls.keylog import KeyLog

__all__ = ["CountedRows"]


class CountedRows:
    """Hands the rows of packets to `take(batch, table)`.

    `wants_body`: of which messages the JSON of the body is wanted, where `options` want bodies; `predicate`: only the
    exchanges that it is true of, which may name what `catalog` has learnt before; `keys`: secrets of TLS; `events` is
    given what the inspector yields, too; `transport`: hand on that table as well; `memory`: budget in bytes, as for
    `Inspector`.
    """

    def __init__(
        self,
        options: ExportOptions,
        take: Callable[[pa.RecordBatch, str], object],
        *,
        catalog: Catalog | None = None,
        wants_body: Callable[[Message], bool] | None = None,
        predicate: Predicate | None = None,
        keys: KeyLog | None = None,
        events: Callable[[Sequence[Output]], object] | None = None,
        transport: bool = False,
        memory: int | None = None,
    ) -> None:
        catalog = Catalog() if catalog is None else catalog
        if catalog.tellings is None:
            catalog.tellings = Tellings()
        self._tellings = catalog.tellings
        self._given: Mapping[str, str] = catalog.given
        self._take = take
        self._events = events
        self._transport = TransportRows(take, ports=options.ports, memory=checked_memory(memory)) if transport else None
        self._state = new_state(options, catalog, sessions=predicate is not None)
        self._state.limit_memory(checked_memory(memory))
        if keys is not None:
            self._state.inspector.follow_key_log(keys)
        self._stager = new_stager(self._state, options, predicate, self, wants_body=wants_body)
        if not options.reads_headers:
            # Rows of columns have no numbers of brokers until a run is finished.
            self._stager.finder = None

    @property
    def summary(self) -> Summary:
        """What was seen so far."""
        return self._state.inspector.summary

    def feed(self, batch: PacketBatch) -> None:
        """Take the next packets."""
        if self._transport is not None:
            self._transport.feed(batch)
        if self._events is None:
            stage(self._state, self._stager, batch)
            return
        for events in inspected(self._state, self._stager, batch):
            self._events(events)
            self._stager.take(events)
            del events  # before the next ones are decoded

    def end(self) -> Names:
        """The packets have ended: hand on what was still open. Returns what the run was told."""
        if self._transport is not None:
            self._transport.close()
        stage_rest(self._state, self._stager, self, self._events)
        return Names(self._tellings, self._given)

    def write(self, table: str, batch: pa.RecordBatch) -> None:
        """Rows that the stager has."""
        if len(batch):
            self._take(batch, table)

    def close(self) -> None:
        """There are no more; nothing is held here."""
