"""Facts that an enricher adds to lines of the kernel: names of topic ids, and fetch sessions."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kafkasniff.enrich import Enricher
from kafkasniff.enrich.sessions import FINAL_EPOCH, INITIAL_EPOCH
from kafkasniff.kafka.schema.codes import uuid_text
from kafkasniff.kafka.schema.context import Odd
from kafkasniff.model import Endpoint
from kafkasniff.native.feed import ARENA, MESSAGE, REQUEST
from kafkasniff.native.library import Kernel
from kafkasniff.native.lines import LineBatch
from kafkasniff.native.names import KnownSessions, MessageSession
from kafkasniff.sinks.session_follower import SessionFollower, SessionSteps, SessionText, session_json

_NOTHING: Final = MessageSession(-1, None)
_PLACE: Final = itemgetter(
    *((MESSAGE.names or ()).index(name) for name in ("code", "flags", "start", "size", "body", "connection"))
)


class AddedNames:
    """The facts of `enricher` for messages of the feed (`names.NameFacts`).

    The enricher must have processed everything before a message. `broker`: of a connection by its index in the feed.
    `known`: for the sessions that the kernel may follow; `text`: what is shown of them.
    """

    def __init__(
        self,
        kernel: Kernel,
        enricher: Enricher,
        broker: Callable[[int], Endpoint | None] = lambda _: None,
        known: KnownSessions | None = None,
        text: SessionText = session_json,
    ) -> None:
        self._enricher = enricher
        self._broker = broker
        self._rows: NDArray[np.void] = np.zeros(0, MESSAGE)
        self._stores: tuple[memoryview, memoryview]
        self._addresses = 0, 0
        self._steps = SessionSteps(kernel)
        sessions = enricher.sessions
        self._follower = None if known is None or sessions is None else SessionFollower(kernel, sessions, known, text)
        self._text = text

    def bind(self, batch: LineBatch) -> None:
        """From here on sessions are those of these messages."""
        self._rows, stores = batch.messages, (batch.buffer, batch.arena)
        self._stores = stores[0].data, stores[1].data
        self._addresses = stores[0].ctypes.data, stores[1].ctypes.data

    @property
    def learned(self) -> int:
        """Increases with every learned topic."""
        return self._enricher.catalog.topics_learned

    @property
    def forgets(self) -> bool:
        """Whether topics may be evicted when others are learned."""
        return self.room <= 0

    @property
    def room(self) -> int:
        """Number of topics that can be learned before others are evicted."""
        catalog = self._enricher.catalog
        return catalog.most_topics - len(catalog.learnt)

    def topic(self, topic_id: bytes) -> tuple[bytes | None, bool]:
        """The name of a topic id, and whether it came from a message."""
        catalog, text = self._enricher.catalog, uuid_text(topic_id)
        name = catalog.topic(text)
        return None if name is None else name.encode("utf-8", "surrogatepass"), text in catalog.learnt

    def session(self, index: int, first: int, second: int) -> MessageSession | None:
        """Apply a Fetch message to its session; see `names.NameFacts`."""
        code, flags, start, size, body, connection = self._place(index)
        exchange, broker = int(self._rows["number"][index]), self._broker(connection)
        if not flags & REQUEST:
            self._enricher.end_fetch(exchange, broker, second, first)
            self.release()
            return _NOTHING
        store = flags & ARENA > 0
        data, address = self._stores[store][start : start + size], self._addresses[store] + start
        try:
            step = self._steps.of(code, data, address, body, (first, second))
        except Odd:
            return None
        follower = self._follower
        before = 0 if follower is None else follower.changes
        session = self._enricher.begin_fetch(exchange, broker, step)
        if follower is not None:
            follower.release()
            if step is not None and step.epoch not in {INITIAL_EPOCH, FINAL_EPOCH}:
                follower.asked(connection, code, (broker, step.number), session, is_changed=follower.changes != before)
        if session is None:
            return _NOTHING
        return MessageSession(session.partitions, self._text(session.partitions, session.unnamed))

    def continue_sessions(self, steps: NDArray[np.uint32]) -> None:
        """Apply requests that do not change their sessions, and responses to such requests."""
        assert self._follower is not None
        rows = self._rows[steps]
        requests: list[bool] = ((rows["flags"] & REQUEST) > 0).tolist()
        connections: list[int] = rows["connection"].tolist()
        exchanges: list[int] = rows["number"].tolist()
        self._follower.proceed(zip(requests, connections, exchanges, strict=True))

    def forget(self, connections: list[int]) -> None:
        """The feed has other connections at these indices."""
        if self._follower is not None:
            self._follower.forget(connections)

    def release(self) -> None:
        """Leave requests to Python whose sessions have changed."""
        if self._follower is not None:
            self._follower.release()

    def _place(self, index: int) -> tuple[int, int, int, int, int, int]:
        """A message's code, flags, start, size, start of its body, and connection. Hot."""
        row = self._rows[index].item()
        found: tuple[int, int, int, int, int, int] = _PLACE(row)
        return found


class NamesAhead(AddedNames):
    """The same ahead of the messages' turn, without changing the enricher.

    Names may change until then: `learned` shows whether they did. Fetch sessions are updated in the messages' turn.
    """

    def __init__(self, kernel: Kernel, enricher: Enricher, broker: Callable[[int], Endpoint | None]) -> None:
        super().__init__(kernel, enricher, broker)
        self.requests: set[int] = set()
        """Messages that were left because they may belong to a session."""
        self.responses: dict[int, tuple[int, int]] = {}
        """Error codes and sessions of responses, by message."""

    def session(self, index: int, first: int, second: int) -> MessageSession | None:
        """Record what a Fetch message does to its session. Responses show nothing of it."""
        if self._rows[index]["flags"] & REQUEST:
            self.requests.add(index)
            return None
        self.responses[index] = first, second
        return _NOTHING
