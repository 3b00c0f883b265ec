"""The topics whose records a message carries, and how many: Produce, Fetch, ShareFetch, and any other with records.

The definitions show where they are. Requests with records produce, and so do their responses; responses with records to
requests without any fetch.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, NamedTuple

from kafkasniff.kafka.apis import dissectors
from kafkasniff.kafka.schema.definition import FieldDefinition
from kafkasniff.model import Direction, Message

__all__ = ["FETCHED", "PRODUCED", "TopicTraffic", "topic_traffic"]

PRODUCED: Final = "produced"
FETCHED: Final = "fetched"

BATCH_OVERHEAD: Final = 12
"""Bytes before those that `batch_length` counts: base offset and the length itself, alike in all three formats."""


class TopicTraffic(NamedTuple):
    """The data of one message for one topic."""

    topic: str | bytes
    """Its name; its id if no name is known."""
    flow: str
    """PRODUCED or FETCHED."""
    records: int
    """Records of batches with a known count; compressed message sets (before 0.11) have none."""
    bytes: int
    """Bytes of the batches, as on the wire."""
    errors: int
    """Partitions with an error code."""


class _CountedStruct(NamedTuple):
    """What counts in a struct, over all versions, and the nested structs in which something does."""

    topic: tuple[str, ...]
    """Fields with the topic's name, or its id; the first one that exists."""
    error: str | None
    records: tuple[str, ...]
    inner: tuple[tuple[str, _CountedStruct], ...]


@lru_cache(maxsize=1024)  # keys come from the wire
def _place_of(api_key: int | None, direction: Direction) -> tuple[_CountedStruct, str] | None:
    """Where messages carry records of topics, or answer those that do, and the direction of the records."""
    api = None if api_key is None else dissectors.api(api_key)
    if api is None:
        return None
    request, response = api.definition.request, api.definition.response
    produces = _carries(request.fields)
    if not produces and (direction == "request" or not _carries(response.fields)):
        return None
    place = _place(request.fields if direction == "request" else response.fields)
    return place, PRODUCED if produces else FETCHED


def _carries(fields: tuple[FieldDefinition, ...]) -> bool:
    """Whether there are records other than slices of files (FetchSnapshot)."""
    return any((field.type == "records" and not field.unaligned) or _carries(field.fields) for field in fields)


def _place(fields: tuple[FieldDefinition, ...]) -> _CountedStruct:
    names = [field.name for field in fields if field.entity == "topic_name" and not field.array]
    ids = [field.name for field in fields if field.name == "topic_id" and field.type == "uuid"]
    error = next((field.name for field in fields if field.type == "error" and not field.array), None)
    records = tuple(field.name for field in fields if field.type == "records" and not field.unaligned)
    below = [(field.name, _place(field.fields)) for field in fields if field.fields]
    inner = tuple((name, place) for name, place in below if any(place))
    named = (*names, "_topic_name", *ids) if (names or ids) and (error or records or inner) else ()
    return _CountedStruct(named, error, records, inner)


def topic_traffic(message: Message) -> list[TopicTraffic]:
    """One entry for each topic of the message, none for messages without records. Hot: once per message."""
    found = _place_of(message.api_key, message.type)
    if found is None or message.body is None:
        return []
    place, flow = found
    counts: list[_Counts] = []
    _count(place, message.body, None, counts)
    return [TopicTraffic(topic, flow, records, size, errors) for topic, records, size, errors in counts]


_Counts = list[Any]
"""A topic, and its records, bytes and errors so far."""


def _count(place: _CountedStruct, struct: dict[str, Any], into: _Counts | None, counts: list[_Counts]) -> None:
    """Count the contents of a struct; `into`: for the topic that an enclosing struct names. Hot."""
    topic, error, records, inner = place
    if topic:
        into = None
        for field in topic:
            name = struct.get(field)
            if name is not None:
                if isinstance(name, str | bytes):
                    into = [name, 0, 0, 0]
                    counts.append(into)
                break
    if into is not None:
        if error is not None and struct.get(error):
            into[3] += 1
        for field in records:
            value = struct.get(field)
            for held in value if value.__class__ is list else (value,):
                if isinstance(held, dict):
                    for batch in held["batches"]:
                        into[1] += batch.get("record_count") or 0
                        into[2] += BATCH_OVERHEAD + batch["batch_length"]
    for field, below in inner:
        value = struct.get(field)
        # A truncated body may lack it, or end in a struct that does.
        for one in value if value.__class__ is list else (value,):
            if one.__class__ is dict:
                _count(below, one, into, counts)
