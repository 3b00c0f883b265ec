"""Filter expressions made from a cell of the list: this value, any other, more, less."""

from __future__ import annotations

import re
from typing import Final, Literal, get_args

from kafkasniff.browse.index import Row
from kafkasniff.errors import UsageError
from kafkasniff.filters.expression import parse_filter
from kafkasniff.filters.literals import error_names
from kafkasniff.model import Status
from kafkasniff.text.times import rfc3339

__all__ = ["Sign", "added", "condition"]

Sign = Literal["==", "!=", ">", "<"]

_TEXTS: Final = frozenset({"client_id", "client", "broker"})
_NUMBERS: Final = {"packet": "first_packet", "request": "request_size", "response": "response_size"}
"""The fields of columns of numbers."""
_NAMES: Final = ("topic", "group_id", "transactional_id")
_API: Final = re.compile(r"(?:API (?P<key>\d+)|(?P<name>\w+))(?: v\d+)?")
_UNNAMED_ERROR: Final = re.compile(r"error (-?\d+)")


def condition(row: Row, column: str, sign: Sign) -> str | None:
    """What holds for exchanges that are like this one in a column; None if its value cannot be compared so."""
    made = _condition(row, column, sign)
    if made is None:
        return None
    try:
        parse_filter(made)
    except UsageError:
        return None
    return made


def _condition(row: Row, column: str, sign: Sign) -> str | None:
    value = getattr(row, column)
    if column == "packet" and sign == ">":
        # Those of either message count, and the response comes later.
        return None if value is None else f"not (first_packet <= {value})"
    if column in _NUMBERS:
        return None if value is None else f"{_NUMBERS[column]} {sign} {value}"
    if column == "latency":
        return None if value is None else f"latency_ms {sign} {value / 1e6:.6f}"
    if column == "time":
        return None if value is None else f"time {sign} {rfc3339(value)}"
    if sign in {">", "<"}:
        return None
    equal = _equal(column, value)
    return equal if equal is None or sign == "==" else f"not ({equal})"


def _equal(column: str, value: str | int) -> str | None:
    if column == "problems":
        return "has problems" if value else "not has problems"
    text = str(value)
    if column == "error":
        return _error(text)
    if column == "api":
        found = _API.fullmatch(text)
        if found is None:
            return None
        return f'api == "{found["name"]}"' if found["key"] is None else f"api_key == {found['key']}"
    # A name that is too long for the list is not known as a whole here.
    if "…" in text:
        return None
    # The escapes of the list are those of filters.
    quoted = text if text.startswith('"') else f'"{text}"'
    if column in _TEXTS:
        return f"{column} == {quoted}" if text else f"not has {column}"
    if text:
        return " or ".join(f"{name} == {quoted}" for name in _NAMES)
    return " and ".join(f"not has {name}" for name in _NAMES)


def _error(text: str) -> str | None:
    status = text.replace(" ", "_")
    if status in get_args(Status):
        return f'status == "{status}"'
    unnamed = _UNNAMED_ERROR.fullmatch(text)
    if unnamed is not None:
        return f"error == {unnamed[1]}"
    return f'error == "{text or "NONE"}"' if not text or text in error_names().values() else None


def added(expression: str, condition: str) -> str:
    """Both an expression and a condition."""
    parts = (f"({one})" if re.search(r"\bor\b|\|\|", one) else one for one in (expression, condition) if one)
    return " and ".join(parts)
