"""A shard: connections of its own, decoded, and rendered when their numbers and names are given."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any, Final, Generic, TypeVar

import numpy as np

from kafkasniff.accounts import InspectedConnection
from kafkasniff.enrich.apart import ApartEnricher, SessionAnswer, Teller
from kafkasniff.enrich.catalog import Catalog
from kafkasniff.filters import Selector
from kafkasniff.inspector import SLICE, Output
from kafkasniff.memory_limits import DEFAULT_MEMORY
from kafkasniff.model import Message, Summary
from kafkasniff.packets import PacketBatch
from kafkasniff.parallel.areas import own_payloads
from kafkasniff.parallel.finding import Finder
from kafkasniff.parallel.forms import size_of
from kafkasniff.parallel.numbered import Entry, NumberedInspector
from kafkasniff.parallel.window import Found, Given, Integers, Told
from kafkasniff.shards import share_of_rows

__all__ = ["Rendered", "Shard"]

_Line = TypeVar("_Line")

Rendered = tuple[list[int], list[bool], list[_Line]]
"""Of lines: the index of the event of each, whether it is a message's, and the line."""

PART_BYTES: Final = 64 << 10
"""Lines are handed on when there are so many bytes of them, while they are in the processor's caches."""


class _Window:
    """What was collected and is not rendered yet."""

    __slots__ = ("begun", "entries", "opened", "start_ns")

    def __init__(
        self,
        entries: list[Entry],
        opened: list[tuple[int, InspectedConnection]],
        begun: list[int],
        start_ns: int | None,
    ) -> None:
        self.entries = entries
        self.opened = opened
        self.begun = begun
        self.start_ns = start_ns


class Shard(Generic[_Line]):
    """One of several, by its number. Windows are decoded and rendered in their order; decoding may be ahead.

    `catalog` is the shard's own copy of what is known from the beginning; `render` makes the line of an event, None
    where it has none, an iterator of its pieces where it is long.
    """

    def __init__(
        self,
        shard: int,
        inspector: NumberedInspector,
        catalog: Catalog,
        render: Callable[[Any], _Line | None],
        selector: Selector | None = None,
        *,
        memory: int = DEFAULT_MEMORY,
    ) -> None:
        self._shard = shard
        self._inspector = inspector
        self._enricher = ApartEnricher(catalog, summary=inspector.summary)
        self._enricher.limit_memory(memory)
        inspector.count_beside(self._enricher)
        self._render = render
        self._selector = selector
        self._finder = Finder()
        self._windows: deque[_Window] = deque()

    # -- step 1 -------------------------------------------------------------------------------------------------------

    def decode(self, batch: PacketBatch | None, shards: Integers, start_ns: int | None) -> Found:
        """Take the packets of the next window, of all shards; None: the captures have ended.

        `shards`: that of each packet; `start_ns`: time of the first packet of the run, as far as it is known by now.
        """
        summary = self._inspector.reset_summary()
        packets = None
        if batch is not None:
            packets = own_payloads(share_of_rows(batch, shards == self._shard, first=self._shard == 0))
        entries, opened = self._inspector.collect(packets)
        finds = self._finder.find(entries, Teller(self._enricher.catalog))
        self._windows.append(_Window(entries, opened, finds.begun, start_ns))
        return Found(
            opened=np.array([order for order, _ in opened], np.int64),
            orders=np.fromiter(map(itemgetter(0), entries), np.int64, len(entries)),
            places=np.fromiter(map(itemgetter(1), entries), np.int64, len(entries)),
            begun=np.array(finds.begun, np.int64),
            told=finds.told,
            brokers=finds.brokers,
            steps=finds.steps,
            summary=summary,
        )

    def retell(self, told: Told, *, everything: bool) -> Told:
        """What the next window's messages tell of topics, when others tell this; the windows before are rendered.

        `everything`: what is known before, too.
        """
        return self._finder.retell(
            self._windows[0].entries, told, Teller(self._enricher.catalog, everything=everything)
        )

    # -- step 3 -------------------------------------------------------------------------------------------------------

    def render(self, given: Given) -> Iterator[Rendered[_Line]]:
        """The lines of the next window. Hot.

        Entries are read here, some at a time: so few of them are in memory, and those in the processor's
        caches while their lines are made.
        """
        window = self._windows.popleft()
        entries = window.entries
        inspector, enricher, selector, render = self._inspector, self._enricher, self._selector, self._render
        if selector is not None:
            selector.start_ns = window.start_ns
        for (_, connection), number in zip(window.opened, given.connections.tolist(), strict=True):
            connection.number = number
        numbers = given.exchanges.tolist()
        inspector.number(numbers)
        enricher.give_sessions(_by_exchange(given.sessions, window.begun, numbers))
        enricher.count_into(inspector.reset_summary())
        told, brokers = deque(given.told), deque(given.brokers)
        first = 0
        while first < len(entries):
            while told and told[0][0] <= first:
                enricher.hear(told.popleft()[1])
            while brokers and brokers[0][0] <= first:
                inspector.knows_broker(brokers.popleft()[1])
            last = min(first + SLICE, *(heard[0][0] for heard in (told, brokers) if heard), len(entries))
            indices, events, last = inspector.tell(entries, first, last)
            enricher.feed(events)
            if selector is not None:
                indices, events = _selected(selector, indices, events)
            places: list[int] = []
            messages: list[bool] = []
            lines: list[_Line] = []
            size = 0
            for index, event in zip(indices, events, strict=True):
                line = render(event)
                if line is None:
                    continue
                # The last piece stands for the message: who counts messages has all of it then.
                for piece, is_last in _pieces(line) if isinstance(line, Iterator) else ((line, True),):
                    places.append(index)
                    messages.append(is_last and event.__class__ is Message)
                    lines.append(piece)
                    size += len(piece) if isinstance(piece, bytes) else size_of(piece)
                    if size >= PART_BYTES:
                        yield places, messages, lines
                        places, messages, lines, size = [], [], [], 0
            yield places, messages, lines
            del indices, events  # before the next ones are decoded
            first = last
        for _, one in told:
            enricher.hear(one)
        for _, broker in brokers:
            inspector.knows_broker(broker)

    @property
    def summary(self) -> Summary:
        """What was counted in the window that was rendered last."""
        return self._inspector.summary


def _selected(
    selector: Selector, indices: Sequence[int], events: Sequence[Output]
) -> tuple[Sequence[int], list[Output]]:
    """What is selected, and of each the index at which it is: events before may come with the one that decides."""
    places: list[int] = []
    chosen: list[Output] = []
    for index, event in zip(indices, events, strict=True):
        passed: list[Any] = selector.feed((event,))  # type: ignore[arg-type]  # there are no accounts of connections
        places += [index] * len(passed)
        chosen += passed
    return places, chosen


def _pieces(line: Iterator[_Line]) -> Iterator[tuple[_Line, bool]]:
    """The pieces of a line, and of each whether it is the last."""
    before = next(line)
    for piece in line:
        yield before, False
        before = piece
    yield before, True


def _by_exchange(sessions: dict[int, SessionAnswer], begun: list[int], numbers: list[int]) -> dict[int, SessionAnswer]:
    """Answers by the numbers of exchanges instead of the indices of the requests, at which they begin."""
    if not sessions:
        return {}
    places = np.searchsorted(np.array(begun, np.int64), list(sessions)).tolist()
    return {numbers[place]: answer for place, answer in zip(places, sessions.values(), strict=True)}
