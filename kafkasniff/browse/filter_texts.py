"""Filter expressions as texts: made from a cell of the list, completed at their end, saved for later runs."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, Literal, get_args

from kafkasniff.browse.index import Row
from kafkasniff.errors import OutputError, UsageError
from kafkasniff.filters.expression import error_names, parse_filter
from kafkasniff.filters.fields import FIELDS, OTHER_NAMES
from kafkasniff.model import Status
from kafkasniff.text.printable import printable
from kafkasniff.text.times import rfc3339

Sign = Literal["==", "!=", ">", "<"]

_TEXTS: Final = frozenset({"client_id", "client", "broker"})
_NUMBERS: Final = {
    "number": "exchange",
    "packet": "first_packet",
    "request": "request_size",
    "response": "response_size",
}
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
        match = _API.fullmatch(text)
        if match is None:
            return None
        return f'api == "{match["name"]}"' if match["key"] is None else f"api_key == {match['key']}"
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


MAX_SAVED: Final = 200
"""Maximum number of saved filters: the oldest one is dropped."""
MAX_BYTES: Final = 1 << 20
"""Maximum size of the file that is read."""


class SavedFilters:
    """Expressions, the oldest first. `path`: of the file; None: they last as long as the process."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self.expressions: list[str] = []
        if path is not None:
            try:
                with path.open("rb") as file:
                    text = file.read(MAX_BYTES).decode("utf-8", "replace")
            except FileNotFoundError:
                return
            except OSError as error:
                raise OutputError(f"saved filters: {printable(str(error))}") from error
            self.expressions = [line for line in text.splitlines() if line.strip()][-MAX_SAVED:]

    def save(self, expression: str) -> None:
        """Add one as the newest. Raises OutputError."""
        kept = [one for one in self.expressions if one != expression]
        self.expressions = [*kept, expression][-MAX_SAVED:]
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # A new file with a name that nobody can predict, readable only for the user: values may be personal data.
            descriptor, new = tempfile.mkstemp(prefix=f".{self._path.name}-", dir=self._path.parent)
            try:
                with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                    file.writelines(f"{expression}\n" for expression in self.expressions)
                os.replace(new, self._path)
            except BaseException:
                os.unlink(new)
                raise
        except OSError as error:
            raise OutputError(f"saved filters: {printable(str(error))}") from error


def filters_file(environment: Mapping[str, str]) -> Path | None:
    """Where filters are saved (XDG Base Directory); None without a home directory."""
    base, home = environment.get("XDG_CONFIG_HOME"), environment.get("HOME")
    if base:
        return Path(base) / "kafkasniff" / "filters"
    return Path(home) / ".config" / "kafkasniff" / "filters" if home else None
