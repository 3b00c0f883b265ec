"""Templates for the native kernel: tables, one for each version, by which it writes summaries from the bytes of bodies.

A table is a head, the fields of the layout in wire order with the slots that their values are kept in, the lists of the
template, its nodes as words, and a pool of texts. `kernel/summary_table.zig` has the same structures. What a version
lacks is settled here. A template that needs more than fields, such as what was read inside of bytes, has no table: then
the interpreter makes the summaries, as it does of bodies that the kernel leaves.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from struct import Struct as Packing
from typing import Any, Final

import msgspec

from kafkasniff.kafka.dissectors import api
from kafkasniff.kafka.embedded.operations import add_names
from kafkasniff.kafka.enums import enum_by_name, enum_text
from kafkasniff.kafka.layout import FORMATS, Field, Struct
from kafkasniff.kafka.message_plan import Plan, request_plan, response_plan
from kafkasniff.kafka.program import KINDS
from kafkasniff.model import Direction
from kafkasniff.sinks.summaries import syntax
from kafkasniff.sinks.summaries.general import LEFT_OUT
from kafkasniff.sinks.summaries.interpreter import Shape, fields_at, is_number, shape_at
from kafkasniff.sinks.summaries.templates import template

__all__ = ["MAX_LISTS", "MAX_SLOTS", "table_of"]

MAX_SLOTS: Final = 64
"""Values that a table keeps, as in `kernel/summary_table.zig`."""
MAX_LISTS: Final = 16

NONE: Final = 0xFFFF
SESSION: Final = "_session"
SESSION_ID: Final = "session_id"
THROTTLE: Final = "throttle_time_ms"

_MAGIC: Final = int.from_bytes(b"KSS1", "little")
_HEAD: Final = Packing("=14I")
_FIELD: Final = Packing("=BxHHHHHHHII")
_LIST: Final = Packing("=17I")
_FLAGS: Final = ("array", "nullable", "compact", "flexible", "tagged", "secret", "watched", "unaligned", "whole")
_NODES: Final = (
    *("text", "nothing", "word", "number", "name", "amount", "count", "list", "label", "topic"),
    *("records", "base_offset", "types", "address", "refuse", "parts", "choice"),
)
_TESTS: Final = ("some", "none", "equal", "unequal", "least", "is_null", "not_null", "same", "other")
_LISTS: Final = ("each", "words", "partitions")
_COMPARED: Final = {"=": "equal", "!=": "unequal", ">=": "least"}
_NAMES: Final = ("name", "topic", "topic_name")
_NUMBERS: Final = frozenset({"bool", "int8", "int16", "uint16", "int32", "uint32", "int64", "error"})


class _LeftToPython(Exception):  # noqa: N818 - no error: the interpreter makes such summaries
    """The template needs what the kernel does not have."""


class _Slot:
    """A value that is kept; its number is given at the end."""

    def __init__(self) -> None:
        self.number = NONE


class _Scope:
    """Where slots and lists belong: the message, or an element of a list."""

    def __init__(self) -> None:
        self.slots: list[_Slot] = []
        self.lists: list[_List] = []
        self.first_slot = self.first_list = 0


_Word = Any
"""A number, or a slot, a list or an enum whose number is given at the end."""


class _List(msgspec.Struct, eq=False):
    kind: str
    scope: _Scope
    shown: int
    separator: str
    noun: str
    code: list[_Word] = []
    counts_all: bool = False
    prefer: _Slot | None = None
    name: _Slot | None = None
    id: _Slot | None = None
    index: _Slot | None = None
    number: int = NONE


class _Enum(msgspec.Struct, frozen=True):
    """A table of names among the words."""

    name: str


class _Place(msgspec.Struct, frozen=True, eq=False):
    """A struct that nodes are about: its layout, where it is, and whose slots its fields have."""

    struct: Struct
    shape: Shape
    path: tuple[str, ...]
    scope: _Scope
    topic: _Place | None = None
    """The struct around, by whose topic a partition is named."""


class _Use:
    """What is to be done with a field."""

    def __init__(self) -> None:
        self.slot: _Slot | None = None
        self.sum: _Slot | None = None
        self.runs: _List | None = None
        self.list_of: syntax.Node | None = None


def table_of(api_key: int, version: int, direction: Direction) -> bytes | None:
    """The table for the summaries of bodies of a kind; None where Python makes them all."""
    found = api(api_key)
    if found is None or version not in found.versions:
        return None
    plan = request_plan(api_key, version) if direction == "request" else response_plan(api_key, version)
    if plan.schema is None or not plan.alone or not (plan.reads_records or _reads_nothing(plan)):
        return None
    definition = found.definition.request if direction == "request" else found.definition.response
    nodes = template(found.name, direction)
    root = plan.schema.root
    if nodes is None:
        # The general summary of a body that has nothing to show.
        if {field.name for field in (*root.fields, *root.tagged)} - LEFT_OUT:
            return None
        nodes = syntax.Parts(((),))
    try:
        return _Compiler(version, direction).table(nodes, root, definition.fields)
    except _LeftToPython:
        return None


def _reads_nothing(plan: Plan) -> bool:
    """Whether nothing is read inside of bytes that a summary may show, or that may be a problem."""
    interpret = plan.interpret
    return interpret is None or (isinstance(interpret, functools.partial) and interpret.func is add_names)


class _Compiler:
    def __init__(self, version: int, direction: Direction) -> None:
        self._version = version
        self._direction = direction
        self._uses: dict[tuple[str, ...], _Use] = {}
        self._pool = bytearray()
        self._texts: dict[str, int] = {}
        self._session: _Slot | None = None

    # -- Nodes -------------------------------------------------------------------------------------------------------

    def table(self, nodes: syntax.Parts, root: Struct, shape: Shape) -> bytes:
        scope = _Scope()
        place = _Place(root, shape, (), scope)
        code: list[_Word] = []
        if self._direction == "response" and (throttle := _field(root, THROTTLE)) is not None:
            code += _node("refuse", self._slot(place, throttle))
        code += self._node(nodes, place)
        session_id: _Slot | None = None
        if self._session is not None:
            field = _field(root, SESSION_ID)
            if field is None:
                raise _LeftToPython
            session_id = self._slot(place, field)
        lists = _numbered(scope)
        words: list[int] = []
        enums: dict[str, int] = {}
        self._enums(code, words, enums)
        for one in lists:
            self._enums(one.code, words, enums)
        begin, end = _placed(code, words, enums)
        packed = b"".join([self._list(one, words, enums) for one in lists])
        slots = scope.slots, *(one.scope.slots for one in lists)
        count = sum(map(len, slots))
        if count > MAX_SLOTS or len(lists) > MAX_LISTS:
            raise _LeftToPython
        fields = list(_fields(root, self._uses))
        head = (
            *(len(fields), len(lists), len(words), 0, len(scope.slots), len(scope.lists), count),
            *(begin, end, self._direction == "response", _number(self._session), _number(session_id)),
        )
        body = b"".join([*fields, packed, *(word.to_bytes(4, _ORDER) for word in words), bytes(self._pool)])
        return _HEAD.pack(_MAGIC, _HEAD.size + len(body), *head[:3], len(self._pool), *head[4:]) + body

    def _node(self, node: syntax.Node, place: _Place) -> list[_Word]:
        match node:
            case syntax.Text(text):
                return _node("text", *self._text(text))
            case syntax.Value():
                return self._value(node, place)
            case syntax.Count():
                return self._count(node, place)
            case syntax.Words() | syntax.Each() | syntax.Partitions():
                return self._array(node, place)
            case syntax.Label(""):
                return _node("topic", *self._topic(place))
            case syntax.Label(index):
                field = _field(place.struct, index)
                if place.topic is None or field is None or field.tag is not None:
                    raise _LeftToPython
                return _node("label", *self._topic(place.topic), self._slot(place, field))
            case syntax.Call(name):
                return self._function(name, place)
            case syntax.Choice():
                return self._choice(node, place)
            case syntax.Parts(parts):
                found: list[_Word] = []
                for part in parts:
                    code = self._sequence(part, place)
                    found += [len(code), *code]
                return _node("parts", len(parts), *found)

    def _sequence(self, body: syntax.Sequence, place: _Place) -> list[_Word]:
        return [word for node in body for word in self._node(node, place)]

    def _nothing(self, text: str = "") -> list[_Word]:
        """What is shown of a field that the version lacks."""
        return _node("nothing", *self._text(text))

    def _value(self, node: syntax.Value, place: _Place) -> list[_Word]:
        if node.path[0].startswith("_"):
            raise _LeftToPython
        *outer, last = node.path
        known = shape_at(place.shape, node.path)
        if known is None and last == "base_offset":
            found = self._found(tuple(outer), place)
            return self._nothing("None") if found is None else _node("base_offset", found[1])
        found = self._found(node.path, place)
        if node.form == "amount":
            return self._nothing() if found is None else _node("amount", found[1])
        if found is None:
            is_records = known is not None and known.type == "records"
            return self._nothing("" if is_records else "None" if node.form == "name" or is_number(known) else "null")
        field, slot = found
        if node.form == "name":
            if field.enum is None or field.type not in _NUMBERS:
                raise _LeftToPython
            return _node("name", slot, _Enum(field.enum))
        if field.array or field.type in {"struct", "bytes", "float64"}:
            raise _LeftToPython
        if field.type == "bool":
            # Python shows True and False.
            raise _LeftToPython
        return _node("number" if field.type in _NUMBERS else "records" if field.type == "records" else "word", slot)

    def _count(self, node: syntax.Count, place: _Place) -> list[_Word]:
        noun = self._text(node.noun)
        if node.path[0] == SESSION:
            if not self._has_sessions(place):
                return self._nothing()
            return _node("count", self._session_slot(place), *noun, False)
        known = shape_at(place.shape, node.path)
        slot = self._counted(node.path, place)
        if known is None or not known.array:
            found = self._found(node.path, place)
            if found is None:
                return self._nothing(f"None {node.noun}s")
            if found[0].tag is not None or found[0].type not in _NUMBERS:
                raise _LeftToPython
        if slot is None:
            return _node("text", *self._text(f"0 {node.noun}s" if node.noun else "0"))
        return _node("count", slot, *noun, known is not None and known.array)

    def _function(self, name: str, place: _Place) -> list[_Word]:
        if name == "address":
            host, port = (_field(place.struct, field) for field in ("host", "port"))
            if host is None or port is None:
                raise _LeftToPython
            return _node("address", self._slot(place, host), self._slot(place, port))
        if name == "types" and place.topic is not None:
            records = _field(place.struct, "records")
            if records is None:
                raise _LeftToPython
            return _node("types", *self._topic(place.topic), self._slot(place, records))
        raise _LeftToPython

    def _choice(self, choice: syntax.Choice, place: _Place) -> list[_Word]:
        found: list[_Word] = []
        count = 0
        for number, option in enumerate(choice.options, 1):
            tests: list[_Word] | None = []
            for test in option.tests:
                settled = self._test(test, place)
                if settled is False:
                    tests = None
                    break
                if settled is not True:
                    assert tests is not None
                    tests += settled
            if tests is None:
                continue
            whole = bool(option.tests) or number == len(choice.options) > 1
            body = self._sequence(option.body, place)
            found += [2 + len(tests) + len(body), whole, len(tests) // _TEST_SIZE, *tests, *body]
            count += 1
            if option.tests and not tests:
                break  # it is always shown
        return _node("choice", count, *found)

    def _test(self, test: syntax.Test, place: _Place) -> list[_Word] | bool:
        """A condition, or whether it always holds."""
        path, kind, operand = test.path, test.kind, test.operand
        if path == ("@version",):
            return self._version == operand
        if path[0] == SESSION:
            if kind not in {"has", "lacks"}:
                raise _LeftToPython
            if not self._has_sessions(place):
                return kind == "lacks"
            return _test("not_null" if kind == "has" else "is_null", self._session_slot(place))
        if path[0].startswith("_"):
            raise _LeftToPython
        field = _field(place.struct, path[0])
        if kind in {"has", "lacks"}:
            if field is not None and field.tag is not None:
                raise _LeftToPython
            return (field is not None) is (kind == "has")
        if kind in {"some", "none"} and len(path) > 1 and field is not None and field.array:
            slot = self._counted(path, place)
            return kind == "none" if slot is None else _test(kind, slot)
        found = self._found(path, place)
        if found is None:
            if isinstance(operand, tuple):
                raise _LeftToPython
            return {
                "some": False,
                "none": True,
                "=": operand is None,
                "!=": operand is not None,
                ">=": False,
            }[kind]
        slot = found[1]
        if kind in {"some", "none"}:
            return _test(kind, slot)
        if isinstance(operand, tuple):
            other = self._found(operand, place)
            if other is None or other[0].type != found[0].type:
                raise _LeftToPython
            return _test("same" if kind == "=" else "other", slot, other[1])
        if operand is None:
            return _test("is_null" if kind == "=" else "not_null", slot)
        return _test(_COMPARED[kind], slot, operand & 0xFFFF_FFFF, operand >> 32 & 0xFFFF_FFFF)

    # -- Fields ------------------------------------------------------------------------------------------------------

    def _use(self, path: tuple[str, ...]) -> _Use:
        return self._uses.setdefault(path, _Use())

    def _slot(self, place: _Place, field: Field, path: tuple[str, ...] = ()) -> _Slot:
        """Where the value of a field is kept; `path`: of the structs between it and the place."""
        # What is hidden, or read in another way where it is, is Python's.
        if field.secret != "no" or (field.payload and field.type != "records"):
            raise _LeftToPython
        use = self._use((*place.path, *path, field.name))
        if use.slot is None:
            use.slot = _Slot()
            place.scope.slots.append(use.slot)
        return use.slot

    def _found(self, path: syntax.Path, place: _Place) -> tuple[Field, _Slot] | None:
        """The field at a path through structs, and its slot; None where the version has none."""
        struct: Struct | None = place.struct
        field: Field | None = None
        for depth, name in enumerate(path):
            field = None if struct is None else _field(struct, name)
            if field is None:
                return None
            if field.array and depth < len(path) - 1:
                raise _LeftToPython
            struct = field.struct
        assert field is not None
        return field, self._slot(place, field, path[:-1])

    def _counted(self, path: syntax.Path, place: _Place) -> _Slot | None:
        """Where the number of elements of an array, or of arrays within arrays, is kept; None where there are none."""
        struct: Struct | None = place.struct
        field: Field | None = None
        within = False
        for depth, name in enumerate(path):
            field = None if struct is None else _field(struct, name)
            if field is None:
                return None
            struct = field.struct
            within = within or (field.array and depth < len(path) - 1)
        assert field is not None
        if not within:
            return self._slot(place, field, path[:-1])
        use = self._use((*place.path, *path))
        if use.sum is None:
            use.sum = _Slot()
            place.scope.slots.append(use.sum)
        return use.sum

    def _topic(self, place: _Place) -> tuple[_Slot | int, _Slot | int]:
        """The slots of a topic's name and id; both stand in front of what is shown with them."""
        named = next((field for name in _NAMES if (field := _field(place.struct, name)) is not None), None)
        by_id = _field(place.struct, "topic_id")
        for field in (named, by_id):
            if field is not None and (field.tag is not None or field.array):
                raise _LeftToPython
        return (
            NONE if named is None else self._slot(place, named),
            NONE if by_id is None else self._slot(place, by_id),
        )

    def _has_sessions(self, place: _Place) -> bool:
        """Whether messages may belong to a fetch session, whose partitions the caller knows."""
        return _field(place.struct, SESSION_ID) is not None

    def _session_slot(self, place: _Place) -> _Slot:
        if place.path:
            raise _LeftToPython
        if self._session is None:
            self._session = _Slot()
            place.scope.slots.append(self._session)
        return self._session

    # -- Lists -------------------------------------------------------------------------------------------------------

    def _array(self, node: syntax.Words | syntax.Each | syntax.Partitions, place: _Place) -> list[_Word]:
        """A list; its elements are in the last array of the path."""
        outer: _Place | None = None
        inner = place
        field: Field | None = None
        for depth, name in enumerate(node.path):
            field = _field(inner.struct, name)
            if field is None:
                return self._nothing()
            is_last = depth == len(node.path) - 1
            if (is_last or isinstance(node, syntax.Each)) and not field.array:
                raise _LeftToPython
            if is_last:
                break
            assert field.struct is not None
            path = (*inner.path, name)
            inner = _Place(field.struct, fields_at(inner.shape, (name,)), path, place.scope)
            if field.array:
                if outer is not None:
                    raise _LeftToPython
                outer = inner
        assert field is not None
        use = self._use((*inner.path, field.name))
        if use.runs is None:
            use.runs, use.list_of = self._list_of(node, field, inner, outer), node
            place.scope.lists.append(use.runs)
        elif use.list_of != node or use.runs not in place.scope.lists:
            raise _LeftToPython
        return _node("list", use.runs)

    def _list_of(
        self, node: syntax.Words | syntax.Each | syntax.Partitions, field: Field, inner: _Place, outer: _Place | None
    ) -> _List:
        scope = _Scope()
        if isinstance(node, syntax.Words):
            if field.type != "string" or field.secret != "no" or field.payload or outer is not None:
                raise _LeftToPython
            return _List("words", scope, node.shown, ", ", "")
        path = (*inner.path, field.name)
        if isinstance(node, syntax.Partitions):
            if outer is None:
                raise _LeftToPython
            made = _List("partitions", scope, 0, ", ", "partition")
            name, topic_id = self._topic(outer)
            made.name = name if isinstance(name, _Slot) else None
            made.id = topic_id if isinstance(topic_id, _Slot) else None
            if field.struct is None:
                if field.type != "int32":
                    raise _LeftToPython
                made.index = _Slot()
                scope.slots.append(made.index)
            else:
                index = _field(field.struct, node.index)
                if index is None or index.type != "int32" or index.tag is not None:
                    raise _LeftToPython
                made.index = self._slot(_Place(field.struct, (), path, scope), index)
            return made
        if field.struct is None:
            raise _LeftToPython
        element = _Place(field.struct, fields_at(inner.shape, (field.name,)), path, scope, outer)
        made = _List("each", scope, node.shown, node.separator, node.noun)
        if node.prefer:
            found = self._found(tuple(node.prefer.split(".")), element)
            made.prefer = None if found is None else found[1]
        made.code = self._sequence(node.body, element)
        made.counts_all = syntax.is_never_empty(node.body)
        return made

    # -- Bytes -------------------------------------------------------------------------------------------------------

    def _text(self, text: str) -> tuple[int, int]:
        """The place of a text in the pool, and its bytes."""
        data = text.encode()
        if text not in self._texts:
            self._texts[text] = len(self._pool)
            self._pool += data
        return self._texts[text], len(data)

    def _enums(self, code: list[_Word], words: list[int], enums: dict[str, int]) -> None:
        """Put the tables of names that nodes ask for in front of them."""
        for word in code:
            if not isinstance(word, _Enum) or word.name in enums:
                continue
            table = enum_by_name(word.name)
            if table is None or table.kind not in {"code", "special", "bool"}:
                raise _LeftToPython
            enums[word.name] = len(words)
            words.append(len(table.values))
            for value in table.values:
                number = int(value.text == "true") if table.kind == "bool" else int(value.text, 0)
                name = enum_text(word.name, bool(number) if table.kind == "bool" else number)
                assert name is not None
                words += [number & 0xFFFF_FFFF, number >> 32 & 0xFFFF_FFFF]
                words += self._text(name.lower().replace("_", " "))

    def _list(self, one: _List, words: list[int], enums: dict[str, int]) -> bytes:
        begin, end = _placed(one.code, words, enums)
        scope = one.scope
        return _LIST.pack(
            _LISTS.index(one.kind),
            one.shown,
            *self._text(one.separator),
            *self._text(one.noun),
            begin,
            end,
            one.counts_all,
            *(scope.first_slot, len(scope.slots), scope.first_list, len(scope.lists)),
            *(_number(one.prefer), _number(one.name), _number(one.id), _number(one.index)),
        )


_ORDER: Final = "little" if Packing("=H").pack(1) == b"\1\0" else "big"
_TEST_SIZE: Final = 4


def _field(struct: Struct, name: str) -> Field | None:
    return next((field for field in (*struct.fields, *struct.tagged) if field.name == name), None)


def _node(kind: str, *words: _Word) -> list[_Word]:
    """The words of a node: its kind, how many they are, and what it needs."""
    return [_NODES.index(kind), 2 + len(words), *words]


def _test(kind: str, slot: _Slot, low: _Word = 0, high: int = 0) -> list[_Word]:
    return [_TESTS.index(kind), slot, low, high]


def _number(slot: _Slot | None) -> int:
    return NONE if slot is None else slot.number


def _numbered(root: _Scope) -> list[_List]:
    """All lists, those of one scope one behind the other; from now on they and all slots have their numbers."""
    found = list(root.lists)
    slots = 0
    waiting = [root]
    for scope in waiting:
        scope.first_slot = slots
        for slot in scope.slots:
            slot.number, slots = slots, slots + 1
        waiting += [one.scope for one in scope.lists]
    for one in found:
        one.scope.first_list = len(found)
        found += one.scope.lists
    for number, one in enumerate(found):
        one.number = number
    return found


def _placed(code: list[_Word], words: list[int], enums: dict[str, int]) -> tuple[int, int]:
    """Put nodes behind the words so far; where they begin and end."""
    begin = len(words)
    for word in code:
        match word:
            case _Slot() | _List():
                words.append(word.number)
            case _Enum(name):
                words.append(enums[name])
            case _:
                words.append(int(word))
    return begin, len(words)


class _Row(msgspec.Struct):
    """A field of the table."""

    depth: int
    kind: str
    flags: int
    use: _Use
    fields: int = 0
    tagged: int = 0
    width: int = 0
    tag: int = 0
    after: int = 0


def _fields(root: Struct, uses: dict[tuple[str, ...], _Use]) -> Iterator[bytes]:
    """The fields of a layout, each with what is done with it."""
    rows = [_Row(0, "struct", _flags(flexible=root.flexible), _Use())]
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
        numbers = row.fields, row.tagged, _number(row.use.slot), _number(row.use.sum), runs, row.width
        yield _FIELD.pack(KINDS.index(row.kind), row.flags, *numbers, row.tag, row.after)


def _add(struct: Struct, path: tuple[str, ...], uses: dict[tuple[str, ...], _Use], rows: list[_Row]) -> None:
    """Add the fields of the struct whose row is the last one."""
    outer = rows[-1]
    before: _Row | None = None
    for field in (*struct.fields, *struct.tagged):
        place = (*path, field.name)
        is_used = place in uses
        # Nothing can be wrong with such a value.
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
            watched=field.type == "string" and struct.records,
            unaligned=field.unaligned,
            whole=field.whole,
        )
        row = _Row(outer.depth + 1, field.type, flags, uses.get(place, _Use()), width=width, tag=field.tag or 0)
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
