"""Avro's binary encoding, by a schema that is compiled to closures once.

fastavro cannot be used for captured bytes: a value that nests a recursive type 10^6 times ends the process, and ten
bytes can state an array of 2^62 nulls. Here, a value has at most `MAX_DEPTH` levels, and the number of its parts is
bounded by its bytes (`NODES_PER_BYTE`).

A value of a union is the value alone, without the name of its branch. Decimals are strings, UUIDs as well; dates and
times stay the numbers that they are on the wire.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

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

NODES_PER_BYTE: Final = 4
NODES_PER_VALUE: Final = 10_000
"""Parts (fields, elements, entries) of a value, per byte and in addition: only nulls and empty records take no byte."""
MAX_DECIMAL: Final = 64
"""Bytes of a decimal that is written as a number; longer ones stay bytes, since the conversion is quadratic."""
_UUID: Final = 16


class _Left:
    """What a value may still contain."""

    __slots__ = ("depth", "nodes")

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self.depth = MAX_DEPTH

    def take(self, nodes: int) -> None:
        self.nodes -= nodes
        if self.nodes < 0:
            raise MalformedValueError("more elements than its size allows")


_Read = Callable[[bytes, int, _Left], tuple[Any, int]]
"""Returns the value at a position, and the position after it. Raises MalformedValueError,
    MessagePlace, IndexError, struct.error."""


class _Type(NamedTuple):
    """A compiled type."""

    read: _Read
    nodes: int
    """Parts of a value that are there whatever its bytes are; elements and branches of unions are counted when read."""
    depth: int
    """Levels of the type; what it contains of a type that is being compiled is counted at run time."""


def _long(data: bytes, at: int, _: _Left) -> tuple[int, int]:
    """A number of 64 bits. Hot."""
    byte = data[at]
    if byte < 0x80:
        return byte >> 1 ^ -(byte & 1), at + 1
    value, shift = byte & 0x7F, 7
    for index in range(at + 1, at + 10):
        byte = data[index]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                break
            return value >> 1 ^ -(value & 1), index + 1
        shift += 7
    raise MalformedValueError(f"a number of more than 64 bits at byte {at}")


def _null(_data: bytes, at: int, _: _Left) -> tuple[None, int]:
    return None, at


def _boolean(data: bytes, at: int, _: _Left) -> tuple[bool, int]:
    if data[at] > 1:
        raise MalformedValueError(f"a boolean that is neither 0 nor 1 at byte {at}")
    return data[at] == 1, at + 1


def _float(data: bytes, at: int, _: _Left) -> tuple[float | str, int]:
    return finite(_FLOAT.unpack_from(data, at)[0]), at + 4


def _double(data: bytes, at: int, _: _Left) -> tuple[float | str, int]:
    return finite(_DOUBLE.unpack_from(data, at)[0]), at + 8


_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")


def _bytes(data: bytes, at: int, left: _Left) -> tuple[bytes, int]:
    size, start = _long(data, at, left)
    end = start + size
    if size < 0 or end > len(data):
        raise MalformedValueError(f"an impossible length at byte {at}")
    return data[start:end], end


def _string(data: bytes, at: int, left: _Left) -> tuple[str, int]:
    size, start = _long(data, at, left)
    end = start + size
    if size < 0 or end > len(data):
        raise MalformedValueError(f"an impossible length at byte {at}")
    try:
        return data[start:end].decode(), end
    except UnicodeDecodeError:
        raise MalformedValueError(f"a string that is not UTF-8 at byte {start}") from None


_PRIMITIVES: Final[Mapping[str, _Read]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _long,
    "long": _long,
    "float": _float,
    "double": _double,
    "bytes": _bytes,
    "string": _string,
}


class AvroReader:
    """Decodes values by an Avro schema.

    `schema` is its JSON; `references` those of the schemas that it refers to, each after the ones that it needs.
    Raises SchemaError.
    """

    kind: SchemaKind = "AVRO"

    def __init__(self, schema: str, references: Sequence[str] = ()) -> None:
        compiler = _Compiler()
        for reference in references:
            compiler.type(_parsed(reference), "", 0)
        parsed = _parsed(schema)
        self._read, self._nodes, _ = compiler.type(parsed, "", 0)
        self._name = compiler.name_of(parsed)
        self._whole = parsed in ("bytes", {"type": "bytes"})

    def read(self, data: bytes, start: int, _place: MessagePlace = FIRST_MESSAGE) -> DecodedValue:
        """Decode `data[start:]`. Raises MalformedValueError. Hot."""
        if self._whole:
            # Confluent's serializers write a value that is only bytes without its length.
            return DecodedValue(None, data[start:])
        left = _Left(NODES_PER_VALUE + NODES_PER_BYTE * len(data))
        left.take(self._nodes)
        try:
            value, end = self._read(data, start, left)
        except (IndexError, struct.error):
            raise MalformedValueError("it ends too early") from None
        if end != len(data):
            raise MalformedValueError(f"{len(data) - end} bytes follow its last field")
        return DecodedValue(self._name, value)


def _parsed(schema: str) -> Any:
    if len(schema) > MAX_SCHEMA:
        raise SchemaError(f"it is larger than {MAX_SCHEMA >> 20} MiB")
    try:
        return msgspec.json.decode(schema)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SchemaError(f"it is not JSON: {error}") from None


class _Compiler:
    def __init__(self) -> None:
        self._named: dict[str, _Type | None] = {}
        """By full name; None: being compiled."""
        self._recursive: dict[str, list[_Type]] = {}
        """Filled once the type is compiled."""

    def type(self, schema: Any, namespace: str, depth: int) -> _Type:
        """Compile a schema. Raises SchemaError."""
        if depth > MAX_DEPTH:
            raise SchemaError(f"it is nested more than {MAX_DEPTH} levels deep")
        if isinstance(schema, str):
            primitive = _PRIMITIVES.get(schema)
            return self._reference(schema, namespace) if primitive is None else _Type(primitive, 1, 1)
        if isinstance(schema, list):
            return self._union(schema, namespace, depth)
        if not isinstance(schema, dict):
            raise SchemaError(f"a type is {_shown(schema)}")
        kind = schema.get("type")
        match kind:
            case "record" | "error":
                type_ = self._record(schema, namespace, depth)
            case "enum":
                type_ = self._enum(schema, namespace)
            case "fixed":
                type_ = self._fixed(schema, namespace)
            case "array":
                item = self.type(schema.get("items"), namespace, depth + 1)
                type_ = _Type(_array(item), 1, item.depth + 1)
            case "map":
                item = self.type(schema.get("values"), namespace, depth + 1)
                type_ = _Type(_map(item), 1, item.depth + 1)
            case _:
                # The type of a field or a logical type, around another one.
                type_ = self.type(kind, namespace, depth + 1)
                if kind == "bytes" and schema.get("logicalType") == "decimal":
                    type_ = type_._replace(read=_decimal(type_.read, schema.get("scale", 0)))
        if type_.depth > MAX_DEPTH:
            raise SchemaError(f"it is nested more than {MAX_DEPTH} levels deep")
        return type_

    @staticmethod
    def name_of(schema: Any) -> str | None:
        """The full name of a schema's type, if it has one."""
        if not isinstance(schema, dict) or not isinstance(schema.get("name"), str):
            return None
        return _full_name(schema["name"], schema.get("namespace") or "")

    def _reference(self, name: str, namespace: str) -> _Type:
        full = name if name in self._named else _full_name(name, namespace)
        if full not in self._named:
            raise SchemaError(f'it refers to the type "{name}", which it does not define')
        known = self._named[full]
        if known is not None:
            return known
        later = self._recursive.setdefault(full, [])

        def read(data: bytes, at: int, left: _Left) -> tuple[Any, int]:
            (type_,) = later
            left.take(type_.nodes)
            left.depth -= type_.depth
            if left.depth < 0:
                raise MalformedValueError(f"nested more than {MAX_DEPTH} levels deep")
            result = type_.read(data, at, left)
            left.depth += type_.depth
            return result

        return _Type(read, 1, 1)

    def _define(self, schema: dict[str, Any], namespace: str) -> str:
        """The full name of a named type, which is known from here on."""
        name = schema.get("name")
        if not isinstance(name, str) or not name:
            raise SchemaError(f"a type has the name {_shown(name)}")
        own = schema.get("namespace")
        full = _full_name(name, own if isinstance(own, str) else namespace)
        if full in self._named:
            raise SchemaError(f'it defines the type "{full}" twice')
        self._named[full] = None
        return full

    def _done(self, full: str, type_: _Type) -> _Type:
        self._named[full] = type_
        if full in self._recursive:
            self._recursive[full].append(type_)
        return type_

    def _record(self, schema: dict[str, Any], namespace: str, depth: int) -> _Type:
        full = self._define(schema, namespace)
        inner = full.rpartition(".")[0]
        fields: list[tuple[str, _Type]] = []
        listed = schema.get("fields")
        if not isinstance(listed, list):
            raise SchemaError(f'the record "{full}" has no list of fields')
        for field in listed:
            if not isinstance(field, dict) or not isinstance(field.get("name"), str):
                raise SchemaError(f'a field of "{full}" has no name')
            fields.append((field["name"], self.type(field.get("type"), inner, depth + 1)))
        nodes = 1 + sum(type_.nodes for _, type_ in fields)
        deepest = 1 + max((type_.depth for _, type_ in fields), default=0)
        return self._done(full, _Type(_record(tuple((name, type_.read) for name, type_ in fields)), nodes, deepest))

    def _enum(self, schema: dict[str, Any], namespace: str) -> _Type:
        full = self._define(schema, namespace)
        symbols = schema.get("symbols")
        if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
            raise SchemaError(f'the enum "{full}" has no list of symbols')
        return self._done(full, _Type(_enum(tuple(symbols)), 1, 1))

    def _fixed(self, schema: dict[str, Any], namespace: str) -> _Type:
        full = self._define(schema, namespace)
        size = schema.get("size")
        if not isinstance(size, int) or size < 0:
            raise SchemaError(f'"{full}" has the size {_shown(size)}')
        read = _fixed(size)
        if schema.get("logicalType") == "decimal":
            read = _decimal(read, schema.get("scale", 0))
        elif schema.get("logicalType") == "uuid" and size == _UUID:
            read = _uuid(read)
        return self._done(full, _Type(read, 1, 1))

    def _union(self, schema: list[Any], namespace: str, depth: int) -> _Type:
        branches = [self.type(one, namespace, depth + 1) for one in schema]
        if not branches:
            raise SchemaError("a union has no types")
        deepest = max(type_.depth for type_ in branches)
        return _Type(_union(tuple((type_.read, type_.nodes) for type_ in branches)), 1, deepest)


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _shown(value: Any) -> str:
    return repr(value)[:60]


# -- readers of types ----------------------------------------------------------------------------------------------


def _record(fields: tuple[tuple[str, _Read], ...]) -> _Read:
    def read(data: bytes, at: int, left: _Left) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        for name, field in fields:
            found[name], at = field(data, at, left)
        return found, at

    return read


def _enum(symbols: tuple[str, ...]) -> _Read:
    def read(data: bytes, at: int, left: _Left) -> tuple[str, int]:
        number, end = _long(data, at, left)
        if not 0 <= number < len(symbols):
            raise MalformedValueError(f"an unknown symbol at byte {at}")
        return symbols[number], end

    return read


def _fixed(size: int) -> _Read:
    def read(data: bytes, at: int, _: _Left) -> tuple[bytes, int]:
        end = at + size
        if end > len(data):
            raise IndexError
        return data[at:end], end

    return read


def _union(branches: tuple[tuple[_Read, int], ...]) -> _Read:
    def read(data: bytes, at: int, left: _Left) -> tuple[Any, int]:
        number, start = _long(data, at, left)
        if not 0 <= number < len(branches):
            raise MalformedValueError(f"an unknown type of a union at byte {at}")
        branch, nodes = branches[number]
        if nodes > 1:
            left.take(nodes)
        return branch(data, start, left)

    return read


def _blocks(data: bytes, at: int, left: _Left, nodes: int) -> tuple[int, int]:
    """The number of elements in the next block of an array or a map, and the position of the first."""
    count, at = _long(data, at, left)
    if count < 0:
        # The block's size in bytes follows.
        count, (_, at) = -count, _long(data, at, left)
    left.take(count * nodes)
    return count, at


def _array(item: _Type) -> _Read:
    read_item, nodes = item.read, item.nodes

    def read(data: bytes, at: int, left: _Left) -> tuple[list[Any], int]:
        found: list[Any] = []
        while True:
            count, at = _blocks(data, at, left, nodes)
            if not count:
                return found, at
            for _ in range(count):
                value, at = read_item(data, at, left)
                found.append(value)

    return read


def _map(item: _Type) -> _Read:
    read_item, nodes = item.read, item.nodes

    def read(data: bytes, at: int, left: _Left) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        while True:
            count, at = _blocks(data, at, left, nodes)
            if not count:
                return found, at
            for _ in range(count):
                name, at = _string(data, at, left)
                found[name], at = read_item(data, at, left)

    return read


def _decimal(inner: _Read, scale: Any) -> _Read:
    places = scale if isinstance(scale, int) and 0 <= scale <= MAX_DECIMAL * 3 else 0

    def read(data: bytes, at: int, left: _Left) -> tuple[str | bytes, int]:
        value, at = inner(data, at, left)
        if len(value) > MAX_DECIMAL:
            return value, at
        number = int.from_bytes(value, "big", signed=True)
        if not places:
            return str(number), at
        digits = f"{abs(number):0{places + 1}d}"
        return f"{'-' if number < 0 else ''}{digits[:-places]}.{digits[-places:]}", at

    return read


def _uuid(inner: _Read) -> _Read:
    def read(data: bytes, at: int, left: _Left) -> tuple[str, int]:
        value, at = inner(data, at, left)
        return str(uuid.UUID(bytes=value)), at

    return read
