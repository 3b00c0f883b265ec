"""Facts that an enricher adds to lines of the kernel: names of topic ids, and fetch sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import orjson
from numpy.typing import NDArray

from kafkasniff.enrich import Enricher
from kafkasniff.enrich.sessions import session_fields
from kafkasniff.kafka.messages.message_plan import request_plan
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.kafka.schema.uuids import uuid_text
from kafkasniff.kafka.schema.wire import Odd
from kafkasniff.model import Endpoint
from kafkasniff.native.feed import ARENA, MESSAGE, REQUEST, VERSIONS
from kafkasniff.native.lines import LineBatch
from kafkasniff.native.names import MessageSession

__all__ = ["AddedNames", "NamesAhead"]

_OPTIONS: Final = DecodeOptions(records="skip")
_NOTHING: Final = MessageSession(-1, None)


class AddedNames:
    """The facts of `enricher` for messages of the feed (`names.NameFacts`).

    The enricher must have processed everything before a message. `broker`: of a connection by its index in the feed.
    """

    def __init__(self, enricher: Enricher, broker: Callable[[int], Endpoint | None]) -> None:
        self._enricher = enricher
        self._broker = broker
        self._rows: NDArray[np.void] = np.zeros(0, MESSAGE)
        self._numbers: NDArray[np.int64] = np.zeros(0, np.int64)
        self._stores: tuple[NDArray[np.uint8], NDArray[np.uint8]]

    def bind(self, batch: LineBatch) -> None:
        """From here on sessions are those of these messages."""
        self._rows, self._numbers, self._stores = batch.messages, batch.numbers, (batch.buffer, batch.arena)

    @property
    def learned(self) -> int:
        """Increases with every learned topic."""
        return self._enricher.catalog.topics_learned

    @property
    def forgets(self) -> bool:
        """Whether topics may be evicted when others are learned."""
        catalog = self._enricher.catalog
        return len(catalog.learnt) >= catalog.most_topics

    def topic(self, topic_id: bytes) -> tuple[bytes | None, bool]:
        """The name of a topic id, and whether it came from a message."""
        catalog, text = self._enricher.catalog, uuid_text(topic_id)
        name = catalog.topic(text)
        return None if name is None else name.encode("utf-8", "surrogatepass"), text in catalog.learnt

    def session(self, index: int, first: int, second: int) -> MessageSession | None:
        """Apply a Fetch message to its session; see `names.NameFacts`."""
        row = self._rows[index]
        exchange, broker = int(self._numbers[index]), self._broker(int(row["connection"]))
        if not row["flags"] & REQUEST:
            self._enricher.end_fetch(exchange, broker, {"error_code": first, "session_id": second})
            return _NOTHING
        schema = request_plan(*divmod(int(row["code"]), VERSIONS)).schema
        assert schema is not None
        start, size = int(row["start"]), int(row["size"])
        data = self._stores[int(row["flags"] & ARENA > 0)][start : start + size].tobytes()
        try:
            body, _ = schema.decode(data, int(row["body"]), size, DecodeContext(_OPTIONS))
        except Odd:
            return None
        session = self._enricher.begin_fetch(exchange, broker, body)
        if session is None:
            return _NOTHING
        return MessageSession(session.partitions, orjson.dumps(session_fields(session.partitions, session.unnamed)))


class NamesAhead(AddedNames):
    """The same ahead of the messages' turn, without changing the enricher.

    Names may change until then: `learned` shows whether they did. Fetch sessions are updated in the messages' turn.
    """

    def __init__(self, enricher: Enricher, broker: Callable[[int], Endpoint | None]) -> None:
        super().__init__(enricher, broker)
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
