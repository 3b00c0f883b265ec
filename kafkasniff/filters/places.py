"""Values that identify where records are and who wrote them: partitions with their topics, offsets, producer ids.

Fields are found by the definitions, so those of a new API or version need no change here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

from kafkasniff.filters.candidate import Candidate
from kafkasniff.kafka.apis import dissectors
from kafkasniff.kafka.apis.entities import text
from kafkasniff.kafka.apis.record_fields import PARTITION_FIELDS, RecordFields, record_fields
from kafkasniff.kafka.schema.definition import FieldDefinition
from kafkasniff.model import Body, Direction, Message

__all__ = ["generations", "producer_ids", "record_places", "topic_partitions", "values_at"]

GENERATION_FIELDS: Final = ("generation_id", "generation_id_or_member_epoch", "member_epoch")

_Path = tuple[str, ...]


def values_at(body: object, path: _Path) -> list[Any]:
    """The values at a path of fields, through arrays; null is not a value."""
    found = [body]
    for name in path:
        further: list[Any] = []
        for one in found:
            if isinstance(one, dict):
                _add(further, one.get(name))
        found = further
    return found


def _add(values: list[Any], value: object) -> None:
    if isinstance(value, list):
        for one in value:
            _add(values, one)
    elif value is not None:
        values.append(value)


def _messages(candidate: Candidate) -> Iterator[tuple[Message, int, Body]]:
    """Messages with bodies, and the keys of their APIs."""
    for message in (candidate.request, candidate.response):
        if message is not None and message.body is not None and message.api_key is not None:
            yield message, message.api_key, message.body


def topic_partitions(candidate: Candidate) -> Iterator[str]:
    """`TOPIC-PARTITION` of each partition that request or response name, if the topic's name is known."""
    for facts in candidate.named.partitions.values():
        if facts.topic is not None:
            yield f"{facts.topic}-{facts.partition}"


def generations(candidate: Candidate) -> Iterator[int]:
    """Generations of a group, or epochs of its member, in request and response."""
    for _, _, body in _messages(candidate):
        for name in GENERATION_FIELDS:
            value = body.get(name)
            if isinstance(value, int) and value >= 0:
                yield value


def producer_ids(candidate: Candidate) -> Iterator[int]:
    """Producer ids in request, response and their record batches."""
    for message, key, body in _messages(candidate):
        for path in _producer_paths(key, message.type):
            yield from (value for value in values_at(body, path) if isinstance(value, int) and value >= 0)


@lru_cache(maxsize=1024)  # keys come from the wire
def _producer_paths(api_key: int, direction: Direction) -> tuple[_Path, ...]:
    """The paths to the producer ids in an API's requests or responses, in any version."""
    api = dissectors.api(api_key)
    if api is None:
        return ()
    return tuple(_paths(getattr(api.definition, direction).fields))


def _paths(fields: Sequence[FieldDefinition]) -> Iterator[_Path]:
    for field in fields:
        if field.entity == "producer_id":
            yield (field.name,)
        elif field.type == "records":
            yield (field.name, "batches", "producer_id")
        for path in _paths(field.fields):
            yield (field.name, *path)


def record_places(candidate: Candidate) -> Iterator[str]:
    """`TOPIC-PARTITION@OFFSET` of each record; of a produced one once the response gives its offset.

    A request counts the offsets of a batch from 0.
    """
    for message, key, body in _messages(candidate):
        fields = None if message.api_version is None else record_fields(key, message.api_version, message.type)
        if fields is None:
            continue
        starts: dict[tuple[str | None, int], int | None] | None = None
        if message.type == "request":
            starts = {(one.topic, one.partition): one.offset for one in candidate.named.partitions.values()}
        for topic, partition, records in _placed(fields, body, None):
            start = 0 if starts is None else starts.get((topic, partition))
            if start is not None and start >= 0:
                for offset in values_at(records, ("batches", "records", "offset")):
                    yield f"{topic}-{partition}@{start + offset}"


def _placed(fields: RecordFields, body: Body, topic: str | None) -> Iterator[tuple[str, int, Body]]:
    """Topic, partition and value of each field with records, if topic and partition are known."""
    own = body.get("_topic_name", None if fields.topic is None else body.get(fields.topic))
    topic = topic if own is None else text(own)
    partition = next((body[name] for name in PARTITION_FIELDS if isinstance(body.get(name), int)), None)
    if topic is not None and partition is not None:
        for name in fields.plain:
            value = body.get(name)
            if isinstance(value, dict):
                yield topic, partition, value
    for name, inner in fields.inner:
        value = body.get(name)
        for one in value if isinstance(value, list) else (value,):
            if isinstance(one, dict):
                yield from _placed(inner, one, topic)
