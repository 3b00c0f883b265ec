"""Protobuf by the descriptors of a registry (`format=serialized`), or its text: no compiler and no generated classes.

Google's library parses values, with its own bound of 100 levels; here, messages become dicts. Fields have the names of
the file. Fields that have no presence are always there, as in `always_print_fields_with_no_presence`, so that a filter
finds a 0. Enums are names, numbers stay numbers, well-known types are as in Protobuf's JSON.
"""

from __future__ import annotations

import functools
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from kafkasniff.values.proto_text import parse_proto
from kafkasniff.values.schemas import (
    FIRST_MESSAGE,
    MAX_SCHEMA,
    DecodedValue,
    MalformedValueError,
    MessagePlace,
    SchemaError,
    SchemaKind,
    finite,
)

__all__ = ["ProtobufReader", "descriptor_file", "descriptor_set"]

FileDescriptorProto = descriptor_pb2.FileDescriptorProto

_GOOGLE: Final = "google/protobuf/"
_CONFLUENT: Final = {
    # Without the options that it defines, which values do not need.
    "confluent/meta.proto": """syntax = "proto3"; package confluent;
        message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }""",
    "confluent/type/decimal.proto": """syntax = "proto3"; package confluent.type;
        message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }""",
}
"""Files that schemas import without a reference: Confluent's registry has them."""
MAX_FILES: Final = 1000
"""Files of one schema."""


def descriptor_file(text: str, name: str) -> Any:
    """A file as registries have it: text, or from Confluent's `format=serialized`; gets a name. Raises SchemaError."""
    if len(text) > MAX_SCHEMA:
        raise SchemaError(f"it is larger than {MAX_SCHEMA >> 20} MiB")
    try:
        file = FileDescriptorProto.FromString(b64decode(text, validate=True))
    except (Base64Error, ValueError, DecodeError):
        return parse_proto(text, name)
    file.name = name
    return file


def descriptor_set(data: bytes) -> list[Any]:
    """The files of `protoc --include_imports --descriptor_set_out`. Raises SchemaError."""
    try:
        files = list(descriptor_pb2.FileDescriptorSet.FromString(data).file)
    except DecodeError:
        files = []
    if not files or not all(one.name for one in files):
        raise SchemaError("it is not a set of descriptors, as protoc --descriptor_set_out writes it")
    return files


class ProtobufReader:
    """Decodes values by the messages of a file, the last one of `files`; each comes after the files that it imports.

    `name`: the message of values without indexes. Raises SchemaError.
    """

    kind: SchemaKind = "PROTOBUF"

    def __init__(self, files: Sequence[Any], name: str | None = None) -> None:
        if len(files) > MAX_FILES:
            raise SchemaError(f"it has more than {MAX_FILES} files")
        pool = descriptor_pool.DescriptorPool()
        added: set[str] = set()
        try:
            for file in files:
                _add_known(pool, file.dependency, added)
                if file.name not in added:
                    added.add(file.name)
                    _check_maps(file.message_type)
                    pool.Add(file)
            self._file: Any = pool.FindFileByName(files[-1].name)
            self._first: Any = None if name is None else pool.FindMessageTypeByName(name)
        except (KeyError, TypeError, ValueError) as error:
            raise SchemaError(_line(error)) from None
        self._pool = pool
        self._messages: dict[MessagePlace, tuple[str, Callable[[], Any], _Plain]] = {}
        self._plans: dict[str, _Plain] = {}

    def read(self, data: bytes, start: int, place: MessagePlace = FIRST_MESSAGE) -> DecodedValue:
        """Decode `data[start:]` as the message at `place`. Raises MalformedValueError. Hot."""
        found = self._messages.get(place)
        if found is None:
            found = self._messages[place] = self._message(place)
        name, make, plain = found
        message = make()
        try:
            message.ParseFromString(data[start:])
        except DecodeError:
            raise MalformedValueError(f"it is not a {name}") from None
        return DecodedValue(name, plain(message))

    def _message(self, place: MessagePlace) -> tuple[str, Callable[[], Any], _Plain]:
        """The message at a place: its name, its class and what makes a dict of it."""
        descriptor: Any = self._first
        if isinstance(place, str):
            descriptor = self._named(place)
        elif descriptor is None or place != FIRST_MESSAGE:
            inside = list(self._file.message_types_by_name.values())
            for index in place:
                if not 0 <= index < len(inside):
                    raise MalformedValueError("the schema has no message at its indexes")
                descriptor = inside[index]
                inside = list(descriptor.nested_types)
        made: Any = message_factory.GetMessageClass(descriptor)
        return descriptor.full_name, made, self._plain(descriptor)

    def _named(self, name: str) -> Any:
        """The message with a name, with or without its package."""
        package = self._file.package
        for one in (name, f"{package}.{name}"):
            try:
                return self._pool.FindMessageTypeByName(one)
            except KeyError:
                continue
        raise MalformedValueError("the schema has no message of its name")

    def _plain(self, descriptor: Descriptor) -> _Plain:
        """Makes a dict of a message."""
        known = self._plans.get(descriptor.full_name)
        if known is not None:
            return known
        if descriptor.full_name in _WELL_KNOWN:
            found = self._plans[descriptor.full_name] = _as_json
            return found
        fields: list[_Field] = []
        found = self._plans[descriptor.full_name] = functools.partial(_message, fields)
        written = descriptor_pb2.DescriptorProto()
        descriptor.CopyToProto(written)
        repeated = {one.number for one in written.field if one.label == one.LABEL_REPEATED}
        # Recursive types find the list, which is filled now.
        fields += [self._field(one, one.number in repeated) for one in descriptor.fields]
        return found

    def _field(self, field: FieldDescriptor, is_repeated: bool) -> _Field:
        entry = field.message_type
        if is_repeated and entry is not None and entry.GetOptions().map_entry:
            value = entry.fields_by_name["value"]
            return _Field(field.name, False, functools.partial(_map, self._value(value)))
        convert = self._value(field)
        if is_repeated:
            return _Field(field.name, False, functools.partial(_list, convert))
        return _Field(field.name, field.has_presence, convert)

    def _value(self, field: FieldDescriptor) -> _Plain:
        if field.message_type is not None:
            return self._plain(field.message_type)
        if field.enum_type is not None:
            names = {one.number: one.name for one in reversed(field.enum_type.values)}
            return functools.partial(_enum, names)
        return finite if field.type in _FLOATS else _same


_Plain = Callable[[Any], Any]


class _Field(NamedTuple):
    name: str
    optional: bool
    """It may be absent."""
    convert: _Plain


_FLOATS: Final = (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE)
_WELL_KNOWN: Final = frozenset(
    f"google.protobuf.{name}"
    for name in (
        *("Timestamp", "Duration", "FieldMask", "Struct", "Value", "ListValue"),
        *("DoubleValue", "FloatValue", "Int64Value", "UInt64Value", "Int32Value", "UInt32Value"),
        *("BoolValue", "StringValue", "BytesValue"),
    )
)


def _message(fields: list[_Field], message: Any) -> dict[str, Any]:
    return {
        name: convert(getattr(message, name))
        for name, optional, convert in fields
        if not optional or message.HasField(name)
    }


def _list(convert: _Plain, values: Any) -> list[Any]:
    return [convert(one) for one in values]


def _map(convert: _Plain, values: Any) -> dict[str, Any]:
    return {_key(key): convert(values[key]) for key in values}


def _key(key: Any) -> str:
    """A key as in Protobuf's JSON."""
    return str(key).lower() if isinstance(key, bool) else str(key)


def _enum(names: Mapping[int, str], number: int) -> str | int:
    return names.get(number, number)


def _same(value: Any) -> Any:
    return value


def _as_json(message: Message) -> Any:
    try:
        return json_format.MessageToDict(message)
    except (ValueError, TypeError, OverflowError, json_format.SerializeToJsonError):
        # Out of range, such as the year 10000.
        return {field.name: value for field, value in message.ListFields() if isinstance(value, int)}


def _add_known(pool: Any, imports: Any, added: set[str]) -> None:
    """Add the imported files that every registry knows, with their imports."""
    for name in imports:
        if name not in added:
            file = _known(name)
            if file is not None:
                added.add(name)
                _add_known(pool, file.dependency, added)
                pool.Add(file)


def _known(name: str) -> Any:
    """A file of Google or Confluent; None for any other."""
    if name in _CONFLUENT:
        return parse_proto(_CONFLUENT[name], name)
    if not name.startswith(_GOOGLE):
        return None
    try:
        known: Any = descriptor_pool.Default().FindFileByName(name)
    except KeyError:
        known = _loaded(name)
    if known is None:
        return None
    file = FileDescriptorProto()
    known.CopyToProto(file)
    return file


def _loaded(name: str) -> Any:
    """A file of Google's library; None if it has none of this name."""
    import importlib  # noqa: PLC0415 - few schemas need it

    stem = name.removeprefix(_GOOGLE).removesuffix(".proto")
    if not stem.isidentifier():
        return None
    try:
        return importlib.import_module(f"google.protobuf.{stem}_pb2").DESCRIPTOR
    except ImportError:
        return None


def _check_maps(messages: Any) -> None:
    """Raise SchemaError for malformed entries of maps: the pool accepts them."""
    for message in messages:
        _check_maps(message.nested_type)
        if message.options.map_entry:
            found = [(one.name, one.number, one.label == one.LABEL_REPEATED) for one in message.field]
            if found != [("key", 1, False), ("value", 2, False)]:
                raise SchemaError(f"the map entry {message.name[:100]!r} has other fields than key and value")


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
