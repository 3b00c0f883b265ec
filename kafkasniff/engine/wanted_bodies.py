"""Which bodies are wanted as JSON: the same for exchanges in columns and for messages one by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kafkasniff.model import Direction, Message

__all__ = ["ALWAYS", "DIRECTIONS", "EVERY_BODY", "NEVER", "NO_BODY", "WITH_ERRORS", "Bodies", "WantedBodies"]

DIRECTIONS: Final[tuple[Direction, Direction]] = ("request", "response")
NEVER, ALWAYS, WITH_ERRORS = range(3)
"""Whether a body of a kind is wanted (`exchange_columns.Wanted`)."""

Bodies = Mapping[tuple[Direction, str], tuple[str, ...] | None]
"""Wanted bodies by direction and API: all (None), or only those with one of these tagged fields."""


class WantedBodies:
    """Bodies that a consumer of rows wants. `errors`: also all with error codes; `every`: all."""

    def __init__(self, bodies: Bodies | None = None, *, errors: bool = False, every: bool = False) -> None:
        self._bodies = dict(bodies or {})
        self._errors = errors
        self._every = every

    def __or__(self, other: WantedBodies) -> WantedBodies:
        """What either of them wants."""
        united = dict(self._bodies)
        for place, fields in other._bodies.items():
            mine = united.get(place, ())
            united[place] = None if mine is None or fields is None else tuple(dict.fromkeys((*mine, *fields)))
        return WantedBodies(united, errors=self._errors or other._errors, every=self._every or other._every)

    def of(self, direction: Direction, api: str) -> int:
        """Whether a body without any of `fields` is wanted: `NEVER`, `ALWAYS` or `WITH_ERRORS`."""
        if self._every or self._bodies.get((direction, api), ()) is None:
            return ALWAYS
        return WITH_ERRORS if self._errors else NEVER

    def fields(self, direction: Direction, api: str) -> tuple[str, ...]:
        """Tagged fields for which a body is wanted."""
        return self._bodies.get((direction, api)) or ()

    def wants(self, message: Message) -> bool:
        """Whether the body of a message is wanted. Hot: called for each message that is emitted one by one."""
        api = message.api or ""
        wanted = self.of(message.type, api)
        if wanted == ALWAYS or (wanted == WITH_ERRORS and message.errors):
            return True
        body = message.body
        return body is not None and any(_is_given(body.get(field)) for field in self.fields(message.type, api))


EVERY_BODY: Final = WantedBodies(every=True)
NO_BODY: Final = WantedBodies()


def _is_given(value: Any) -> bool:
    """Whether a tagged field has another value than its default, which is null or -1 in all fields."""
    if isinstance(value, Mapping):
        return any(map(_is_given, value.values()))
    return value is not None and value != -1
