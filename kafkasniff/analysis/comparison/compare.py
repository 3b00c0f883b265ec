"""Combines two sides into one answer: significant differences that are large enough."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from kafkasniff.analysis.comparison import inference
from kafkasniff.analysis.comparison.answer import (
    SECTIONS,
    BatchingDiff,
    BrokerDiff,
    Change,
    ClientDiff,
    Compared,
    ComparisonAnswer,
    DiffRow,
    ErrorDiff,
    LatencyDiff,
    Rate,
    Shift,
    Size,
    Software,
    TopicDiff,
    Verdict,
    VersionDiff,
)
from kafkasniff.analysis.comparison.inference import MIN_EXCHANGES, MIN_SPANS, Estimate, Family, Thresholds, ratio
from kafkasniff.analysis.comparison.side import Latencies, Side, Sums
from kafkasniff.analysis.percentiles import middle_of
from kafkasniff.kafka.schema.codes import error_by_code
from kafkasniff.model import Endpoint

TAIL: Final = 0.01
"""Fraction of the exchanges that counts as the tail."""
MIN_TAIL: Final = 500
"""Minimum number of exchanges on both sides for comparing tails: the tail then has five."""

_QUANTILES: Final = (0.5, 0.9, 0.99)
Counts = npt.NDArray[np.int64]


def compare_latencies(before: Side, after: Side, thresholds: Thresholds) -> list[LatencyDiff]:
    """A row for each API that has latencies on both sides, those that differ first."""
    mine, theirs = before.latencies(), after.latencies()
    family, rows = Family(thresholds), []
    for api in sorted(mine.keys() & theirs.keys()):
        axis = np.union1d(mine[api].buckets, theirs[api].buckets)
        sides = _Counted(mine[api], axis, before.spans.count), _Counted(theirs[api], axis, after.spans.count)
        rows.append(_row(api, *sides, thresholds, family))
    family.settle()
    for row in rows:
        row.verdict = _verdict(row, thresholds.significance)
        row.differs = row.verdict not in ("same", "unclear")
    return sorted(rows, key=lambda row: (not row.differs, -abs(row.p50.change or 0), row.api))


class _Counted:
    """One side: counts of spans by buckets, and the buckets' values, ascending."""

    def __init__(self, latencies: Latencies, axis: Counts, spans: int) -> None:
        self.counts = latencies.matrix(axis, spans)
        # As everywhere, percentiles are clamped to the extremes.
        self.values = np.clip(middle_of(axis), latencies.low, latencies.high)


def _row(api: str, one: _Counted, other: _Counted, thresholds: Thresholds, family: Family) -> LatencyDiff:
    p50, p90, p99 = (_shift(one, other, share, thresholds) for share in _QUANTILES)
    before, after = one.counts, other.counts
    totals = int(before.sum()), int(after.sum())
    row = LatencyDiff(
        api=api,
        before=totals[0],
        after=totals[1],
        verdict="unclear",
        slower=None,
        p=None,
        tail_p=None,
        p50=p50,
        p90=p90,
        p99=p99,
        differs=False,
    )
    found = inference.superiority(before, after)
    assert found is not None
    if min(totals) < MIN_EXCHANGES or min(estimate.spans for estimate in found) < MIN_SPANS:
        for shift in (p50, p90, p99):
            shift.low_us = shift.high_us = None
        return row
    row.slower = found[1].value

    def settle(name: str) -> Any:
        return lambda p: setattr(row, name, p)

    family.test(inference.probability(*found, expected=0.5), settle("p"))
    if min(totals) >= MIN_TAIL:
        bucket = inference.threshold(before, after, TAIL)
        shares = [inference.above(counts, bucket) for counts in (before, after)]
        assert shares[0] is not None
        assert shares[1] is not None
        family.test(inference.probability(shares[0], shares[1]), settle("tail_p"))
    return row


def _shift(before: _Counted, after: _Counted, share: float, thresholds: Thresholds) -> Shift:
    confidence = 1 - thresholds.significance
    limits, other = (inference.quantile(side.counts, side.values, share, confidence) for side in (before, after))
    found = inference.difference(limits, other)
    change = other.value / limits.value - 1 if limits.value else None
    matters = thresholds.matters(limits.value, other.value)
    return Shift(round(limits.value), round(other.value), change, found.value, found.low, found.high, matters)


def _verdict(row: LatencyDiff, significance: float) -> Verdict:
    """A difference must be significant and also visible in a percentile."""
    if row.p is None or row.slower is None:
        return "unclear"
    if row.p < significance and (row.p50.differs or row.p90.differs):
        return "slower" if row.slower > 0.5 else "faster"
    if row.tail_p is not None and row.tail_p < significance and row.p99.differs:
        return "slower-tail" if row.p99.shift_us > 0 else "faster-tail"
    return "same"


Rows = Sequence[dict[str, Any]]


def compare_clients(before: Rows, after: Rows, thresholds: Thresholds) -> list[ClientDiff]:
    """A row for each client id, those that differ first. Unknown software is not a difference."""
    sides = [_clients(rows) for rows in (before, after)]
    client_diffs = []
    for client_id in sides[0].keys() | sides[1].keys():
        (counts, software), (counts_after, software_after) = (
            side.get(client_id, (0, dict[Software, int]())) for side in sides
        )
        row = ClientDiff(
            client_id=client_id,
            before=counts,
            after=counts_after,
            software_before=sorted(software, key=_order),
            software_after=sorted(software_after, key=_order),
            differs=thresholds.one_sided(counts, counts_after),
        )
        if software and software_after:
            row.differs = any(
                thresholds.one_sided(software.get(one, 0), software_after.get(one, 0))
                for one in software.keys() | software_after.keys()
            )
        client_diffs.append(row)
    return sorted(client_diffs, key=lambda row: (not row.differs, row.client_id is None, row.client_id or ""))


def _clients(rows: Rows) -> dict[str | None, tuple[int, dict[Software, int]]]:
    """By client id: exchanges in total, and by software."""
    found: dict[str | None, tuple[int, dict[Software, int]]] = {}
    for row in rows:
        count, software = found.get(row["client_id"], (0, {}))
        found[row["client_id"]] = (count + row["exchanges"], software)
        if row["software_name"] is not None:
            one = Software(row["software_name"], row["software_version"])
            software[one] = software.get(one, 0) + row["exchanges"]
    return found


def _order(one: Software) -> tuple[str, str]:
    return one.software_name, one.software_version or ""


def compare_brokers(before: Rows, after: Rows, thresholds: Thresholds) -> list[BrokerDiff]:
    """A row for each broker, those that differ first; an endpoint without a number takes that of the other side."""
    sides = [{_endpoint(row): row for row in rows} for rows in (before, after)]
    found: dict[tuple[int | None, str], tuple[dict[str, int], dict[str, int]]] = {}
    for index, side in enumerate(sides):
        for endpoint, row in side.items():
            number = row["broker_id"]
            if number is None and endpoint in sides[1 - index]:
                number = sides[1 - index][endpoint]["broker_id"]
            key = (number, endpoint if number is None else "")
            found.setdefault(key, ({}, {}))[index][endpoint] = row["exchanges"]
    brokers = [
        BrokerDiff(
            broker_id=number,
            before=sorted(one),
            after=sorted(other),
            differs=any(
                thresholds.one_sided(one.get(name, 0), other.get(name, 0)) for name in one.keys() | other.keys()
            ),
        )
        for (number, _), (one, other) in found.items()
    ]
    return sorted(
        brokers, key=lambda row: (not row.differs, row.broker_id is None, row.broker_id or 0, row.before, row.after)
    )


def _endpoint(row: dict[str, Any]) -> str:
    return str(Endpoint(row["broker_ip"], row["broker_port"]))


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
        row.differs |= any(change.differs for change in changes if isinstance(change, Change))
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
        sums, asked = [int(count.sum()) for count in counts], [int(one.sum()) for one in whole]
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
    for topic in {name for side in sides for _, name in side}:
        changes, times = [], [0, 0]
        for flow in ("produced", "fetched"):
            pairs = list(zip(sides, (before, after), strict=True))
            counts = [_of(found, (flow, topic), "records", side) for found, side in pairs]
            if counts[0].any() or counts[1].any():
                changes.append(family.change(_rate(counts[0], before), _rate(counts[1], after)))
            else:
                changes.append(Change(0.0, 0.0, None, None, False))
            for index, (found, side) in enumerate(pairs):
                times[index] += int(_of(found, (flow, topic), "times", side).sum())
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
        one, other = (side[("produced", topic)] for side in sides)
        batches = [int(sums["batches"].sum()) for sums in (one, other)]
        if not min(batches):
            continue
        mine, theirs = (codec.get(topic, {}) for codec in codecs)
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
