"""Combines two sides into one answer: significant differences that are large enough."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from kafkasniff.analysis.comparison.answer import (
    SECTIONS,
    BatchingDiff,
    Change,
    Compared,
    ComparisonAnswer,
    DiffRow,
    ErrorDiff,
    Rate,
    Size,
    TopicDiff,
    VersionDiff,
)
from kafkasniff.analysis.comparison.family import Family, Thresholds
from kafkasniff.analysis.comparison.inference import Estimate, ratio
from kafkasniff.analysis.comparison.latencies import compare_latencies
from kafkasniff.analysis.comparison.peers import compare_brokers, compare_clients
from kafkasniff.analysis.comparison.side import Side, Sums
from kafkasniff.kafka.schema.codes import error_by_code

__all__ = ["OF_BODIES", "compare"]

OF_BODIES: Final = ("errors", "topics", "batching", "clients", "brokers")
"""Sections that are unknown if only headers were read."""

Integers = npt.NDArray[np.int64]
_Some = TypeVar("_Some", bound=DiffRow)


def compare(
    before: Side, after: Side, thresholds: Thresholds, sections: Collection[str] = SECTIONS, notes: Sequence[str] = ()
) -> ComparisonAnswer:
    """The differences. `sections`: the lists to include; `notes`: further caveats."""
    compare_section: dict[str, Callable[[Side, Side, Thresholds], Sequence[DiffRow]]] = {
        "versions": _versions,
        "rates": _rates,
        "latency": compare_latencies,
        "sizes": _sizes,
        "errors": _errors,
        "topics": _topics,
        "batching": _batching,
        "clients": lambda one, other, thresholds: compare_clients(one.clients(), other.clients(), thresholds),
        "brokers": lambda one, other, thresholds: compare_brokers(one.brokers(), other.brokers(), thresholds),
    }
    found: Any = {name: compare_section[name](before, after, thresholds) for name in SECTIONS if name in sections}
    side_notes = [f"{name}: {note}" for name, side in (("before", before), ("after", after)) for note in side.notes()]
    return ComparisonAnswer(
        before=_compared(before),
        after=_compared(after),
        differences={name: sum(row.differs for row in rows) for name, rows in found.items()},
        **found,
        notes=[*notes, *side_notes],
    )


def _compared(side: Side) -> Compared:
    spans = side.spans
    known = spans.first is not None and spans.last is not None
    return Compared(
        first=spans.first,
        last=spans.last,
        duration_us=(spans.last - spans.first) // 1000 if known else None,  # type: ignore[operator]
        exchanges=side.exchanges,
        spans=spans.count,
        span_us=(1 << spans.level) // 1000 if known else None,
    )


def _settled(rows: Iterable[_Some], family: Family, order: Callable[[_Some], Any]) -> list[_Some]:
    """The rows with differing numbers marked, those that differ first."""
    family.settle()
    made = list(rows)
    for row in made:
        changes = (getattr(row, name) for name in row.__struct_fields__)
        row.differs |= any(one.differs for one in changes if isinstance(one, Change))
    return sorted(made, key=lambda row: (not row.differs, order(row)))


def _versions(before: Side, after: Side, thresholds: Thresholds) -> list[VersionDiff]:
    sides = before.versions(), after.versions()
    rows = []
    for api in sides[0].keys() | sides[1].keys():
        one, other = ({v: n for v, n in side.get(api, {}).items() if v is not None} for side in sides)
        differs = any(thresholds.one_sided(one.get(v, 0), other.get(v, 0)) for v in one.keys() | other.keys())
        rows.append(VersionDiff(api=api, before=sorted(one), after=sorted(other), differs=differs))
    return sorted(rows, key=lambda row: (not row.differs, row.api))


def _rates(before: Side, after: Side, thresholds: Thresholds) -> list[Rate]:
    sides = before.apis(), after.apis()
    family, rows = Family(thresholds), []
    for api in sides[0].keys() | sides[1].keys():
        counts = [_of(found, api, "exchanges", side) for found, side in zip(sides, (before, after), strict=True)]
        change = family.change(_rate(counts[0], before), _rate(counts[1], after))
        rows.append(
            Rate(api=api, before=int(counts[0].sum()), after=int(counts[1].sum()), per_second=change, differs=False)
        )
    return _settled(rows, family, lambda row: (-max(row.before, row.after), row.api))


def _sizes(before: Side, after: Side, thresholds: Thresholds) -> list[Size]:
    one, other = before.apis(), after.apis()
    family = Family(thresholds)

    def mean(api: str, message: str) -> Change:
        return _mean(family, one[api], other[api], f"{message}_bytes", f"{message}s")

    rows = [
        Size(api=api, request_bytes=mean(api, "request"), response_bytes=mean(api, "response"), differs=False)
        for api in sorted(one.keys() & other.keys())
    ]
    return _settled(rows, family, lambda row: row.api)


def _errors(before: Side, after: Side, thresholds: Thresholds) -> list[ErrorDiff]:
    apis, sides = (before.apis(), after.apis()), (before.errors(), after.errors())
    family, rows = Family(thresholds), []
    for api, code in sides[0].keys() | sides[1].keys():
        counts = [
            _of(found, (api, code), "exchanges", side) for found, side in zip(sides, (before, after), strict=True)
        ]
        whole = [_of(found, api, "exchanges", side) for found, side in zip(apis, (before, after), strict=True)]
        sums, asked = [int(one.sum()) for one in counts], [int(one.sum()) for one in whole]
        entry = error_by_code(code)
        rows.append(
            ErrorDiff(
                api=api,
                code=code,
                name=None if entry is None else entry.name,
                before=sums[0],
                after=sums[1],
                share=family.change(ratio(counts[0], whole[0]), ratio(counts[1], whole[1]), count=min(asked)),
                # If an API is no longer called, that is the difference.
                differs=min(asked) > 0 and thresholds.one_sided(*sums),
            )
        )
    return _settled(rows, family, lambda row: (-max(row.before, row.after), row.api, row.code))


def _topics(before: Side, after: Side, thresholds: Thresholds) -> list[TopicDiff]:
    sides = before.topics(), after.topics()
    family, rows = Family(thresholds), []
    for topic in {name for found in sides for _, name in found}:
        changes, times = [], [0, 0]
        for flow in ("produced", "fetched"):
            pairs = list(zip(sides, (before, after), strict=True))
            counts = [_of(found, (flow, topic), "records", side) for found, side in pairs]
            if counts[0].any() or counts[1].any():
                changes.append(family.change(_rate(counts[0], before), _rate(counts[1], after)))
            else:
                changes.append(Change(0.0, 0.0, None, None, False))
            for place, (found, side) in enumerate(pairs):
                times[place] += int(_of(found, (flow, topic), "times", side).sum())
        rows.append(
            TopicDiff(
                topic=topic,
                produced_per_second=changes[0],
                fetched_per_second=changes[1],
                differs=thresholds.one_sided(*times),
            )
        )
    return _settled(rows, family, lambda row: (row.topic is None, row.topic or ""))


def _batching(before: Side, after: Side, thresholds: Thresholds) -> list[BatchingDiff]:
    sides = before.topics(), after.topics()
    codecs = before.codecs(), after.codecs()
    family, rows = Family(thresholds), []
    both = {name for flow, name in sides[0] if flow == "produced"} & {
        name for flow, name in sides[1] if flow == "produced"
    }
    for topic in both:
        one, other = (found[("produced", topic)] for found in sides)
        batches = [int(sums["batches"].sum()) for sums in (one, other)]
        if not min(batches):
            continue
        mine, theirs = (found.get(topic, {}) for found in codecs)
        rows.append(
            BatchingDiff(
                topic=topic,
                before=batches[0],
                after=batches[1],
                records_per_batch=_mean(family, one, other, "records", "batches"),
                bytes_per_batch=_mean(family, one, other, "bytes", "batches"),
                codecs_before=sorted(mine),
                codecs_after=sorted(theirs),
                differs=any(
                    thresholds.one_sided(mine.get(name, 0), theirs.get(name, 0)) for name in mine.keys() | theirs.keys()
                ),
            )
        )
    return _settled(rows, family, lambda row: (row.topic is None, row.topic or ""))


def _of(found: Any, key: Any, name: str, side: Side) -> Integers:
    """Counts by span; zeros if there were none."""
    sums: Sums | None = found.get(key)
    return np.zeros(side.spans.count, np.int64) if sums is None else sums[name]


def _rate(counts: Integers, side: Side) -> Estimate | None:
    """Rate per second."""
    return ratio(counts, side.spans.seconds())


def _mean(family: Family, before: Sums, after: Sums, top: str, bottom: str) -> Change:
    count = min(int(before[bottom].sum()), int(after[bottom].sum()))
    return family.change(ratio(before[top], before[bottom]), ratio(after[top], after[bottom]), count=count)
