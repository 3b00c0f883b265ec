"""A question's parameters as a list for the command line, and parsing of their values."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from kafkasniff.analysis.accumulator import Parameters, Question
from kafkasniff.errors import UsageError
from kafkasniff.filters.tree import parse_duration

Duration = Annotated[int, "duration"]
"""Nanoseconds; as text with a unit: `10s`, `5m`."""


class Parameter(msgspec.Struct, frozen=True):
    """One parameter of a question."""

    name: str
    help: str
    kind: Literal["text", "integer", "number", "duration", "choice", "flag"]
    many: bool
    """It accepts several values."""
    choices: tuple[str, ...]
    default: Any

    @property
    def default_text(self) -> str | None:
        """The default as a person would write it; None if there is none."""
        if self.many:
            return ",".join(self.default) or None
        if self.kind == "duration":
            return _duration_text(self.default) if self.default else None
        return None if self.default in (None, "", False) else str(self.default)


def parameters_of(question: type[Question[Any]]) -> list[Parameter]:
    """The parameters of a question in their order of definition."""
    hints = get_type_hints(question.parameters_type, include_extras=True)
    fields = msgspec.structs.fields(question.parameters_type)
    return [_parameter(field.name, hints[field.name], field.default) for field in fields]


def _parameter(name: str, hint: Any, default: Any) -> Parameter:
    description = ""
    duration = False
    while get_origin(hint) is Annotated:
        hint, *extras = get_args(hint)
        description = next(
            (extra.description for extra in extras if isinstance(extra, msgspec.Meta) and extra.description),
            description,
        )
        duration = duration or "duration" in [extra for extra in extras if isinstance(extra, str)]
    if get_origin(hint) in (Union, types.UnionType):
        hint = next(one for one in get_args(hint) if one is not type(None))
    many = get_origin(hint) is tuple
    if many:
        hint = get_args(hint)[0]
    choices: tuple[str, ...] = get_args(hint) if get_origin(hint) is Literal else ()
    plain: dict[Any, Literal["flag", "integer", "number", "text"]] = {
        bool: "flag",
        int: "integer",
        float: "number",
        str: "text",
    }
    kind: Any = "duration" if duration else "choice" if choices else plain[hint]
    return Parameter(name, description, kind, many, choices, default)


def make_parameters(question: type[Question[Any]], given: Mapping[str, Any]) -> Parameters:
    """Parameters from values by name: typed ones, or text as on a command line; absent and None mean the default.

    Raises UsageError for invalid names and values.
    """
    known = {parameter.name: parameter for parameter in parameters_of(question)}
    unknown = given.keys() - known.keys()
    if unknown:
        has = f"it has {', '.join(known)}" if known else "it has none"
        raise UsageError(f"{question.name} has no parameter {min(unknown)!r}: {has}")
    values = {name: _value(known[name], value) for name, value in given.items() if value is not None}
    try:
        return msgspec.convert(values, question.parameters_type)
    except msgspec.ValidationError as error:
        raise UsageError(f"{question.name}: {error}") from None


def _value(parameter: Parameter, value: Any) -> Any:
    option = f"--{parameter.name.replace('_', '-')}"
    if parameter.many:
        parts = [value] if isinstance(value, str) else list(value)
        value = [word for part in parts for word in (w.strip() for w in str(part).split(",")) if word]
    elif parameter.kind == "duration" and isinstance(value, str):
        return parse_duration(value)
    elif parameter.kind in ("integer", "number") and isinstance(value, str):
        try:
            return int(value) if parameter.kind == "integer" else float(value)
        except ValueError:
            raise UsageError(f"{option}: {value!r} is not a number") from None
    if parameter.choices:
        for one in value if parameter.many else [value]:
            if one not in parameter.choices:
                raise UsageError(f"{option}: {one!r} is not one of {', '.join(parameter.choices)}")
    return value


def _duration_text(nanoseconds: int) -> str:
    for unit, size in (("m", 60_000_000_000), ("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)):
        if nanoseconds % size == 0:
            return f"{nanoseconds // size}{unit}"
    return f"{nanoseconds}ns"
