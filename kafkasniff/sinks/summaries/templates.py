"""The templates of `dissectors/summaries.txt`, each parsed on first use."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Final

from kafkasniff.errors import DefinitionError
from kafkasniff.kafka.apis import dissectors
from kafkasniff.kafka.schema.data_files import read_data
from kafkasniff.model import Body, Direction
from kafkasniff.sinks.summaries.interpreter import interpreter
from kafkasniff.sinks.summaries.syntax import Parts, parse

FILE: Final = "summaries.txt"
_HEAD: Final = re.compile(r"phrase (?P<phrase>[a-z_]+)|(?P<api>[A-Za-z]+) (?P<direction>request|response)")

_CONTINUED: Final = " " * 4

_Lines = tuple[str, ...]


@functools.cache
def _blocks() -> tuple[dict[str, _Lines], dict[tuple[str, str], _Lines]]:
    """The lines of phrases by name, and those of templates by API and direction."""
    path, lines = read_data(FILE)
    named: dict[str, list[str]] = {}
    found: dict[tuple[str, str], list[str]] = {}
    current: list[str] | None = None
    for number, line in lines:
        head = _HEAD.fullmatch(line)
        if current and line.startswith(_CONTINUED):
            current[-1] += line.strip()
            continue
        if line.startswith("  ") and current is not None:
            current.append(line.strip())
            continue
        if head is None:
            raise DefinitionError(f"{path}:{number}: neither `API request`, `API response`, `phrase NAME` nor a part")
        current = []
        kept = (
            named.setdefault(head["phrase"], current)
            if head["phrase"]
            else found.setdefault((head["api"], head["direction"]), current)
        )
        if kept is not current:
            raise DefinitionError(f"{path}:{number}: a second template of {line!r}")
    return (
        {name: tuple(parts) for name, parts in named.items()},
        {title: tuple(parts) for title, parts in found.items()},
    )


def titles() -> tuple[tuple[str, str], ...]:
    """Name of the API and direction of each template."""
    return tuple(_blocks()[1])


def phrases() -> tuple[str, ...]:
    """The names of all phrases."""
    return tuple(_blocks()[0])


def template(name: str, direction: str) -> Parts | None:
    """The template of an API by its name; None if it has none. Raises DefinitionError if it does not parse."""
    shared, found = _blocks()
    lines = found.get((name, direction))
    return None if lines is None else parse(lines, shared, f"{FILE}: {name} {direction}")


@functools.lru_cache(maxsize=1024)  # keys come from the wire
def render_of(api_key: int, direction: Direction) -> Callable[[Body, int], str] | None:
    """The function for summaries of bodies with a version; None if the API has no template."""
    api = dissectors.api(api_key)
    if api is None:
        return None
    found = template(api.name, direction)
    return None if found is None else interpreter(found, api.definition.message(direction).fields)
