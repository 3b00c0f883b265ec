"""Tables of summaries for the native kernel: their parts, and the bytes that `kernel/summary_table.zig` reads.

A table is a head, the fields of a layout in wire order with the slots for their values, the lists of the template, its
nodes as words, and a pool of texts. All numbers are in native byte order.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from struct import Struct as Packing
from typing import Any, Final

import msgspec

from kafkasniff.kafka.schema.codes import enum_by_name, enum_text
from kafkasniff.kafka.schema.definition import FORMATS, KINDS, Field, Struct, topic_fields
from kafkasniff.sinks.summaries import syntax
from kafkasniff.sinks.summaries.interpreter import Shape

MAX_SLOTS: Final = 96
"""Kinds of values that a table keeps."""
MAX_LISTS: Final = 16
NONE: Final = 0xFFFF
TEST_SIZE: Final = 4
"""Words of a condition."""

_MAGIC: Final = int.from_bytes(b"KSS2", "little")
_HEAD: Final = Packing("=17I")
_FIELD: Final = Packing("=BxHHHHHHHHxxII")
_LIST: Final = Packing("=18I")
_SUBJECT: Final = Packing("=9I")
_FLAGS: Final = (
    *("array", "nullable", "compact", "flexible", "tagged", "secret", "watched", "unaligned", "whole"),
    *("topic_id", "topic_name"),
)
_NODES: Final = (
    *("text", "nothing", "word", "number", "name", "amount", "count", "list", "label", "topic"),
    *("records", "base_offset", "types", "address", "parts", "choice"),
)
_TESTS: Final = ("some", "none", "equal", "unequal", "least", "is_null", "not_null", "same", "other")
_LISTS: Final = ("each", "words", "partitions")
_NUMBERED: Final = frozenset({"code", "special", "bool"})
"""Kinds of enums whose values are numbers."""
_WORD: Final = 0xFFFF_FFFF


class Slot:
    """A kept value; its number is assigned at the end."""

    def __init__(self) -> None:
        self.number = NONE


class Scope:
    """Owner of slots and lists: the message, or an element of a list."""

    def __init__(self) -> None:
        self.slots: list[Slot] = []
        self.lists: list[TableList] = []
        self.first_slot = self.first_list = 0


Word = Any
"""A number, or a slot, a list or an enum whose number is assigned at the end."""


class TableList(msgspec.Struct, eq=False):
    """An array that a summary lists; `kernel/summary_table.zig` explains its fields."""

    kind: str
    scope: Scope
    shown: int
    separator: str
    noun: str
    code: list[Word] = []
    counts_all: bool = False
    prefer: Slot | None = None
    name: Slot | None = None
    id: Slot | None = None
    index: Slot | None = None
    failed: Slot | None = None
    number: int = NONE


class Subject(msgspec.Struct, eq=False):
    """What the errors of a struct are of; `kernel/summary_table.zig` explains its fields."""

    partition: Slot | None = None
    topic: Slot | None = None
    id: Slot | None = None
    message: Slot | None = None
    leader: Slot | None = None
    names: list[Word] = []
    own_odd: bool = False
    inner_odd: bool = False
    number: int = NONE


class EnumNames(msgspec.Struct, frozen=True):
    """The names of an enum, as in summaries, among the words."""

    name: str

    def names(self) -> dict[int, str]:
        """By their numbers; empty if the values of the enum are not numbers."""
        table = enum_by_name(self.name)
        found: dict[int, str] = {}
        for value in () if table is None or table.kind not in _NUMBERED else table.values:
            number = value.text == "true" if table is not None and table.kind == "bool" else int(value.text, 0)
            name = enum_text(self.name, number)
            assert name is not None
            found[int(number)] = name.lower().replace("_", " ")
        return found


class Use:
    """What to do with a field."""

    def __init__(self) -> None:
        self.slot: Slot | None = None
        self.sum: Slot | None = None
        self.runs: TableList | None = None
        self.list_of: syntax.Node | None = None
        self.subject: Subject | None = None


def node_of(kind: str, *words: Word) -> list[Word]:
    """The words of a node: its kind, their number, and its operands."""
    return [_NODES.index(kind), 2 + len(words), *words]


def condition_of(kind: str, slot: Slot, operand: int | Slot = 0) -> list[Word]:
    """The words of a condition on a slot: with a number, or with another slot."""
    low, high = (operand, 0) if isinstance(operand, Slot) else (operand & _WORD, operand >> 32 & _WORD)
    return [_TESTS.index(kind), slot, low, high]


class TemplateTable:
    """A table under construction: its pool of texts, and everything that is written at the end."""

    def __init__(self, *, is_response: bool) -> None:
        self._is_response = is_response
        self.is_settled = False
        """The layout decided whether the message has a field."""
        self._pool = bytearray()
        self._texts: dict[str, int] = {}
        self._words: list[int] = []
        self._enums: dict[str, int] = {}

    def text(self, text: str) -> tuple[int, int]:
        """The position of a text in the pool, and its size."""
        data = text.encode()
        if text not in self._texts:
            self._texts[text] = len(self._pool)
            self._pool += data
        return self._texts[text], len(data)

    def packed(
        self,
        root: Struct,
        uses: dict[tuple[str, ...], Use],
        code: list[Word],
        scope: Scope,
        kept: tuple[Slot | None, ...],
    ) -> bytes | None:
        """The bytes of the table; None if it exceeds the kernel's limits.

        `code`: the nodes of the message, whose slots and lists are in `scope`; `kept`: the slots for the partitions of
        a fetch session, its number, and for the throttle time.
        """
        lists = _numbered(scope)
        slots = len(scope.slots) + sum(len(table_list.scope.slots) for table_list in lists)
        if slots > MAX_SLOTS or len(lists) > MAX_LISTS:
            return None
        for nodes in (code, *(table_list.code for table_list in lists)):
            self._add_enums(nodes)
        places = self._placed(code)
        packed = b"".join([self._list(table_list) for table_list in lists])
        subjects = [use.subject for use in uses.values() if use.subject is not None]
        for number, subject in enumerate(subjects):
            subject.number = number
            packed += self._subject(subject)
        fields = list(_fields(root, uses))
        body = b"".join([*fields, packed, _words(self._words), bytes(self._pool)])
        return (
            _HEAD.pack(
                *(_MAGIC, _HEAD.size + len(body), len(fields), len(lists), len(self._words), len(self._pool)),
                *(len(scope.slots), len(scope.lists), slots, *places, self._is_response),
                *map(_number, kept),
                *(len(subjects), self.is_settled),
            )
            + body
        )

    def _placed(self, code: list[Word]) -> tuple[int, int]:
        """Append nodes to the words; returns where they begin and end."""
        begin = len(self._words)
        for word in code:
            match word:
                case Slot() | TableList():
                    self._words.append(word.number)
                case EnumNames(name):
                    self._words.append(self._enums[name])
                case _:
                    self._words.append(int(word))
        return begin, len(self._words)

    def _add_enums(self, code: list[Word]) -> None:
        """Insert the names that nodes refer to before them."""
        for word in code:
            if not isinstance(word, EnumNames) or word.name in self._enums:
                continue
            self._enums[word.name] = len(self._words)
            names = word.names()
            self._words.append(len(names))
            for number, name in names.items():
                self._words += [number & _WORD, number >> 32 & _WORD, *self.text(name)]

    def _list(self, one: TableList) -> bytes:
        begin, end = self._placed(one.code)
        scope = one.scope
        return _LIST.pack(
            *(_LISTS.index(one.kind), one.shown, *self.text(one.separator), *self.text(one.noun), begin, end),
            *(one.counts_all, scope.first_slot, len(scope.slots), scope.first_list, len(scope.lists)),
            *(_number(one.prefer), _number(one.name), _number(one.id), _number(one.index), _number(one.failed)),
        )

    def _subject(self, one: Subject) -> bytes:
        slots = one.partition, one.topic, one.id, one.message, one.leader
        return _SUBJECT.pack(*map(_number, slots), *self._placed(one.names), one.own_odd, one.inner_odd)


def _number(slot: Slot | None) -> int:
    return NONE if slot is None else slot.number


def _numbered(root: Scope) -> list[TableList]:
    """All lists, grouped by scope; assigns numbers to them and all slots."""
    table_lists = list(root.lists)
    slots = 0
    waiting = [root]
    for scope in waiting:
        scope.first_slot = slots
        for slot in scope.slots:
            slot.number, slots = slots, slots + 1
        waiting += [table_list.scope for table_list in scope.lists]
    for table_list in table_lists:
        table_list.scope.first_list = len(table_lists)
        table_lists += table_list.scope.lists
    for number, table_list in enumerate(table_lists):
        table_list.number = number
    return table_lists


def _words(words: list[int]) -> bytes:
    return b"".join([word.to_bytes(4, sys.byteorder) for word in words])


class _Row(msgspec.Struct):
    """A field of the table."""

    depth: int
    kind: str
    flags: int
    use: Use
    fields: int = 0
    tagged: int = 0
    width: int = 0
    tag: int = 0
    after: int = 0


def _fields(root: Struct, uses: dict[tuple[str, ...], Use]) -> Iterator[bytes]:
    """The fields of a layout, each with its use."""
    rows = [_Row(0, "struct", _flags(flexible=root.flexible), uses.get((), Use()))]
    _add(root, (), uses, rows)
    waiting: list[_Row] = []
    for index, row in enumerate(rows):
        while waiting and waiting[-1].depth >= row.depth:
            waiting.pop().after = index
        waiting.append(row)
    for row in waiting:
        row.after = len(rows)
    for row in rows:
        runs = NONE if row.use.runs is None else row.use.runs.number
        subject = NONE if row.use.subject is None else row.use.subject.number
        numbers = row.fields, row.tagged, _number(row.use.slot), _number(row.use.sum), runs, row.width, subject
        yield _FIELD.pack(KINDS.index(row.kind), row.flags, *numbers, row.tag, row.after)


def _add(struct: Struct, path: tuple[str, ...], uses: dict[tuple[str, ...], Use], rows: list[_Row]) -> None:
    """Add the fields of the struct in the last row."""
    outer = rows[-1]
    before: _Row | None = None
    topic, topic_id = topic_fields((*struct.fields, *struct.tagged))
    for field in (*struct.fields, *struct.tagged):
        place = (*path, field.name)
        is_id = topic_id is not None and field.name == topic_id
        is_used = place in uses or is_id
        # Such a value is always valid.
        width = 0 if is_used or field.type not in FORMATS or field.type in {"bool", "error"} else FORMATS[field.type][1]
        if width and before is not None and not field.array and field.tag is None:
            before.width += width
            continue
        inner = field.struct
        flags = _flags(
            array=field.array,
            nullable=field.nullable,
            compact=field.compact and (field.array or field.type in {"string", "bytes", "records"}),
            flexible=inner is not None and inner.flexible,
            tagged=field.tag is not None,
            secret=field.secret != "no",
            watched=struct.records and (field.type == "string" or is_id),
            unaligned=field.unaligned,
            whole=field.whole,
            topic_id=is_id,
            topic_name=topic_id is not None and field.name == topic,
        )
        row = _Row(outer.depth + 1, field.type, flags, uses.get(place, Use()), width=width, tag=field.tag or 0)
        rows.append(row)
        if field.tag is None:
            outer.fields += 1
        else:
            outer.tagged += 1
        before = row if width and not field.array and field.tag is None else None
        if inner is not None:
            _add(inner, place, uses, rows)


def _flags(**holds: bool) -> int:
    return sum(1 << _FLAGS.index(name) for name, holding in holds.items() if holding)


# -- slots -------------------------------------------------------------------------------------------------------------
#
# A field that the kernel does not keep, such as a hidden one, raises `LeftToPython`.


SESSION_ID: Final = "session_id"
_NAMES: Final = ("name", "topic", "topic_name")


class LeftToPython(Exception):  # noqa: N818 - not an error: the interpreter makes such summaries
    """The template needs data that the kernel does not have."""


class StructScope(msgspec.Struct, frozen=True, eq=False):
    """A struct that nodes refer to: its layout, its path, and the scope of its fields' slots."""

    struct: Struct
    shape: Shape
    path: tuple[str, ...]
    scope: Scope
    topic: StructScope | None = None
    """The enclosing struct, which names a partition's topic."""


class FieldSlots:
    """The slots of one table."""

    def __init__(self) -> None:
        self._uses: dict[tuple[str, ...], Use] = {}
        """What is kept of each field, by its path."""
        self._session: Slot | None = None

    def _use(self, path: tuple[str, ...]) -> Use:
        return self._uses.setdefault(path, Use())

    def _slot(self, place: StructScope, field: Field, path: tuple[str, ...] = ()) -> Slot:
        """The slot of a field's value; `path`: of the structs between it and the place."""
        # Fields that are hidden, or interpreted, are left to Python.
        if field.secret != "no" or (field.payload and field.type != "records"):
            raise LeftToPython
        use = self._use((*place.path, *path, field.name))
        if use.slot is None:
            use.slot = Slot()
            place.scope.slots.append(use.slot)
        return use.slot

    def _found(self, path: syntax.Path, place: StructScope) -> tuple[Field, Slot] | None:
        """The field at a path through structs, and its slot; None if the version has none."""
        struct: Struct | None = place.struct
        field: Field | None = None
        for depth, name in enumerate(path):
            field = None if struct is None else field_of(struct, name)
            if field is None:
                return None
            if field.array and depth < len(path) - 1:
                raise LeftToPython
            struct = field.struct
        assert field is not None
        return field, self._slot(place, field, path[:-1])

    def _counted(self, path: syntax.Path, place: StructScope) -> Slot | None:
        """The slot for the number of elements of an array, or of nested arrays; None if there are none."""
        struct: Struct | None = place.struct
        field: Field | None = None
        within = False
        for depth, name in enumerate(path):
            field = None if struct is None else field_of(struct, name)
            if field is None:
                return None
            struct = field.struct
            within = within or (field.array and depth < len(path) - 1)
        assert field is not None
        if not within:
            return self._slot(place, field, path[:-1])
        use = self._use((*place.path, *path))
        if use.sum is None:
            use.sum = Slot()
            place.scope.slots.append(use.sum)
        return use.sum

    def _topic(self, place: StructScope) -> tuple[Slot | int, Slot | int]:
        """The slots of a topic's name and id; both precede the fields shown with them."""
        named = next((field for name in _NAMES if (field := field_of(place.struct, name)) is not None), None)
        by_id = field_of(place.struct, "topic_id")
        for field in (named, by_id):
            if field is not None and (field.tag is not None or field.array):
                raise LeftToPython
        return (
            NONE if named is None else self._slot(place, named),
            NONE if by_id is None else self._slot(place, by_id),
        )

    def _has_sessions(self, place: StructScope) -> bool:
        """Whether messages may belong to a fetch session, whose partitions the caller knows."""
        return field_of(place.struct, SESSION_ID) is not None

    def _session_slot(self, place: StructScope) -> Slot:
        if place.path:
            raise LeftToPython
        if self._session is None:
            self._session = Slot()
            place.scope.slots.append(self._session)
        return self._session


def field_of(struct: Struct, name: str) -> Field | None:
    """The field of a struct with this name, tagged or not; None if the version has none."""
    return next((field for field in (*struct.fields, *struct.tagged) if field.name == name), None)
