"""An inspector in two steps: first the packets, then the numbers that come from elsewhere, and what is told of both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import sub
from typing import Any, Final

from kafkasniff.accounts import InspectedConnection
from kafkasniff.inspector import SLICE_BYTES, Inspector, Output
from kafkasniff.memory_limits import MAX_ENDPOINTS
from kafkasniff.packets import PacketBatch
from kafkasniff.paired import PairedEntry
from kafkasniff.parallel.window import BrokerEndpoint

__all__ = ["EVENT", "Entry", "EventEntry", "NumberedInspector"]

EventEntry = tuple[int, int, int, InspectedConnection | None, Any]
"""As `Inspector` sorts them: order, place, index, connection, event."""

Entry = EventEntry | PairedEntry

EVENT: Final = 5
"""Length of an `EventEntry`; a `PairedEntry` is longer."""


class NumberedInspector(Inspector):
    """An inspector whose numbers come from elsewhere, between its two steps."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._numbers: Iterator[int] = iter(())

    def collect(self, batch: PacketBatch | None) -> tuple[list[Entry], list[tuple[int, InspectedConnection]]]:
        """What the next packets yield, in order, and the connections that begin, with the packets' order.

        None: there are no more. Entries stay as they are, unread.
        """
        entries = list(self._in_order(self._collect_end() if batch is None else self._collect(batch)))
        opened = [(tcp.first_order, tcp.owner) for tcp in self._reassembler.opened]
        return entries, opened  # type: ignore[return-value]  # the owner of a connection is always one of ours

    def number(self, exchanges: Iterable[int]) -> None:
        """Give the exchanges that begin these numbers."""
        self._numbers = iter(exchanges)

    def _next_exchange(self) -> int:
        return next(self._numbers)

    def knows_broker(self, broker: BrokerEndpoint) -> None:
        """Another shard's connection to this endpoint turned out to be Kafka."""
        if len(self._known_brokers) < MAX_ENDPOINTS:
            self._known_brokers.add(broker)

    def tell(self, entries: Sequence[Entry], first: int, last: int) -> tuple[Sequence[int], list[Output], int]:
        """What entries [first, last) are to be told as, in their order, and of each the index of its entry. Hot.

        Also returns the entry that comes next, which is before `last` where the messages so far are large.
        """
        out: list[Output] = []
        ends: list[int] = []
        self.slice_bytes = 0
        for index in range(first, last):
            entry = entries[index]
            if len(entry) > EVENT:
                self._tell_paired(entry, out)
            else:
                self._tell(entry[3], entry[4], out)
            ends.append(len(out))
            if self.slice_bytes > SLICE_BYTES:
                last = index + 1
                break
        if ends == list(range(1, last - first + 1)):
            return range(first, last), out, last
        begins = (0, *ends)
        counts = enumerate(map(sub, ends, begins), first)
        return [index for index, count in counts for _ in range(count)], out, last
