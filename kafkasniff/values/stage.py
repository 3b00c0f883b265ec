"""Adds decoded keys and values to the records of messages, in place and in order: a stage like `enrich`.

`_key` and `_value` of a record get the schema's type, the name of the value's type and the value. The serializers of
registries name the schema in a framing, before the data or in record headers:

| framing | before the data | in record headers |
| --- | --- | --- |
| Confluent | 0, int32 id; Protobuf: message indexes | `__value_schema_id`: 0, int32 id or 1, GUID; then indexes |
| Apicurio | 0, int64 id; Protobuf: size and name of the message | `apicurio.value.globalId` or `.contentId`: int64 |
| AWS Glue | 3, 0 or 5 (zlib), GUID | |

Apicurio's serializers can also write Confluent's. Where the framing precedes the data, nothing says that it is one. The
user says that there is a registry, so bytes that only look like a schema id are decoded, too, if the registry has the
id and the whole value follows the schema.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import orjson
from msgspec.structs import force_setattr

from kafkasniff.errors import UsageError
from kafkasniff.kafka.apis.entities import each_records, record_fields
from kafkasniff.kafka.record_facts import GUID_SIZE, HEADERS, ID_SIZE, MAX_ID, MIN_ID, guid_text, message_indexes
from kafkasniff.model import Body, Message, Problem, Summary
from kafkasniff.values.avro import AvroReader
from kafkasniff.values.registries import Registry, RegistryError, path_of, schema_at
from kafkasniff.values.schemas import (
    FIRST_MESSAGE,
    MAX_DEPTH,
    MAX_SCHEMA,
    MAX_VALUE,
    DecodedValue,
    MalformedValueError,
    MessagePlace,
    Reference,
    RegisteredSchema,
    SchemaError,
    SchemaKind,
    ValueReader,
)

_OPENING: Final = (b"{", b"[")


class JsonReader:
    """Decodes values that are JSON. Whether they follow the schema is not checked."""

    kind: SchemaKind = "JSON"

    def __init__(self, schema: str) -> None:
        self._name = _title(schema)

    def read(self, data: bytes, start: int, _place: MessagePlace = FIRST_MESSAGE) -> DecodedValue:
        """Decode `data[start:]`. Raises MalformedValueError."""
        text = data[start:]
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise MalformedValueError(f"it is not JSON: {error}") from None
        if sum(map(text.count, _OPENING)) > MAX_DEPTH and _depth(value) > MAX_DEPTH:
            raise MalformedValueError(f"nested more than {MAX_DEPTH} levels deep")
        return DecodedValue(self._name, value)


def _title(schema: str) -> str | None:
    try:
        parsed = orjson.loads(schema)
    except orjson.JSONDecodeError:
        return None
    title = parsed.get("title") if isinstance(parsed, dict) else None
    return title if isinstance(title, str) else None


def _depth(value: Any) -> int:
    """Levels of lists and objects."""
    levels, inside = 0, [value]
    while inside:
        levels += any(isinstance(one, list | dict) for one in inside)
        inside = [
            item
            for one in inside
            if isinstance(one, list | dict)
            for item in (one if isinstance(one, list) else one.values())
        ]
    return levels


VALUE_FILE: Final = "value"
"""Name of a Protobuf file that no other one imports: registries have none."""
MAX_REFERENCES: Final = 200
"""Schemas that one schema refers to, also indirectly."""
MAX_IDS: Final = 10_000
"""Ids that a run asks for: they come from the wire, and may be no ids at all."""
MAX_GUESSES: Final = 200
"""Ids that are asked for though they may be no ids: then only the others are."""

Report = Callable[[str, str], None]
Resolve = Callable[[Reference], RegisteredSchema]


class Readers:
    """The readers of a registry's schemas."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._known: dict[int | str, ValueReader | None] = {}
        self._reported: set[int | str] = set()
        self._guesses = 0
        self.missing: list[int | str] = []
        """Ids without a schema that may be no ids."""
        self._resolved: dict[Reference, RegisteredSchema] = {}

    def get(self, key: int | str, report: Report, *, sure: bool) -> ValueReader | None:
        """The reader of the schema with an id or GUID; None if there is none. Hot.

        `report`: called with the kind and the detail of a problem, once for each schema. `sure`: the bytes leave no
        doubt that `key` is an id, so it is a problem if the registry does not have it.
        """
        try:
            value_reader = self._known[key]
        except KeyError:
            if not sure:
                if self._guesses >= MAX_GUESSES:
                    return None
                self._guesses += 1
            value_reader = self._new(key, report)
            if value_reader is None and not sure:
                self.missing.append(key)
        if value_reader is None and sure and key not in self._reported:
            self._reported.add(key)
            report("schema-unknown", f"schema {key} is not in {self._registry.name}")
        return value_reader

    def _new(self, key: int | str, report: Report) -> ValueReader | None:
        if len(self._known) >= MAX_IDS:
            self._once("", "schema-bound", f"more than {MAX_IDS:,} schema ids: further ones are not looked up", report)
            return None
        value_reader: ValueReader | None = None
        try:
            schema = schema_at(self._registry, f"schemas/{'ids' if isinstance(key, int) else 'guids'}/{key}")
            if schema is not None:
                value_reader = self._compiled(schema)
        except RegistryError as error:
            # Asked again later, so it is not known.
            self._reported.add(key)
            self._once(str(error), "schema-registry", str(error), report)
            return None
        except SchemaError as error:
            self._reported.add(key)
            report("schema-invalid", f"schema {key} of {self._registry.name} cannot be used: {error}")
        self._known[key] = value_reader
        return value_reader

    def _once(self, key: str, kind: str, detail: str, report: Report) -> None:
        if key not in self._reported:
            self._reported.add(key)
            report(kind, detail)

    def _compiled(self, schema: RegisteredSchema) -> ValueReader:
        if schema.schema_type == "JSON":
            return JsonReader(schema.schema)
        others = list(references_of(schema, self._resolve))
        if schema.schema_type == "AVRO":
            return AvroReader(schema.schema, [registered_schema.schema for _, registered_schema in others])
        from kafkasniff.values.protobuf import ProtobufReader, descriptor_file  # noqa: PLC0415 - for these schemas only

        files = [descriptor_file(registered_schema.schema, reference.name) for reference, registered_schema in others]
        return ProtobufReader([*files, descriptor_file(schema.schema, VALUE_FILE)])

    def _resolve(self, reference: Reference) -> RegisteredSchema:
        registered_schema = self._resolved.get(reference)
        if registered_schema is None:
            registered_schema = schema_at(self._registry, path_of(reference.subject, reference.version))
            if registered_schema is None:
                raise SchemaError(f"it refers to version {reference.version} of {reference.subject}, which is missing")
            self._resolved[reference] = registered_schema
        return registered_schema


def references_of(schema: RegisteredSchema, resolve: Resolve) -> Iterator[tuple[Reference, RegisteredSchema]]:
    """The schemas that a schema refers to, each once, after those to which it refers itself.

    Raises SchemaError, and what `resolve` raises.
    """
    seen: set[Reference] = set()

    def inside(one: RegisteredSchema) -> Iterator[tuple[Reference, RegisteredSchema]]:
        for reference in one.references or ():
            if reference in seen:
                continue
            if len(seen) >= MAX_REFERENCES:
                raise SchemaError(f"it refers to more than {MAX_REFERENCES} schemas")
            seen.add(reference)
            registered_schema = resolve(reference)
            yield from inside(registered_schema)
            yield reference, registered_schema

    return inside(schema)


def file_reader(name: str) -> ValueReader:
    """The reader for the schema in a file: Avro (`.avsc`), JSON (`.json`), Protobuf (`.proto`, else descriptors).

    `FILE#MESSAGE` names a message of Protobuf; else it is the first of the last file. Raises UsageError.
    """
    path, _, message = name.partition("#")
    from kafkasniff.values.protobuf import ProtobufReader, descriptor_file, descriptor_set  # noqa: PLC0415 - rare

    try:
        with Path(path).open("rb") as stream:
            data = stream.read(MAX_SCHEMA + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    if len(data) > MAX_SCHEMA:
        raise UsageError(f"{path} is longer than {MAX_SCHEMA >> 20} MiB")
    try:
        if path.endswith(".avsc"):
            return AvroReader(data.decode())
        if path.endswith(".json"):
            return JsonReader(data.decode())
        if path.endswith(".proto"):
            return ProtobufReader([descriptor_file(data.decode(), VALUE_FILE)], message or None)
        return ProtobufReader(descriptor_set(data), message or None)
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not UTF-8") from None
    except SchemaError as error:
        raise UsageError(f"{path}: {error}") from None


Format = Literal["schema-registry", "apicurio", "aws-glue", "schema-file"]

_LONG_ID: Final = 9
"""The zero byte and the int64 id."""
_GLUE: Final = 18
"""The version of the header, its compression and the GUID."""
_GLUE_VERSION: Final = 3
_PLAIN: Final = 0
_ZLIB: Final = 5
_NAME_FIELD: Final = 0x0A
"""Field 1, a string of less than 128 bytes."""
_TYPE: Final = "apicurio.protobuf.type"
_APICURIO: Final = {
    f"apicurio.{field}.{name}": f"_{field}" for field in ("key", "value") for name in ("globalId", "contentId")
}
HEADER_NAMES: Final = frozenset({*HEADERS, *_APICURIO})
"""Record headers that may name a schema."""


class Framing(NamedTuple):
    """How a value names its schema."""

    format: Format
    key: int | str
    """The schema's id or GUID."""
    start: int
    """Position of the data, or of its message indexes."""
    sure: bool
    """No other bytes look like this."""
    header: bytes | None = None
    """What record headers say of a Protobuf message: its indexes (Confluent), or its name (Apicurio)."""
    zlib: bool = False


def framing_of(record: dict[str, Any], target: str, data: bytes) -> Framing | None:
    """How the key (`target` `_key`) or value (`_value`) of a record names its schema; None if it does not. Hot."""
    headers = record.get("headers")
    if headers:
        framing = _in_headers(headers, target)
        if framing is not None:
            return framing
    if data[:1] == b"\0":
        number = int.from_bytes(data[1:ID_SIZE], "big")
        if number:
            if len(data) <= ID_SIZE or not MIN_ID <= number <= MAX_ID:
                return None
            return _by_id(number, sure=target in record)
        number = int.from_bytes(data[ID_SIZE:_LONG_ID], "big")
        if len(data) > _LONG_ID and MIN_ID <= number <= MAX_ID:
            return Framing("apicurio", number, _LONG_ID, False)
    elif len(data) > _GLUE and data[0] == _GLUE_VERSION and data[1] in (_PLAIN, _ZLIB):
        return Framing("aws-glue", guid_text(data[2:_GLUE]), _GLUE, False, zlib=data[1] == _ZLIB)
    return None


@functools.lru_cache(maxsize=MAX_IDS)
def _by_id(number: int, *, sure: bool) -> Framing:
    """Confluent's framing before the data. Hot: made once for each id."""
    return Framing("schema-registry", number, ID_SIZE, sure)


def _in_headers(headers: list[dict[str, Any]], target: str) -> Framing | None:
    framing: Framing | None = None
    message: bytes | None = None
    for header in headers:
        name, value = header["key"], header["value"]
        if not isinstance(value, bytes):
            continue
        # Among several of one name the last counts, as in the deserializers.
        if HEADERS.get(name) == target:
            if value[:1] == b"\1" and len(value) >= GUID_SIZE:
                key: int | str = guid_text(value[1:GUID_SIZE])
                framing = Framing("schema-registry", key, 0, True, value[GUID_SIZE:])
            elif value[:1] == b"\0" and len(value) >= ID_SIZE:
                key = int.from_bytes(value[1:ID_SIZE], "big")
                framing = Framing("schema-registry", key, 0, True, value[ID_SIZE:])
        elif _APICURIO.get(name) == target and len(value) == _LONG_ID - 1:
            framing = Framing("apicurio", int.from_bytes(value, "big"), 0, True)
        elif name == _TYPE:
            message = value
    return framing._replace(header=message) if framing is not None and framing.format == "apicurio" else framing


def data_of(framing: Framing, kind: SchemaKind, data: bytes) -> tuple[bytes, int, MessagePlace]:
    """The bytes of a value, where its data begins, and which message it is. Raises MalformedValueError. Hot."""
    start = framing.start
    if framing.zlib:
        data, start = _inflated(data, start), 0
    if kind != "PROTOBUF":
        return data, start, FIRST_MESSAGE
    if framing.format == "schema-registry":
        if framing.header is not None:
            named = message_indexes(framing.header, 0)
            return data, start, FIRST_MESSAGE if named is None else named[0]
        found = message_indexes(data, start)
        if found is None:
            raise MalformedValueError("its message indexes are malformed")
        return data, found[1], found[0]
    if framing.format == "apicurio":
        if framing.header is not None:
            return data, start, framing.header.decode(errors="replace")
        if start:
            return (data, *_reference(data, start))
    return data, start, FIRST_MESSAGE


def _reference(data: bytes, start: int) -> tuple[int, MessagePlace]:
    """What Apicurio's serializer writes before a Protobuf message: another one with the name of its type."""
    end = start + 1 + data[start]
    name = data[start + 3 : end]
    if not name or end > len(data) or data[start + 1 : start + 3] != bytes((_NAME_FIELD, len(name))):
        raise MalformedValueError("it does not begin with the name of its type")
    return end, name.decode(errors="replace")


def _inflated(data: bytes, start: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        found = inflater.decompress(data[start:], MAX_VALUE)
    except zlib.error:
        raise MalformedValueError("its compressed data is damaged") from None
    if not inflater.eof:
        raise MalformedValueError(f"it is truncated, or larger than {MAX_VALUE >> 20} MiB")
    return found


MAX_MESSAGE: Final = 16 << 20
"""Bytes of the keys and values of one message that are decoded: they take several times as much memory."""
_FIELDS: Final = (("key", "_key"), ("value", "_value"))


class ValueSchemas(NamedTuple):
    """Where the schemas of keys and values are."""

    registry: Registry | None = None
    local: Mapping[tuple[str | None, str], ValueReader] = {}
    """Readers by topic and `key` or `value`; they take precedence over the registry."""

    @property
    def ports(self) -> tuple[int, ...]:
        """TCP ports that are connected to."""
        return () if self.registry is None or self.registry.port is None else (self.registry.port,)


class Flaws:
    """Values of one message, or of one row, that could not be decoded."""

    def __init__(self) -> None:
        self.left = MAX_MESSAGE
        self.count = 0
        self.first = ""

    def add(self, field: str, record: Body, what: str) -> None:
        """Take the key or value of a record, and why it is not decoded."""
        if not self.count:
            self.first = f"{field} of the record at offset {record['offset']}: {what}"
        self.count += 1

    @property
    def detail(self) -> str:
        """The first one, and the number of the others."""
        others = f"; {self.count - 1:,} more" if self.count > 1 else ""
        return f"{self.first}{others}"


class ValueDecoder:
    """Decodes the keys and values of messages. Problems are counted in `summary`."""

    def __init__(self, schemas: ValueSchemas, summary: Summary) -> None:
        self._readers = None if schemas.registry is None else Readers(schemas.registry)
        self._local = schemas.local
        self._summary = summary

    @property
    def missing(self) -> list[int | str]:
        """Ids that the registry does not have, and that may be no ids."""
        return [] if self._readers is None else self._readers.missing

    def feed(self, events: Iterable[Any]) -> list[Any]:
        """The events, with the problems of schemas before the messages that refer to them."""
        out: list[Any] = []
        for event in events:
            if type(event) is Message and isinstance(event.body, dict):
                self._message(event, event.body, out)
            out.append(event)
        return out

    def _message(self, message: Message, body: Body, out: list[Any]) -> None:
        key, version = message.api_key, message.api_version
        fields = None if key is None or version is None else record_fields(key, version, message.type)
        if fields is None:
            return
        flaws = Flaws()

        def report(kind: str, detail: str) -> None:
            self._summary.problems += 1
            out.append(
                Problem(
                    kind,
                    detail,
                    connection=message.connection,
                    time_ns=message.time_ns,
                    capture=message.capture,
                    packet=message.last_packet,
                    direction=message.type,
                )
            )

        for records, topic in each_records(fields, body):
            name = topic.decode(errors="replace") if isinstance(topic, bytes) else topic
            # The brokers' own topics have their own formats.
            if name is not None and name.startswith("__"):
                continue
            for batch in records["batches"]:
                if not batch.get("control"):
                    for record in batch.get("records") or ():
                        self.decode(record, name, flaws, report)
        if flaws.count:
            self._summary.problems += 1
            force_setattr(message, "problems", (*message.problems, Problem("schema-value", flaws.detail)))

    def decode(self, record: Body, topic: str | None, flaws: Flaws, report: Callable[[str, str], None]) -> None:
        """Add the decoded key and value to a record of a topic. Hot."""
        for field, target in _FIELDS:
            data = record[field]
            if data.__class__ is bytes:
                self._value(record, field, target, data, self._local.get((topic, field)), flaws, report)

    def _value(  # noqa: PLR0917 - hot: a call for each key and value
        self,
        record: Body,
        field: str,
        target: str,
        data: bytes,
        reader: ValueReader | None,
        flaws: Flaws,
        report: Callable[[str, str], None],
    ) -> None:
        framing = framing_of(record, target, data)
        places: Sequence[Framing | None] = (framing,)
        sure = True
        if reader is not None:
            if framing is not None:
                # The data itself may begin like a framing.
                places = (framing, None) if framing.sure else (None, framing)
        elif framing is None or self._readers is None:
            return
        else:
            sure = framing.sure
            # Zeros are the rest of a number.
            if not (sure or data[-1] or data[framing.start :].strip(b"\0")):
                return
            reader = self._readers.get(framing.key, report, sure=sure)
            if reader is None:
                return
        if len(data) > MAX_VALUE or len(data) > flaws.left:
            flaws.add(field, record, f"{len(data):,} bytes are too many to decode")
            return
        flaws.left -= len(data)
        flaw = ""
        for place in places:
            try:
                decoded_value = _decoded(reader, place, data)
            except MalformedValueError as error:
                flaw = flaw or f"not decoded by {'its schema' if place is None else f'schema {place.key}'}: {error}"
                continue
            named = _LOCAL if place is None else _named(place.format, place.key)
            name, value = decoded_value
            if name is None:
                record[target] = {**named, "schema_type": reader.kind, "value": value}
            else:
                record[target] = {**named, "schema_type": reader.kind, "name": name, "value": value}
            return
        if sure:
            flaws.add(field, record, flaw)


def _decoded(reader: ValueReader, framing: Framing | None, data: bytes) -> DecodedValue:
    if framing is None:
        return reader.read(data, 0)
    if reader.kind != "PROTOBUF" and not framing.zlib:
        return reader.read(data, framing.start)
    return reader.read(*data_of(framing, reader.kind, data))


_LOCAL: Final[Body] = {"format": "schema-file"}


@functools.lru_cache(maxsize=MAX_IDS)
def _named(kind: Format, key: int | str) -> Body:
    """What a decoded value says of its schema. Hot: made once for each schema."""
    return {"format": kind, ("schema_id" if isinstance(key, int) else "schema_guid"): key}
