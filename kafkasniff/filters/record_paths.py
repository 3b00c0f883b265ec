"""Fields of records, and values that identify where records are and who wrote them.

`record.key`, `record.header["NAME"]` and the like are fields of the records of every message that has some; members in
them (`record.value.order.id`) are those of the decoded value (`kafkasniff.values`), or of JSON. `record.value.$` is the
whole of it. Partitions with their topics, offsets and producer ids are found by the definitions, so those of a new API
or version need no change here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

import msgspec

from kafkasniff.errors import UsageError
from kafkasniff.kafka.apis import dissectors
from kafkasniff.kafka.apis.entities import (
    PARTITION_FIELDS,
    Mentions,
    RecordFields,
    each_records,
    mentions,
    record_fields,
    text,
)
from kafkasniff.kafka.schema.definition import FieldDefinition
from kafkasniff.model import Body, Direction, Exchange, Message, Problem, SaslToken


class Candidate:
    """An exchange as far as it is known, or another subject of predicates. Created once per message: hot."""

    __slots__ = ("_named", "ended", "other", "request", "response", "seen", "start_ns", "unknown")

    def __init__(
        self,
        *,
        request: Message | None = None,
        response: Message | None = None,
        ended: Exchange | None = None,
        other: SaslToken | Problem | None = None,
        unknown: frozenset[str] = frozenset(),
        start_ns: int | None = None,
    ) -> None:
        self.request = request
        self.response = response
        self.ended = ended
        """The exchange, once it has ended."""
        self.other = other
        self.seen: Message | SaslToken | Problem | None = request or response or other
        """The message with place and time: the request, or an orphan response."""
        self.unknown = unknown
        """Fields that may get more values than are known; for other fields, missing values stay missing."""
        self.start_ns = start_ns
        """Time of the run's first packet."""
        self._named: Mentions | None = None

    @property
    def named(self) -> Mentions:
        """Names in the bodies."""
        if self._named is None:
            self._named = mentions(self.request, self.response)
        return self._named


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
            starts = {
                (partition.topic, partition.partition): partition.offset
                for partition in candidate.named.partitions.values()
            }
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


MAX_JSON: Final = 1 << 20
"""Bytes of a key, value or header that is parsed as JSON; larger ones have no values at a path."""
_SCHEMA_ID: Final = 5
"""Bytes of the magic byte and the schema id before a value of Confluent's JSON Schema serializer."""

_QUOTED: Final = r""""[^"\\]*"|'[^'\\]*'"""
_NAME: Final = rf"[\w-]+|{_QUOTED}"
TOKEN: Final = rf"record\.(?:header\[[^\]]*\]|[A-Za-z_]\w*)(?:\.\$)?(?:\.(?:{_NAME}))*"
"""A field of records, as a pattern of the filter language's tokens."""
_PATH: Final = re.compile(
    rf"record\.(?:header\[(?P<header>{_QUOTED}|[^\]\"']+)\]|(?P<part>[A-Za-z_]\w*))"
    rf"(?P<json>(?:\.\$)?(?P<names>(?:\.(?:{_NAME}))*))"
)
_STEP: Final = re.compile(rf"\.({_NAME})")
PARTS: Final = ("key", "value", "offset", "timestamp", "place")


class RecordPath(NamedTuple):
    """Where a field of records is."""

    part: str
    """One of `PARTS`, or "header"."""
    header: str | None
    json: tuple[str, ...] | None
    """Names of members, from the outermost; None: the bytes themselves are meant."""


def record_path(name: str) -> RecordPath:
    """Parses the name of a field that begins with `record.`. Raises UsageError if there is no such field."""
    match = _PATH.fullmatch(name)
    part = None if match is None else match["part"]
    if match is None or (part is not None and part not in PARTS):
        raise UsageError(
            f"""unknown field "{name}"; records have {", ".join(f"record.{one}" for one in PARTS)}, """
            """record.header["NAME"], and members of values as record.value.NAME"""
        )
    if match["json"] and part in ("offset", "timestamp", "place"):
        raise UsageError(f"record.{part} has no members")
    json = None if not match["json"] else tuple(_unquoted(one) for one in _STEP.findall(match["names"]))
    if part is not None:
        return RecordPath(part, None, json)
    return RecordPath("header", _unquoted(match["header"].strip()), json)


def _unquoted(text: str) -> str:
    return text[1:-1] if text[0] in "\"'" else text


def record_values(path: RecordPath) -> Callable[[Candidate], Iterable[Any]]:
    """The values at a path, of all records of an exchange."""
    return record_places if path.part == "place" else partial(_values, path)


def records_of(candidate: Candidate) -> Iterator[Any]:
    """All decoded records of an exchange."""
    for message in (candidate.request, candidate.response):
        if message is None or message.body is None or message.api_key is None or message.api_version is None:
            continue
        fields = record_fields(message.api_key, message.api_version, message.type)
        for records, _ in () if fields is None else each_records(fields, message.body):
            yield from values_at(records, ("batches", "records"))


def _values(path: RecordPath, candidate: Candidate) -> Iterator[Any]:
    for record in records_of(candidate):
        if path.json is not None and path.header is None:
            decoded = record.get(f"_{path.part}")
            if isinstance(decoded, dict) and "schema_type" in decoded:
                yield from values_at({"$": decoded["value"]}, ("$", *path.json))
                continue
        for value in _raw(path, record):
            if path.json is None:
                yield value
            elif isinstance(value, bytes | str):
                yield from members(value, path.json)


def _raw(path: RecordPath, record: Any) -> Iterator[Any]:
    if path.header is None:
        value = record.get(path.part)
        if value is not None:
            yield value
        return
    wanted = path.header.encode("utf-8", "surrogatepass")
    for header in record.get("headers") or ():
        key, value = header.get("key"), header.get("value")
        if value is not None and key in (path.header, wanted):
            yield value


def json_part(data: bytes) -> bytes:
    """The bytes of a value that may be JSON: without the schema id of Confluent's serializer."""
    return data[_SCHEMA_ID:] if data[:1] == b"\0" else data


def members(value: bytes | str, names: tuple[str, ...]) -> list[Any]:
    """The members of a value at these names, through arrays; none unless the value is JSON."""
    data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    if len(data) > MAX_JSON:
        return []
    try:
        return values_at({"$": msgspec.json.decode(json_part(data))}, ("$", *names))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        # Not JSON, or nested more deeply than anyone asks for.
        return []
