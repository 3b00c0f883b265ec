"""Whether a connection is TLS, by the first bytes of its streams.

A stream that begins with a hello is TLS; one captured from the middle on is TLS if two records follow each other.
Neither can be Kafka: as a length these bytes would be more than 365 million. The stream whose bytes come first decides.
Earlier items are held back: a few bytes, or a record of a stream without beginning.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from operator import itemgetter
from typing import TYPE_CHECKING, Final, Self

import msgspec

from kafkasniff.tcp.segments import Closed, Gap, Item, Late, Run, Started, Stretch, Wrapped
from kafkasniff.tls.handshake import CLIENT_HELLO, SERVER_HELLO
from kafkasniff.tls.keylog import KeyLog
from kafkasniff.tls.record import APPLICATION_DATA, HANDSHAKE, HEADER, may_be_header

if TYPE_CHECKING:
    from kafkasniff.model import TlsHandshake
    from kafkasniff.tls.session import TlsSession

__all__ = ["MAX_HELD", "TlsGate", "is_tls"]

MAX_HELD: Final = 32_768
"""Maximum number of items held back until it is clear whether the connection is TLS: a record's bytes one by one, and
some more. Beyond it the connection is not TLS, so that endless repetitions of one segment do not fill the memory.
"""
ITEM_BYTES: Final = 1_000
"""Bytes of memory of an item that is held back, without those of its streams."""
_NEXT: Final = 3
"""Bytes of a second record's header that are examined."""


class TlsGate:
    """Precedes a connection's reader, from its first packet on."""

    __slots__ = ("_aligned", "_heads", "_held", "_session", "plain")

    def __init__(self) -> None:
        self.plain = False
        """The connection is not TLS: its items need not pass through here any more."""
        self._session: TlsSession | None = None
        self._aligned = [False, False]
        self._heads = [b"", b""]
        """The first bytes of each stream, which are held back."""
        self._held: list[Item] = []

    @classmethod
    def after(cls, aligned: list[bool]) -> Self:
        """A gate for a connection that had no data yet; `aligned`: whether each stream is known from its beginning."""
        gate = cls()
        gate._aligned = aligned
        return gate

    @property
    def encrypted(self) -> bool:
        """The connection is TLS."""
        return self._session is not None

    @property
    def handshake(self) -> TlsHandshake | None:
        """The visible part of its handshake; None if the connection is not TLS."""
        return None if self._session is None else self._session.handshake

    @property
    def waiting(self) -> int:
        """Bytes that were announced to its reader (`Wrapped`) and may still follow."""
        return 0 if self._session is None else self._session.waiting

    @property
    def buffered(self) -> int:
        """Bytes that are buffered."""
        return self.waiting + len(self._heads[0]) + len(self._heads[1])

    @property
    def memory(self) -> int:
        """Approximate memory of buffered data in bytes."""
        if self._session is not None:
            return self._session.memory
        return self.buffered + len(self._held) * ITEM_BYTES

    def feed(self, items: list[Item], keys: KeyLog, *, wanted: bool = True) -> list[Item]:
        """Take the connection's items; returns those for its reader: clear bytes.

        `wanted` False: the reader no longer needs them. Hot for connections without TLS: their items are passed on
        unchanged.
        """
        if self._session is not None:
            return self._session.feed(items, keys, wanted=wanted)
        out: list[Item] = []
        for index, item in enumerate(items):
            if isinstance(item, Late):
                continue  # useless for a record that is missing
            decided = self._look(item)
            if decided is None and len(self._held) >= MAX_HELD:
                decided = False, _order(item, self._held)
            if decided is None:
                if self._held or isinstance(item, Stretch):
                    self._held.append(_own(item))
                else:
                    out.append(item)
                continue
            is_tls, order = decided
            if not is_tls:
                self.plain = True
                if not self._held and _begins(item, order):
                    return items
            held, self._held = self._held, []
            self._heads = [b"", b""]
            if is_tls:
                # Most captures have none, and the first line comes sooner.
                from kafkasniff.tls.session import TlsSession  # noqa: PLC0415

                self._session = TlsSession(keys, order)
                late = [one if isinstance(one, Stretch) else _not_before(one, order) for one in held]
                return [*out, *self._session.feed([*late, *items[index:]], keys, wanted=wanted)]
            # Each in its place, as if it had arrived when this was clear.
            late = [piece for one in (*held, item) for piece in _pieces(one, order)]
            return [*out, *late, *items[index + 1 :]]
        return out

    def _look(self, item: Item) -> tuple[bool, int] | None:
        """Whether the connection is TLS, and the order of the packet that decides it; None if undecided."""
        if isinstance(item, Stretch):
            return self._look_at_bytes(item)
        if isinstance(item, Closed):
            return False, item.order
        if isinstance(item, Started):
            self._aligned[item.direction] = not self._heads[item.direction]
        elif isinstance(item, Gap):
            self._aligned[item.direction] = False
            if self._heads[item.direction]:
                return False, item.order
        return None

    def _look_at_bytes(self, item: Stretch) -> tuple[bool, int] | None:
        runs = item.runs
        first = min(
            ((run.order[run.first], direction, run) for direction, run in enumerate(runs) if run is not None),
            key=itemgetter(0),
        )
        order, direction, run = first
        if not self._held and run.buffer[run.offset[run.first]] not in (HANDSHAKE, APPLICATION_DATA):
            return False, order
        for order, direction, run, index in _segments(item):
            offset = run.offset[index]
            head = self._heads[direction] = self._heads[direction] + run.buffer[offset : offset + run.length[index]]
            found = is_tls(head, aligned=self._aligned[direction])
            if found is not None:
                return found, order
        return None


def is_tls(head: bytes, *, aligned: bool) -> bool | None:
    """Whether a stream is TLS by its first bytes; None if more are needed. `aligned`: they are the stream's first."""
    if not may_be_header(head) or head[0] not in (HANDSHAKE, APPLICATION_DATA):
        return False
    if head[0] == HANDSHAKE:
        return None if len(head) <= HEADER else head[HEADER] in (CLIENT_HELLO, SERVER_HELLO)
    if aligned:
        return False
    record_end = HEADER + int.from_bytes(head[3:HEADER]) if len(head) >= HEADER else len(head)
    if len(head) > record_end and not may_be_header(head, record_end):
        return False
    return True if len(head) >= record_end + _NEXT else None


def _own(item: Item) -> Item:
    """A copy with its own bytes: waiting items must not keep the whole batch of packets alive."""
    return Stretch(tuple(map(_own_run, item.runs))) if isinstance(item, Stretch) else item  # type: ignore[arg-type]


def _own_run(run: Run | None) -> Run | None:
    if run is None:
        return None
    first, last = run.first, run.last
    length = run.length[first:last]
    end = list(accumulate(length))
    data = b"".join(
        run.buffer[start : start + size] for start, size in zip(run.offset[first:last], length, strict=True)
    )
    packet, time, order, released = (column[first:last] for column in (run.packet, run.time, run.order, run.released))
    return Run(data, [0, *end[:-1]], length, end, packet, time, order, released, 0, last - first)


def _begins(item: Item, order: int) -> bool:
    """Whether nothing of an item precedes this place in capture order."""
    return not isinstance(item, Stretch) or all(run is None or run.order[run.first] >= order for run in item.runs)


def _order(item: Item, held: list[Item]) -> int:
    """The order at which an item became known, or that of the last item before it that has one."""
    for one in (item, *reversed(held)):
        if isinstance(one, Stretch):
            return max(run.order[run.last - 1] for run in one.runs if run is not None)
        if not isinstance(one, Wrapped):
            return one.order
    return 0


def _segments(item: Stretch) -> list[tuple[int, int, Run, int]]:
    """Order, direction, run and index of each segment, in capture order."""
    found = [
        (run.order[index], direction, run, index)
        for direction, run in enumerate(item.runs)
        if run is not None
        for index in range(run.first, run.last)
    ]
    found.sort(key=itemgetter(0))
    return found


def _pieces(item: Item, order: int) -> Iterator[Item]:
    """The same, segment by segment, and none before a place in capture order."""
    if not isinstance(item, Stretch):
        yield _not_before(item, order)
        return
    for place, direction, run, index in _segments(item):
        offset, length = run.offset[index], run.length[index]
        piece = Run(
            run.buffer[offset : offset + length],
            [0],
            [length],
            [length],
            [run.packet[index]],
            [run.time[index]],
            [max(place, order)],
            [run.released[index]],
            0,
            1,
        )
        yield Stretch((piece, None) if direction == 0 else (None, piece))


def _not_before(item: Item, order: int) -> Item:
    if isinstance(item, (Stretch, Wrapped)) or item.order >= order:
        return item
    return msgspec.structs.replace(item, order=order)
