"""The language of `--filter`: an expression to a tree of predicates, every name and constant checked.

`docs/filters.md` is its reference. No part of it is executed as Python; the available names are in `fields.py` and in
the definitions of bodies.
"""

from __future__ import annotations

from typing import Final

from kafkasniff.errors import UsageError
from kafkasniff.filters.fields import FIELDS, OTHER_NAMES, FilterField, record_field
from kafkasniff.filters.literals import KINDS, error_names, value_of
from kafkasniff.filters.paths import path_field
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
from kafkasniff.filters.tree import And, Compare, Not, Operator, Or, Predicate
from kafkasniff.kafka.apis.dissectors import api_names
from kafkasniff.text.printable import suggestion

__all__ = ["MAX_PATTERN", "parse_fields", "parse_filter"]

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
    return list(dict.fromkeys(_field(name, None) for name in parse_names(text)))


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
            return _presence(_field(name, keys))
        case Comparison():
            return _comparison(node, _field(node.field, keys))


def _narrowed(keys: _Keys, part: Node) -> _Keys:
    """The APIs for which `part` can hold, so that paths next to it are looked up in their bodies."""
    if not isinstance(part, Comparison) or part.operator not in ("==", "in"):
        return keys
    field = FIELDS.get(part.field.text)
    if field is None or field.name not in ("api", "api_key"):
        return keys
    named = frozenset(
        value for one in part.constants if one.kind != "null" and isinstance(value := value_of(one, field), int)
    )
    # If the named APIs cannot be combined, any of them may be meant.
    return named if keys is None else (keys & named or keys | named)


def _field(name: Name, keys: _Keys) -> FilterField:
    found = FIELDS.get(OTHER_NAMES.get(name.text, name.text))
    if found is not None:
        return found
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
