"""Enriching where several processes have the messages, each those of its own connections.

Names and fetch sessions go from connection to connection. So what messages tell of topics is gathered before anything
is added (`Teller`), put in order and given to all (`Learnt`); then each process has the whole truth at each of its
messages (`ApartEnricher`). What Fetch requests do to their sessions is short, since they name little: it is gone
through in one place.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Final

import msgspec

from kafkasniff.enrich.catalog import Catalog
from kafkasniff.enrich.enricher import INTERNAL, Enricher, internal_topics
from kafkasniff.enrich.plan import Plan, message_plan
from kafkasniff.enrich.sessions import FINAL_EPOCH, FetchSession, FetchSessions
from kafkasniff.kafka import cluster_metadata
from kafkasniff.kafka.uuids import uuid_bytes
from kafkasniff.model import Body, Direction, Endpoint, Summary

__all__ = [
    "ApartEnricher",
    "Learnt",
    "SessionAnswer",
    "SessionStep",
    "Teller",
    "TopicTold",
    "Ways",
    "is_internal",
    "session_step",
    "ways_to_tell",
]

_INTERNAL: Final = INTERNAL.encode()


class TopicTold(msgspec.Struct, frozen=True, gc=False):
    """A message names a topic by both."""

    topic_id: str
    name: str


class SessionStep(msgspec.Struct, frozen=True):
    """What a Fetch request or response does to a fetch session."""

    exchange: int
    """Any number that no other exchange of the run has."""
    broker: Endpoint
    body: Body | None
    """Of a request: the fields that sessions are about."""
    error_code: int = 0
    """Of a response."""
    session_id: int | None = None


SessionAnswer = tuple[int, int | None, tuple[str, ...]]
"""How many partitions a session holds at a request, how many topics where they are too many to be named, and the
topics' names, where they are wanted."""


# -- what messages tell ------------------------------------------------------------------------------------------------


class Ways(msgspec.Struct, frozen=True):
    """How messages of one kind may tell of topics."""

    fields: bool = False
    """It names them by both."""
    by_name: bool = False
    """Records of a topic of the brokers' own, which it has by its name."""
    by_id: bool = False
    """Likewise by its id."""


@lru_cache(maxsize=4096)  # keys and versions come from the wire; 724 are defined
def ways_to_tell(api_key: int, version: int, direction: Direction) -> Ways | None:
    """How a message of this kind may tell of topics; None where it cannot."""
    found = message_plan(api_key, version, direction)
    if found is None:
        return None
    plans, tells = list(_plans(found[0])), found[1]
    ways = Ways(
        fields=found[0].nested is not None
        or (tells and any(plan.topic is not None and plan.topic_id is not None for plan in plans)),
        by_name=any(plan.topic is not None for plan in plans if plan.records),
        by_id=any(plan.topic_id is not None for plan in plans if plan.records),
    )
    return ways if ways.fields or ways.by_name or ways.by_id else None


@cache
def _internal_names() -> tuple[bytes, ...]:
    """Of topics whose records may be read."""
    return tuple(name.encode() for name in (*sorted(internal_topics().INTERNAL_TOPICS), cluster_metadata.TOPIC_NAME))


def _plans(plan: Plan) -> Iterator[Plan]:
    yield plan
    for _, child in plan.children:
        yield from _plans(child)


class _Hearing(Catalog):
    """A catalog behind another one, which stays as it is; notes what is told that the other does not know."""

    def __init__(self, base: Catalog, *, everything: bool) -> None:
        super().__init__(base.given)
        self._base = base
        self._everything = everything
        self._internal: set[bytes] | None = None
        self.told: list[TopicTold] = []

    @property
    def internal(self) -> set[bytes]:
        """Ids of topics that may be the brokers' own, 16 bytes each."""
        if self._internal is None:
            # Gone through for the first message that asks, in most windows of most captures for none.
            self._internal = set()
            for names in (self.given, self._base.learnt, self.learnt):
                for topic_id, name in names.items():
                    self._note_internal(topic_id, name)
        return self._internal

    def _note_internal(self, topic_id: str, name: str) -> None:
        if self._internal is not None and name.startswith(INTERNAL):
            # Who has a file of topic ids may have any text in it.
            with contextlib.suppress(ValueError):
                self._internal.add(uuid_bytes(topic_id))

    def topic(self, topic_id: object) -> str | None:
        """The name of a topic id of 22 characters, by what was learnt before: there or here."""
        if isinstance(topic_id, str) and topic_id in self._base.learnt:
            return self._base.topic(topic_id)
        return super().topic(topic_id)

    def hear(self, told: TopicTold) -> None:
        """Another process's message told this."""
        if told.topic_id not in self._base.learnt:
            super().learn_topic(told.topic_id, told.name)
            self._note_internal(told.topic_id, told.name)

    def learn_topic(self, topic_id: object, name: object) -> None:
        """A message names a topic by both."""
        if self._everything:
            probe = Catalog()
            probe.learn_topic(topic_id, name)
            if probe.topics_told:
                self._note(str(topic_id), str(name))
        if topic_id in self._base.learnt:
            return
        before = self.topics_told
        super().learn_topic(topic_id, name)
        if self.topics_told != before:
            self._note_internal(str(topic_id), str(name))
            if not self._everything:
                self._note(str(topic_id), str(name))

    def _note(self, topic_id: str, name: str) -> None:
        self.told.append(TopicTold(topic_id, name))

    def learn_broker(self, node: object, host: object, port: object, rack: object = None) -> None:
        """Nothing that is shown with a message depends on it."""


class Teller(Enricher):
    """Gathers what messages tell of topics, and changes none of them.

    `base` is what is known before; with `everything` what it knows is told again, since it may forget it.
    """

    def __init__(self, base: Catalog, *, everything: bool = False) -> None:
        self._hearing = _Hearing(base, everything=everything)
        super().__init__(self._hearing, adds=False, sessions=False)

    def hear(self, told: TopicTold) -> None:
        """Another process's message told this, before the next message of this one."""
        self._hearing.hear(told)

    def may_tell(self, ways: Ways, data: bytes, start: int, end: int) -> bool:
        """Whether a message of which nothing is read yet may tell something; it is `data[start:end]`. Hot.

        False only where it surely does not: what records of a topic tell is told where the topic is one of the
        brokers' own, whose name, or its id and what was told of that, stands somewhere in the message.
        """
        if ways.fields:
            return True
        # Two bytes may be there by chance.
        named = ways.by_name and data.find(_INTERNAL, start, end) >= 0
        if named and any(data.find(name, start, end) >= 0 for name in _internal_names()):
            return True
        return ways.by_id and any(data.find(one, start, end) >= 0 for one in self._hearing.internal)

    def message(
        self, api_key: int | None, version: int | None, direction: Direction, body: Body | None
    ) -> Sequence[TopicTold]:
        """What the next message tells. Hot."""
        if body is None or version is None or api_key is None or ways_to_tell(api_key, version, direction) is None:
            return ()
        self._inner(api_key, version, direction, body)
        told, self._hearing.told = self._hearing.told, []
        return told

    def _records(self, topic: str, records: object, *, read: bool) -> None:
        # Records are interpreted in place: in a copy here, since it may turn out that the topic is another one.
        self._adds = True
        super()._records(topic, copy.deepcopy(records), read=read)
        self._adds = False
        self._problems.clear()


def session_step(direction: Direction, exchange: int, broker: Endpoint, body: Body) -> SessionStep | None:
    """What a Fetch request or response does to a session; None where it surely does nothing."""
    number, epoch = body.get("session_id"), body.get("session_epoch")
    if direction == "response":
        return SessionStep(exchange, broker, None, body.get("error_code") or 0, number)
    if not isinstance(number, int) or not isinstance(epoch, int) or (epoch == FINAL_EPOCH and not number):
        return None
    fields = ("session_id", "session_epoch", "topics", "forgotten_topics_data")
    return SessionStep(exchange, broker, {name: body[name] for name in fields if name in body})


# -- the truth, in one place -------------------------------------------------------------------------------------------


class Learnt:
    """What all processes together know: topics by their ids, and fetch sessions.

    `catalog` is what is known from the beginning, `names` says whether the names of a session's topics are wanted.
    """

    def __init__(self, catalog: Catalog, *, names: bool) -> None:
        self._catalog = catalog
        self._sessions = FetchSessions()
        self._names = names

    def limit_memory(self, size: int) -> None:
        """Keep as many names and fetch sessions as a memory budget of `size` bytes allows."""
        self._catalog.limit_memory(size)
        self._sessions.limit_memory(size)

    def is_full(self, more: int) -> bool:
        """Whether the catalog forgets topics when it learns this many, or does already."""
        known = len(self._catalog.learnt)
        return known >= self._catalog.most_topics or known + more > self._catalog.most_topics

    def take(self, item: TopicTold | SessionStep) -> SessionAnswer | None:
        """Take the next of what messages tell and do, in capture order; for a request in a session, what it holds."""
        if isinstance(item, TopicTold):
            self._catalog.learn_topic(item.topic_id, item.name)
            return None
        if item.body is None:
            body = {"error_code": item.error_code, "session_id": item.session_id}
            self._sessions.response(item.broker, item.exchange, body)
            return None
        session = self._sessions.request(item.broker, item.exchange, item.body)
        if session is None:
            return None
        return session.partitions, session.unnamed, session.names(self._catalog) if self._names else ()


def is_internal(told: Iterable[TopicTold]) -> bool:
    """Whether records may be read because of what was told: what they tell is not known before."""
    return any(one.name.startswith(INTERNAL) for one in told)


# -- adding ------------------------------------------------------------------------------------------------------------


class _GivenSession(FetchSession):
    def __init__(self, answer: SessionAnswer) -> None:
        super().__init__()
        self.partitions, self._unnamed, self._given = answer

    @property
    def unnamed(self) -> int | None:
        return self._unnamed

    def names(self, catalog: object) -> tuple[str, ...]:
        return self._given


class _GivenSessions(FetchSessions):
    """Sessions that were gone through elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: Mapping[int, SessionAnswer] = {}
        """By exchange."""

    def request(self, broker: Endpoint | None, exchange: int, body: Body) -> FetchSession | None:
        answer = self.answers.get(exchange)
        return None if answer is None else _GivenSession(answer)

    def response(self, broker: Endpoint | None, exchange: int, body: Body) -> None:
        pass


class ApartEnricher(Enricher):
    """An `Enricher` that is given what it cannot know: what other processes' messages tell, and fetch sessions."""

    def __init__(self, catalog: Catalog, *, summary: Summary) -> None:
        super().__init__(catalog, summary=summary)
        self._given = _GivenSessions()
        self._sessions = self._given

    def hear(self, told: TopicTold) -> None:
        """Another process's message told this, before the next message of this one."""
        self.catalog.learn_topic(told.topic_id, told.name)

    def give_sessions(self, answers: Mapping[int, SessionAnswer]) -> None:
        """The sessions that the next Fetch requests go by, by the numbers of their exchanges."""
        self._given.answers = answers
