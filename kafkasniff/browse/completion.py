"""Completion of a filter expression at its end: names of fields, and values that the list has."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

from kafkasniff.filters.expression import error_names
from kafkasniff.filters.fields import FIELDS, OTHER_NAMES

__all__ = ["completed"]

_FIELD: Final = re.compile(r"(?:^|[\s(!])([a-z_]+)$")
_VALUE: Final = re.compile(
    r"\b([a-z_]+)\s*(?:==|!=|=~|!~|(?:matches|contains|startswith|endswith)\s|in\s*\((?:[^()]*,)?)\s*(\"(?:[^\"\\]|\\.)*)?$"
)
_COLUMNS: Final = {
    "api": ("api",),
    "broker": ("broker",),
    "client": ("client",),
    "client_id": ("client_id",),
    "error": ("error",),
    "group": ("subject",),
    "group_id": ("subject",),
    "host": ("client", "broker"),
    "topic": ("subject",),
    "transactional_id": ("subject",),
}
"""The columns of the list with the values of fields."""
_VERSION: Final = re.compile(r" v\d+$")


def completed(expression: str, seen: Callable[[str], Iterable[str]]) -> str | None:
    """The expression with its last name or value completed, by the first one that fits; None if there is none.

    `seen`: the texts in a column of the list.
    """
    value = _VALUE.search(expression)
    if value is not None:
        texts = {text for column in _COLUMNS.get(value[1], ()) for text in seen(column)}
        if value[1] == "api":
            texts = {_VERSION.sub("", text) for text in texts}
        elif value[1] == "error":
            # The column also has how exchanges ended without a response.
            texts &= {*error_names().values()}
        begin = (value[2] or '"')[1:]
        fits = min((text for text in texts if _is_whole(text) and text.startswith(begin)), default=None)
        return None if fits is None else f'{expression}{"" if value[2] else chr(34)}{fits[len(begin) :]}"'
    field = _FIELD.search(expression)
    if field is None:
        return None
    names = (name for name in (*FIELDS, *OTHER_NAMES) if name.startswith(field[1]) and name != field[1])
    # The shortest one: one more letter selects a longer one.
    fits = min(names, key=lambda name: (len(name), name), default=None)
    return None if fits is None else expression + fits[len(field[1]) :]


def _is_whole(text: str) -> bool:
    """Whether a text of the list can be written in quotes: it is neither cut, nor quoted already."""
    return bool(text) and "…" not in text and '"' not in text
