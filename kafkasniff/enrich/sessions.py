"""Fetch sessions (KIP-227): the partitions that a Fetch request covers without naming them.

Within a session, a request names only partitions that it adds or removes; most requests name none. The broker keeps the
rest (`org.apache.kafka.server.FetchManager` and `FetchSession`), and this module keeps the same state from the traffic.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container
from typing import Any, Final, NamedTuple, Protocol, Self

import msgspec

from kafkasniff.enrich.catalog import MAX_NAME
from kafkasniff.kafka.apis.dissectors import FETCH
from kafkasniff.kafka.schema.codes import ZERO_UUID
from kafkasniff.model import Body, Endpoint
from kafkasniff.runtime.memory_limits import in_proportion

FIRST_VERSION: Final = 7
"""First version of Fetch with sessions (KIP-227)."""

MAX_SESSIONS: Final = 1 << 16
"""Sessions that are kept; the least recently used is evicted first. A broker keeps 1,000 by default."""
MAX_PARTITIONS: Final = 1 << 19
"""Partitions of all sessions together, about 100 bytes each (600 if each has a topic of its own); beyond that the least
recently used sessions are evicted. Requests that wait for a response may hold as many again. Like `MAX_SESSIONS`, for a
memory budget of 1 GiB or more, and reduced in proportion below that."""
SESSION_BYTES: Final = 700
"""Bytes of memory of a session without partitions."""
PARTITION_BYTES: Final = 600
"""Bytes of memory of a partition, an upper bound."""
MAX_NAMED: Final = 100
"""Topics of a session whose names are added to each of its requests. Requests of larger sessions, such as those of
replica fetchers, only get the topics that they and their responses name: 20,000 names added to each request of 60 bytes
would turn a megabyte into gigabytes."""
MAX_PENDING: Final = 1 << 14
"""Fetch requests that wait for their response; the oldest is evicted first."""

INITIAL_EPOCH: Final = 0
"""A full request that asks for a new session; `FetchMetadata.INITIAL_EPOCH`."""
FINAL_EPOCH: Final = -1
"""A full request that closes its session; `FetchMetadata.FINAL_EPOCH`."""


def uses_sessions(api_key: int | None, version: int | None) -> bool:
    """Whether messages of this kind may belong to a fetch session."""
    return api_key == FETCH and version is not None and version >= FIRST_VERSION


class TopicNames(Protocol):
    """Looks up the names of topic ids."""

    def topic(self, topic_id: object) -> str | None:
        """The name of a topic id; None if unknown."""


class SessionStep(msgspec.Struct, array_like=True, gc=False):
    """The effect of a Fetch exchange on a session. Its encoded form waits in staged rows."""

    number: int
    """The request's `session_id`."""
    epoch: int
    """Its `session_epoch`."""
    by_id: bool = False
    """Topics with partitions are given by their ids."""
    added: dict[str, list[int]] = {}
    """Partitions of the request, by topic."""
    forgotten: dict[str, list[int]] = {}
    answer_ns: int | None = None
    """Time of the response; None: there is no readable response, or it has no time."""
    answer_number: int | None = None
    """The response's `session_id`; None: there is no readable response."""
    answer_error: int = 0

    @classmethod
    def of_request(cls, body: Body) -> Self | None:
        """The request's part, from its body; None if it has no session. Malformed topics are omitted."""
        number, epoch = body.get("session_id"), body.get("session_epoch")
        if not isinstance(number, int) or not isinstance(epoch, int) or (number == 0 and epoch == FINAL_EPOCH):
            return None
        step = cls(number, epoch)
        if epoch != FINAL_EPOCH:
            step.by_id = _list(body.get("topics"), step.added)
            if epoch != INITIAL_EPOCH:
                step.by_id = _list(body.get("forgotten_topics_data"), step.forgotten) or step.by_id
        return step

    def answer(self, body: Body) -> None:
        """Add the response's part, from its body."""
        number = body.get("session_id")
        self.answer_number = number if isinstance(number, int) else None
        self.answer_error = body.get("error_code") or 0


def _list(topics: object, into: dict[str, list[int]]) -> bool:
    """Add the partitions of a request's array, by topic; returns whether topics are given by their ids."""
    by_id = False
    for item in topics if isinstance(topics, list) else ():
        if not isinstance(item, dict):
            continue
        topic = item.get("topic_id")
        has_id = topic is not None
        if not has_id:
            topic = item.get("topic")
        numbers = item.get("partitions")
        if not isinstance(topic, str) or topic == ZERO_UUID or len(topic) > MAX_NAME or not isinstance(numbers, list):
            continue
        # Topics without partitions count for nothing: exchanges that are read as columns do not have them.
        if numbers:
            by_id = by_id or has_id
            into.setdefault(topic, []).extend(_number(number) for number in numbers)
    return by_id


def _number(item: Any) -> int:
    number = item.get("partition") if isinstance(item, dict) else item
    return number if isinstance(number, int) else -1


class SessionContent(NamedTuple):
    """The content of a session that applies to a request."""

    topics: tuple[str, ...]
    """The same object until the content changes. By id or name, as in the requests."""
    by_id: bool
    """Topics are given by ids instead of names."""
    partitions: int
    unnamed: int | None
    """Number of topics, if they are too many to be listed: then `topics` is empty."""

    def names(self, catalog: TopicNames) -> tuple[str, ...]:
        """The known names of its topics."""
        if not self.by_id:
            return self.topics
        return tuple(name for name in map(catalog.topic, self.topics) if name is not None)


class FetchSession:
    """The partitions of one session."""

    __slots__ = ("_content", "_gone", "by_id", "partitions", "topics")

    def __init__(self) -> None:
        self.topics: dict[str, set[int]] = {}
        """Partitions by topic: by id or name, as in the requests."""
        self.by_id = False
        self.partitions = 0
        """Number of partitions."""
        self._content: SessionContent | None = None
        self._gone = 0
        """Topics removed since `topics` was built: a dictionary keeps their slots, which iteration visits."""

    def use_ids(self) -> None:
        """From now on, topics are ids. A broker refuses requests that mix them with names."""
        if not self.by_id:
            self.by_id, self._content = True, None

    def add(self, topics: dict[str, list[int]]) -> None:
        """Add partitions by topic, which are new or repeated."""
        partitions = self.partitions
        for topic, numbers in topics.items():
            held = self.topics.get(topic)
            if held is None:
                held = self.topics[topic] = set()
                self._content = None
            before = len(held)
            held.update(numbers)
            self.partitions += len(held) - before
        if self.partitions != partitions:
            self._content = None

    def forget(self, topics: dict[str, list[int]]) -> None:
        """Remove partitions by topic."""
        partitions = self.partitions
        for topic, numbers in topics.items():
            held = self.topics.get(topic)
            if held is not None:
                before = len(held)
                held.difference_update(numbers)
                self.partitions -= before - len(held)
                if not held:
                    del self.topics[topic]
                    self._gone += 1
        if self.partitions != partitions:
            self._content = None
        if self._gone > len(self.topics):
            self.topics, self._gone = dict(self.topics), 0

    @property
    def content(self) -> SessionContent:
        """Its content now. Hot: returns the same object until something changes."""
        session_content = self._content
        if session_content is None:
            count = len(self.topics)
            unnamed, topics = (None, tuple(self.topics)) if count <= MAX_NAMED else (count, ())
            session_content = self._content = SessionContent(topics, self.by_id, self.partitions, unnamed)
        return session_content


def session_fields(partitions: int, unnamed: int | None) -> Body:
    """The value of `_session` in a request's body; `unnamed` as in `SessionContent`."""
    return {"partitions": partitions} if unnamed is None else {"partitions": partitions, "topics": unnamed}


SessionKey = tuple[Endpoint | None, int]
"""The broker and the session id that it assigned."""


class FetchSessions:
    """The sessions of all connections. Requests and responses have to be passed in capture order.

    A session belongs to its broker, not to the connection: clients may close one on another connection than the one
    they opened it on (franz-go). A session that began before the capture is unknown, and is not shown.
    """

    def __init__(self) -> None:
        self._sessions: OrderedDict[SessionKey, FetchSession] = OrderedDict()
        self._pending: OrderedDict[int, tuple[SessionKey | None, FetchSession | None]] = OrderedDict()
        """Exchange → the key of its request's session, or the session that the response may create."""
        self._partitions = 0
        self._waiting = 0
        """Partitions of sessions that wait for the response that creates them."""
        self._most_sessions = MAX_SESSIONS
        self._most_partitions = MAX_PARTITIONS
        self.let_go = 0
        """Sessions dropped because there were too many sessions or partitions."""

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, key: SessionKey) -> bool:
        """Whether a session is known."""
        return key in self._sessions

    def waits(self, exchange: int) -> bool:
        """Whether the response to this request may begin or end a session."""
        return exchange in self._pending

    @property
    def memory(self) -> int:
        """Approximate bytes of memory of the sessions, an upper bound."""
        held = (len(self._sessions) + len(self._pending)) * SESSION_BYTES
        return held + (self._partitions + self._waiting) * PARTITION_BYTES

    def limit_memory(self, size: int) -> None:
        """Bound sessions by a memory budget of `size` bytes."""
        self._most_sessions = in_proportion(MAX_SESSIONS, size)
        self._most_partitions = in_proportion(MAX_PARTITIONS, size)
        self._bound()

    def request(self, broker: Endpoint | None, exchange: int, step: SessionStep) -> FetchSession | None:
        """Process a Fetch request; returns its session in its current state, None if it has none."""
        epoch, number = step.epoch, step.number
        key = (broker, number)
        if epoch in {INITIAL_EPOCH, FINAL_EPOCH}:
            if number:
                self._drop(key)
            if epoch == INITIAL_EPOCH:
                session = FetchSession()
                session.by_id = step.by_id
                session.add(step.added)
                self._wait(exchange, None, session)
            return None
        fetch_session = self._sessions.get(key)
        if fetch_session is None:
            return None
        before = fetch_session.partitions
        if step.by_id:
            fetch_session.use_ids()
        fetch_session.add(step.added)
        fetch_session.forget(step.forgotten)
        self._partitions += fetch_session.partitions - before
        self._sessions.move_to_end(key)
        self._wait(exchange, key, None)
        self._bound()
        return fetch_session

    def response(self, broker: Endpoint | None, exchange: int, number: object, error: object) -> None:
        """Process the response to a Fetch request: its `session_id` and `error_code`."""
        if exchange not in self._pending:
            return
        key, session = self._unwait(exchange)
        if key is not None:
            # With an error, the broker has no such session or refused the changes, and the client starts a new one.
            # Session id 0: the session is empty, and the broker closed it.
            if error or number == 0:
                self._drop(key)
        elif session is not None and isinstance(number, int) and number and not error:
            self._drop((broker, number))
            self._sessions[broker, number] = session
            self._partitions += session.partitions
            self._bound()

    def of(self, brokers: Container[Endpoint | None]) -> FetchSessions:
        """The sessions of some brokers, without requests that wait for their response."""
        fetch_sessions = FetchSessions()
        for key, session in self._sessions.items():
            if key[0] in brokers:
                fetch_sessions._sessions[key] = session
                fetch_sessions._partitions += session.partitions
        return fetch_sessions

    def replace(self, brokers: Container[Endpoint | None], others: FetchSessions) -> None:
        """Replace the sessions of some brokers by those from the object that processed their requests."""
        for key in [key for key in self._sessions if key[0] in brokers]:
            self._drop(key)
        for key, session in others._sessions.items():
            self._sessions[key] = session
            self._partitions += session.partitions
        self._bound()

    def _wait(self, exchange: int, key: SessionKey | None, session: FetchSession | None) -> None:
        if exchange in self._pending:
            self._unwait(exchange)
        self._pending[exchange] = (key, session)
        if session is not None:
            self._waiting += session.partitions
        while len(self._pending) > MAX_PENDING or self._waiting > self._most_partitions:
            self.let_go += self._unwait(next(iter(self._pending)))[1] is not None

    def _unwait(self, exchange: int) -> tuple[SessionKey | None, FetchSession | None]:
        waiting = self._pending.pop(exchange)
        if waiting[1] is not None:
            self._waiting -= waiting[1].partitions
        return waiting

    def _drop(self, key: SessionKey) -> None:
        fetch_session = self._sessions.pop(key, None)
        if fetch_session is not None:
            self._partitions -= fetch_session.partitions

    def _bound(self) -> None:
        while len(self._sessions) > self._most_sessions or self._partitions > self._most_partitions:
            self._drop(next(iter(self._sessions)))
            self.let_go += 1
