"""What an exchange is about: the topics, partitions, groups and transactional ids that its two bodies name.

Which fields name what is not written here: the definitions say it (`entity topic`, `entity group` …), so that a new API
or version is covered by its definition. For each (API, direction) a `Plan` over all versions is made once, which leads
straight to the fields that matter; bodies are never searched.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import msgspec

from kafkasniff.kafka import dissectors
from kafkasniff.kafka.definition import EntityChoice, FieldDefinition
from kafkasniff.kafka.errors import error_name
from kafkasniff.kafka.record_fields import PARTITION_FIELDS
from kafkasniff.model import Body, Direction, Message

__all__ = ["Mentions", "PartitionFacts", "mentions", "text"]

NO_TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
"""The all-zero uuid, which stands for none."""
BATCH_OVERHEAD: Final = 12
"""Bytes in front of what `batch_length` counts: base offset and the length itself, alike in all three formats."""

INDEX_LIST_FIELDS: Final = frozenset({"partitions", "partition_indexes"})
ERROR_FIELDS: Final = ("error_code", "partition_error_code")
# In this order, the response's before the request's: what was answered says more than what was asked.
RESPONSE_OFFSET_FIELDS: Final = ("base_offset", "offset", "committed_offset", "end_offset", "start_offset")
REQUEST_OFFSET_FIELDS: Final = ("fetch_offset", "committed_offset", "offset", "start_offset")


class PartitionFacts(msgspec.Struct):
    """What an exchange says about one topic-partition, None where nothing; `docs/tables.md` has the meanings."""

    topic: str | None
    topic_id: str | None
    partition: int
    error_code: int | None = None
    error: str | None = None
    offset: int | None = None
    high_watermark: int | None = None
    record_count: int | None = None
    batch_count: int | None = None
    bytes: int | None = None
    uncompressed_bytes: int | None = None
    compression: str | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    base_sequence: int | None = None


class Mentions(msgspec.Struct):
    """What an exchange names, in order of first appearance, the request's before the response's."""

    topics: dict[str, None] = {}
    """By name, those of a fetch session included."""
    unnamed: dict[str, int] = {}
    """Topic ids without a name, each with how many topics stand in front of it."""
    partitions: dict[tuple[str | None, str | None, int], PartitionFacts] = {}
    """By (topic id, None, partition), or (None, topic, partition) where there is no id."""
    groups: dict[str, None] = {}
    """Groups that the request names."""
    transactions: dict[str, None] = {}
    """Transactional ids that the request names."""


class Plan(msgspec.Struct, frozen=True):
    """The fields of one struct that name something, over all versions, and the ways to further ones."""

    topic: str | None = None
    topic_lists: tuple[str, ...] = ()
    topic_id: str | None = None
    groups: tuple[str, ...] = ()
    transactions: tuple[str, ...] = ()
    choices: tuple[tuple[str, EntityChoice], ...] = ()
    """Fields that name groups or transactional ids as another field says."""
    index: str | None = None
    index_lists: tuple[str, ...] = ()
    records: tuple[str, ...] = ()
    children: tuple[tuple[str, Plan], ...] = ()
    nested: str | None = None
    """What a message that lies in this one is told as, beside its bytes; only of a whole message."""


NOTHING: Final = Plan()


def text(value: object) -> str | None:
    r"""A string from the wire as text: bytes that are not UTF-8 as `\xNN`; None for anything that is no string."""
    if isinstance(value, str):
        return value
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else None


def only(names: dict[str, None]) -> str | None:
    """The name where there is exactly one, else None."""
    return next(iter(names)) if len(names) == 1 else None


def record_count(named: Mentions) -> int | None:
    """Records of all partitions; None where none has a records field, or a count is not known."""
    counts = [facts.record_count for facts in named.partitions.values() if facts.batch_count is not None]
    return None if not counts or None in counts else sum(count for count in counts if count is not None)


def mentions(request: Message | None, response: Message | None) -> Mentions:
    """What an exchange names. What could not be decoded names nothing; a body that broke off names what it holds."""
    named = Mentions()
    for message in (request, response):
        if message is None or message.body is None or message.api_key is None:
            continue
        _collect(named, message.api_key, message.type, message.body)
        for topic in message.session_topics:
            named.topics[topic] = None
    return named


def _collect(named: Mentions, key: int, direction: Direction, body: Body) -> None:
    """What a body names, and the body of a message that lies in it."""
    plan = plan_of(key, direction)
    if plan is None:
        return
    _Collector(named, direction).struct(plan, body, None, None)
    inside = None if plan.nested is None else body.get(plan.nested)
    if inside is not None and inside["api_key"] is not None and inside["body"] is not None:
        _collect(named, inside["api_key"], direction, inside["body"])


def _name(into: dict[str, None], value: object) -> None:
    name = text(value)
    if name is not None:
        into[name] = None


@lru_cache(maxsize=1024)  # keys of requests that nobody knows come from the wire
def plan_of(api_key: int, direction: Direction) -> Plan | None:
    """The plan of an API's requests or responses; None for an API that is not known."""
    api = dissectors.api(api_key)
    if api is None:
        return None
    message = api.definition.request if direction == "request" else api.definition.response
    plan = _plan(message.fields)
    return plan if message.nested is None else msgspec.structs.replace(plan, nested=f"_{message.nested[1]}")


def _plan(fields: tuple[FieldDefinition, ...]) -> Plan:
    def named(entity: str, *, array: bool | None = None) -> tuple[str, ...]:
        return tuple(field.name for field in fields if field.entity == entity and array in (None, field.array))

    def numbers(names: frozenset[str], *, array: bool) -> tuple[str, ...]:
        return tuple(
            field.name for field in fields if field.name in names and field.type == "int32" and field.array == array
        )

    children = [(field.name, _plan(field.fields)) for field in fields if field.fields]
    return Plan(
        topic=next(iter(named("topic_name", array=False)), None),
        topic_lists=named("topic_name", array=True),
        topic_id=next((field.name for field in fields if field.name == "topic_id" and field.type == "uuid"), None),
        groups=named("group_id"),
        transactions=named("transactional_id"),
        choices=tuple((field.name, field.entity_by) for field in fields if field.entity_by is not None),
        index=next(iter(numbers(PARTITION_FIELDS, array=False)), None),
        index_lists=numbers(INDEX_LIST_FIELDS, array=True),
        records=tuple(field.name for field in fields if field.type == "records" and not field.array),
        children=tuple((name, plan) for name, plan in children if plan != NOTHING),
    )


class _Collector:
    """Walks one body along its plan; facts that are known already stay as they are."""

    def __init__(self, named: Mentions, direction: Direction) -> None:
        self._named = named
        self._request = direction == "request"
        self._offsets = REQUEST_OFFSET_FIELDS if self._request else RESPONSE_OFFSET_FIELDS

    def struct(self, plan: Plan, body: Body, topic: str | None, topic_id: str | None) -> None:
        """Collect from one struct; `topic` and `topic_id` are those of the struct around it."""
        if plan.topic is not None:
            topic = text(body.get(plan.topic))
            if topic is not None:
                self._named.topics[topic] = None
        if plan.topic_id is not None:
            if plan.topic is None:
                topic = None  # its id names another topic than the struct around it
            value = body.get(plan.topic_id)
            topic_id = value if isinstance(value, str) and value != NO_TOPIC_ID else None
            if topic is None and "_topic_name" in body:
                topic = text(body["_topic_name"])
                _name(self._named.topics, topic)
            if topic is None and topic_id is not None and topic_id not in self._named.unnamed:
                self._named.unnamed[topic_id] = len(self._named.topics)
        for field in plan.topic_lists:
            for value in body.get(field) or ():
                _name(self._named.topics, value)
        if self._request:
            for field in plan.groups:
                self._names(self._named.groups, body.get(field))
            for field in plan.transactions:
                self._names(self._named.transactions, body.get(field))
            for field, choice in plan.choices:
                self._choose(dict(choice.entities).get(body.get(choice.field, 0)), body.get(field))
        if topic is not None or topic_id is not None:
            if plan.index is not None and isinstance(body.get(plan.index), int):
                self._partition(self._facts(topic, topic_id, body[plan.index]), body, plan.records)
            for field in plan.index_lists:
                for value in body.get(field) or ():
                    self._facts(topic, topic_id, value)
        for field, child in plan.children:
            value = body.get(field)
            for one in value if isinstance(value, list) else (value,):
                if isinstance(one, dict):
                    self.struct(child, one, topic, topic_id)

    @staticmethod
    def _names(into: dict[str, None], value: object) -> None:
        for one in value if isinstance(value, list) else (value,):
            _name(into, one)

    def _choose(self, entity: str | None, value: object) -> None:
        if entity == "group_id":
            self._names(self._named.groups, value)
        elif entity == "transactional_id":
            self._names(self._named.transactions, value)

    def _facts(self, topic: str | None, topic_id: str | None, partition: int) -> PartitionFacts:
        key = (topic_id, topic if topic_id is None else None, partition)
        facts = self._named.partitions.get(key)
        if facts is None:
            facts = self._named.partitions[key] = PartitionFacts(topic, topic_id, partition)
        elif facts.topic is None:
            # The name became known between the request and the response.
            facts.topic = topic
        return facts

    def _partition(self, facts: PartitionFacts, body: Body, records: tuple[str, ...]) -> None:
        for field in self._offsets:
            if isinstance(body.get(field), int):
                facts.offset = body[field]  # the response comes second and overrides the request
                break
        if not self._request:
            facts.high_watermark = body.get("high_watermark", facts.high_watermark)
            for field in ERROR_FIELDS:
                if isinstance(body.get(field), int) and facts.error_code is None:
                    facts.error_code = body[field]
                    facts.error = error_name(body[field]) if body[field] else None
        for field in records:
            value = body.get(field)
            if isinstance(value, dict):
                _batches(facts, value)


def _uncompressed(batch: dict[str, Any]) -> int | None:
    """Bytes of a batch without its compression; None where it was not looked into, and for a legacy wrapper."""
    if batch["compression"] == "none":
        size: int = BATCH_OVERHEAD + batch["batch_length"]
        return size
    # Of `kafka.record_batch.Batch`; batches whose records were left alone are plain.
    found: int | None = getattr(batch, "uncompressed", None)
    return found


def _batches(facts: PartitionFacts, records: dict[str, Any]) -> None:
    """What the contract's form of a `records` field says about a partition."""
    batches: list[dict[str, Any]] = records["batches"]
    counts: list[Any] = [batch.get("record_count") for batch in batches]
    codecs = {batch["compression"] for batch in batches}
    size = sum(BATCH_OVERHEAD + batch["batch_length"] for batch in batches) + records["truncated_bytes"]
    facts.batch_count = len(batches)
    facts.record_count = None if None in counts else sum(counts)
    facts.bytes = size
    sizes = [_uncompressed(batch) for batch in batches]
    if None not in sizes:
        facts.uncompressed_bytes = sum(filter(None, sizes)) + records["truncated_bytes"]
    facts.compression = "mixed" if len(codecs) > 1 else next(iter(codecs), None)
    for batch in batches[:1]:
        facts.producer_id = batch.get("producer_id")
        facts.producer_epoch = batch.get("producer_epoch")
        facts.base_sequence = batch.get("base_sequence")
