"""Protobuf by the descriptors of a registry (`format=serialized`), or its text: no compiler and no generated classes.

Registries other than Confluent's have Protobuf only as text. Packages, imports, messages, enums, oneofs, maps and
groups are read; options, services, extensions and reserved numbers are skipped. Names are left to the pool of
descriptors, which resolves them by scope as `protoc` does.

Google's library parses values, with its own bound of 100 levels; here, messages become dicts. Fields have the names of
the file. Fields that have no presence are always there, as in `always_print_fields_with_no_presence`, so that a filter
finds a 0. Enums are names, numbers stay numbers, well-known types are as in Protobuf's JSON.
"""

from __future__ import annotations

import functools
import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from kafkasniff.values.schemas import (
    FIRST_MESSAGE,
    MAX_DEPTH,
    MAX_SCHEMA,
    DecodedValue,
    MalformedValueError,
    MessagePlace,
    SchemaError,
    SchemaKind,
    finite,
)

_TOKEN: Final = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/|(?P<token>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|[\w.]+|[-+{}\[\]()<>=;,:/])""",
    re.DOTALL,
)
_Kinds: Final = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    name: getattr(_Kinds, f"TYPE_{name.upper()}")
    for name in (
        *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64"),
        *("fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes"),
    )
}
_LABELS: Final = {
    "optional": _Kinds.LABEL_OPTIONAL,
    "required": _Kinds.LABEL_REQUIRED,
    "repeated": _Kinds.LABEL_REPEATED,
}
_MAX_NUMBER: Final = 2**31 - 1
_SKIPPED: Final = frozenset({"option", "reserved", "extensions", "extend", "service"})


def parse_proto(text: str, name: str) -> Any:
    """The descriptor of a file. Raises SchemaError."""
    if len(text) > MAX_SCHEMA:
        raise SchemaError(f"it is larger than {MAX_SCHEMA >> 20} MiB")
    return _Parser(text).file(name)


def _tokens(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise SchemaError(f"line {text.count(chr(10), 0, at) + 1}: unexpected {text[at]!r}")
        at = match.end()
        if match["token"] is not None:
            yield match["token"]
    # Ends everything that is still open.
    yield ""


class _Parser:
    def __init__(self, text: str) -> None:
        self._rest = _tokens(text)
        self._next = next(self._rest)
        self._depth = 0
        self._is_proto3 = False

    def _take(self, expected: str | None = None) -> str:
        found = self._next
        if not found or (expected is not None and found != expected):
            raise SchemaError(f"{found or 'the end'!r} instead of {expected or 'more'!r}")
        self._next = next(self._rest)
        return found

    def _takes(self, token: str) -> bool:
        if self._next != token:
            return False
        self._take()
        return True

    def _skip(self) -> None:
        """Skip a statement: to its semicolon, or to the end of its block."""
        depth = 0
        while True:
            token = self._take()
            depth += (token == "{") - (token == "}")
            if depth <= 0 and token in (";", "}"):
                return

    def _number(self) -> int:
        sign = -1 if self._takes("-") else 1
        token = self._take()
        if re.fullmatch(r"0[xX][0-9a-fA-F]{1,8}|[0-9]{1,10}", token) is None:
            raise SchemaError(f"{token[:60]!r} is not a number")
        try:
            number = sign * int(token, 8 if re.fullmatch(r"0[0-7]+", token) else 0)
        except ValueError:
            number = _MAX_NUMBER + 1
        if not -_MAX_NUMBER - 1 <= number <= _MAX_NUMBER:
            raise SchemaError(f"{token!r} is too large")
        return number

    def file(self, name: str) -> Any:
        """The whole file."""
        file = descriptor_pb2.FileDescriptorProto(name=name)
        while self._next:
            token = self._take()
            if token == "syntax":
                self._take("=")
                self._is_proto3 = self._take()[1:-1] == "proto3"
                if self._is_proto3:
                    file.syntax = "proto3"
                self._take(";")
            elif token == "package":
                file.package = self._take()
                self._take(";")
            elif token == "import":
                path = self._take()
                if path in ("public", "weak"):
                    path = self._take()
                file.dependency.append(path[1:-1])
                self._take(";")
            elif token == "message":
                self._message(file.message_type.add(name=self._take()))
            elif token == "enum":
                self._enum(file.enum_type.add(name=self._take()))
            elif token in _SKIPPED:
                self._skip()
            elif token != ";":
                raise SchemaError(f"unexpected {token!r}")
        return file

    def _enum(self, enum: Any) -> None:
        self._take("{")
        while not self._takes("}"):
            token = self._take()
            if token == "option" and self._next == "allow_alias":
                enum.options.allow_alias = True
                self._skip()
            elif token in _SKIPPED and self._next != "=":
                self._skip()
            elif token != ";":
                self._take("=")
                enum.value.add(name=token, number=self._number())
                self._end()

    def _message(self, message: Any) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise SchemaError(f"it is nested more than {MAX_DEPTH} levels deep")
        self._take("{")
        while not self._takes("}"):
            token = self._take()
            # Each of these words may be a type, too.
            is_type = self._next not in ("<", "{") and token not in _LABELS
            if token == "message" and re.fullmatch(r"\w+", self._next):
                self._message(message.nested_type.add(name=self._take()))
            elif token == "enum" and re.fullmatch(r"\w+", self._next):
                self._enum(message.enum_type.add(name=self._take()))
            elif token == "oneof" and is_type:
                self._oneof(message)
            elif token in _SKIPPED:
                self._skip()
            elif token == "map" and self._next == "<":
                self._map(message)
            elif token in _LABELS:
                self._field(message, self._take(), token)
            elif token != ";":
                self._field(message, token, None)
        self._depth -= 1
        # Fields that are optional in proto3 have a oneof of their own, after the others.
        for field in message.field:
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")

    def _oneof(self, message: Any) -> None:
        index = len(message.oneof_decl)
        message.oneof_decl.add(name=self._take())
        self._take("{")
        while not self._takes("}"):
            token = self._take()
            if token == "option":
                self._skip()
            elif token != ";":
                self._field(message, token, None).oneof_index = index

    def _field(self, message: Any, kind: str, label: str | None) -> Any:
        name = self._take()
        self._take("=")
        field = message.field.add(name=name, number=self._number(), label=_LABELS[label or "optional"])
        field.proto3_optional = self._is_proto3 and label == "optional"
        if kind == "group":
            field.name, field.type, field.type_name = name.lower(), _Kinds.TYPE_GROUP, name
            self._options()
            self._message(message.nested_type.add(name=name))
            return field
        if kind in _SCALARS:
            field.type = _SCALARS[kind]
        else:
            # The pool finds out whether it is a message or an enum.
            field.type_name = kind
        self._end()
        return field

    def _map(self, message: Any) -> None:
        self._take("<")
        key = self._take()
        self._take(",")
        value = self._take()
        self._take(">")
        name = self._take()
        # The name of the entries that protoc gives.
        entry = message.nested_type.add(
            name="".join(f"{one[:1].upper()}{one[1:]}" for one in name.split("_")) + "Entry"
        )
        entry.options.map_entry = True
        for number, kind in enumerate((key, value), 1):
            field = entry.field.add(name="key" if number == 1 else "value", number=number, label=_LABELS["optional"])
            if kind in _SCALARS:
                field.type = _SCALARS[kind]
            else:
                field.type_name = kind
        self._take("=")
        message.field.add(
            name=name, number=self._number(), label=_LABELS["repeated"], type=_Kinds.TYPE_MESSAGE, type_name=entry.name
        )
        self._end()

    def _options(self) -> None:
        """Skip `[packed = true]`."""
        if self._takes("["):
            depth = 1
            while depth:
                token = self._take()
                depth += (token == "[") - (token == "]")

    def _end(self) -> None:
        self._options()
        self._take(";")


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
    if not files or not all(file.name for file in files):
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
        fields += [self._field(field, field.number in repeated) for field in descriptor.fields]
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
            names = {value.number: value.name for value in reversed(field.enum_type.values)}
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
    return [convert(value) for value in values]


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
