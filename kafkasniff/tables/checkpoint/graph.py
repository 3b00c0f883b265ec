"""A graph of objects as bytes, and back: a table of its objects, in which they refer to each other by number.

There are two kinds of numbered objects. Mutable ones (`Layout` without `made`) may refer to each other in circles: they
are created empty, and get their fields when all exist. Values (`made`) are created complete: they only refer to objects
before them in the table. Loading creates new objects only. Nothing is looked up by name, no method of a class is called
except its constructor without arguments if the layout says so (`new`) and the method named in its layout (`after`), and
no existing object is modified.
"""

from __future__ import annotations

import functools
import hashlib
import operator
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, TypeVar

import msgspec

from kafkasniff.tables.checkpoint.wire import Codec, DamagedError, array_head, codec_of, decoder, encode, fields_of

_Kind = TypeVar("_Kind")


class Layout(msgspec.Struct, frozen=True):
    """How an object of a class is stored."""

    of: type
    fields: Mapping[str, Any] | None = None
    """Type by attribute. None: the fields of the struct or named tuple."""
    made: Callable[..., Any] | None = None
    """For values: creates one from its fields, in order."""
    new: Callable[[], Any] | None = None
    """Creates an object whose fields are set afterwards; None: an empty one, of a class without other fields."""
    without: frozenset[str] = frozenset()
    """Attributes that are not stored, with `new`: they stay as created, or as `after` sets them."""
    paths: Mapping[str, str] = {}
    """Where attributes are that belong to a part of the object, by the names of their fields: `_state.ports`."""
    views: Mapping[str, Callable[[Any], Any]] = {}
    """Replacements that are stored for some attributes."""
    after: Callable[[Any], None] | None = None
    """Called when all objects have their fields: computes derived state. Raises DamagedError."""
    alone: bool = False
    """There is at most one."""


class _Plan:
    """How objects of one class are written and read."""

    __slots__ = ("after", "allocate", "alone", "fields", "fill", "made", "mirror", "of", "read", "tag", "write")

    def __init__(self, layout: Layout, tag: int, known: Iterable[type]) -> None:
        fields = fields_of(layout.of) if layout.fields is None else layout.fields
        codecs = {name: codec_of(kind, frozenset(known)) for name, kind in fields.items()}
        self.of = layout.of
        self.tag = tag
        self.after, self.alone = layout.after, layout.alone
        self.fields = fields
        if layout.made is None:
            _check_complete(layout, frozenset(fields))
        # A leading underscore would clash with the mirror's own attributes.
        self.mirror = msgspec.defstruct(
            f"{layout.of.__name__}{tag}",
            [(f"f{index}", codec.wire) for index, codec in enumerate(codecs.values())],
            tag=tag,
            array_like=True,
            forbid_unknown_fields=True,
            gc=False,
        )
        self.write = _writer(layout, tag, codecs)
        self.read = _reader(codecs)
        self.made = layout.made
        self.allocate: Callable[[], Any] = layout.new or functools.partial(object.__new__, layout.of)
        self.fill = _filler(layout, list(fields))


def _described(kind: type, fields: Mapping[str, Any]) -> str:
    """A class with the names and types of its fields."""
    return f"{kind.__module__}.{kind.__qualname__} {', '.join(f'{name}: {of}' for name, of in fields.items())}"


def _parts(kind: Any, found: dict[type, str]) -> None:
    """Collect the structs and named tuples that values of a type contain."""
    for one in typing.get_args(kind):
        _parts(one, found)
    if isinstance(kind, type) and (issubclass(kind, msgspec.Struct) or hasattr(kind, "_fields")) and kind not in found:
        fields = fields_of(kind)
        found[kind] = _described(kind, fields)
        for one in fields.values():
            _parts(one, found)


def _check_complete(layout: Layout, fields: frozenset[str]) -> None:
    """Raises TypeError if a class has attributes that its layout does not know, or lacks some of them."""
    example = None if layout.new is None else layout.new()
    if example is None:
        has = _slots(layout.of)
    else:
        has = _slots(layout.of) | frozenset(getattr(example, "__dict__", ()))
    for part in {path.partition(".")[0] for path in layout.paths.values()}:
        has = has - {part} | {f"{part}.{name}" for name in vars(getattr(example, part))}
    fields = frozenset(layout.paths.get(name, name) for name in fields)
    if layout.without & fields or has != fields | layout.without:
        odd = sorted(has ^ (fields | layout.without)) or sorted(layout.without & fields)
        raise TypeError(f"the layout of {layout.of.__qualname__} and its attributes differ: {', '.join(odd)}")


def _slots(kind: type) -> frozenset[str]:
    if issubclass(kind, msgspec.Struct):
        return frozenset(kind.__struct_fields__)
    return frozenset(name for one in kind.__mro__ for name in getattr(one, "__slots__", ()))


def _writer(layout: Layout, tag: int, codecs: Mapping[str, Codec]) -> Callable[[Any, Callable[[Any], int]], Any]:
    steps = [(index, codec.write) for index, codec in enumerate(codecs.values(), 1) if codec.write is not None]
    views = [(list(codecs).index(name) + 1, view) for name, view in layout.views.items()]
    take: Callable[[Any], Iterable[Any]]
    if issubclass(layout.of, tuple):
        take = iter
    elif len(codecs) == 1:
        (name,) = codecs
        only = attrgetter(name)
        take = lambda value: (only(value),)  # noqa: E731
    else:
        take = attrgetter(*(layout.paths.get(name, name) for name in codecs))

    def write(value: Any, number: Callable[[Any], int]) -> Any:
        found = [tag, *take(value)]
        for index, view in views:
            found[index] = view(value)
        for index, step in steps:
            found[index] = step(found[index], number)
        return found

    return write


def _reader(codecs: Mapping[str, Codec]) -> Callable[[msgspec.Struct, Sequence[Any]], Sequence[Any]]:
    steps = [(index, codec.read) for index, codec in enumerate(codecs.values()) if codec.read is not None]
    if not steps:
        return lambda mirror, _objects: msgspec.structs.astuple(mirror)

    def read(mirror: msgspec.Struct, objects: Sequence[Any]) -> Sequence[Any]:
        found = list(msgspec.structs.astuple(mirror))
        for index, step in steps:
            found[index] = step(found[index], objects)
        return found

    return read


def _filler(layout: Layout, names: list[str]) -> Callable[[Any, Sequence[Any]], None]:
    if issubclass(layout.of, msgspec.Struct):
        force = msgspec.structs.force_setattr

        def fill(made: Any, values: Sequence[Any]) -> None:
            for name, value in zip(names, values, strict=True):
                force(made, name, value)

    elif layout.paths:
        places = [layout.paths.get(name, name).rpartition(".") for name in names]

        def fill(made: Any, values: Sequence[Any]) -> None:
            for (part, _, name), value in zip(places, values, strict=True):
                setattr(attrgetter(part)(made) if part else made, name, value)

    elif hasattr(layout.of, "__slots__") and layout.made is None:
        setters = [getattr(layout.of, name).__set__ for name in names]

        def fill(made: Any, values: Sequence[Any]) -> None:
            for set_, value in zip(setters, values, strict=True):
                set_(made, value)

    else:

        def fill(made: Any, values: Sequence[Any]) -> None:
            vars(made).update(zip(names, values, strict=True))

    return fill


class Graph:
    """Writes and reads graphs of objects of some classes."""

    def __init__(self, layouts: Sequence[Layout]) -> None:
        known = frozenset(layout.of for layout in layouts)
        plans = [_Plan(layout, tag, known) for tag, layout in enumerate(layouts)]
        self._by_class = {plan.of: plan for plan in plans}
        self._by_mirror = {plan.mirror: plan for plan in plans}
        mirrors: Any = functools.reduce(operator.or_, (plan.mirror for plan in plans))
        self._decoder = decoder(list[mirrors])
        parts: dict[type, str] = {}
        for plan in plans:
            for kind in plan.fields.values():
                _parts(kind, parts)
        text = [_described(plan.of, plan.fields) for plan in plans] + sorted(parts.values())
        self.fingerprint: Final = hashlib.blake2b("\n".join(text).encode(), digest_size=8).hexdigest()
        """Differs if the stored data differs."""

    def dump(self, root: object, header: bytes = b"") -> bytes:
        """An object and all that it refers to, which stay unchanged, after a header.

        Raises TypeError for an object of a class that a state may not contain.
        """
        # Encoded one by one: as lists, the objects of many connections would need as much memory again.
        table: list[bytes] = []
        numbers: dict[int, int] = {}
        kept: list[object] = []
        by_class = self._by_class

        def number(found: object) -> int:
            index = numbers.get(id(found))
            if index is not None:
                return index
            plan = by_class.get(type(found))
            if plan is None:
                raise TypeError(f"a {type(found).__qualname__} is not part of a state")
            kept.append(found)
            if plan.made is not None:
                written = plan.write(found, number)
                index = numbers[id(found)] = len(table)
                table.append(encode(written))
                return index
            index = numbers[id(found)] = len(table)
            table.append(b"")
            table[index] = encode(plan.write(found, number))
            return index

        number(root)
        numbers.clear()
        kept.clear()
        return b"".join((header, array_head(len(table)), *table))

    def load(self, data: bytes | memoryview, kind: type[_Kind]) -> _Kind | None:
        """The dumped object, created anew; None if it was of another kind.

        Raises DamagedError if `dump` cannot have written the data.
        """
        try:
            objects = self._objects(self._decoder.decode(data))
        except msgspec.MsgspecError as error:
            raise DamagedError(str(error)) from None
        except (IndexError, TypeError, ValueError, RecursionError) as error:
            if isinstance(error, DamagedError):
                raise
            raise DamagedError(type(error).__name__) from error
        # Values follow the objects that they refer to.
        found = objects[0] if objects else None
        return found if type(found) is kind else None

    def _objects(self, table: list[msgspec.Struct]) -> list[Any]:
        by_mirror = self._by_mirror
        objects: list[Any] = []
        later: list[tuple[_Plan, Any, msgspec.Struct]] = []
        seen: set[int] = set()
        for mirror in table:
            plan = by_mirror[type(mirror)]
            if plan.made is not None:
                objects.append(plan.made(*plan.read(mirror, objects)))
                continue
            if plan.alone:
                if plan.tag in seen:
                    raise DamagedError(f"it has more than one {plan.of.__qualname__}")
                seen.add(plan.tag)
            made = plan.allocate()
            objects.append(made)
            later.append((plan, made, mirror))
        for plan, made, mirror in later:
            plan.fill(made, plan.read(mirror, objects))
        # Objects usually follow those that refer to them.
        for plan, made, _ in reversed(later):
            if plan.after is not None:
                plan.after(made)
        return objects
