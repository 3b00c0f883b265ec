"""Which rows are the same record: attempts to produce it, its place in the log, and its deliveries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from kafkasniff.analysis.follow.facts import ExchangeFacts, Served
from kafkasniff.analysis.follow.record_rows import CarriedRecord, record_order

__all__ = ["Linked", "ProduceAttempt", "link"]

Match = Literal["offset", "sequence", "content"]


class ProduceAttempt(msgspec.Struct, frozen=True):
    """A Produce request with the record."""

    row: CarriedRecord
    facts: ExchangeFacts | None
    matched: Match


class Linked(msgspec.Struct):
    """Rows of one record."""

    offset: int | None
    attempts: list[ProduceAttempt] = []
    deliveries: list[CarriedRecord] = []

    @property
    def rows(self) -> list[CarriedRecord]:
        """All rows."""
        return [*(one.row for one in self.attempts), *self.deliveries]

    @property
    def first(self) -> CarriedRecord:
        """The earliest row."""
        return min(self.rows, key=record_order)


def link(rows: Iterable[CarriedRecord], served: Served) -> list[Linked]:
    """The records, by the time of their first row.

    Rows with an offset are the same record if partition, offset and content are (a topic may have been deleted and
    created again). A Produce request without a known offset is an attempt of the record with its sequence, else of the
    only one with its content that was not delivered before.
    """
    placed: dict[tuple[Any, ...], Linked] = {}
    numbers: dict[tuple[Any, ...], Linked] = {}
    unplaced: list[ProduceAttempt] = []
    for row in sorted(rows, key=record_order):
        facts = served.get(row.exchange)
        offset = row.offset
        if row.is_produced:
            base = _base_offset(row, facts)
            if base is None:
                unplaced.append(ProduceAttempt(row, facts, "sequence"))
                continue
            offset = base + row.position
        one = placed.setdefault((*row.place, offset, row.content), Linked(offset))
        if row.is_produced:
            one.attempts.append(ProduceAttempt(row, facts, "offset"))
        else:
            one.deliveries.append(row)
        if row.number is not None:
            numbers.setdefault((row.number, row.content), one)
    found = list(placed.values())
    contents: dict[tuple[Any, ...], list[Linked]] = {}
    for one in found:
        for content in {_content(row) for row in one.rows}:
            if content is not None:
                contents.setdefault(content, []).append(one)
    lost: dict[tuple[Any, ...], Linked] = {}
    for attempt in unplaced:
        row, content = attempt.row, _content(attempt.row)
        same = None if row.number is None else numbers.get((row.number, row.content))
        matched: Match = "sequence"
        if same is None and content is not None:
            same, matched = _only(row, contents.get(content, [])), "content"
        if same is None:
            key = (*row.place, row.number or content or row.exchange)
            same, matched = lost.setdefault(key, Linked(None)), "sequence" if row.number else "content"
        same.attempts.append(msgspec.structs.replace(attempt, matched=matched))
    found += lost.values()
    for one in found:
        one.attempts.sort(key=lambda attempt: record_order(attempt.row))
        one.deliveries.sort(key=record_order)
    return sorted(found, key=lambda one: record_order(one.first))


def _base_offset(row: CarriedRecord, facts: ExchangeFacts | None) -> int | None:
    """The offset that the first record of the partition was assigned."""
    part = None if facts is None else facts.partitions.get(row.place)
    if part is None or part.error_code != 0 or part.offset is None or part.offset < 0:
        return None
    return part.offset


def _content(row: CarriedRecord) -> tuple[Any, ...] | None:
    """What attempts without sequences have in common."""
    return None if row.content is None or row.created is None else (*row.place, row.content, row.created)


def _only(row: CarriedRecord, candidates: list[Linked]) -> Linked | None:
    """The record that an attempt must have been for: the only one of which no other attempt is known, or the only one.

    Not one that was delivered before.
    """
    later = [one for one in candidates if not one.deliveries or _is_before(row, one.deliveries[0])]
    alone = [one for one in later if not one.attempts]
    for some in (alone, later):
        if len(some) == 1:
            return some[0]
    return None


def _is_before(row: CarriedRecord, other: CarriedRecord) -> bool:
    return row.time is None or other.time is None or row.time <= other.time
