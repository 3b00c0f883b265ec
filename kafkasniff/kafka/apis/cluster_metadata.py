"""The topic of KRaft's metadata, and how to recognize bytes that may contain its records.

Its records contain credentials and sensitive configuration, so nothing is shown of records that cannot be decoded. The
name and the fixed id are `org.apache.kafka.common.internals.Topic.CLUSTER_METADATA_TOPIC_NAME` and
`org.apache.kafka.common.Uuid.METADATA_TOPIC_ID`.

Kafka sends them in Fetch responses. Any message that has records of a topic by its definition may have them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

import msgspec

from kafkasniff.kafka.apis.dissectors import message_of
from kafkasniff.kafka.schema.codes import uuid_bytes
from kafkasniff.kafka.schema.definition import FieldDefinition
from kafkasniff.model import Body, Direction

TOPIC_NAME: Final = "__cluster_metadata"
TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"


class _TopicStruct(msgspec.Struct, frozen=True):
    """A struct that names a topic and has its records, over all versions of its message."""

    path: tuple[str, ...]
    """Its path: the fields from the body, arrays or structs."""
    names: tuple[FieldDefinition, ...]
    """Fields with the topic's name."""
    ids: tuple[FieldDefinition, ...]
    """Fields with its id."""
    records: tuple[tuple[str, ...], ...]
    """The paths from it to its records."""


def secret_marks(api_key: int, direction: Direction, version: int) -> tuple[bytes, ...]:
    """Bytes without which a truncated message contains no metadata records; none if it cannot contain any.

    FetchSnapshot is not covered: it contains nothing else, as its definition says.
    """
    message = message_of(api_key, direction)
    if message is None:
        return ()

    def there(fields: tuple[FieldDefinition, ...]) -> bool:
        # In an unknown version the names of topics may be in any field.
        return any(version in field.versions for field in fields) or (bool(fields) and version not in message.versions)

    topics = _topics(api_key, direction)
    marks = [TOPIC_NAME.encode()] if any(there(topic.names) for topic in topics) else []
    return (*marks, uuid_bytes(TOPIC_ID)) if any(there(topic.ids) for topic in topics) else tuple(marks)


def metadata_test(api_key: int, direction: Direction) -> Callable[[Body], bool] | None:
    """A test whether a body contains records of the metadata log; None if bodies of this API never do."""
    message = message_of(api_key, direction)
    if message is None or not message.has_records:
        return None
    if message.has_secret_records:
        return bool
    topics = _topics(api_key, direction)
    if len(topics) == 1 and len(topics[0].path) == 1 and len(topics[0].names) < 2 and len(topics[0].ids) < 2:
        return _quick_test(topics[0])
    return (lambda body: any(True for _ in _metadata_topics(topics, body))) if topics else None


def _quick_test(topic: _TopicStruct) -> Callable[[Body], bool]:
    """The test for Kafka's own messages, which have one array of topics. Hot: called for each of them."""
    (array,) = topic.path
    name = topic.names[0].name if topic.names else ""
    topic_id = topic.ids[0].name if topic.ids else ""

    def test(body: Body) -> bool:
        for one in body.get(array) or ():  # noqa: SIM110 - most have one topic
            if one.get(name) == TOPIC_NAME or one.get(topic_id) == TOPIC_ID:
                return True
        return False

    return test


def may_hold_topic(api_key: int, direction: Direction) -> bool:
    """Whether such messages have records of topics that they name, which may be the metadata log."""
    return bool(_topics(api_key, direction))


def metadata_records(api_key: int, direction: Direction, body: Body) -> Iterator[Any]:
    """Each `records` value of the metadata log in a body; values may be null."""
    for topic, struct in _metadata_topics(_topics(api_key, direction), body):
        for path in topic.records:
            yield from _at(struct, path)


def _metadata_topics(topics: tuple[_TopicStruct, ...], body: Body) -> Iterator[tuple[_TopicStruct, Body]]:
    for topic in topics:
        for struct in _at(body, topic.path):
            if isinstance(struct, dict) and (
                any(struct.get(field.name) == TOPIC_NAME for field in topic.names)
                or any(struct.get(field.name) == TOPIC_ID for field in topic.ids)
            ):
                yield topic, struct


def _at(value: Any, path: tuple[str, ...]) -> Iterator[Any]:
    """The values at the end of a path, through arrays; of a truncated body those that exist."""
    if isinstance(value, list):
        for one in value:
            yield from _at(one, path)
    elif not path:
        yield value
    elif isinstance(value, dict) and path[0] in value:
        yield from _at(value[path[0]], path[1:])


@lru_cache(maxsize=1024)  # keys come from the wire
def _topics(api_key: int, direction: Direction) -> tuple[_TopicStruct, ...]:
    """The structs of a message that name a topic and have records, except those that are always secret."""
    message = message_of(api_key, direction)
    return () if message is None else tuple(_topics_in(message.fields, ()))


def _topics_in(fields: tuple[FieldDefinition, ...], path: tuple[str, ...]) -> Iterator[_TopicStruct]:
    names = tuple(field for field in fields if field.entity == "topic_name" and not field.array)
    ids = tuple(field for field in fields if (field.name, field.type, field.array) == ("topic_id", "uuid", False))
    records = tuple(_record_paths(fields))
    if records and (names or ids):
        yield _TopicStruct(path, names, ids, records)
    for field in fields:
        yield from _topics_in(field.fields, (*path, field.name))


def _record_paths(fields: tuple[FieldDefinition, ...]) -> Iterator[tuple[str, ...]]:
    for field in fields:
        if field.type == "records" and field.secret == "no":
            yield (field.name,)
        for path in _record_paths(field.fields):
            yield (field.name, *path)
