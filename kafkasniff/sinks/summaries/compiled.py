"""Templates for the native kernel: one table per version, with which it writes summaries from the bytes of bodies.

Fields that a version lacks are resolved here. A template that needs more than fields, such as embedded structures, has
no table: then the interpreter makes the summaries, as it does for bodies that the kernel leaves to Python.
"""

from __future__ import annotations

from typing import Final

from kafkasniff.kafka.apis.dissectors import api
from kafkasniff.kafka.messages.message_plan import names_only, request_plan, response_plan
from kafkasniff.kafka.schema.definition import Field, Struct, topic_fields
from kafkasniff.model import Direction
from kafkasniff.sinks.summaries import syntax
from kafkasniff.sinks.summaries.interpreter import Shape, fields_at, is_number, shape_at
from kafkasniff.sinks.summaries.phrases import NAME_FIELDS, PARTITION_FIELDS
from kafkasniff.sinks.summaries.table import (
    SESSION_ID,
    TEST_SIZE,
    EnumNames,
    FieldSlots,
    LeftToPython,
    Scope,
    Slot,
    StructScope,
    Subject,
    TableList,
    TemplateTable,
    Word,
    condition_of,
    field_of,
    node_of,
)
from kafkasniff.sinks.summaries.templates import general_nodes, template

SESSION: Final = "_session"
THROTTLE: Final = "throttle_time_ms"
ERROR: Final = "error_code"
FAILED: Final = (ERROR, "partition_error_code")
"""Codes of partitions that are shown with the errors instead."""

_COMPARED: Final = {"=": "equal", "!=": "unequal", ">=": "least"}
_NUMBERS: Final = frozenset({"bool", "int8", "int16", "uint16", "int32", "uint32", "int64", "error"})
_NAMING: Final = frozenset({"int8", "int16", "uint16", "int32", "uint32", "int64", "string", "uuid"})
"""Types of fields that name the subject of an error."""


def table_of(api_key: int, version: int, direction: Direction) -> bytes | None:
    """The table for the summaries of bodies of a kind; None if Python makes them all."""
    found = api(api_key)
    if found is None or version not in found.versions:
        return None
    plan = request_plan(api_key, version) if direction == "request" else response_plan(api_key, version)
    if plan.schema is None or not plan.alone or not (plan.reads_records or names_only(plan.interpret)):
        return None
    definition = found.definition.message(direction)
    nodes = template(found.name, direction)
    root = plan.schema.root
    if nodes is None:
        nodes = general_nodes(root)
    if nodes is None:
        return None
    try:
        return _Compiler(version, direction).table(nodes, root, definition.fields)
    except LeftToPython:
        return None


class _Compiler(FieldSlots):
    def __init__(self, version: int, direction: Direction) -> None:
        super().__init__()
        self._version = version
        self._is_response = direction == "response"
        self._table = TemplateTable(is_response=direction == "response")

    # -- Nodes -------------------------------------------------------------------------------------------------------

    def table(self, nodes: syntax.Parts, root: Struct, shape: Shape) -> bytes | None:
        scope = Scope()
        place = StructScope(root, shape, (), scope)
        code = self._node(nodes, place)
        number, throttle = (
            None if (field := field_of(root, name)) is None else self._slot(place, field)
            for name in (SESSION_ID, THROTTLE)
        )
        if self._is_response:
            self._subjects(place)
        else:
            throttle = None
        return self._table.packed(root, self._uses, code, scope, (self._session, number, throttle))

    def _node(self, node: syntax.Node, place: StructScope) -> list[Word]:
        match node:
            case syntax.Text(text):
                return node_of("text", *self._table.text(text))
            case syntax.Value():
                return self._value(node, place)
            case syntax.Count():
                return self._count(node, place)
            case syntax.Words() | syntax.Each() | syntax.Partitions():
                return self._array(node, place)
            case syntax.Label(""):
                return node_of("topic", *self._topic(place))
            case syntax.Label(index):
                field = field_of(place.struct, index)
                if place.topic is None or field is None or field.tag is not None:
                    raise LeftToPython
                return node_of("label", *self._topic(place.topic), self._slot(place, field))
            case syntax.FunctionCall(name):
                return self._function(name, place)
            case syntax.Choice():
                return self._choice(node, place)
            case syntax.Parts(parts):
                found: list[Word] = []
                for part in parts:
                    code = self._sequence(part, place)
                    found += [len(code), *code]
                return node_of("parts", len(parts), *found)

    def _sequence(self, body: syntax.Sequence, place: StructScope) -> list[Word]:
        return [word for node in body for word in self._node(node, place)]

    def _nothing(self, text: str = "") -> list[Word]:
        """The output for a field that the version lacks."""
        return node_of("nothing", *self._table.text(text))

    def _value(self, node: syntax.Value, place: StructScope) -> list[Word]:
        if node.path[0].startswith("_"):
            raise LeftToPython
        *outer, last = node.path
        known = shape_at(place.shape, node.path)
        if known is None and last == "base_offset":
            found = self._found(tuple(outer), place)
            return self._nothing("None") if found is None else node_of("base_offset", found[1])
        found = self._found(node.path, place)
        if node.form == "amount":
            return self._nothing() if found is None else node_of("amount", found[1])
        if found is None:
            is_records = known is not None and known.type == "records"
            return self._nothing("" if is_records else "None" if node.form == "name" or is_number(known) else "null")
        field, slot = found
        if node.form == "name":
            names = EnumNames(field.enum or "")
            if field.type not in _NUMBERS or not names.names():
                raise LeftToPython
            return node_of("name", slot, names)
        if field.array or field.type in {"struct", "bytes", "float64"}:
            raise LeftToPython
        if field.type == "bool":
            # Python shows True and False.
            raise LeftToPython
        return node_of("number" if field.type in _NUMBERS else "records" if field.type == "records" else "word", slot)

    def _count(self, node: syntax.Count, place: StructScope) -> list[Word]:
        noun = self._table.text(node.noun)
        if node.path[0] == SESSION:
            if not self._has_sessions(place):
                return self._nothing()
            return node_of("count", self._session_slot(place), *noun, False)
        known = shape_at(place.shape, node.path)
        slot = self._counted(node.path, place)
        if known is None or not known.array:
            found = self._found(node.path, place)
            if found is None:
                return self._nothing(f"None {node.noun}s")
            if found[0].tag is not None or found[0].type not in _NUMBERS:
                raise LeftToPython
        if slot is None:
            return node_of("text", *self._table.text(f"0 {node.noun}s" if node.noun else "0"))
        return node_of("count", slot, *noun, known is not None and known.array)

    def _function(self, name: str, place: StructScope) -> list[Word]:
        if name == "address":
            host, port = (field_of(place.struct, field) for field in ("host", "port"))
            if host is None or port is None:
                raise LeftToPython
            return node_of("address", self._slot(place, host), self._slot(place, port))
        if name == "types" and place.topic is not None:
            records = field_of(place.struct, "records")
            if records is None:
                raise LeftToPython
            return node_of("types", *self._topic(place.topic), self._slot(place, records))
        raise LeftToPython

    def _choice(self, choice: syntax.Choice, place: StructScope) -> list[Word]:
        found: list[Word] = []
        count = 0
        for number, option in enumerate(choice.options, 1):
            tests: list[Word] | None = []
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
            found += [2 + len(tests) + len(body), whole, len(tests) // TEST_SIZE, *tests, *body]
            count += 1
            if option.tests and not tests:
                break  # it is always shown
        return node_of("choice", count, *found)

    def _test(self, test: syntax.Test, place: StructScope) -> list[Word] | bool:
        """A condition, or whether it always holds."""
        path, kind, operand = test.path, test.kind, test.operand
        if path == ("@version",):
            return self._version == operand
        if path[0] == SESSION:
            if kind not in {"has", "lacks"}:
                raise LeftToPython
            if not self._has_sessions(place):
                return kind == "lacks"
            return condition_of("not_null" if kind == "has" else "is_null", self._session_slot(place))
        if path[0].startswith("_"):
            raise LeftToPython
        field = field_of(place.struct, path[0])
        if kind in {"has", "lacks"}:
            if field is not None and field.tag is not None:
                raise LeftToPython
            self._table.is_settled |= field is not None
            return (field is not None) is (kind == "has")
        if kind in {"some", "none"} and len(path) > 1 and field is not None and field.array:
            slot = self._counted(path, place)
            return kind == "none" if slot is None else condition_of(kind, slot)
        found = self._found(path, place)
        if found is None:
            if isinstance(operand, tuple):
                raise LeftToPython
            return {
                "some": False,
                "none": True,
                "=": operand is None,
                "!=": operand is not None,
                ">=": False,
            }[kind]
        slot = found[1]
        if kind in {"some", "none"}:
            return condition_of(kind, slot)
        if isinstance(operand, tuple):
            other = self._found(operand, place)
            if other is None or other[0].type != found[0].type:
                raise LeftToPython
            return condition_of("same" if kind == "=" else "other", slot, other[1])
        if operand is None:
            return condition_of("is_null" if kind == "=" else "not_null", slot)
        return condition_of(_COMPARED[kind], slot, operand)

    # -- Lists -------------------------------------------------------------------------------------------------------

    def _array(self, node: syntax.Words | syntax.Each | syntax.Partitions, place: StructScope) -> list[Word]:
        """A list; its elements are in the last array of the path."""
        outer: StructScope | None = None
        inner = place
        field: Field | None = None
        for depth, name in enumerate(node.path):
            field = field_of(inner.struct, name)
            if field is None:
                return self._nothing()
            is_last = depth == len(node.path) - 1
            if (is_last or isinstance(node, syntax.Each)) and not field.array:
                raise LeftToPython
            if is_last:
                break
            assert field.struct is not None
            path = (*inner.path, name)
            inner = StructScope(field.struct, fields_at(inner.shape, (name,)), path, place.scope)
            if field.array:
                if outer is not None:
                    raise LeftToPython
                outer = inner
        assert field is not None
        use = self._use((*inner.path, field.name))
        if use.runs is None:
            use.runs, use.list_of = self._list_of(node, field, inner, outer), node
            place.scope.lists.append(use.runs)
        elif use.list_of != node or use.runs not in place.scope.lists:
            raise LeftToPython
        return node_of("list", use.runs)

    def _list_of(
        self,
        node: syntax.Words | syntax.Each | syntax.Partitions,
        field: Field,
        inner: StructScope,
        outer: StructScope | None,
    ) -> TableList:
        scope = Scope()
        if isinstance(node, syntax.Words):
            if field.type != "string" or field.secret != "no" or field.payload or outer is not None:
                raise LeftToPython
            return TableList("words", scope, node.shown, ", ", "")
        path = (*inner.path, field.name)
        if isinstance(node, syntax.Partitions):
            if outer is None:
                raise LeftToPython
            made = TableList("partitions", scope, 0, ", ", "partition")
            name, topic_id = self._topic(outer)
            made.name = name if isinstance(name, Slot) else None
            made.id = topic_id if isinstance(topic_id, Slot) else None
            if field.struct is None:
                if field.type != "int32":
                    raise LeftToPython
                made.index = Slot()
                scope.slots.append(made.index)
            else:
                index = field_of(field.struct, node.index)
                if index is None or index.type != "int32" or index.tag is not None:
                    raise LeftToPython
                element = StructScope(field.struct, (), path, scope)
                made.index = self._slot(element, index)
                made.failed = self._failed(element, FAILED)
            return made
        if field.struct is None:
            raise LeftToPython
        element = StructScope(field.struct, fields_at(inner.shape, (field.name,)), path, scope, outer)
        made = TableList("each", scope, node.shown, node.separator, node.noun)
        if node.prefer:
            found = self._found(tuple(node.prefer.split(".")), element)
            made.prefer = None if found is None else found[1]
        made.code = self._sequence(node.body, element)
        made.counts_all = syntax.is_never_empty(node.body)
        made.failed = self._failed(element, (ERROR,)) if node.good else None
        return made

    def _failed(self, element: StructScope, names: tuple[str, ...]) -> Slot | None:
        """The slot of the code with which elements of a list are not shown."""
        fields = [field for name in names if (field := field_of(element.struct, name)) is not None]
        if len(fields) > 1:
            raise LeftToPython
        return self._slot(element, fields[0]) if fields else None

    # -- Errors ------------------------------------------------------------------------------------------------------

    def _subjects(self, place: StructScope) -> None:
        """Say for a struct, and those in it, what their errors are of."""
        if not _has_errors(place.struct):
            return
        self._use(place.path).subject = self._subject(place)
        for field in (*place.struct.fields, *place.struct.tagged):
            if field.struct is not None:
                self._subjects(StructScope(field.struct, (), (*place.path, field.name), place.scope))

    def _subject(self, place: StructScope) -> Subject:
        """As `phrases.error_phrase` names it."""
        struct = place.struct
        made = Subject()
        number = next((field for name in PARTITION_FIELDS if (field := field_of(struct, name)) is not None), None)
        labels = [] if number is not None else [field for name in NAME_FIELDS if (field := field_of(struct, name))]
        named = ([] if number is None else [number]) + labels if place.path else []
        try:
            message = field_of(struct, "error_message")
            made.message = None if message is None else self._slot(place, message)
            leader = self._found(("current_leader", "leader_id"), place)
            made.leader = None if leader is None else leader[1]
            slots = {field.name: self._slot(place, field) for field in named}
        except LeftToPython:
            return Subject(own_odd=True, inner_odd=True)
        if any(field.tag is not None or field.array or field.type not in _NAMING for field in named):
            return Subject(own_odd=True, inner_odd=True)
        if number is not None:
            made.partition = slots.get(number.name)
        else:
            topic, topic_id = topic_fields((*struct.fields, *struct.tagged))
            made.topic, made.id = slots.get(topic or ""), slots.get(topic_id or "")
            made.names = list(slots.values())
        first = next((at for at, field in enumerate(struct.fields) if field.struct and _has_errors(field.struct)), None)
        made.inner_odd = first is not None and any(field in struct.fields[first:] for field in named)
        return made


def _has_errors(struct: Struct) -> bool:
    """Whether a struct has an error code, or one inside."""
    return any(
        field.type == "error" or (field.struct is not None and _has_errors(field.struct))
        for field in (*struct.fields, *struct.tagged)
    )
