"""Templates applied to bodies: nodes to closures, which are the specification of the kernel's summaries.

Bodies may be truncated and may contain nulls anywhere, so every field is looked up as if it could be missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from kafkasniff.errors import DefinitionError
from kafkasniff.kafka.apis.entities import METADATA_TOPIC_ID
from kafkasniff.kafka.schema.definition import FieldDefinition
from kafkasniff.model import Body
from kafkasniff.sinks.summaries import syntax
from kafkasniff.sinks.summaries.phrases import (
    NO_ID,
    address,
    amount,
    count,
    few,
    first_words,
    lists,
    message_phrase,
    named_partitions,
    records_phrase,
    rows,
    topic_of,
)
from kafkasniff.sinks.tree import enum_name
from kafkasniff.text.printable import WORDS, word

# -- data that members of classic groups exchange ----------------------------------------------------------------------
#
# Functions for templates: phrases that need more than fields. Each takes a struct and the name of the enclosing topic.
# Its phrase is escaped, and empty if there is nothing to show.


TASKS_SHOWN = 6
"""Tasks of one kind shown in a line."""
_ITSELF = -1
"""Represents the connector itself among its tasks (ConnectProtocol.CONNECTOR_TASK)."""


def joins(read: object) -> str:
    """`subscribes orders, owns orders-0,1` or `worker http://…` for `_metadata`; "" if the bytes were not decoded."""
    value = _value(read)
    if value is None:
        return ""
    if "url" in value:
        return f"worker {word(value['url'])}"
    if "topics" not in value:
        return ""
    phrase = f"subscribes {first_words(lists(value['topics'])) or 'nothing'}"
    owned = named_partitions(value.get("owned_partitions"))
    return f"{phrase}, owns {owned}" if owned else phrase


def assigned(read: object) -> str | None:
    """`orders-0,1`, `nothing`, or Connect's connectors and tasks for `_assignment`; None if it was not decoded."""
    value = _value(read)
    if value is None:
        return None
    if "config_offset" in value:
        return _connect(value)
    parts = [named_partitions(value.get("assigned_partitions")) or "nothing"]
    streams = _value(value.get("_user_data"))
    if streams is not None:
        for kind in ("active", "standby"):
            held = rows(streams.get(f"{kind}_tasks"))
            tasks = [f"{task.get('topic_group_id')}_{task.get('partition')}" for task in held]
            if tasks:
                parts.append(f"{kind} {few(tasks, ' ', TASKS_SHOWN)}")
    return ", ".join(parts)


def _value(read: object) -> Body | None:
    value = read.get("value") if isinstance(read, dict) else None
    return value if isinstance(value, dict) else None


def _connect(value: Body) -> str:
    parts = [few(_connectors(value.get("assignment"))) or "nothing"]
    revoked = few(_connectors(value.get("revoked")))
    if revoked:
        parts.append(f"revoked {revoked}")
    if value.get("delay"):
        parts.append(f"rebalance in {value['delay']} ms")
    if value.get("error"):
        parts.append("CONFIG_MISMATCH" if value["error"] == 1 else f"error {value['error']}")
    return ", ".join(parts)


def _connectors(assignment: object) -> list[str]:
    """`connector copy`, `copy-0,1` (Connect's names for its tasks)."""
    phrases = []
    for item in rows(assignment):
        name, tasks = word(item.get("connector")), lists(item.get("tasks"))
        if _ITSELF in tasks:
            phrases.append(f"connector {name}")
        numbers = [str(task) for task in tasks if task != _ITSELF]
        if numbers:
            phrases.append(f"{name}-{few(numbers, ',', TASKS_SHOWN)}")
    return phrases


# -- functions for templates -------------------------------------------------------------------------------------------


TYPES_SHOWN: Final = 4
"""Types of records that a line shows."""
METRICS_SHOWN: Final = 2
"""Names of metrics that a line shows."""
_DULL: Final = "NoOpRecord"
"""A controller writes one every half a second."""

INTERNAL: Final = ("__", METADATA_TOPIC_ID)
"""Prefixes of the topics whose records have types."""


def record_types(topic: str, records: object) -> str:
    """`TopicRecord, 2 PartitionRecord` for records of Kafka's own topics; "" for others."""
    if not topic.startswith(INTERNAL) or not isinstance(records, dict):
        return ""
    types: Counter[str] = Counter()
    for batch in rows(records.get("batches")):
        for record in rows(batch.get("records")):
            control = record.get("_control")
            # A deletion has no value.
            read = record.get("_value") or record.get("_key") or {}
            name = control.get("name") if isinstance(control, dict) else read.get("type")
            if isinstance(name, str):
                types[name] += 1
    if len(types) > 1:
        del types[_DULL]
    return few([f"{number} {name}" if number > 1 else name for name, number in types.items()], shown=TYPES_SHOWN)


def _types(item: Body, topic: str) -> str:
    return record_types(topic, item.get("records", item.get("unaligned_records")))


def _cut_batches(item: Body, _topic: str) -> str:
    """Bytes of a slice of the log that belong to truncated batches."""
    records = item.get("unaligned_records")
    if not isinstance(records, dict):
        return ""
    cut = records.get("leading_bytes", 0) + records.get("truncated_bytes", 0)
    return amount(cut) if cut else ""


def _address(item: Body, _topic: str) -> str:
    return address(item)


def _acquired(item: Body, _topic: str) -> str:
    """Number of records that a member of a share group acquired, from ranges of offsets."""
    return str(sum(_span(row) for row in rows(item.get("acquired_records"))))


def _span(item: Body) -> int:
    first, last = item.get("first_offset"), item.get("last_offset")
    return last - first + 1 if isinstance(first, int) and isinstance(last, int) else 0


def _joins(item: Body, _topic: str) -> str:
    # A member repeats its data for each protocol that it supports.
    return next(filter(None, (joins(row.get("_metadata")) for row in rows(item.get("protocols")))), "")


def _assigned(item: Body, _topic: str) -> str:
    return assigned(item.get("_assignment")) or ""


def _assignments(item: Body, _topic: str) -> str:
    """The assignments of a group's leader to its members."""
    read = [assigned(row.get("_assignment")) for row in rows(item.get("assignments"))]
    return few([one for one in read if one is not None], "; ")


def _sasl(item: Body, _topic: str) -> str:
    return message_phrase(item.get("_auth_bytes"))


def _metrics(item: Body, _topic: str) -> str:
    """`3 metrics (a, b, +1 more)`, if they were decoded."""
    read = item.get("_metrics")
    if not isinstance(read, dict):
        return ""
    metrics = [metric for resource in rows(read.get("resources")) for metric in rows(resource.get("metrics"))]
    names = few([word(name) for name in dict.fromkeys(metric.get("name") for metric in metrics)], shown=METRICS_SHOWN)
    return f"{count(len(metrics), 'metric')}{f' ({names})' if names else ''}"


FUNCTIONS: Final[dict[str, Callable[[Body, str], str]]] = {
    "acquired": _acquired,
    "address": _address,
    "assigned": _assigned,
    "assignments": _assignments,
    "cut_batches": _cut_batches,
    "joins": _joins,
    "metrics": _metrics,
    "sasl": _sasl,
    "types": _types,
}
"""By their names in templates."""


# -- templates ---------------------------------------------------------------------------------------------------------


Render = Callable[[Body, str, int], str | None]
"""Renders a node for a struct: its text, None if it has nothing to show. Takes the struct, the name of the enclosing
topic, and the version of the message."""
Shape = tuple[FieldDefinition, ...]
"""The fields of a struct, in all versions."""
_Condition = Callable[[Body, int], bool]

_TEXTS: Final = frozenset({"string", "bytes", "uuid"})


def shape_at(shape: Shape, path: syntax.Path) -> FieldDefinition | None:
    """The field at a path, in the first of its versions; None if no version has one."""
    field: FieldDefinition | None = None
    for name in path:
        field = next((field_definition for field_definition in shape if field_definition.name == name), None)
        if field is None:
            return None
        shape = tuple(
            inner for field_definition in shape if field_definition.name == name for inner in field_definition.fields
        )
    return field


def fields_at(shape: Shape, path: syntax.Path) -> Shape:
    """The fields of the struct at a path."""
    for name in path:
        shape = tuple(
            inner for field_definition in shape if field_definition.name == name for inner in field_definition.fields
        )
    return shape


def is_number(field: FieldDefinition | None) -> bool:
    """Whether a field holds a number, so that there is no word to show if it is missing."""
    return field is None or field.type not in _TEXTS


def interpreter(template: syntax.Parts, shape: Shape) -> Callable[[Body, int], str]:
    """A template as a function of body and version; `shape`: the fields of its message."""
    render = _parts(template, shape)
    return lambda body, version: render(body, "?", version) or ""


# Nodes


def _node(node: syntax.Node, shape: Shape) -> tuple[Render, str]:
    """The node's function, and its output if it has nothing to show but must show something."""
    match node:
        case syntax.Text(text):
            return (lambda _item, _topic, _version: text), ""
        case syntax.Value():
            return _value_at(node, shape)
        case syntax.Count():
            return _count(node, shape), f"None {node.noun}s"
        case syntax.Words(path, shown):
            get = _getter(path)
            return (lambda item, _topic, _version: first_words(lists(get(item)), shown) or None), ""
        case syntax.Each():
            return _each(node, shape), ""
        case syntax.Partitions(path, index):
            get = _getter(path[:-1])
            inner = path[-1]
            return (lambda item, _topic, _version: named_partitions(get(item), inner, index) or None), ""
        case syntax.Label(index):
            if index:
                return (lambda item, topic, _version: f"{topic}-{item.get(index, '?')}"), ""
            return (lambda item, _topic, _version: topic_of(item)), ""
        case syntax.FunctionCall(name):
            if name not in FUNCTIONS:
                raise DefinitionError(f"summaries.txt: there is no function {name}()")
            function = FUNCTIONS[name]
            return (lambda item, topic, _version: function(item, topic) or None), ""
        case syntax.Choice():
            return _choice(node, shape), ""
        case syntax.Parts():
            return _parts(node, shape), ""


def _pieces(body: syntax.Sequence, shape: Shape) -> tuple[list[tuple[str, Render, str]], str]:
    """Nodes, each with the text before it and its substitute, and the text after the last one."""
    found: list[tuple[str, Render, str]] = []
    before = ""
    for node in body:
        if isinstance(node, syntax.Text):
            before += node.text
        else:
            found.append((before, *_node(node, shape)))
            before = ""
    return found, before


def _flat(body: syntax.Sequence) -> syntax.Sequence:
    """The same with phrases replaced by their nodes."""
    found: list[syntax.Node] = []
    for node in body:
        match node:
            case syntax.Parts((part,)):
                found += _flat(part)
            case _:
                found.append(node)
    return tuple(found)


def _sequence(body: syntax.Sequence, shape: Shape) -> Callable[[Body, str, int], str]:
    """All nodes in sequence. Hot."""
    pieces, tail = _pieces(_flat(body), shape)
    if not pieces:
        return lambda _item, _topic, _version: tail
    if len(pieces) == 1:
        ((head, only, instead),) = pieces

        def one(item: Body, topic: str, version: int) -> str:
            text = only(item, topic, version)
            return f"{head}{instead if text is None else text}{tail}"

        return one

    def render(item: Body, topic: str, version: int) -> str:
        result = ""
        for before, node, instead in pieces:
            text = node(item, topic, version)
            result = f"{result}{before}{instead if text is None else text}"
        return result + tail

    return render


def _parts(parts: syntax.Parts, shape: Shape) -> Render:
    found = [_sequence(part, shape) for part in parts.parts]
    if len(found) == 1:
        only = found[0]
        return lambda item, topic, version: only(item, topic, version) or None
    return lambda item, topic, version: ", ".join(filter(None, [part(item, topic, version) for part in found])) or None


def _choice(choice: syntax.Choice, shape: Shape) -> Render:
    options: list[tuple[list[_Condition], Callable[[Body, str, int], str | None]]] = []
    for number, option in enumerate(choice.options, 1):
        is_last = number == len(choice.options) > 1
        whole = option.tests or is_last
        options.append((
            [_condition(test) for test in option.tests],
            _sequence(option.body, shape) if whole else _all_of(option.body, shape),
        ))  # fmt: skip

    def render(item: Body, topic: str, version: int) -> str:
        for conditions, body in options:
            for condition in conditions:
                if not condition(item, version):
                    break
            else:
                text = body(item, topic, version)
                if text is not None:
                    return text
        return ""

    return render


def _all_of(body: syntax.Sequence, shape: Shape) -> Render:
    """All nodes in sequence, None if one of them has nothing to show."""
    pieces, tail = _pieces(body, shape)

    def render(item: Body, topic: str, version: int) -> str | None:
        result = ""
        for before, node, _ in pieces:
            text = node(item, topic, version)
            if text is None:
                return None
            result = f"{result}{before}{text}"
        return result + tail

    return render


def _value_at(value: syntax.Value, shape: Shape) -> tuple[Render, str]:
    field = shape_at(shape, value.path)
    get = _getter(value.path)
    if value.form == "name":
        enum = "" if field is None or field.enum is None else field.enum
        return (lambda item, _topic, _version: _name(enum, get(item))), "None"
    if value.form == "amount":
        return (lambda item, _topic, _version: _amount(get(item))), ""
    if field is not None and field.type == "records":
        return (lambda item, _topic, _version: records_phrase(get(item)) or None), ""
    if field is None or is_number(field):
        return _shown(value.path, lambda found: str(found) if type(found) is int else word(found)), "None"
    return _shown(value.path, lambda found: WORDS[found] if type(found) is str else word(found)), "null"


def _shown(path: syntax.Path, show: Callable[[Any], str]) -> Render:
    if len(path) == 1:
        (name,) = path

        def of_field(item: Body, _topic: str, _version: int) -> str | None:
            value = item.get(name)
            return None if value is None else show(value)

        return of_field
    get = _getter(path)

    def render(item: Body, _topic: str, _version: int) -> str | None:
        value = get(item)
        return None if value is None else show(value)

    return render


def _name(enum: str, value: object) -> str | None:
    name = enum_name(enum, value)
    return None if name is None else name.lower().replace("_", " ")


def _amount(value: object) -> str | None:
    if isinstance(value, bytes):
        return amount(len(value))
    if isinstance(value, dict) and "redacted" in value:
        return f"{amount(value['redacted'])}, redacted"
    return None


def _count(node: syntax.Count, shape: Shape) -> Render:
    field = shape_at(shape, node.path)
    if field is None or not field.array:
        get = _getter(node.path)

        def number(item: Body, _topic: str, _version: int) -> str | None:
            value = get(item)
            return None if value is None else count(value, node.noun)

        return number
    noun, path = node.noun, node.path

    def elements(item: Body, _topic: str, _version: int) -> str:
        total = _total(item, path)
        return count(total, noun) if noun else str(total)

    return elements


def _total(value: Any, path: syntax.Path) -> int:
    """Total number of elements of the arrays at a path through arrays of structs."""
    value = value.get(path[0])
    if len(path) == 1:
        return len(lists(value))
    inner = path[1:]
    return sum(_total(one, inner) for one in ([value] if isinstance(value, dict) else rows(value)))


def _each(node: syntax.Each, shape: Shape) -> Render:
    body = _sequence(node.body, fields_at(shape, node.path))
    counts_all = syntax.is_never_empty(node.body)
    outer, inner = node.path[0], node.path[1] if len(node.path) > 1 else ""
    prefers = _getter(node.prefer.split(".")) if node.prefer else None
    shown, separator = node.shown, node.separator

    def render(item: Body, topic: str, version: int) -> str | None:
        texts: list[str] = []
        total = 0
        preferred = False
        for row in rows(item.get(outer)):
            if inner:
                name, found = topic_of(row), rows(row.get(inner))
            else:
                name, found = topic, [row]
            for struct in found:
                if node.good and struct.get("error_code"):
                    continue
                has_room = not shown or len(texts) < shown
                if prefers is not None:
                    if _is_set(prefers(struct)):
                        preferred = True
                    elif preferred:
                        has_room = False
                if counts_all and not has_room:
                    total += 1
                    continue
                text = body(struct, name, version)
                if text:
                    total += 1
                    if has_room:
                        texts.append(text)
        rest = total - len(texts)
        if rest:
            texts.append(f"+{count(rest, node.noun)}" if node.noun else f"+{rest} more")
        return separator.join(texts) or None

    return render


# Conditions


def _getter(path: syntax.Path | list[str]) -> Callable[[Body], Any]:
    """A function for the value at a path; None if a struct on the path is missing."""
    if len(path) == 1:
        name = path[0]
        return lambda item: item.get(name)
    *outer, last = path

    def get(item: Body) -> Any:
        value: Any = item
        for name in outer:
            value = value.get(name)
            if not isinstance(value, dict):
                return None
        if last == "base_offset" and "batches" in value:
            # For records: that of their first batch.
            return value["batches"][0].get(last) if value["batches"] else None
        return value.get(last)

    return get


def _is_set(value: Any) -> bool:
    """Whether a value is neither null, empty nor 0."""
    if type(value) is int:
        return value != 0
    if isinstance(value, dict) and "batches" in value:
        return bool(value["batches"])
    return bool(value) and value != NO_ID


def _condition(test: syntax.Test) -> _Condition:
    path, kind, operand = test.path, test.kind, test.operand
    if path == ("@version",):
        return lambda _item, version: version == operand
    get = _getter(path)
    match kind:
        case "some" if len(path) == 1:
            return lambda item, _version: _is_set(item.get(path[0]))
        case "some":
            return lambda item, _version: _is_some(item, path)
        case "none":
            return lambda item, _version: not _is_some(item, path)
        case "has":
            return lambda item, _version: path[0] in item
        case "lacks":
            return lambda item, _version: path[0] not in item
        case ">=":
            least = operand if isinstance(operand, int) else 0
            return lambda item, _version: isinstance(value := get(item), int) and value >= least
    if isinstance(operand, tuple):
        other = _getter(operand)
        return lambda item, _version: (get(item) == other(item)) is (kind == "=")
    return lambda item, _version: (get(item) == operand) is (kind == "=")


def _is_some(item: Body, path: syntax.Path) -> bool:
    """Whether a value at a path, possibly through arrays, is neither null, empty nor 0."""
    value = item.get(path[0])
    if len(path) == 1:
        return _is_set(value)
    return any(_is_some(one, path[1:]) for one in ([value] if isinstance(value, dict) else rows(value)))
