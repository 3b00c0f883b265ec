"""Whether a connection is TLS, by the first bytes of its streams.

A stream that begins with a hello is TLS; one captured from the middle on is TLS if two records follow each other.
Neither can be Kafka: as a length these bytes would be more than 365 million. The stream whose bytes come first decides.
Earlier items are held back: a few bytes, or a record of a stream without beginning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

import msgspec

from kafkasniff.tls.items import Closed, Gap, Item, Late, Segment, Started, Wrapped
from kafkasniff.tls.keylog import KeyLog
from kafkasniff.tls.record import APPLICATION_DATA, CLIENT_HELLO, HANDSHAKE, HEADER, SERVER_HELLO, may_be_header

if TYPE_CHECKING:
    from kafkasniff.model import TlsHandshake
    from kafkasniff.tls.session import TlsSession

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

    def seen(self, client: int, last_ns: int) -> TlsHandshake | None:
        """The visible part of it (`TlsSession.seen`); None if the connection is not TLS."""
        return None if self._session is None else self._session.seen(client, last_ns)

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

    def feed(self, item: Item, keys: KeyLog, *, wanted: bool = True) -> list[Item]:
        """Take the connection's next item; returns those for its reader: clear bytes.

        `wanted` False: the reader no longer needs them.
        """
        if self._session is not None:
            return self._session.feed(item, keys, wanted=wanted)
        if self.plain:
            return [item]
        if isinstance(item, Late):
            return []  # useless for a record that is missing
        decided = self._look(item)
        if decided is None and len(self._held) >= MAX_HELD:
            decided = False, _order(item, self._held)
        if decided is None:
            if not self._held and not isinstance(item, Segment):
                return [item]
            self._held.append(item)
            return []
        is_tls, order = decided
        held, self._held = self._held, []
        self._heads = [b"", b""]
        if not is_tls:
            self.plain = True
            # Each in its place, as if it had arrived when this was clear.
            return [_not_before(one, order) for one in (*held, item)]
        # Most captures have none, and the first line comes sooner.
        from kafkasniff.tls.session import TlsSession  # noqa: PLC0415

        self._session = TlsSession(keys, order)
        late = [segment if isinstance(segment, Segment) else _not_before(segment, order) for segment in held]
        return [clear for one in (*late, item) for clear in self._session.feed(one, keys, wanted=wanted)]

    def _look(self, item: Item) -> tuple[bool, int] | None:
        """Whether the connection is TLS, and the order of the packet that decides it; None if undecided."""
        if isinstance(item, Segment):
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

    def _look_at_bytes(self, item: Segment) -> tuple[bool, int] | None:
        if not self._held and item.data[0] not in (HANDSHAKE, APPLICATION_DATA):
            return False, item.order
        head = self._heads[item.direction] = self._heads[item.direction] + item.data
        found = is_tls(head, aligned=self._aligned[item.direction])
        return None if found is None else (found, item.order)


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


def _order(item: Item, held: list[Item]) -> int:
    """The order at which an item became known, or that of the last item before it that has one."""
    return next((one.order for one in (item, *reversed(held)) if not isinstance(one, Wrapped)), 0)


def _not_before(item: Item, order: int) -> Item:
    """The same item, and not before this place in capture order."""
    if isinstance(item, Wrapped) or item.order >= order:
        return item
    return msgspec.structs.replace(item, order=order)
