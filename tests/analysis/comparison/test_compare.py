"""Comparison of two sides: differences known by construction, and changes that must not be reported; its spans."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from kafkasniff.analysis.comparison import side as module
from kafkasniff.analysis.comparison.inference import MIN_EXCHANGES
from kafkasniff.analysis.comparison.side import MAX_SPANS, SPAN, Side, SideSpans, Spanned
from kafkasniff.analysis.partials import Shape
from tests.analysis.comparison.traffic import compared, differing, side, traffic
from tests.analysis.tables import START_NS, batch_of, exchange, partition
from tests.choice import one_in

PRODUCE = "Produce"


@pytest.fixture(scope="module")
def before() -> Side:
    return side(traffic())


@pytest.mark.parametrize("seed", one_in(3, range(2, 8)))
def test_the_same_traffic_on_another_day(seed: int, before: Side) -> None:
    assert differing(compared(before, traffic(seed))) == {}


def test_rows_in_any_order_and_batches(before: Side) -> None:
    batch, random = traffic(2, slower=1.3, fail=0.1), Random(1)
    rows = random.sample(range(len(batch)), len(batch))
    pieces = []
    while rows:
        size = random.randrange(1, 120)
        pieces.append(batch.take(pa.array(rows[:size])))
        del rows[:size]
    assert compared(before, *pieces) == compared(before, batch)


def test_everything_is_slower(before: Side) -> None:
    found = compared(before, traffic(2, slower=1.5))
    assert differing(found) == {"latency": 1}
    (produce,) = found.latency
    assert (produce.api, produce.verdict, produce.before, produce.after) == (PRODUCE, "slower", 600, 600)
    assert 0.6 < produce.slower < 0.85
    assert produce.p < 0.001
    p50 = produce.p50
    assert 1.3 < p50.after_us / p50.before_us < 1.7
    assert p50.change == pytest.approx(p50.after_us / p50.before_us - 1)
    assert 0 < p50.low_us < p50.shift_us < p50.high_us


def test_one_slow_interval_is_no_difference(before: Side) -> None:
    """A fifth of the exchanges are thirty times slower, all in one interval: that can happen on any day."""
    batch = traffic()
    latency = [us * 30 if row < 120 else us for row, us in enumerate(batch.column("latency_us").to_pylist())]
    place = batch.schema.get_field_index("latency_us")
    found = compared(before, batch.set_column(place, "latency_us", pa.array(latency, pa.int64())))
    assert found.latency[0].p99.change > 1
    assert found.latency[0].verdict == "same"


def test_too_few_exchanges_to_judge() -> None:
    few, at_once = (
        [batch_of([exchange(at=one * apart, latency_us=us) for one in range(count)]) for us in (1000, 9000)]
        for count, apart in ((MIN_EXCHANGES - 1, 1), (100, 0))
    )
    for one, other in (few, at_once):
        found = compared(side(one), other)
        (row,) = found.latency
        assert (row.verdict, row.p, row.slower, row.differs) == ("unclear", None, None, False)
        assert (row.p50.shift_us, row.p50.low_us) == (8000, None)
    assert found.rates[0].per_second.before is None


def test_versions_rates_sizes_and_batches(before: Side) -> None:
    found = compared(before, traffic(2, api_version=12, rate=15, records=3, codec="zstd", size=40))
    assert differing(found) == {"versions": 1, "rates": 1, "sizes": 1, "topics": 1, "batching": 1}
    assert [(one.api, one.before, one.after) for one in found.versions] == [(PRODUCE, [9], [12])]
    assert (found.rates[0].before, found.rates[0].after) == (600, 900)
    assert found.rates[0].per_second.change == pytest.approx(0.5, rel=0.02)
    assert found.sizes[0].request_bytes.differs
    assert (found.sizes[0].response_bytes.before, found.sizes[0].response_bytes.p) == (200.0, 1.0)
    assert (found.batching[0].codecs_before, found.batching[0].codecs_after) == (["lz4"], ["zstd"])
    assert found.batching[0].records_per_batch.after == pytest.approx(3, rel=0.05)
    assert found.batching[0].bytes_per_batch.differs


def test_errors(before: Side) -> None:
    few, many = traffic(2, fail=0.02), traffic(2, fail=0.2)
    found = compared(before, few, only=("errors",)).errors
    (new,) = found
    assert (new.api, new.code, new.name, new.before) == (PRODUCE, 6, "NOT_LEADER_OR_FOLLOWER", 0)
    assert new.differs
    assert 0 < new.after < 30
    found = compared(side(few), many, only=("errors",)).errors
    share = found[0].share
    assert share.differs
    assert share.p < 0.001
    assert share.after == pytest.approx(0.2, rel=0.2)
    # An exchange counts once for each of its codes.
    several = [partition(error_code=3), partition(error_code=3), partition(error_code=6)]
    rows = batch_of([exchange(PRODUCE, 1.0, error_code=3, error_count=3, partitions=several)])
    found = compared(before, rows, only=("errors",)).errors
    assert {(one.code, one.after) for one in found} == {(3, 1), (6, 1)}
    # If the API is not called, its errors are not a separate difference.
    assert differing(compared(side(rows), batch_of([exchange()]), only=("errors",))) == {}


def test_rows_with_many_unknowns(before: Side) -> None:
    odd = [
        exchange(time=None, time_ns=None, latency_us=None, api_version=9, api="Produce", api_key=0),
        exchange(None, 1.0, api_key=None, api_version=None, status="orphan", request_size=None, latency_us=None),
        exchange(None, 2.0, api_key=777, api_version=0, latency_us=-5),
    ]
    found = compared(before, traffic(), batch_of(odd), only=("versions", "rates", "latency"))
    assert found.notes == ["after: 1 exchange without a time is not included in rates, latencies and shares"]
    assert (found.after.exchanges, found.before.exchanges) == (603, 600)
    assert [one.api for one in found.versions if one.differs] == ["777"]
    empty = compared(side(), batch_of([]))
    assert differing(empty) == {}
    assert (empty.before.first, empty.before.span_us, empty.rates) == (None, None, [])
    far = compared(before, batch_of([exchange(time_ns=2**63 - 1), exchange(time_ns=-(2**63)), exchange(at=1.0)]))
    assert far.after.spans <= 30
    assert far.before.first >= START_NS


def test_the_smallest_rows_are_dropped_and_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ROWS", 8)
    made = Side()
    for topic in range(40):
        made.update(batch_of([exchange("Produce", partitions=[partition(f"topic-{topic}", bytes=1)])]))
    assert any(note.startswith("topics: the smallest ones were dropped") for note in made.notes())
    assert len(made.topics()) <= 8


SHAPE = Shape(keys=(("name", pa.string()),), measures=(("count", pa.int64(), "sum"),), weight="count")


def placed(rows: list[tuple[int, str]], random: Random | None = None) -> tuple[SideSpans, Counter[tuple[int, str]]]:
    spans = SideSpans()
    part = Spanned(spans, SHAPE)
    rest = list(rows) if random is None else random.sample(rows, len(rows))
    while rest:
        size = len(rest) if random is None else random.randrange(1, 9)
        times = np.array([time for time, _ in rest[:size]], np.int64)
        spans.take(times)
        part.add(times, {"name": [name for _, name in rest[:size]], "count": [1] * len(times)})
        del rest[:size]
    found: Counter[tuple[int, str]] = Counter()
    for row in part.table().to_pylist():
        found[(row[SPAN], row["name"])] += row["count"]
    return spans, found


@pytest.mark.parametrize("seed", range(4))
def test_spans_are_the_same_for_any_order(seed: int) -> None:
    random = Random(seed)
    start = random.choice([0, 1_795_000_000_000_000_000, -5_000_000_000])
    length = random.choice([1, 40, 10**6, 10**9, 3600 * 10**9])
    rows = [(start + random.randrange(length), random.choice("ab")) for _ in range(200)]
    spans, found = placed(rows)
    other, same = placed(rows, random)
    assert (spans.level, spans.start, spans.count) == (other.level, other.start, other.count)
    assert found == same == Counter((time >> spans.level, name) for time, name in rows)
    assert spans.count <= MAX_SPANS
    # Spans are no longer than needed.
    assert spans.level == 0 or spans.count > MAX_SPANS // 2 - 1


def test_extreme_times() -> None:
    spans, found = placed([(-(2**63), "a"), (2**63 - 1, "b"), (0, "a")], Random(1))
    assert spans.count <= MAX_SPANS
    assert sum(found.values()) == 3
    assert len(found) == 3
