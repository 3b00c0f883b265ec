"""Comparison of two sides: differences known by construction, and changes that must not be reported."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest

from kafkasniff.analysis.comparison.answer import SECTIONS, Software
from kafkasniff.analysis.comparison.inference import MIN_EXCHANGES
from kafkasniff.analysis.comparison.side import Side
from tests.analysis.comparison.traffic import compared, differing, side, traffic
from tests.analysis.tables import START_NS, batch_of, exchange, partition
from tests.choice import one_in

PRODUCE = "Produce"


@pytest.fixture(scope="module")
def before() -> Side:
    return side(traffic())


# -- no difference ----------------------------------------------------------------------------------------------------


def test_identical_traffic(before: Side) -> None:
    found = compared(before, traffic())
    assert found.differences == dict.fromkeys(SECTIONS, 0)
    assert found.before == found.after
    assert found.latency is not None
    (produce,) = found.latency
    assert (produce.verdict, produce.p, produce.tail_p) == ("same", 1.0, 1.0)
    assert produce.slower == pytest.approx(0.5)
    assert produce.p50.shift_us == 0


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


# -- latencies --------------------------------------------------------------------------------------------------------


def test_everything_is_slower(before: Side) -> None:
    found = compared(before, traffic(2, slower=1.5))
    assert differing(found) == {"latency": 1}
    assert found.latency is not None
    (produce,) = found.latency
    assert (produce.api, produce.verdict, produce.before, produce.after) == (PRODUCE, "slower", 600, 600)
    assert produce.slower is not None
    assert produce.p is not None
    assert 0.6 < produce.slower < 0.85
    assert produce.p < 0.001
    p50 = produce.p50
    assert 1.3 < p50.after_us / p50.before_us < 1.7
    assert p50.change == pytest.approx(p50.after_us / p50.before_us - 1)
    assert p50.low_us is not None
    assert p50.high_us is not None
    assert 0 < p50.low_us < p50.shift_us < p50.high_us


def test_only_the_slowest_are_slower_or_faster() -> None:
    plain, tailed = side(traffic(rate=40)), traffic(2, tail=5.0, rate=40)
    found = compared(plain, tailed, only=("latency",)).latency
    assert found is not None
    (produce,) = found
    assert produce.p is not None
    assert produce.tail_p is not None
    assert (produce.verdict, produce.differs, produce.p50.differs) == ("slower-tail", True, False)
    assert produce.p > 0.05 > produce.tail_p
    assert produce.p99.after_us > 2 * produce.p99.before_us
    found = compared(side(tailed), traffic(rate=40), only=("latency",)).latency
    assert found is not None
    assert found[0].verdict == "faster-tail"


def test_differences_come_first_and_only_apis_of_both_sides_are_compared(before: Side) -> None:
    metadata = [exchange("Metadata", one / 10, exchange_id=one, latency_us=100 + one % 7) for one in range(600)]
    one, other = batch_of(metadata), batch_of([*metadata, exchange("Heartbeat"), exchange("Fetch", latency_us=None)])
    found = compared(side(traffic(), one), traffic(2, slower=0.5), other, only=("latency",)).latency
    assert found is not None
    assert [(row.api, row.verdict) for row in found] == [("Produce", "faster"), ("Metadata", "same")]
    assert found[0].p50.high_us is not None
    assert found[0].p50.high_us < 0


def test_a_small_slowdown_is_reported_only_with_a_lower_threshold(before: Side) -> None:
    """The slowdown is significant but smaller than 10%."""
    little = traffic(slower=1.05)
    assert differing(compared(before, little)) == {}
    assert differing(compared(before, little, min_change=0.02, significance=0.999)) == {"latency": 1}


def test_one_slow_interval_is_no_difference(before: Side) -> None:
    """A fifth of the exchanges are thirty times slower, all in one interval: that can happen on any day."""
    batch = traffic()
    latency = [us * 30 if row < 120 else us for row, us in enumerate(batch.column("latency_us").to_pylist())]
    place = batch.schema.get_field_index("latency_us")
    found = compared(before, batch.set_column(place, "latency_us", pa.array(latency, pa.int64())))
    assert found.latency is not None
    assert found.latency[0].p99.change is not None
    assert found.latency[0].p99.change > 1
    assert found.latency[0].verdict == "same"


def test_too_few_exchanges_to_judge() -> None:
    few, at_once = (
        [batch_of([exchange(at=one * apart, latency_us=us) for one in range(count)]) for us in (1000, 9000)]
        for count, apart in ((MIN_EXCHANGES - 1, 1), (100, 0))
    )
    for one, other in (few, at_once):
        found = compared(side(one), other)
        assert found.latency is not None
        (row,) = found.latency
        assert (row.verdict, row.p, row.slower, row.differs) == ("unclear", None, None, False)
        assert (row.p50.shift_us, row.p50.low_us) == (8000, None)
    assert found.rates is not None
    assert found.rates[0].per_second.before is None


# -- everything else --------------------------------------------------------------------------------------------------


def test_versions_rates_sizes_and_batches(before: Side) -> None:
    found = compared(before, traffic(2, api_version=12, rate=15, records=3, codec="zstd", size=40))
    assert differing(found) == {"versions": 1, "rates": 1, "sizes": 1, "topics": 1, "batching": 1}
    assert found.versions is not None
    assert [(one.api, one.before, one.after) for one in found.versions] == [(PRODUCE, [9], [12])]
    assert found.rates is not None
    assert (found.rates[0].before, found.rates[0].after) == (600, 900)
    assert found.rates[0].per_second.change == pytest.approx(0.5, rel=0.02)
    assert found.sizes is not None
    assert found.sizes[0].request_bytes.differs
    assert (found.sizes[0].response_bytes.before, found.sizes[0].response_bytes.p) == (200.0, 1.0)
    assert found.batching is not None
    assert (found.batching[0].codecs_before, found.batching[0].codecs_after) == (["lz4"], ["zstd"])
    assert found.batching[0].records_per_batch.after == pytest.approx(3, rel=0.05)
    assert found.batching[0].bytes_per_batch.differs


def test_bytes_fetched_by_consumers_and_followers(before: Side) -> None:
    def fetch(at: float, client_id: str) -> dict[str, object]:
        return exchange("Fetch", at, client_id=client_id, partitions=[partition("orders", record_count=50)])

    rows = [fetch(one / 10, client) for one in range(600) for client in ("app", "broker-1-fetcher-0")]
    found = compared(before, batch_of(rows), only=("topics",)).topics
    assert found is not None
    assert found[0].fetched_per_second.after == pytest.approx(500, rel=0.01)
    assert found[0].fetched_per_second.differs
    assert found[0].produced_per_second.change == -1


def test_errors(before: Side) -> None:
    few, many = traffic(2, fail=0.02), traffic(2, fail=0.2)
    found = compared(before, few, only=("errors",)).errors
    assert found is not None
    (new,) = found
    assert (new.api, new.code, new.name, new.before) == (PRODUCE, 6, "NOT_LEADER_OR_FOLLOWER", 0)
    assert new.differs
    assert 0 < new.after < 30
    found = compared(side(few), many, only=("errors",)).errors
    assert found is not None
    share = found[0].share
    assert share.p is not None
    assert share.differs
    assert share.p < 0.001
    assert share.after == pytest.approx(0.2, rel=0.2)
    # An exchange counts once for each of its codes.
    several = [partition(error_code=3), partition(error_code=3), partition(error_code=6)]
    rows = batch_of([exchange(PRODUCE, 1.0, error_code=3, error_count=3, partitions=several)])
    found = compared(before, rows, only=("errors",)).errors
    assert found is not None
    assert {(one.code, one.after) for one in found} == {(3, 1), (6, 1)}
    # If the API is not called, its errors are not a separate difference.
    assert differing(compared(side(rows), batch_of([exchange()]), only=("errors",))) == {}


def test_clients_and_their_software(before: Side) -> None:
    other = batch_of([exchange("Metadata", 1.0, client_id="x")])
    found = compared(before, traffic(2, software_version="4.0.0"), other, only=("clients",))
    assert found.differences == {"clients": 2}
    assert found.latency is None
    assert found.clients is not None
    app, added = found.clients
    assert (app.software_before, app.software_after) == ([Software("java", "3.7.0")], [Software("java", "4.0.0")])
    assert (added.client_id, added.before, added.after) == ("x", 0, 1)
    assert differing(compared(before, traffic(3, software_name=None, software_version=None))) == {}


def test_rows_with_many_unknowns(before: Side) -> None:
    odd = [
        exchange(time=None, time_ns=None, latency_us=None, api_version=9, api="Produce", api_key=0),
        exchange(None, 1.0, api_key=None, api_version=None, status="orphan", request_size=None, latency_us=None),
        exchange(None, 2.0, api_key=777, api_version=0, latency_us=-5),
    ]
    found = compared(before, traffic(), batch_of(odd), only=("versions", "rates", "latency"))
    assert found.notes == ["after: 1 exchange without a time is not included in rates, latencies and shares"]
    assert (found.after.exchanges, found.before.exchanges) == (603, 600)
    assert found.versions is not None
    assert [one.api for one in found.versions if one.differs] == ["777"]
    empty = compared(side(), batch_of([]))
    assert differing(empty) == {}
    assert (empty.before.first, empty.before.span_us, empty.rates) == (None, None, [])
    far = compared(before, batch_of([exchange(time_ns=2**63 - 1), exchange(time_ns=-(2**63)), exchange(at=1.0)]))
    assert far.after.spans <= 30
    assert far.before.first is not None
    assert far.before.first >= START_NS
