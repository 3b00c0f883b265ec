"""From a type to its encoding: the type that msgspec decodes, and the conversions before and after that.

msgspec checks types in native code: numbers, text, `Literal`s, tuples of fixed length, elements of containers, bounds
of `Meta`. Types that it cannot express have a conversion in Python: references to other objects of a state, containers
of the library, keys that are not plain values, text that may be bytes, decoded bodies. Names are never looked up: all
types are known before a byte is read. Counts are trusted only as far as there are bytes for them: msgspec reserves 16
elements, and grows with those actually present.
"""

from __future__ import annotations

import types
import typing
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Sequence
from typing import Annotated, Any, Final, Generic, Literal, NamedTuple, TypeVar, Union

import msgspec

from kafkasniff.errors import UsageError
from kafkasniff.kafka.records.batches import Batch, HeldRecords
from kafkasniff.model import Message


class DamagedError(ValueError):
    """The data is not valid; the message gives the reason."""


Reference = Annotated[int, msgspec.Meta(ge=0)]
"""On the wire: the number of an object of the state."""
Write = Callable[[Any, Callable[[Any], int]], Any]
"""(value, function that numbers an object) → the value that msgspec encodes."""
Read = Callable[[Any, Sequence[Any]], Any]
"""(value decoded by msgspec, objects by number) → the value. Raises DamagedError, IndexError."""


class Codec(NamedTuple):
    """Encoding of values of one type."""

    wire: Any
    """The type that msgspec decodes."""
    write: Write | None = None
    """None: no conversion."""
    read: Read | None = None

    @property
    def plain(self) -> bool:
        """Whether msgspec needs no conversion."""
        return self.write is None and self.read is None


_SCALARS: Final = frozenset({int, str, bytes, bool, float, bytearray, type(None)})
_KEYS: Final = frozenset({int, str, bytes})
"""Types of keys of maps on the wire. Maps with other keys become pairs, which are hashed after they were checked."""


def codec_of(kind: Any, known: Collection[type]) -> Codec:
    """The encoding of values of a type. `known`: classes of numbered objects, which are encoded as their numbers.

    Raises TypeError for a type that a state cannot contain.
    """
    kind = type(None) if kind is None else kind
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind in _SCALARS or origin is Literal:
        return Codec(kind)
    if isinstance(kind, type) and kind in known:
        return _reference((kind,))
    if kind == dict[str, Any]:
        return Codec(kind, _write_body, _read_body)
    if origin is Annotated:
        inner = codec_of(arguments[0], known)
        return inner._replace(wire=Annotated[(inner.wire, *arguments[1:])])
    if origin in (Union, types.UnionType):
        return _union(arguments, known)
    if origin in (list, set, frozenset, deque) or (origin is tuple and arguments[1:] == (...,)):
        return _items(origin, codec_of(arguments[0], known))
    if origin is tuple:
        return _columns([codec_of(argument, known) for argument in arguments], lambda values: values)
    if origin in (dict, OrderedDict):
        return _map(origin, codec_of(arguments[0], known), codec_of(arguments[1], known))
    if isinstance(kind, type) and (issubclass(kind, msgspec.Struct) or hasattr(kind, "_fields")):
        return _record(kind, known)
    raise TypeError(f"no state can hold {kind}")


_UNSTORED: Final[dict[type, str]] = {Message: "frame"}
"""The last field of a class, if no state has it: exports do not keep frames."""


def fields_of(kind: type) -> dict[str, Any]:
    """Names and types of the stored fields of a struct or a named tuple, in order."""
    if issubclass(kind, msgspec.Struct):
        unstored = _UNSTORED.get(kind)
        return {field.name: field.type for field in msgspec.structs.fields(kind) if field.name != unstored}
    return typing.get_type_hints(kind)


# -- references, and what is one thing or another ----------------------------------------------------------------


def _reference(kinds: tuple[type, ...]) -> Codec:
    allowed = frozenset(kinds)

    def write(value: Any, number: Callable[[Any], int]) -> Any:
        return number(value)

    def read(value: Any, objects: Sequence[Any]) -> Any:
        found = objects[value]
        if type(found) not in allowed:
            raise DamagedError(f"object {value} is of another kind")
        return found

    return Codec(Reference, write, read)


def _union(members: tuple[Any, ...], known: Collection[type]) -> Codec:
    optional = type(None) in members
    rest = [member for member in members if member is not type(None)]
    if set(rest) == {str, bytes}:
        # msgspec cannot distinguish them as members of a union.
        return Codec(Any, None, _read_text_or_bytes if optional else _read_some_text)
    references = [one for one in rest if isinstance(one, type) and one in known]
    others = [one for one in rest if one not in references]
    if not references:
        if len(others) > 1:
            raise TypeError(f"no state can hold {members}")
        inner = codec_of(others[0], known)
        return Codec(inner.wire | None, _unless_none(inner.write), _unless_none(inner.read))
    reference = _reference(tuple(references))
    if any(other is not str for other in others):
        raise TypeError(f"no state can hold {members}")
    refer, resolve = reference.write, reference.read
    assert refer is not None
    assert resolve is not None

    def write(value: Any, number: Callable[[Any], int]) -> Any:
        return value if value is None or (others and type(value) is str) else refer(value, number)

    def read(value: Any, objects: Sequence[Any]) -> Any:
        return resolve(value, objects) if type(value) is int else value

    plain = (*others, *([None] if optional else []))
    return Codec(Union[(Reference, *plain)] if plain else Reference, write, read)


def _unless_none(step: Any) -> Any:
    if step is None:
        return None
    return lambda value, context: None if value is None else step(value, context)


def _read_text_or_bytes(value: Any, _objects: Sequence[Any]) -> Any:
    if value is not None and type(value) is not str and type(value) is not bytes:
        raise DamagedError("neither text nor bytes")
    return value


def _read_some_text(value: Any, objects: Sequence[Any]) -> Any:
    if value is None:
        raise DamagedError("neither text nor bytes")
    return _read_text_or_bytes(value, objects)


# -- containers ----------------------------------------------------------------------------------------------------


def _items(origin: Any, item: Codec) -> Codec:
    """Any number of values of one type.

    Sets are sorted: their order depends on what they have had before, and strings have another one in each process.
    """
    write_item, read_item = item.write, item.read
    is_set = origin in (set, frozenset)
    wire: Any = list if origin is deque else origin
    if item.plain and is_set:
        return Codec(wire[item.wire], lambda value, _: sorted(value))
    if item.plain and origin is not deque:
        return Codec(wire[item.wire, ...] if origin is tuple else wire[item.wire])

    def write(value: Any, number: Callable[[Any], int]) -> Any:
        if is_set:
            value = sorted(value)
        return list(value) if write_item is None else [write_item(one, number) for one in value]

    def read(value: Any, objects: Sequence[Any]) -> Any:
        return origin(value) if read_item is None else origin(read_item(one, objects) for one in value)

    return Codec(list[item.wire], write, read)  # type: ignore[name-defined]


def _map(origin: Any, key: Codec, value: Codec) -> Codec:
    """Keys and values."""
    write_value, read_value = value.write, value.read
    if key.wire in _KEYS and key.plain:
        if value.plain and origin is dict:
            return Codec(dict[key.wire, value.wire])  # type: ignore[name-defined]

        def write(found: Any, number: Callable[[Any], int]) -> Any:
            # Reordering an OrderedDict does not change the order of the underlying dict.
            return {one: other if write_value is None else write_value(other, number) for one, other in found.items()}

        def read(found: Any, objects: Sequence[Any]) -> Any:
            if read_value is None:
                return origin(found)
            return origin((one, read_value(other, objects)) for one, other in found.items())

        return Codec(dict[key.wire, value.wire], write, read)  # type: ignore[name-defined]
    pair = _columns([key, value], lambda values: values)
    write_pair, read_pair = pair.write, pair.read

    def write_pairs(found: Any, number: Callable[[Any], int]) -> Any:
        return [one if write_pair is None else write_pair(one, number) for one in found.items()]

    def read_pairs(found: Any, objects: Sequence[Any]) -> Any:
        return origin(found if read_pair is None else (read_pair(one, objects) for one in found))

    return Codec(list[pair.wire], write_pairs, read_pairs)  # type: ignore[name-defined]


def _columns(columns: Sequence[Codec], make: Callable[[tuple[Any, ...]], Any]) -> Codec:
    """A fixed number of values, each with its own type."""
    wire: Any = tuple
    wire = wire[tuple(column.wire for column in columns)]
    writes = [(index, column.write) for index, column in enumerate(columns) if column.write is not None]
    reads = [(index, column.read) for index, column in enumerate(columns) if column.read is not None]

    def write(value: Any, number: Callable[[Any], int]) -> Any:
        found = list(value)
        for index, step in writes:
            found[index] = step(found[index], number)
        return found

    def read(value: Any, objects: Sequence[Any]) -> Any:
        if not reads:
            return make(value)
        found = list(value)
        for index, step in reads:
            found[index] = step(found[index], objects)
        return make(tuple(found))

    return Codec(wire, write if writes else None, read if reads else None)


def _record(kind: type, known: Collection[type]) -> Codec:
    """A struct or a named tuple, by value."""
    fields = {name: codec_of(field, known) for name, field in fields_of(kind).items()}
    if all(codec.plain for codec in fields.values()):
        return Codec(kind)
    values = _columns(list(fields.values()), lambda found: kind(*found))
    take: Any = msgspec.structs.astuple if issubclass(kind, msgspec.Struct) else tuple
    if kind in _UNSTORED:
        take = lambda value: msgspec.structs.astuple(value)[:-1]  # noqa: E731
    write_values, read_values = values.write, values.read

    def write(value: Any, number: Callable[[Any], int]) -> Any:
        found = take(value)
        return found if write_values is None else write_values(found, number)

    def read(value: Any, objects: Sequence[Any]) -> Any:
        return kind(*value) if read_values is None else read_values(value, objects)

    return Codec(values.wire, write, read)


# -- decoded bodies ----------------------------------------------------------------------------------------------


_BATCH: Final = 1
"""Type of the extension that represents a `Batch` in a body."""


class _BatchData(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    fields: dict[str, Any]
    wire: bytes | None
    offset: int
    records: list[dict[str, Any]] | None
    uncompressed: int | None


_TEXT: Final = frozenset({str})
_batch_data: Final = msgspec.msgpack.Decoder(_BatchData)


def _write_body(value: Any, _number: Callable[[Any], int]) -> Any:
    return _without_batches(value)


def _without_batches(value: Any) -> Any:
    """A body with extensions in place of its `Batch`es; the body itself if there are none. Hot."""
    if isinstance(value, dict):
        if type(value) is Batch:
            held = value.held
            wire, offset = (None, 0) if held is None else (held.wire, held.offset)
            data = _BatchData(dict(value), wire, offset, value.records, value.uncompressed)
            return msgspec.msgpack.Ext(_BATCH, _ENCODER.encode(data))
        changed = None
        for name, one in value.items():
            if isinstance(one, (dict, list)):
                found = _without_batches(one)
                if found is not one:
                    changed = dict(value) if changed is None else changed
                    changed[name] = found
        return value if changed is None else changed
    items = None
    for index, one in enumerate(value):
        if not isinstance(one, (dict, list)):
            break  # elements of an array are all of one kind
        found = _without_batches(one)
        if found is not one:
            items = list(value) if items is None else items
            items[index] = found
    return value if items is None else items


def _extension(code: int, data: memoryview) -> Any:
    if code != _BATCH:
        raise DamagedError(f"an extension of type {code}")
    batch_data = _batch_data.decode(data)
    batch = Batch(batch_data.fields)
    if batch_data.wire is not None:
        batch.held = HeldRecords(batch_data.wire, batch_data.offset)
    batch.records, batch.uncompressed = batch_data.records, batch_data.uncompressed
    _check_body(batch)
    for record in batch_data.records or ():
        _check_body(record)
    return batch


def _read_body(value: Any, _objects: Sequence[Any]) -> Any:
    _check_body(value)
    return value


def _check_body(value: Any) -> None:
    """Check that names are text, as all readers of a body expect. Raises DamagedError, RecursionError. Hot."""
    for one in value.values() if isinstance(value, dict) else value:
        kind = type(one)
        if kind is str or kind is int:
            continue
        if kind is dict:
            if not _TEXT.issuperset(map(type, one)):
                raise DamagedError("a name in a body is not text")
            _check_body(one)
        elif kind is list:
            if one:
                _check_body(one)
        elif kind is msgspec.msgpack.Ext:
            raise DamagedError("an extension in a batch")


# -- bytes -------------------------------------------------------------------------------------------------------


_ENCODER: Final = msgspec.msgpack.Encoder()


def encode(value: Any) -> bytes:
    """The output of a codec, as bytes."""
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:
        # Names of captures that are not UTF-8 (PEP 383); tables have them like this, too (`rows.capture_name`).
        return _ENCODER.encode(_as_text(value))


def array_head(count: int) -> bytes:
    """What precedes `count` encoded values that are an array (array 32 of MessagePack)."""
    return b"\xdd" + count.to_bytes(4)


def _as_text(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    if isinstance(value, dict):
        return {_as_text(name): _as_text(one) for name, one in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_as_text(one) for one in value]
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(
            value, **{name: _as_text(getattr(value, name)) for name in value.__struct_fields__}
        )
    return value


def decoder(wire: Any) -> msgspec.msgpack.Decoder[Any]:
    """A decoder of such values. Raises msgspec.MsgspecError, DamagedError, UnicodeDecodeError, RecursionError."""
    return msgspec.msgpack.Decoder(wire, ext_hook=_extension)


# -- single values -----------------------------------------------------------------------------------------------------
#
# Single values as bytes, passed between stages of a run through files: exchanges, connections, problems.
#
# As in a state they are data of types known in advance, checked field by field. Unlike a state they are trees, without
# shared objects and without a header line: writer and reader belong to the same run.

_Kind = TypeVar("_Kind")


class Values(Generic[_Kind]):
    """Values of one type: a struct, a named tuple, or a tuple of such."""

    __slots__ = ("_decoder", "_name", "_read", "_write")

    def __init__(self, kind: Any) -> None:
        """Raises TypeError if values of the type cannot be written."""
        codec = codec_of(kind, ())
        self._name: Final = getattr(kind, "__name__", str(kind))
        self._write, self._read = codec.write, codec.read
        self._decoder: Final = decoder(codec.wire)

    def dump(self, value: _Kind) -> bytes:
        """A value as bytes. Hot: called once per exchange."""
        return encode(value if self._write is None else self._write(value, _no_number))

    def load(self, data: bytes | memoryview) -> _Kind:
        """The dumped value. Raises UsageError if the bytes are not one. Hot."""
        try:
            found: Any = self._decoder.decode(data)
            loaded: _Kind = found if self._read is None else self._read(found, ())
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise UsageError(f"what a task wrote is damaged ({self._name}: {ascii(str(error))[1:-1]})") from error
        return loaded


def _no_number(value: Any) -> int:
    raise TypeError(f"a {type(value).__qualname__} has no number here")
