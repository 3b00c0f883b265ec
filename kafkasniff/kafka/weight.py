"""What decoded messages take in memory, in bytes: estimated at a glance, or gone through where it has to be right."""

from __future__ import annotations

from functools import lru_cache
from sys import getsizeof
from typing import Any, Final, NamedTuple

from kafkasniff.kafka.definition import FieldDefinition, MessageDefinition
from kafkasniff.kafka.dissectors import api
from kafkasniff.model import Body, Direction, RenderedBody, RenderedRecords

__all__ = [
    "BODY_RATIO",
    "EARLY_BYTES",
    "FRAME_BYTES",
    "PROBLEM_BYTES",
    "RECORD_BYTES",
    "REQUEST_BYTES",
    "SEARCHED_SEGMENT_BYTES",
    "body_bytes",
    "has_records",
    "likely_bytes",
]

BODY_RATIO: Final = 128
"""Bytes of memory for a byte of a body, at most, where no records are in it: a struct of two empty fields takes two
bytes on the wire and some 250 in memory."""
RECORD_BYTES: Final = 400
"""Bytes of memory of a record, or of a batch, without keys and values."""

FRAME_BYTES: Final = 420
"""Bytes of memory of a frame that was cut and waits, without its own."""
EARLY_BYTES: Final = 1_400
"""A response that waits for its request, without its own bytes: its frame, and where it is found by its id."""
REQUEST_BYTES: Final = 1_700
"""A request that waits for its response, without what was decoded of it."""
SEARCHED_SEGMENT_BYTES: Final = 200
"""A segment that is searched for frames, without its bytes."""
PROBLEM_BYTES: Final = 300
"""A problem that waits for the verdict."""

SCALAR_BYTES: Final = 64
"""Bytes of memory of an element of an array of numbers or strings, without a string's characters."""


class _Way(NamedTuple):
    """What is counted in a struct, over all versions."""

    each: int
    """Bytes of memory of the struct itself."""
    records: tuple[str, ...]
    scalars: tuple[str, ...]
    """Arrays of numbers and strings."""
    inner: tuple[tuple[str, int, str | None, _Way | None], ...]
    """Arrays of structs, and structs with something to be counted: `each` of theirs, the one `records` field where
    nothing else counts in them, and their way where more does."""
    nested: str | None = None
    """What a message that lies in this one is told as; only of a whole message."""
    quick: _Quick | None = None
    """The same in short, where it has the form of Kafka's own messages; only of a whole message."""


class _Quick(NamedTuple):
    """Records in an array of partitions in an array of topics, and arrays of plain structs beside either."""

    beside: tuple[str, ...]
    topics: str
    partitions: str
    records: str
    in_partition: tuple[str, ...]


@lru_cache(maxsize=1024)  # keys come from the wire
def _way_of_request(api_key: int | None) -> _Way | None:
    """How requests that may hold records are weighed; None for all others, which BODY_RATIO is enough for."""
    found = None if api_key is None else api(api_key)
    return None if found is None else _way_of(found.definition.request)


@lru_cache(maxsize=1024)  # likewise
def _way_of_response(api_key: int | None) -> _Way | None:
    found = None if api_key is None else api(api_key)
    return None if found is None else _way_of(found.definition.response)


def _way_of(message: MessageDefinition) -> _Way | None:
    if not (message.has_records or message.nested):
        return None
    way = _way(message.fields)
    return (
        way._replace(quick=_quick(message)) if message.nested is None else way._replace(nested=f"_{message.nested[1]}")
    )


def _quick(message: MessageDefinition) -> _Quick | None:
    """None where the message has another form."""
    root = _way(message.fields)
    deep = [field for field in message.fields if _counts(_way(field.fields))]
    if root.records or root.scalars or len(deep) != 1 or not deep[0].array:
        return None
    topic = _way(deep[0].fields)
    partitions = [field for field in deep[0].fields if field.type == "struct" and field.array]
    if topic.records or topic.scalars or len(topic.inner) != 1 or len(partitions) != 1:
        return None
    partition, records = _way(partitions[0].fields), _plain_records(partitions[0].fields)
    if records is None or partition.scalars or any(plain or below for _, _, plain, below in partition.inner):
        return None
    beside = tuple(name for name, *_ in root.inner if name != deep[0].name)
    return _Quick(beside, deep[0].name, partitions[0].name, records, tuple(name for name, *_ in partition.inner))


def _counts(way: _Way) -> bool:
    return bool(way.records or way.scalars or way.inner)


def _way(fields: tuple[FieldDefinition, ...]) -> _Way:
    records = tuple(field.name for field in fields if field.type == "records")
    scalars = tuple(field.name for field in fields if field.array and field.type not in {"struct", "records"})
    inner: list[tuple[str, int, str | None, _Way | None]] = []
    for field in fields:
        way = _way(field.fields)
        counts = _counts(way)
        if field.type == "struct" and (field.array or counts):
            plain = _plain_records(field.fields) if counts and not (way.scalars or way.inner) else None
            inner.append((field.name, way.each, plain, way if counts and plain is None else None))
    return _Way(2 * RECORD_BYTES if records else RECORD_BYTES, records, scalars, tuple(inner))


def _plain_records(fields: tuple[FieldDefinition, ...]) -> str | None:
    """The `records` field of a struct; None where it has several, or an array."""
    found = [field for field in fields if field.type == "records"]
    return found[0].name if len(found) == 1 and not found[0].array else None


def has_records(api_key: int | None, direction: Direction) -> bool:
    """Whether `likely_bytes` counts the records of such messages, and needs no BODY_RATIO for what else is in them."""
    way = _way_of_request(api_key) if direction == "request" else _way_of_response(api_key)
    return way is not None and way.nested is None


def likely_bytes(api_key: int | None, direction: Direction, size: int, body: Body | RenderedBody | None) -> int:
    """About what a message of `size` bytes on the wire takes, or more. Hot: of records only their number is asked."""
    if body is None:
        return size
    if isinstance(body, RenderedBody):
        return size + len(body.json)
    way = _way_of_request(api_key) if direction == "request" else _way_of_response(api_key)
    if way is None:
        return size * BODY_RATIO
    if way.quick is not None:
        return size + _quickly_counted(way.quick, body)
    total = _counted(way, body)
    if way.nested is None:
        return size + total
    inside = body.get(way.nested)
    if inside is not None:
        total += likely_bytes(inside["api_key"], direction, 0, inside["body"])
    return size * BODY_RATIO + total


def _quickly_counted(quick: _Quick, body: Body) -> int:
    """The same as `_counted` in half the time. Hot."""
    beside, topics, partitions, records, in_partition = quick
    total = 0
    for name in beside:
        total += RECORD_BYTES * len(body.get(name) or ())
    for topic in body.get(topics) or ():
        total += RECORD_BYTES
        for partition in topic.get(partitions) or ():
            total += 2 * RECORD_BYTES
            field = partition.get(records)
            if field is not None:
                total += _records(field)
            for name in in_partition:
                value = partition.get(name)
                if value:
                    total += RECORD_BYTES * len(value)
    return total


def _counted(way: _Way, struct: Body) -> int:
    """What is counted in a struct. Hot."""
    total = 0
    _, records, scalars, inner, _, _ = way
    for name in records:
        value = struct.get(name)
        if value.__class__ is list:
            for one in value:
                total += 0 if one is None else _records(one)
        elif value is not None:
            total += _records(value)
    for name in scalars:
        total += SCALAR_BYTES * len(struct.get(name) or ())
    for name, each, plain, below in inner:
        value = struct.get(name)
        if not value:
            continue
        if value.__class__ is dict:
            value = (value,)
        total += each * len(value)
        if plain is not None:
            for one in value:
                field = one.get(plain)
                if field is not None:
                    total += _records(field)
        elif below is not None:
            for one in value:
                total += _counted(below, one)
    return total


def _records(field: Any) -> int:
    """What a `records` field takes."""
    if field.__class__ is RenderedRecords:
        # Its JSON, and its bytes on the wire.
        return 2 * len(field.json)
    total = 0
    for batch in field["batches"]:
        records = batch.get("records") or ()
        total += RECORD_BYTES + RECORD_BYTES * len(records)
        if batch.get("compression") != "none":
            total += sum([len(one.get("key") or b"") + len(one.get("value") or b"") for one in records])
    return total


def body_bytes(value: Any) -> int:
    """What a body takes, by all that it consists of; objects that it holds twice count twice."""
    total = 0
    left = [value]
    while left:
        one = left.pop()
        if one is None or one is True or one is False:
            continue
        if one.__class__ is RenderedRecords:
            total += 2 * len(one.json)
            continue
        total += getsizeof(one)
        if isinstance(one, dict):
            left.extend(one.values())
        elif one.__class__ is list or one.__class__ is tuple:
            left.extend(one)
    return total
