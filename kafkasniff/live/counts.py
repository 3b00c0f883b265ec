"""Counts over a sliding window of the packet clock, and tables of them with a bound on their rows.

A window is a ring of one-second slots; slots that leave the ring are added to the sums since the start. Latencies are
counted in the buckets of `analysis.percentiles`, so any slots merge exactly.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Final, Generic, TypeVar

import numpy as np

from kafkasniff.analysis.percentiles import percentiles

SLOT_NS: Final = 1_000_000_000
WINDOW_SLOTS: Final = 10
"""Number of slots that rates and latencies cover."""
TREND_SLOTS: Final = 60
"""Number of slots that a sparkline shows."""

_BITS: Final = 7
"""As in `analysis.percentiles`."""

_Key = TypeVar("_Key", bound=Hashable)
_Entry = TypeVar("_Entry", bound="Entry")


def latency_bucket(microseconds: int) -> int:
    """`analysis.percentiles.bucket_of` of one value, without arrays. Hot."""
    magnitude = microseconds if microseconds >= 0 else -microseconds
    shift = magnitude.bit_length() - 1 - _BITS
    bucket = shift * (1 << _BITS) + (magnitude >> shift) if shift > 0 else magnitude
    return bucket if microseconds >= 0 else -bucket


def latency_quantiles(groups: Sequence[dict[int, int]], quantiles: Sequence[float]) -> list[list[int] | None]:
    """For each dictionary bucket → count, the quantiles in microseconds; None if it is empty."""
    filled = [index for index, group in enumerate(groups) if group]
    found: list[list[int] | None] = [None] * len(groups)
    if not filled:
        return found
    number = np.repeat(np.arange(len(filled)), [len(groups[index]) for index in filled])
    buckets = np.array([bucket for index in filled for bucket in groups[index]], np.int64)
    counts = np.array([count for index in filled for count in groups[index].values()], np.int64)
    columns = percentiles(number, buckets, counts, quantiles, len(filled))
    for place, index in enumerate(filled):
        found[index] = [int(column[place]) for column in columns]
    return found


class Counts:
    """Counts of an API, a client, a topic or a connection within some time. Sizes in bytes."""

    __slots__ = (
        "errors",
        "fetched",
        "latency",
        "latency_max",
        "latency_sum",
        "measured",
        "poll_sum",
        "polls",
        "produced",
        "received",
        "requests",
        "responses",
        "sent",
    )

    def __init__(self) -> None:
        self.requests = 0
        self.responses = 0
        self.errors = 0
        """Responses with an error code; for a topic: its partitions in responses with one."""
        self.sent = 0
        """By clients."""
        self.received = 0
        """By clients."""
        self.produced = 0
        """Records."""
        self.fetched = 0
        self.measured = 0
        """Responses with a known latency."""
        self.latency_sum = 0
        """In microseconds."""
        self.polls = 0
        """Responses to requests that ask the broker to wait (long polls), which have no latency."""
        self.poll_sum = 0
        """Their time in microseconds."""
        self.latency_max = 0
        self.latency: dict[int, int] = {}
        """Bucket → responses, if latencies are counted in buckets."""

    def add(self, more: Counts, *, latency: bool = True) -> None:
        """Add the counts of another one; its buckets only if `latency`."""
        self.requests += more.requests
        self.responses += more.responses
        self.errors += more.errors
        self.sent += more.sent
        self.received += more.received
        self.produced += more.produced
        self.fetched += more.fetched
        self.measured += more.measured
        self.latency_sum += more.latency_sum
        self.polls += more.polls
        self.poll_sum += more.poll_sum
        self.latency_max = max(self.latency_max, more.latency_max)
        if latency:
            own = self.latency
            for bucket, count in more.latency.items():
                own[bucket] = own.get(bucket, 0) + count


Load = tuple[int, int, int, int]
"""Requests, errors, latencies known and their sum in microseconds, within a slot."""


class Entry:
    """The counts of one subject: those of the window's slots, the sum of earlier ones, and the load of the last."""

    __slots__ = ("_loads", "_past", "_ring", "now", "slot")

    def __init__(self, slot: int) -> None:
        self.slot = slot
        """Slot of the last event."""
        self.now = Counts()
        """Counts of that slot."""
        self._ring: list[tuple[int, Counts]] = [(slot, self.now)]
        self._past = Counts()
        self._loads: deque[tuple[int, Load]] = deque(maxlen=TREND_SLOTS - WINDOW_SLOTS)
        """Loads of slots that left the window."""

    def at(self, slot: int) -> Counts:
        """The counts of a slot; those of the last one if the clock goes back. Hot."""
        if slot > self.slot:
            first = slot - WINDOW_SLOTS
            while self._ring and self._ring[0][0] <= first:
                before, counts = self._ring.pop(0)
                self._past.add(counts, latency=False)
                self._loads.append((before, _load(counts)))
            self.slot = slot
            self.now = Counts()
            self._ring.append((slot, self.now))
        return self.now

    def window(self, slot: int, *, latency: bool = False) -> Counts:
        """Counts of the window that ends with this slot; with latency buckets if `latency`."""
        counts = Counts()
        if self.slot > slot - WINDOW_SLOTS:
            for at, more in self._ring:
                if at > slot - WINDOW_SLOTS:
                    counts.add(more, latency=latency)
        return counts

    def loads(self, slot: int) -> Iterator[tuple[int, Load]]:
        """What happened in each of the `TREND_SLOTS` up to this one, by its place; silent slots are skipped."""
        first = slot - TREND_SLOTS + 1
        for at, load in self._loads:
            if at >= first:
                yield at - first, load
        for at, counts in self._ring:
            if at >= first:
                yield at - first, _load(counts)

    def total(self) -> Counts:
        """Counts since the start, without latency buckets."""
        counts = Counts()
        counts.add(self._past, latency=False)
        for _, more in self._ring:
            counts.add(more, latency=False)
        return counts

    def absorb(self, others: Iterable[Entry]) -> None:
        """Add another's counts since the start to the earlier ones."""
        for other in others:
            self._past.add(other.total(), latency=False)


def _load(counts: Counts) -> Load:
    return counts.requests, counts.errors, counts.measured, counts.latency_sum


class BoundedTable(Generic[_Key, _Entry]):
    """Entries by key, at most `bound` of them; excess entries are counted in `other`.

    If the table is full, entries that were silent for a window are folded into `other` to make room. `make` creates an
    entry for a slot.
    """

    def __init__(self, bound: int, make: Callable[[int], _Entry]) -> None:
        self._bound = bound
        self._make = make
        self._entries: dict[_Key, _Entry] = {}
        self._looked: int | None = None
        """Slot in which silent entries were last searched for: once per slot, so that newcomers stay cheap."""
        self.other: _Entry | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[tuple[_Key, _Entry]]:
        return iter(self._entries.items())

    def get(self, key: _Key) -> _Entry | None:
        """The entry of a key; None if it has none of its own."""
        return self._entries.get(key)

    def at(self, key: _Key, slot: int) -> _Entry:
        """The entry of a key, or `other`, for an event in a slot. Hot."""
        entry = self._entries.get(key)
        return entry if entry is not None else self._admit(key, slot)

    def _admit(self, key: _Key, slot: int) -> _Entry:
        if len(self._entries) >= self._bound and (self._looked is None or slot > self._looked):
            self._looked = slot
            silent = [one for one, entry in self._entries.items() if entry.slot <= slot - WINDOW_SLOTS]
            if silent:
                self._rest(slot).absorb(self._entries.pop(one) for one in silent)
        if len(self._entries) >= self._bound:
            return self._rest(slot)
        entry = self._entries[key] = self._make(slot)
        return entry

    def _rest(self, slot: int) -> _Entry:
        if self.other is None:
            self.other = self._make(slot)
        return self.other
