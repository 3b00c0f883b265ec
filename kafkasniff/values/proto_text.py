"""Protobuf files as text: what a decoder needs of `.proto`, as a descriptor.

Registries other than Confluent's have Protobuf only as text. Packages, imports, messages, enums, oneofs, maps and
groups are read; options, services, extensions and reserved numbers are skipped. Names are left to the pool of
descriptors, which resolves them by scope as `protoc` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from google.protobuf import descriptor_pb2

from kafkasniff.values.schemas import MAX_DEPTH, MAX_SCHEMA, SchemaError

__all__ = ["parse_proto"]

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
        found = _TOKEN.match(text, at)
        if found is None:
            raise SchemaError(f"line {text.count(chr(10), 0, at) + 1}: unexpected {text[at]!r}")
        at = found.end()
        if found["token"] is not None:
            yield found["token"]
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
