"""Fields of records: `record.key`, `record.header["NAME"]` and the like, and members in them (`record.value.order.id`).

Members are those of the decoded value (`kafkasniff.values`), or of JSON. `record.value.$` is the whole of it.

They are the records of Produce requests and Fetch responses alike, and of every other message with records.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from kafkasniff.errors import UsageError
from kafkasniff.filters.candidate import Candidate
from kafkasniff.filters.places import record_places, values_at
from kafkasniff.kafka.apis.record_fields import each_records, record_fields

__all__ = ["MAX_JSON", "TOKEN", "RecordPath", "json_part", "record_path", "record_values", "records_of"]

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
    found = _PATH.fullmatch(name)
    part = None if found is None else found["part"]
    if found is None or (part is not None and part not in PARTS):
        raise UsageError(
            f"""unknown field "{name}"; records have {", ".join(f"record.{one}" for one in PARTS)}, """
            """record.header["NAME"], and members of values as record.value.NAME"""
        )
    if found["json"] and part in ("offset", "timestamp", "place"):
        raise UsageError(f"record.{part} has no members")
    json = None if not found["json"] else tuple(_unquoted(one) for one in _STEP.findall(found["names"]))
    if part is not None:
        return RecordPath(part, None, json)
    return RecordPath("header", _unquoted(found["header"].strip()), json)


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
                yield from _in_json(value, path.json)


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


def _in_json(value: bytes | str, names: tuple[str, ...]) -> list[Any]:
    data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    if len(data) > MAX_JSON:
        return []
    try:
        return values_at({"$": msgspec.json.decode(json_part(data))}, ("$", *names))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        # Not JSON, or nested more deeply than anyone asks for.
        return []
