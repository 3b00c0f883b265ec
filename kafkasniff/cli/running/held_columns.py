"""What exchanges of captures hold, from columns: the kernel reads them, and no message is decoded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

import numpy as np

from kafkasniff.engine.message_table import Messages, PairColumns
from kafkasniff.engine.record_values import is_record_field
from kafkasniff.engine.roles import version_of
from kafkasniff.engine.selection import BODY_FIELDS, AskedBatch, AskedColumns, FactReader, Ints
from kafkasniff.enrich import Enricher
from kafkasniff.filters.columns import TRUE, Bools, FieldColumn, column_test
from kafkasniff.filters.tree import Predicate, fields_of
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.native.feed import NONE, REQUEST
from kafkasniff.native.library import kernel
from kafkasniff.sinks.native_lines import AddedNames

_SHOWN_ENDS: Final = {"client": (0,), "broker": (1,), "host": (0, 3)}
"""The columns of ends that are named (`engine.selection`): clients by address, since their ports change with each
connection."""


class FieldValues(Protocol):
    """Receives the values of a field."""

    name: str

    def add(self, new: Iterable[Any]) -> None:
        """Add values, in the order of their exchanges."""


class CountedFilter(Protocol):
    """One of the filters that all must hold."""

    predicate: Predicate
    matches: int

    @property
    def values(self) -> Sequence[FieldValues]:
        """Values of the fields that it asks for."""


class HeldExchanges(Protocol):
    """Receives exchanges (`nothing_selected.Held`)."""

    ports: Counter[int]
    wanted_ports: frozenset[int]
    exchanges: int
    matched: int
    start_ns: int | None

    @property
    def filters(self) -> Sequence[CountedFilter]:
        """All of them."""


class HeldColumns:
    """Adds exchanges to `held` (`inspector.PairFinder`); those whose columns are incomplete are left to Python.

    `enricher`: receives all messages that are left; `options`: returns how messages are decoded.
    """

    def __init__(self, held: HeldExchanges, enricher: Enricher, options: Callable[[], DecodeOptions]) -> None:
        self._held = held
        self._tests = [column_test(filter_.predicate) for filter_ in held.filters]
        fields = frozenset[str]().union(*(fields_of(filter_.predicate) for filter_ in held.filters))
        records = options if any(map(is_record_field, fields)) else None
        self._facts = FactReader(kernel(), AddedNames(enricher), show_secrets=False, records=records)
        self._asks_bodies = records is not None or not fields.isdisjoint(BODY_FIELDS)
        self._asks_headers = "client_id" in fields

    def may_take(self, code: int, _: DecodeOptions) -> bool:
        """Whether exchanges of a version of an API, by its code, can have columns."""
        if not self._asks_bodies:
            return version_of(code).request.known_version
        kind = self._facts.kinds.of(code)
        # The enricher learns from their responses.
        return kind is not None and not kind.learns

    def find(
        self, messages: Messages, options: DecodeOptions, capture: Callable[[int], str | None]
    ) -> tuple[list[PairColumns], Bools]:
        """Add the exchanges; returns no columns, and a mask of the messages that are left to Python."""
        rows = messages.rows
        left = rows["pair"] != NONE
        answered = np.flatnonzero(left & (rows["flags"] & REQUEST == 0))
        codes = rows["code"][answered].tolist()
        takes = {code: self.may_take(code, options) for code in set(codes)}
        answered = answered[[takes[code] for code in codes]]
        asked = rows["pair"][answered].astype(np.intp)
        everything = AskedColumns(AskedBatch(messages, capture, self._held.start_ns), asked, answered)
        for part in self._parts(everything):
            is_complete = self._add(part)
            assert part.answered is not None
            left[part.asked[is_complete]] = left[part.answered[is_complete]] = False
        return [], left

    def _parts(self, columns: AskedColumns) -> list[AskedColumns]:
        if not self._asks_bodies and not self._asks_headers:
            return [columns]
        if self._asks_bodies:
            columns = columns.take(np.flatnonzero(self._facts.has_bodies(columns)))
        return list(self._facts.parts(columns, headers=not self._asks_bodies))

    def _add(self, part: AskedColumns) -> Bools:
        """Add those exchanges that are complete; returns which ones."""
        held, chosen = self._held, np.ones(len(part), bool)
        fields: dict[str, list[FieldColumn]] = {}
        for name in {value.name for filter_ in held.filters for value in filter_.values} | {"broker_port"}:
            found = part.columns(name, ended=True)
            if found is None:
                return np.zeros(len(part), bool)
            columns, known = found
            fields[name] = list(columns)
            if known is not None:
                chosen &= known
        bounds = [test(part, True) for test in self._tests]
        for low, high in bounds:
            chosen &= low == high
        is_complete = chosen.copy()
        ports = _ports(fields["broker_port"][0])
        for port, count in zip(*np.unique(ports[chosen & (ports >= 0)], return_counts=True), strict=True):
            held.ports[int(port)] += int(count)
        if held.wanted_ports:
            chosen &= np.isin(ports, [-1, *held.wanted_ports])
        held.exchanges += int(chosen.sum())
        every = chosen.copy()
        for filter_, bound in zip(held.filters, bounds, strict=True):
            matches = chosen & (bound.low == TRUE)
            filter_.matches += int(matches.sum())
            every &= matches
            for value in filter_.values:
                _add_values(value, fields[value.name], chosen)
        held.matched += int(every.sum())
        return is_complete


def _add_values(value: FieldValues, columns: list[FieldColumn], chosen: Bools) -> None:
    """Add the values that the chosen exchanges have in a field."""
    for index in _SHOWN_ENDS.get(value.name, range(len(columns))):
        column = columns[index]
        mask = chosen if column.rows is None else chosen[column.rows]
        if column.which is None:
            assert isinstance(column.values, np.ndarray)
            value.add(_distinct(column.values[mask]))
        else:
            value.add(column.values[one] for one in _distinct(column.which[mask & (column.which >= 0)]))


def _distinct(values: Ints) -> list[int]:
    """In the order of their first occurrence."""
    found, first = np.unique(values, return_index=True)
    distinct: list[int] = found[np.argsort(first)].tolist()
    return distinct


def _ports(column: FieldColumn) -> Ints:
    """The port of each exchange; negative: it has none."""
    assert column.which is not None
    return np.array([*(-1 if port is None else port for port in column.values), -1], np.int64)[column.which]
