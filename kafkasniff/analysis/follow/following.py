"""Finds the records that are asked for in the tables, then what belongs to each; or says what there is instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import TableReading
from kafkasniff.analysis.columns import column, in_any, only
from kafkasniff.analysis.export import Export
from kafkasniff.analysis.follow.record_rows import (
    COLUMNS,
    COMMITS,
    FETCHES,
    PARTITIONED,
    CarriedRecord,
    Partition,
    Positions,
    RowReader,
    Served,
    among,
    facts_of,
    in_partitions,
    partition_rows,
    produced_at,
)
from kafkasniff.analysis.follow.tracing import BODIES, ENDS, Trace, ended, link, share_bodies
from kafkasniff.analysis.follow.way import LogPlace, RecordWay, Wanted
from kafkasniff.analysis.group_history import MEMBER_APIS
from kafkasniff.analysis.share_bodies import SHARE_APIS
from kafkasniff.errors import UsageError
from kafkasniff.text.printable import printable, word

MAX_NAMED: Final = 5
"""Topics that are named; of the rest the number is given."""
MAX_TOPICS: Final = 10_000
"""Topics that are remembered."""
_COLUMNS: Final = ("api", "topic", "topic_id", "partition", "offset", "trace_ids")


def nothing_found(export: Export, wanted: Wanted, records: int) -> str | None:
    """A line for the user; None if there is no exchange at all. Raises CaptureError, UsageError."""
    if not records:
        exchanges = sum(batch.num_rows for batch in export.batches("exchanges", TableReading(("status",))))
        return f"no records in {exchanges:,} exchanges" if exchanges else None
    topics: set[str] = set()
    traced, offsets = 0, list[int]()
    for batch in export.batches("records", TableReading(_COLUMNS)):
        if len(topics) < MAX_TOPICS:
            topics.update(one for one in pc.unique(column(batch, "topic")).to_pylist() if one is not None)
        traced += batch.num_rows - column(batch, "trace_ids").null_count
        if wanted.place is not None:
            ours = in_partitions(batch, [(wanted.place.topic, wanted.place.partition)])
            ours = pc.and_(ours, pc.invert(in_any(batch, "api", ["Produce"])))
            bounds = pc.min_max(column(only(batch, ours), "offset")).as_py()
            offsets += [one for one in bounds.values() if one is not None]
    of = f" in topic {', '.join(map(word, wanted.topics))}" if wanted.topics else ""
    text = f"no record matches {printable(wanted.text)}{of}"
    if offsets:
        return (
            f"{text}; fetched of {word(wanted.place.topic)}-{wanted.place.partition}: {min(offsets)} to {max(offsets)}"  # type: ignore[union-attr]  # there are only offsets of a place
        )
    if wanted.trace is not None and not wanted.topics:
        return f"{text}; {traced:,} of {records:,} rows of records have trace ids"
    names = sorted(topics)
    more = f" and {len(names) - MAX_NAMED:,} more" if len(names) > MAX_NAMED else ""
    return f"{text}; {records:,} rows of records, topics: {', '.join(map(word, names[:MAX_NAMED]))}{more}"


READINGS: Final[Mapping[str, TableReading]] = {
    "exchanges": TableReading(
        (*PARTITIONED, *BODIES), tuple(dict.fromkeys(["Produce", *FETCHES, *COMMITS, *MEMBER_APIS, *ENDS, *SHARE_APIS]))
    ),
    "records": TableReading(COLUMNS),
}
"""What is read of the tables."""


class WaysFound(msgspec.Struct):
    """The answer."""

    ways: list[RecordWay]
    """By the time of the first step."""
    more: int
    """Number of further records."""
    dropped: int
    """Rows that matched but were not looked at, the latest."""
    records: int
    """Number of rows of records."""


def follow(export: Export, wanted: Wanted, count: int) -> WaysFound:
    """The ways of the first `count` records that are asked for.

    Raises UsageError if the export lacks what is needed, CaptureError if a file cannot be read.
    """
    for table in READINGS:
        if table not in export.tables:
            raise UsageError(f"{export.name} has no table {table}, which follow needs")
    if not export.has_payload and wanted.place is None:
        what = "keys" if wanted.key is not None else "headers"
        raise UsageError(
            f"{export.name} has no {what} (it was exported with --no-payload or --hash-payload): give --offset"
        )
    reader = RowReader(export)
    rows = reader.read(wanted.selects) if wanted.place is None else _at(export, reader, wanted.place)
    places = {row.place for row in rows}
    served = Served(export, {row.exchange for row in rows}, places)
    linked = link(rows, served)
    if wanted.place is not None:
        # Not other records with the same content.
        linked = [one for one in linked if one.offset == wanted.place.offset]
    shown = linked[:count]
    traces = [Trace(one, served) for one in shown]
    _add_rest(export, traces, served)
    return WaysFound([trace.way(export) for trace in traces], len(linked) - len(shown), reader.dropped, reader.rows)


def _at(export: Export, reader: RowReader, place: LogPlace) -> list[CarriedRecord]:
    """The rows of a place in the log, and those with the same sequence or content: maybe other attempts."""
    partition = {(place.topic, place.partition)}
    produced = produced_at(export, place)

    def placed(batch: pa.RecordBatch) -> pa.Array:
        request = in_any(batch, "api", ["Produce"])
        there = pc.and_(pc.invert(request), pc.equal(column(batch, "offset"), place.offset))
        if produced:
            there = pc.or_(there, pc.and_(request, among(batch, produced)))
        return pc.and_(in_partitions(batch, partition), pc.fill_null(there, False))

    rows = reader.read(placed)
    served = Served(export, {row.exchange for row in rows}, partition)
    mine = [row for one in link(rows, served) if one.offset == place.offset for row in one.rows]
    numbers = {one for row in mine if (one := row.number) is not None}
    contents = {(row.content, row.created) for row in mine if row.content is not None and row.created is not None}
    if not mine or not (numbers or contents):
        return mine
    sequences = pa.array({number[-1] for number in numbers}, pa.int32())

    def alike(batch: pa.RecordBatch) -> pa.Array:
        same = pc.is_in(column(batch, "sequence"), value_set=sequences)
        if contents:
            created = pa.array({one for _, one in contents}, pa.int64())
            same = pc.or_(same, pc.is_in(column(batch, "timestamp").cast(pa.int64()), value_set=created))
        return pc.and_(in_partitions(batch, partition), pc.fill_null(same, False))

    known = set(mine)
    # Deliveries of other records with the same content decide whose attempts these are.
    others = [row for row in reader.read(alike) if row.number in numbers or (row.content, row.created) in contents]
    return [*mine, *(row for row in others if row not in known)]


def _add_rest(export: Export, traces: list[Trace], served: Served) -> None:
    """Give the traces commits, positions of consumers, ends of transactions and acknowledgements of share groups."""
    places: set[Partition] = {trace.place for trace in traces if trace.offset is not None}
    if places:
        positions = Positions()
        lowest = min(trace.offset for trace in traces if trace.offset is not None)
        for _, rows in partition_rows(export, (*FETCHES, *COMMITS), places):
            positions.add(rows)
            fine = pc.and_(in_any(rows, "api", COMMITS), pc.equal(column(rows, "error_code"), 0))
            beyond = only(rows, pc.and_(fine, pc.greater(column(rows, "offset"), lowest)))
            for facts, partition, place in facts_of(beyond):
                if facts.status == "answered":
                    for trace in traces:
                        trace.take_commit(facts, partition, place)
        for trace in traces:
            trace.take_positions(positions, served)
    transactions = [trace for trace in traces if trace.transactional]
    if transactions:
        _add_markers(export, transactions)
        for end in ended(export):
            for trace in transactions:
                trace.take_end(end)
    if any(trace.is_shared for trace in traces):
        for bodies in share_bodies(export):
            for trace in traces:
                trace.take_share(bodies)


def _add_markers(export: Export, traces: list[Trace]) -> None:
    """Give the traces the markers of transactions that were fetched."""
    places = {trace.place for trace in traces}

    def markers(batch: pa.RecordBatch) -> pa.Array:
        return pc.and_(in_partitions(batch, places), in_any(batch, "control", ["COMMIT", "ABORT"]))

    for row in RowReader(export).read(markers):
        for trace in traces:
            trace.take_marker(row)
