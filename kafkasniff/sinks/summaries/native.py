"""Summaries of many bodies at once, by the native kernel: the tables of the kinds of messages, and the calls."""

from __future__ import annotations

from typing import Final

from kafkasniff.model import Direction
from kafkasniff.native.library import Kernel
from kafkasniff.native.summaries import SummaryCaller, SummaryTable
from kafkasniff.sinks.summaries.compiled import table_of

__all__ = ["NativeSummaries"]

MAX_KINDS: Final = 4096
"""Kinds of messages whose tables are kept; versions come from the wire."""


class NativeSummaries(SummaryCaller):
    """Writes the summaries of bodies; what it leaves is for `summaries.summary`."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self._tables: dict[tuple[int, int, Direction], SummaryTable | None] = {}

    def address(self, key: int, version: int, direction: Direction) -> int:
        """The table for a kind of message, as items have it; 0 where Python makes all of its summaries."""
        kind = key, version, direction
        try:
            found = self._tables[kind]
        except KeyError:
            code = table_of(key, version, direction)
            found = None if code is None else SummaryTable(self._kernel, code)
            if len(self._tables) >= MAX_KINDS:
                # Items have the addresses of tables, of which there is one at most for each known version.
                self._tables = {one: table for one, table in self._tables.items() if table is not None}
            self._tables[kind] = found
        return 0 if found is None else found.address
