"""Adds names to messages: those that the traffic has contained so far."""

from __future__ import annotations

import functools
import importlib
import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from types import ModuleType
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import force_setattr

from kafkasniff.enrich.catalog import Catalog
from kafkasniff.enrich.plan import NamePlan, data_plan, message_plan, named_topics
from kafkasniff.enrich.sessions import FetchSessions, SessionContent, SessionStep, session_fields, uses_sessions
from kafkasniff.kafka.apis import entities
from kafkasniff.kafka.apis.dissectors import FETCH
from kafkasniff.kafka.messages.message_plan import client_software
from kafkasniff.kafka.schema.codes import ZERO_UUID
from kafkasniff.kafka.schema.context import RenderedBody, RenderedRecords
from kafkasniff.model import (
    Body,
    Connection,
    DecidedRequest,
    Direction,
    Exchange,
    Lines,
    Message,
    Problem,
    SaslToken,
    Summary,
)

INTERNAL: Final = "__"
"""Prefix of the names of the brokers' own topics. Other topics may have it, too."""
MAX_UNKNOWN: Final = 1 << 16
"""Topic ids without a name that a learning pass remembers."""
MAX_KINDS: Final = 4096
"""Kinds of messages whose `_LearningPlan` is cached; the bound is needed because versions come from the wire."""

_Event = Message | Lines | DecidedRequest | SaslToken | Exchange | Problem | Connection
_Events = TypeVar("_Events", bound=Iterable[_Event])


class _LearningPlan(msgspec.Struct, frozen=True):
    """Where to look in messages of one kind."""

    looks: bool
    """The body has something to learn from or to add to."""
    topics: tuple[str, str] | None
    """Set if only records of the brokers' own topics matter (`named_topics`)."""
    sessions: bool
    """Such messages may belong to a fetch session."""


class Enricher:
    """Adds names to what an inspector yields, in place and in order.

    Added where known:

    - `_topic_name` next to each topic id whose message does not have the name;
    - `_key` and `_value` to the records of the brokers' own topics (`__consumer_offsets` …), which may need the name;
    - `_session` next to the epoch of a Fetch request in a session, and `Message.session_topics`;
    - `broker_id`, `software_name` and `software_version` of exchanges.

    Names come from `catalog`, which learns from each message before anything is added to it. Problems found are counted
    in `summary`. With `adds` False the enricher only learns and changes nothing; with `sessions` False it ignores fetch
    sessions.
    """

    def __init__(
        self,
        catalog: Catalog | None = None,
        *,
        summary: Summary | None = None,
        adds: bool = True,
        sessions: bool = True,
    ) -> None:
        self.catalog = Catalog() if catalog is None else catalog
        self._summary = Summary() if summary is None else summary
        self._adds = adds
        self._sessions = FetchSessions() if sessions else None
        self.missed: set[int] = set()
        """Exchanges with a topic id whose name is unknown, if `notes_missed`; the reader empties the set."""
        self.notes_missed = False
        self._plans: dict[tuple[int | None, int | None, Direction], _LearningPlan] = {}
        self._problems: list[Problem] = []
        self._unknown: set[str] = set()
        self._metadata_log = False
        self._misses = False
        self._lost = False
        """Set once dropped sessions were reported."""
        self.applied: Mapping[int, SessionContent | None] = {}
        """Exchanges whose Fetch requests were applied to their sessions before their messages (`SessionFollower`)."""

    @property
    def wants_metadata_log(self) -> bool:
        """After a learning pass: some ids have no name, and the capture has KRaft's metadata log.

        Then another pass with `records="full"` may find more names.
        """
        return self._metadata_log and any(self.catalog.topic(one) is None for one in self._unknown)

    @property
    def memory(self) -> int:
        """Approximate bytes of memory of names and fetch sessions."""
        return self.catalog.memory + (0 if self._sessions is None else self._sessions.memory)

    @property
    def has_sessions(self) -> bool:
        """Whether fetch sessions are followed."""
        return self._sessions is not None

    @property
    def sessions(self) -> FetchSessions | None:
        """The fetch sessions that requests are changing; None: they are not followed."""
        return self._sessions if self._adds else None

    def limit_memory(self, size: int) -> None:
        """Bound names and fetch sessions by a memory budget of `size` bytes."""
        self.catalog.limit_memory(size)
        if self._sessions is not None:
            self._sessions.limit_memory(size)

    def take_loss(self) -> str | None:
        """See `inspector_state.Beside`."""
        if self._lost or self._sessions is None or not self._sessions.let_go:
            return None
        self._lost = True
        return (
            "there are more fetch sessions than memory allows (--memory): those unused for longest are dropped, and "
            "the topics of their later requests are unknown"
        )

    def count_into(self, summary: Summary) -> None:
        """Count problems in this summary from now on."""
        self._summary = summary

    def feed(self, events: _Events) -> _Events:
        """Process the next events and return them. Hot: most messages have nothing to learn and cost one look-up."""
        plans = self._plans
        for event in events:
            if type(event) is Message:
                body: Any = event.body
                if body is None or body.__class__ is RenderedBody:
                    continue
                kind = (event.api_key, event.api_version, event.type)
                learning = plans.get(kind) or self._plan(*kind)
                if learning.looks and (learning.topics is None or not _has_no_records(body, *learning.topics)):
                    self._message(event, body)
                elif learning.sessions:
                    self._session(event, body)
            elif type(event) is Exchange and self._adds:
                self._exchange(event)
        return events

    def _plan(self, key: int | None, version: int | None, direction: Direction) -> _LearningPlan:
        """Where to look in messages of this kind."""
        plan = None if key is None or version is None else message_plan(key, version, direction)
        learning = _LearningPlan(
            looks=plan is not None or (direction == "request" and client_software(key) is not None),
            topics=None if plan is None else named_topics(plan[0]),
            sessions=uses_sessions(key, version),
        )
        if len(self._plans) >= MAX_KINDS:
            self._plans.clear()
        self._plans[key, version, direction] = learning
        return learning

    def _message(self, message: Message, body: Body) -> None:
        key = message.api_key
        assert key is not None  # `feed` only passes messages whose kind has something to look at
        software = client_software(key) if message.type == "request" else None
        if software is not None and software[0] in body:
            name, version = software
            self.catalog.learn_software(message.connection or 0, body[name], body.get(version))
        self.catalog.now = message.time_ns
        self._misses = False
        self._inner(key, message.api_version, message.type, body)
        if self._misses and self.notes_missed:
            self.missed.add(message.exchange or 0)
        if key == FETCH:
            self._session(message, body)
        self._add_problems(message)

    def _session(self, message: Message, body: Body) -> None:
        """Apply a Fetch request or response to its session, and add the session's partitions to a request's body."""
        sessions, exchange = self.sessions, message.exchange or 0
        if sessions is None:
            return
        if message.type == "response":
            # If it was applied before its message, it does not wait any more.
            sessions.response(message.broker, exchange, body.get("session_id"), body.get("error_code"))
            return
        content = None
        if exchange in self.applied:
            content = self.applied[exchange]
        elif (step := SessionStep.of_request(body)) is not None:
            session = sessions.request(message.broker, exchange, step)
            content = None if session is None else session.content
        if content is not None:
            _beside(body, "session_epoch", "_session", session_fields(content.partitions, content.unnamed))
            force_setattr(message, "session_topics", content.names(self.catalog))

    def _add_problems(self, message: Message) -> None:
        if self._problems:
            self._summary.problems += len(self._problems)
            force_setattr(message, "problems", (*message.problems, *self._problems))
            self._problems.clear()

    def _inner(self, key: int, version: int | None, direction: Direction, body: Body) -> None:
        """Process a message, or one inside an Envelope."""
        found = None if version is None else message_plan(key, version, direction)
        if found is None:
            return
        plan, teaches = found
        self._struct(plan, body, teaches=teaches)
        inner = None if plan.nested is None else body.get(plan.nested)
        if inner is not None and inner["body"] is not None:
            self._inner(inner["api_key"], inner["api_version"], direction, inner["body"])

    def name_body(self, api_key: int, api_version: int | None, direction: Direction, body: Body) -> list[Problem]:
        """Add names to a body without its message; returns the problems of records of the brokers' own topics."""
        self._inner(api_key, api_version, direction, body)
        problems, self._problems = self._problems, []
        return problems

    def _exchange(self, exchange: Exchange) -> None:
        seen = exchange.request if exchange.request is not None else exchange.response
        broker_id = None if seen is None else self.catalog.broker_id(seen.broker)
        if broker_id is not None:
            force_setattr(exchange, "broker_id", broker_id)
        name, version = self.catalog.software(exchange.connection)
        if name is not None:
            force_setattr(exchange, "software_name", name)
            force_setattr(exchange, "software_version", version)

    # -- bodies

    def _struct(self, plan: NamePlan, body: Body, *, teaches: bool, node: object = None, rack: object = None) -> None:
        """Learn from a struct and add to it. `node`, `rack`: values of the enclosing struct. Hot."""
        name: Any = None if plan.topic is None else body.get(plan.topic)
        if plan.topic_id is not None:
            topic_id = body.get(plan.topic_id)
            if name is not None:
                if teaches:
                    self.catalog.learn_topic(topic_id, name)
            elif topic_id is not None and topic_id != ZERO_UUID:
                name = self.catalog.topic(topic_id)
                if not self._adds:
                    self._note(topic_id, name)
                elif name is not None:
                    _beside(body, plan.topic_id, "_topic_name", name)
                else:
                    self._misses = True
        if plan.records and isinstance(name, str) and name.startswith(INTERNAL):
            for path in plan.records:
                for records in _at(body, path):
                    self._records(name, records)
        if plan.node is not None:
            node = body.get(plan.node)
        if plan.rack is not None:
            rack = body.get(plan.rack)
        if plan.host is not None and plan.port is not None:
            self.catalog.learn_broker(node, body.get(plan.host), body.get(plan.port), rack)
        for field, child in plan.children:
            value = body.get(field)
            if isinstance(value, list):
                for one in value:
                    if isinstance(one, dict):
                        self._struct(child, one, teaches=teaches, node=node, rack=rack)
            elif isinstance(value, dict):
                self._struct(child, value, teaches=teaches, node=node, rack=rack)

    def _note(self, topic_id: str, name: str | None) -> None:
        if name is None and len(self._unknown) < MAX_UNKNOWN:
            self._unknown.add(topic_id)

    def _records(self, topic: str, records: object) -> None:
        """Read a `records` field of a topic that may be one of the brokers' own."""
        if topic == entities.METADATA_TOPIC:
            self._metadata_log = True
        elif topic not in internal_topics().INTERNAL_TOPICS:
            return
        if not isinstance(records, dict):
            return
        if self._adds:
            internal_topics().interpret_topic(topic, records, self._problems)
        for batch in records["batches"]:
            for record in batch.get("records", ()):
                for field in ("_key", "_value"):
                    content = record.get(field)
                    if isinstance(content, dict) and isinstance(content.get("value"), dict) and "type" in content:
                        plan = data_plan(content["type"], None if field == "_key" else content["version"])
                        if plan is not None:
                            self._struct(plan, content["value"], teaches=True)


@functools.cache
def internal_topics() -> ModuleType:
    """The module that reads records of the brokers' own topics."""
    # Imported on first use: most captures have no such topic, and start-up is faster without it.
    return importlib.import_module("kafkasniff.kafka.embedded.internal_topics")


def _has_no_records(body: Body, topics: str, name: str) -> bool:
    """Whether no topic in the array can be one of the brokers' own. False also if the body is unusual. Hot."""
    try:
        for topic in body[topics]:
            if topic[name].startswith(INTERNAL):
                return False
    except (KeyError, TypeError, AttributeError):
        return False
    return True


def _at(body: Body, path: tuple[str, ...]) -> Iterator[Any]:
    """The values at a path of fields, through arrays; rendered records are decoded in place."""
    value = body.get(path[0])
    if len(path) == 1:
        if value.__class__ is RenderedRecords:
            value = body[path[0]] = value.decode()
        yield value
    else:
        for one in value if isinstance(value, list) else (value,):
            if isinstance(one, dict):
                yield from _at(one, path[1:])


def _beside(body: Body, field: str, name: str, value: object) -> None:
    """Insert `name` right after `field`, which exists."""
    fields = list(body)
    body[name] = value
    for other in fields[fields.index(field) + 1 :]:
        body[other] = body.pop(other)


_ID: Final = re.compile(r'"topic_id":"([\w-]{22})"(?:,"_topic_name":"(?:[^"\\]|\\.)*")?', re.ASCII)
"""A topic id as a field, with its name if it has one. Quotes within strings are escaped, so none of them match."""
_ADDED: Final = re.compile(r'"_(?!topic_name":)')
"""A field that is not in the message, or a string that looks like one."""


class RenderedBodies(Enricher):
    """An `Enricher` for bodies with bytes as in JSON lines: text if they are UTF-8, else `{"base64"}`."""

    def __init__(self, topics: Mapping[str, str]) -> None:
        super().__init__(Catalog(topics), sessions=False)
        # These names are final: a message that gives an id another name changes none.
        self.catalog.most_topics = 0

    def name_text(self, api_key: int, api_version: int | None, direction: Direction, text: str) -> str | None:
        """The text with names; None if the body has to be read (`name_body`)."""
        if api_version is None or not _has_ids_alone(api_key, api_version, direction) or _ADDED.search(text):
            return None
        added = {one: self.catalog.topic(one) for one in {match[1] for match in _ID.finditer(text)}}
        if any(name is not None and name.startswith(INTERNAL) for name in added.values()):
            return None
        fields = {
            one: f'"topic_id":"{one}","_topic_name":{msgspec.json.encode(name).decode()}'
            for one, name in added.items()
            if name is not None
        }
        return _ID.sub(lambda found: fields.get(found[1], found[0]), text)

    def _records(self, topic: str, records: object) -> None:
        if isinstance(records, dict):
            for batch in records["batches"]:
                for record in batch.get("records", ()):
                    # The interpretation needs the bytes.
                    for field in ("key", "value"):
                        record[field] = _bytes(record.get(field))
        super()._records(topic, records)


@lru_cache(maxsize=4096)  # keys and versions come from the wire
def _has_ids_alone(api_key: int, version: int, direction: Direction) -> bool:
    """Whether all topics of such a body that have an id are named by it alone."""
    found = message_plan(api_key, version, direction)
    return found is None or all(
        plan.topic_id is None or (plan.topic_id == "topic_id" and plan.topic is None) for plan in _structs(found[0])
    )


def _structs(plan: NamePlan) -> Iterator[NamePlan]:
    yield plan
    for _, child in plan.children:
        yield from _structs(child)


def _bytes(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and "base64" in value:
        return b64decode(value["base64"])
    return value
