"""Expressions of `--filter`: their syntax tree, checked, becomes a tree of predicates.

Paths into bodies (`request.topic_data.name`) are checked against the definitions of all APIs and versions. Fields below
one that begins with `_` were decoded from bytes and have no definition at that place: such paths are not checked.
Constants are converted to the representation of the field's values.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from decimal import Decimal
from typing import Final, get_args

from kafkasniff.errors import UsageError
from kafkasniff.filters.fields import FIELDS, MILLISECOND, OTHER_NAMES, FilterField, Kind, record_field
from kafkasniff.filters.patterns import compile_pattern
from kafkasniff.filters.syntax import (
    MAX_QUOTED,
    Comparison,
    Constant,
    Every,
    Name,
    Negation,
    Node,
    Presence,
    Some,
    parse,
    parse_names,
    unescaped,
    wrong,
)
from kafkasniff.filters.tree import (
    And,
    Compare,
    Moment,
    Not,
    Operator,
    Or,
    Predicate,
    Scalar,
    host_text,
    parse_duration,
    parse_moment,
)
from kafkasniff.kafka.apis import dissectors
from kafkasniff.kafka.apis.dissectors import api_names
from kafkasniff.kafka.schema.codes import enum_by_name, error_by_name, error_codes, error_name
from kafkasniff.kafka.schema.definition import FieldDefinition, Versions
from kafkasniff.model import Status
from kafkasniff.text.printable import closest, suggestion

_ANY: Final = Versions(0, 0x7FFF)
_TEXTS: Final = frozenset({"bytes", "string", "uuid"})
# int64 fields that are times without "timestamp" in their names.
_TIMES: Final = frozenset({"log_append_time_ms", "transaction_start_time_ms"})
_FEW: Final = 12
"""Names listed in a message."""


def _field(name: str, kind: str, *fields: FieldDefinition, array: bool = False) -> FieldDefinition:
    return FieldDefinition(name, kind, array, _ANY, _ANY, fields=fields)


_HEADERS: Final = _field("headers", "struct", _field("key", "string"), _field("value", "bytes"), array=True)
_RECORDS: Final = _field(
    "records",
    "struct",
    *(_field("offset", "int64"), _field("timestamp", "int64"), _field("key", "bytes"), _field("value", "bytes")),
    _HEADERS,
    array=True,
)
_BATCHES: Final = _field(
    "batches",
    "struct",
    *(
        *(_field("base_offset", "int64"), _field("batch_length", "int32"), _field("partition_leader_epoch", "int32")),
        *(_field("magic", "int8"), _field("crc", "uint32"), _field("crc_ok", "bool"), _field("compression", "string")),
        *(_field("timestamp_type", "string"), _field("transactional", "bool"), _field("control", "bool")),
        *(_field("last_offset_delta", "int32"), _field("base_timestamp", "int64"), _field("max_timestamp", "int64")),
        *(_field("producer_id", "int64"), _field("producer_epoch", "int16"), _field("base_sequence", "int32")),
        *(_field("record_count", "int32"), _RECORDS),
    ),
    array=True,
)
RECORDS: Final = (_BATCHES, _field("truncated_bytes", "int32"), _field("leading_bytes", "int32"))
"""The fields of a `records` field, as in `sinks.formats.JSON_KEYS`."""


def path_field(path: str, keys: Collection[int] | None) -> FilterField:
    """The field at a path in the bodies of these APIs (None: of any).

    Raises UsageError for a path that does not exist in any of their versions.
    """
    root, *names = path.split(".")
    level = list(_fields(root, keys))
    field_definitions: list[FieldDefinition] = []
    many = False
    for index, name in enumerate(names):
        if name.startswith("_"):
            return FilterField(path, "any", late=root == "response", many=True)
        field_definitions = [field for field in level if field.name == name]
        if not field_definitions:
            raise UsageError(_unknown(root, names, index, level, keys))
        many = many or any(field.array for field in field_definitions)
        level = [
            child for field in field_definitions for child in (RECORDS if field.type == "records" else field.fields)
        ]
    kinds = {_kind(field) for field in field_definitions}
    # If one API has a struct and another a value, constants are compared with the value.
    kinds = {kind for kind in kinds if kind[0] != "struct"} or kinds
    kind, unit, enum = kinds.pop() if len(kinds) == 1 else ("any", 1, None)
    return FilterField(path, kind, late=root == "response", unit_ns=unit, enum=enum, many=many)


def _fields(root: str, keys: Collection[int] | None) -> Iterator[FieldDefinition]:
    for key in dissectors.api_keys() if keys is None else keys:
        api = dissectors.api(key)
        if api is not None:
            yield from (api.definition.request if root == "request" else api.definition.response).fields


def _kind(field: FieldDefinition) -> tuple[Kind, int, str | None]:
    """Kind, unit and table of names."""
    if field.type in ("struct", "records"):
        return "struct", 1, None
    if field.type == "bool":
        return "flag", 1, None
    if field.type == "error":
        return "error", 1, None
    if field.type in _TEXTS:
        return "text", 1, None
    if field.type == "int64" and ("timestamp" in field.name or field.name in _TIMES):
        return "time", MILLISECOND, None
    last = field.name.rpartition("_")[2]
    if last == "ms":
        return "duration", MILLISECOND, None
    if last in ("bytes", "size", "length"):
        return "size", 1, None
    return "number", 1, field.enum


def _unknown(
    root: str, names: list[str], place: int, level: Iterable[FieldDefinition], keys: Collection[int] | None
) -> str:
    """The message for a name that does not exist."""
    there = sorted({field.name for field in level})
    before = ".".join((root, *names[:place]))
    path = f"{before}.{names[place]}"
    owner = "no API"
    if keys is not None:
        owner = " or ".join(api.name for key in sorted(keys) if (api := dissectors.api(key)) is not None)
        owner = f"no version of {owner}" if owner else "no API of these keys"
    close = closest(names[place], there)
    if close is not None:
        rest = "".join(f".{name}" for name in names[place + 1 :])
        return f'{owner} has "{path}"; did you mean {before}.{close}{rest}?'
    if there and len(there) <= _FEW:
        return f'{owner} has "{path}"; the names are {", ".join(there)}'
    return f'{owner} has "{path}"; `kafkasniff api NAME` lists the fields'


MAX_DIGITS: Final = 32
"""Maximum length of a number: an int64 has 20 characters, and very long ones take time to convert."""

SIZES: Final = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
}

KINDS: Final = {
    "any": "text, a number, true or false",
    "api": "an API, by name or key",
    "duration": "a duration (250us, 10ms, 1.5s, 2m; a bare number is ms)",
    "error": "an error, by name or code",
    "flag": "true or false",
    "host": "an address (10.0.0.5, 10.0.0.5:9092, ::1, [::1]:9092)",
    "number": "a number",
    "size": "a size (512, 10kB, 1MiB)",
    "status": "how an exchange ended",
    "struct": "a structure",
    "text": "text",
    "time": "a time (2026-11-21T04:00:00Z)",
}
"""Descriptions of kinds, for messages."""


def error_names() -> dict[int, str]:
    """Names of all errors by code."""
    return {code: name for code in error_codes() if (name := error_name(code)) is not None}


def value_of(constant: Constant, field: FilterField) -> Scalar | Moment:
    """A constant to compare a field with, not null. Raises UsageError with the column."""
    kind = field.kind
    if kind == "any":
        kind = {"string": "text", "flag": "flag", "number": "size"}.get(constant.kind, "any")  # type: ignore[assignment]  # all are kinds
    match kind, constant.kind:
        case "text", "string":
            return unescaped(constant)
        case "flag", "flag":
            return constant.text == "true"
        case "number", "string" if field.enum is not None:
            return _enum_value(constant, field.enum, field.name)
        case ("number", "number") | ("api", "number") | ("error", "number") if not constant.unit:
            return _plain(_decimal(constant))
        case "size", "number":
            return _size(constant)
        case "duration", "number":
            return _duration(constant, field)
        case ("time", "string") | ("time", "time"):
            return _time(constant, field)
        case "time", "number" if field.unit_ns == MILLISECOND and not constant.unit:
            return _plain(_decimal(constant))
        case "api", "string":
            return _api_key(constant)
        case "error", "string":
            return _error_code(constant)
        case "status", "string":
            return _status(constant)
        case "host", "string":
            try:
                return host_text(unescaped(constant))
            except UsageError as error:
                raise wrong(constant.column, str(error)) from None
    raise wrong(constant.column, f"{field.name} is {KINDS[field.kind]}, not {_shown(constant)}")


def _shown(constant: Constant) -> str:
    text = constant.text + constant.unit
    text = text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}…"
    return f'"{text}"' if constant.kind == "string" else text


def _decimal(constant: Constant) -> Decimal:
    if len(constant.text) > MAX_DIGITS:
        raise wrong(constant.column, f"a number of more than {MAX_DIGITS} characters")
    return Decimal(constant.text)


def _plain(value: Decimal) -> int | float:
    """Whole numbers as int: comparing an int64 with a float loses digits."""
    return int(value) if value == value.to_integral_value() else float(value)


def _size(constant: Constant) -> int | float:
    unit = SIZES.get(constant.unit or "B")
    if unit is None:
        raise wrong(constant.column, f"{constant.unit!r} is not a unit of size ({', '.join(SIZES)})")
    return _plain(_decimal(constant) * unit)


def _duration(constant: Constant, field: FilterField) -> int | float:
    _decimal(constant)
    try:
        nanoseconds = parse_duration(constant.text.lstrip("-") + constant.unit)
    except UsageError as error:
        raise wrong(constant.column, str(error)) from None
    if constant.text.startswith("-"):
        nanoseconds = -nanoseconds
    return _plain(Decimal(nanoseconds) / field.unit_ns)


def _time(constant: Constant, field: FilterField) -> int | float | Moment:
    try:
        found = parse_moment(unescaped(constant) if constant.kind == "string" else constant.text)
    except UsageError as error:
        raise wrong(constant.column, str(error)) from None
    if field.unit_ns == 1:
        return found
    if isinstance(found, Moment):
        raise wrong(constant.column, f"{field.name} takes a time with a date")
    return _plain(Decimal(found) / field.unit_ns)


def _enum_value(constant: Constant, name: str, field: str) -> Scalar:
    table = enum_by_name(name)
    values = {} if table is None or table.kind == "bits" else {value.name: value.text for value in table.values}
    wanted = unescaped(constant)
    for known, text in values.items():
        if known.lower() == wanted.lower() and re.fullmatch(r"-?\d+|0x[0-9a-fA-F]+", text):
            return int(text, 0)
    accepted = f" or one of {', '.join(values)}" if values else ""
    raise wrong(constant.column, f"{field} is a number{accepted}, not {_shown(constant)}")


def _api_key(constant: Constant) -> int:
    name = unescaped(constant)
    api = dissectors.api_by_name(name)
    if api is None:
        raise wrong(constant.column, str(dissectors.unknown_api(name[:MAX_QUOTED])))
    return api.key


def _error_code(constant: Constant) -> int:
    name = unescaped(constant)
    kafka_error = error_by_name(name)
    if kafka_error is None:
        raise wrong(constant.column, f"no error is called {_shown(constant)}{suggestion(name, error_names().values())}")
    return kafka_error.code


def _status(constant: Constant) -> str:
    statuses = get_args(Status)
    wanted = unescaped(constant)
    if wanted not in statuses:
        raise wrong(constant.column, f"{_shown(constant)} is not a status; the statuses are {', '.join(statuses)}")
    return wanted


MAX_PATTERN: Final = 1000
"""Characters of a regular expression."""

_ORDER: Final = frozenset({"<", "<=", ">", ">="})
_MATCH: Final = frozenset({"=~", "!~"})
_PARTS: Final = frozenset({"contains", "startswith", "endswith"})
_ORDERED: Final = frozenset({"any", "duration", "number", "size", "time"})
_HAVE_PARTS: Final = frozenset({"any", "host", "text"})
_MATCHED: Final = frozenset({"any", "api", "error", "host", "status", "text"})

_Keys = frozenset[int] | None
"""Keys of the APIs for which a part of an expression can be true; None: any."""


def parse_filter(expression: str) -> Predicate:
    """The tree of an expression.

    Raises UsageError with the column of the error: syntax, an unknown field or path, a constant or operator that does
    not fit the field, an invalid pattern.
    """
    return _tree(parse(expression), None)


def parse_fields(text: str) -> list[FilterField]:
    """Fields in a comma list: names and paths as in expressions. Raises UsageError with the column."""
    return list(dict.fromkeys(_named_field(name, None) for name in parse_names(text)))


def _tree(node: Node, keys: _Keys) -> Predicate:
    match node:
        case Every(parts):
            for part in parts:
                keys = _narrowed(keys, part)
            return And(tuple(_tree(part, keys) for part in parts))
        case Some(parts):
            return Or(tuple(_tree(part, keys) for part in parts))
        case Negation(part):
            return Not(_tree(part, keys))
        case Presence(name):
            return _presence(_named_field(name, keys))
        case Comparison():
            return _comparison(node, _named_field(node.field, keys))


def _narrowed(keys: _Keys, part: Node) -> _Keys:
    """The APIs for which `part` can hold, so that paths next to it are looked up in their bodies."""
    if not isinstance(part, Comparison) or part.operator not in ("==", "in"):
        return keys
    field = FIELDS.get(part.field.text)
    if field is None or field.name not in ("api", "api_key"):
        return keys
    named = frozenset(
        value
        for constant in part.constants
        if constant.kind != "null" and isinstance(value := value_of(constant, field), int)
    )
    # If the named APIs cannot be combined, any of them may be meant.
    return named if keys is None else (keys & named or keys | named)


def _named_field(name: Name, keys: _Keys) -> FilterField:
    filter_field = FIELDS.get(OTHER_NAMES.get(name.text, name.text))
    if filter_field is not None:
        return filter_field
    root, _, rest = name.text.partition(".")
    if root == "record" and rest:
        try:
            return record_field(name.text)
        except UsageError as error:
            raise wrong(name.column, str(error)) from None
    if root in ("request", "response") and rest:
        try:
            return path_field(name.text, keys)
        except UsageError as error:
            raise wrong(name.column, str(error)) from None
    shown = name.text if len(name.text) <= MAX_QUOTED else f"{name.text[:MAX_QUOTED]}…"
    if root == "body":
        hint = "; bodies are request.… and response.…"
    else:
        hint = suggestion(name.text, FIELDS, "`kafkasniff help filters` lists the fields")
    raise wrong(name.column, f'unknown field "{shown}"{hint}')


def _presence(field: FilterField) -> Predicate:
    # Every decoded response has an error code, possibly NONE, which does not count as present.
    if field.name in ("error", "error_code"):
        return Compare(field.name, "!=", 0)
    return Compare(field.name, "exists")


def _comparison(node: Comparison, field: FilterField) -> Predicate:
    operator = node.operator
    if any(constant.kind == "null" for constant in node.constants):
        if operator == "==":
            return Not(Compare(field.name, "exists"))
        if operator == "!=":
            return Compare(field.name, "exists")
        raise wrong(node.column, f"null can be compared with == and != only, not with {operator}")
    if not _takes(field, operator):
        raise wrong(node.column, f"{field.name} is {KINDS[field.kind]}: it does not support {operator}")
    if operator in _MATCH:
        return _match(field, operator, node.constants[0])
    if operator in _PARTS:
        (constant,) = node.constants
        if constant.kind != "string":
            raise wrong(constant.column, f"{operator} takes text in quotes")
        return Compare(field.name, operator, unescaped(constant))
    values = tuple(value_of(constant, field) for constant in node.constants)
    if operator not in ("in", "not in"):
        (value,) = values
        if operator in _ORDER and isinstance(value, str | bool):
            raise wrong(node.constants[0].column, f"{operator} compares numbers, not {KINDS['text']}")
        return Compare(field.name, operator, value)
    # Times without a date depend on the packets.
    scalars = tuple(value for value in values if isinstance(value, str | int | float))
    if len(scalars) < len(values):
        raise wrong(node.column, f"{operator} takes times with their dates only")
    return Compare(field.name, operator, scalars)


def _takes(field: FilterField, operator: Operator) -> bool:
    if field.kind == "struct":
        return False
    if field.kind == "flag":
        return operator in ("==", "!=")
    if operator in _ORDER:
        return field.kind in _ORDERED
    if operator in _PARTS:
        return field.kind in _HAVE_PARTS
    return operator not in _MATCH or field.kind in _MATCHED


def _match(field: FilterField, operator: Operator, constant: Constant) -> Predicate:
    pattern = constant.text
    if constant.kind != "string":
        raise wrong(constant.column, f"{operator} takes a pattern in quotes")
    if len(pattern) > MAX_PATTERN:
        raise wrong(constant.column, f"a pattern of more than {MAX_PATTERN:,} characters")
    try:
        compiled = compile_pattern(pattern)
    except ValueError as error:
        raise wrong(constant.column, str(error)) from None
    if field.kind in ("api", "error"):
        # Values are numbers on the wire; all their names are known here.
        names = api_names() if field.kind == "api" else error_names()
        codes = tuple(code for code, name in names.items() if compiled.found_in(name))
        if not codes:
            raise wrong(constant.column, f"the pattern matches no name of {field.kind}s")
        return Compare(field.name, "in" if operator == "=~" else "not in", codes)
    return Compare(field.name, operator, pattern)
