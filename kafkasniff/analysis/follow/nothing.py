"""Says what there is if no record matches."""

from __future__ import annotations

from typing import Final

import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import TableReading
from kafkasniff.analysis.columns import column, in_any, only
from kafkasniff.analysis.export import Export
from kafkasniff.analysis.follow.record_rows import in_partitions
from kafkasniff.analysis.follow.wanted import Wanted
from kafkasniff.text.printable import printable, word

__all__ = ["nothing_found"]

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
    text = f"no record matches {printable(wanted.text)}"
    if offsets:
        return (
            f"{text}; fetched of {word(wanted.place.topic)}-{wanted.place.partition}: {min(offsets)} to {max(offsets)}"  # type: ignore[union-attr]  # there are only offsets of a place
        )
    if wanted.trace is not None and not wanted.topics:
        return f"{text}; {traced:,} of {records:,} rows of records have trace ids"
    names = sorted(topics)
    more = f" and {len(names) - MAX_NAMED:,} more" if len(names) > MAX_NAMED else ""
    return f"{text}; {records:,} rows of records, topics: {', '.join(map(word, names[:MAX_NAMED]))}{more}"
