"""Constants of an expression, converted to the representation of a field's values."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final, get_args

from kafkasniff.errors import UsageError
from kafkasniff.filters.fields import MILLISECOND, FilterField
from kafkasniff.filters.short_forms import host_text
from kafkasniff.filters.syntax import MAX_QUOTED, Constant, unescaped, wrong
from kafkasniff.filters.time_parsing import Moment, parse_duration, parse_moment
from kafkasniff.filters.tree import Scalar
from kafkasniff.kafka.apis import dissectors
from kafkasniff.kafka.schema.enums import enum_by_name
from kafkasniff.kafka.schema.errors import error_by_name, error_codes, error_name
from kafkasniff.model import Status
from kafkasniff.text.printable import suggestion

__all__ = ["KINDS", "error_names", "value_of"]

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
    values = {} if table is None or table.kind == "bits" else {one.name: one.text for one in table.values}
    wanted = unescaped(constant)
    for known, text in values.items():
        if known.lower() == wanted.lower() and re.fullmatch(r"-?\d+|0x[0-9a-fA-F]+", text):
            return int(text, 0)
    accepted = f" or one of {', '.join(values)}" if values else ""
    raise wrong(constant.column, f"{field} is a number{accepted}, not {_shown(constant)}")


def _api_key(constant: Constant) -> int:
    name = unescaped(constant)
    found = dissectors.api_by_name(name)
    if found is None:
        raise wrong(constant.column, str(dissectors.unknown_api(name[:MAX_QUOTED])))
    return found.key


def _error_code(constant: Constant) -> int:
    name = unescaped(constant)
    found = error_by_name(name)
    if found is None:
        raise wrong(constant.column, f"no error is called {_shown(constant)}{suggestion(name, error_names().values())}")
    return found.code


def _status(constant: Constant) -> str:
    statuses = get_args(Status)
    wanted = unescaped(constant)
    if wanted not in statuses:
        raise wrong(constant.column, f"{_shown(constant)} is not a status; the statuses are {', '.join(statuses)}")
    return wanted
