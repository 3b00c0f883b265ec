"""What can be followed from an exchange, each as a filter expression: record, partition, producer, group and so on.

The list does not show most of it: a reading of its own finds the rows, for jumps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.browse.body_view import records
from kafkasniff.browse.index import ExchangeIndex
from kafkasniff.browse.reading import ExchangeReading, Progress
from kafkasniff.filters import And, Candidate, Predicate, all_of, compiled
from kafkasniff.filters.expression import parse_filter
from kafkasniff.filters.record_paths import generations, producer_ids, record_places, records_of, topic_partitions
from kafkasniff.kafka.apis.entities import text
from kafkasniff.model import Exchange, Message
from kafkasniff.text.printable import clipped, printable

MAX_EACH: Final = 100
"""Maximum number of partitions, producer ids and the like that are offered of one exchange."""
MAX_TRIED: Final = 10_000
"""Maximum number of records of one exchange that are compared with the filter, some 50 µs each."""
MAX_TEXT: Final = 1000
"""Longest key, group or other text that can be followed: a filter is one line."""
TITLE_WIDTH: Final = 66

FollowKind = Literal["record", "key", "trace", "partition", "producer id", "generation", "group", "transactional id"]

_STEP: Final = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
"""An index or a name in the path of a field."""
_ESCAPED: Final = re.compile(r'[\x00-\x1f\x7f"\\]')


class Followed(NamedTuple):
    """Something that several exchanges have in common."""

    kind: FollowKind
    title: str
    """Escaped."""
    expression: str


def followed(
    exchange: Exchange, message: int = 0, path: str = "", predicate: Predicate | None = None
) -> Iterator[Followed]:
    """Everything that can be followed, without repetition.

    Candidates at or around a path of one message come first; without a path, those of the record that `predicate`, by
    which the exchange was found, selects.
    """
    if not path and predicate is not None:
        message, path = next(matches(exchange, predicate), (0, ""))
    seen: set[str] = set()
    for one in _all(exchange, message, path):
        if one.expression not in seen and len(one.expression) <= MAX_TEXT:
            seen.add(one.expression)
            yield one


def _all(exchange: Exchange, message: int, path: str) -> Iterator[Followed]:
    request, response = exchange.request, exchange.response
    whole = near = own = _candidate(exchange, request, response)
    seen = [message for message in (request, response) if message is not None]
    if path and message < len(seen):
        chosen = _reduced(seen[message], path)
        own = near = Candidate(response=chosen)
        if chosen.type == "request":
            # A response has the offsets of what its request produces, and maybe those of other topics.
            own, near = Candidate(request=chosen), Candidate(request=chosen, response=response)
    for place in islice(record_places(near), 1):
        yield _one("record", "record.place", place)
    for record in islice(records_of(near), 1):
        yield from _of_record(record, list(own.named.topics))
    for candidate in (near, whole):
        for partition in islice(topic_partitions(candidate), MAX_EACH):
            yield _one("partition", "topic_partition", partition)
        for producer in islice(producer_ids(candidate), MAX_EACH):
            yield Followed("producer id", str(producer), f"producer_id == {producer}")
    for group in islice(whole.named.groups, MAX_EACH):
        for generation in islice(generations(whole), 1):
            of = _one("generation", "group_id", group)
            yield Followed(
                "generation", f"{generation} of {of.title}", f"{of.expression} and generation == {generation}"
            )
        yield _one("group", "group_id", group)
    for transaction in islice(whole.named.transactions, MAX_EACH):
        yield _one("transactional id", "transactional_id", transaction)


def matches(exchange: Exchange, predicate: Predicate) -> Iterator[tuple[int, str]]:
    """(message, path) of each record that a predicate holds for, as if it were alone."""
    whole = _candidate(exchange, exchange.request, exchange.response)
    # A part that is unknown of the exchange, such as a time since the beginning of the capture, selects no record.
    tests = [test for test in map(compiled, _parts(predicate)) if test(whole)]
    for row in islice(records(exchange), MAX_TRIED):
        sides = [exchange.request, exchange.response]
        index = row.message if exchange.request is not None else 1
        side = sides[index]
        assert side is not None
        sides[index] = _reduced(side, row.path)
        alone = _candidate(exchange, *sides)
        if all(test(alone) for test in tests):
            yield row.message, row.path


def _parts(predicate: Predicate) -> Iterator[Predicate]:
    if isinstance(predicate, And):
        for part in predicate.parts:
            yield from _parts(part)
    else:
        yield predicate


def _candidate(exchange: Exchange, request: Message | None, response: Message | None) -> Candidate:
    return Candidate(request=request, response=response, ended=exchange)


def _reduced(message: Message, path: str) -> Message:
    """A message with only what is at or around a path."""
    return msgspec.structs.replace(message, body=_pruned(message.body, _STEP.findall(path)))


def _of_record(record: dict[str, Any], topics: list[str]) -> Iterator[Followed]:
    key = text(record.get("key"))
    if key is not None:
        found = _one("key", "record.key", key)
        if len(topics) == 1:
            of = _one("key", "topic", topics[0])
            found = Followed("key", f"{found.title} of {of.title}", f"{of.expression} and {found.expression}")
        yield found
    for trace in islice(record.get("_trace_ids") or (), MAX_EACH):
        yield _one("trace", "trace_id", trace)


def _one(kind: FollowKind, field: str, value: str) -> Followed:
    return Followed(kind, clipped(printable(value[:TITLE_WIDTH]), TITLE_WIDTH), f"{field} == {_literal(value)}")


def _literal(value: str) -> str:
    """A text as a constant of filter expressions."""

    def escape(match: re.Match[str]) -> str:
        return f"\\{match[0]}" if match[0] in '"\\' else f"\\x{ord(match[0]):02x}"

    return f'"{_ESCAPED.sub(escape, value)}"'


def _pruned(value: Any, steps: list[tuple[str, str]]) -> Any:
    """A body in which each array on the way along a path has only the element that the path leads to."""
    if not steps:
        return value
    (place, name), rest = steps[0], steps[1:]
    if isinstance(value, dict) and name in value:
        return {**value, name: _pruned(value[name], rest)}
    if isinstance(value, list) and place and int(place) < len(value):
        return [_pruned(value[int(place)], rest)]
    return value


class Trail(NamedTuple):
    """Rows of an index that have something in common."""

    of: Followed
    listed: ExchangeIndex
    rows: NDArray[np.bool_]
    """By place in the index."""
    size: int
    """Number of these rows."""

    def covers(self, kind: FollowKind, listed: ExchangeIndex, place: int) -> bool:
        """Whether it can be followed on from a row: the list is the same, and the row belongs to it."""
        is_listed = self.listed is listed and place < len(self.rows)
        return self.of.kind == kind and is_listed and bool(self.rows[place])

    def has(self, places: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which places have such rows; of those that were added since, it is unknown."""
        found: NDArray[np.bool_] = (places < len(self.rows)) & self.rows[np.minimum(places, len(self.rows) - 1)]
        return found

    @property
    def text(self) -> str:
        """What it is, and how many rows it has."""
        return f"{self.of.kind} {self.of.title}: {self.size:,}"


def find_trail(
    of: Followed,
    listed: ExchangeIndex,
    reading: ExchangeReading,
    predicate: Predicate | None,
    *,
    stopped: Callable[[], bool],
    progress: Progress,
) -> Trail:
    """The rows of an index, whose predicate is given, that share something. Raises CaptureError."""
    exchange_index = ExchangeIndex()
    reading.fill(exchange_index, all_of([predicate, parse_filter(of.expression)]), stopped=stopped, progress=progress)
    rows = listed.shared(exchange_index)
    return Trail(of, listed, rows, int(rows.sum()))
