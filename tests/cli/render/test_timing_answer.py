"""The aggregate of timings: groups, the slowest exchanges, and caveats."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.analysis.timing import Timing, TimingParameters
from kafkasniff.cli.render import timing_answer
from kafkasniff.cli.render.timing_answer import TimingAnswer, slowness
from kafkasniff.enrich import Catalog
from kafkasniff.timing import Timed
from tests.cli.commands.test_timing import packets
from tests.craft import kafka_bytes as kafka
from tests.timing.test_exchanges import of
from tests.timing.timeline import MS, Timeline

EXCHANGES = of(packets())


def collected(timed: list[Timed], *, slowest: int = 3, by: tuple[str, ...] = ("api",)) -> TimingAnswer:
    answer = TimingAnswer(Timing(TimingParameters(by=by)), slowest=slowest)
    answer.take(timed)
    answer.close(Catalog(), forgotten=0)
    return answer


def test_a_wait_that_was_asked_for_is_not_slow() -> None:
    """The Fetch took 506 ms, 500 of which it was to wait for data."""
    found = {one.exchange.exchange: slowness(one) for one in EXCHANGES}
    assert found[4] == 6 * MS
    assert found[5] == 350 * MS


def test_what_has_no_response_has_no_slowness() -> None:
    line = Timeline()
    line.open(4, 0.01)
    line.data("client", 10, kafka.metadata_request(1, ["orders"]))
    (one,) = of(line.packets)
    assert slowness(one) is None
    answer = collected([one])
    assert answer.slowest == []
    (group,) = answer.groups()
    assert (group.exchanges, group.timed, group.duration.count) == (1, 0, 0)


@pytest.mark.parametrize("count", range(7))
def test_the_slowest_first(count: int) -> None:
    answer = collected(EXCHANGES, slowest=count)
    expected = sorted(EXCHANGES, key=lambda one: -(slowness(one) or 0))[:count]
    assert [one.exchange.exchange for one in answer.slowest] == [one.exchange.exchange for one in expected]


def test_among_equally_slow_ones_the_first_wins() -> None:
    line = Timeline()
    line.open(4, 0.01)
    for number in range(5):
        line.data("client", 100 * number + 10, kafka.metadata_request(number, ["orders"]))
        line.data("broker", 100 * number + 20, kafka.metadata_response(number, "h", 9092, ["orders"]))
    assert [one.exchange.exchange for one in collected(of(line.packets)).slowest] == [1, 2, 3]


@given(st.lists(st.integers(0, len(EXCHANGES)), max_size=4), st.integers(1, 3))
def test_parts_of_the_exchanges_change_nothing(cuts: list[int], rows: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing_answer, "ROWS", rows)
        answer = TimingAnswer(Timing(TimingParameters(by=("api",))), slowest=3)
        places = sorted({0, len(EXCHANGES), *cuts})
        for first, last in itertools.pairwise(places):
            answer.take(EXCHANGES[first:last])
        answer.close(Catalog(), forgotten=0)
    assert answer.json() == collected(EXCHANGES).json()


def test_groups_have_only_parts_that_took_time() -> None:
    fetch, metadata = collected(EXCHANGES).groups()
    assert (fetch.keys, metadata.keys) == ({"api": "Fetch"}, {"api": "Metadata"})
    assert "behind" in metadata.parts
    assert "behind" not in fetch.parts
    assert fetch.parts["wait"].total_us == 500_000
    assert fetch.trouble == {}


def test_caveats() -> None:
    answer = collected(EXCHANGES)
    assert answer.notes() == []
    answer.exports, answer.no_bodies = 1, 1
    answer.close(Catalog(), forgotten=2_000)
    notes = " | ".join(answer.notes())
    assert "think times and network times are unknown" in notes
    assert "count as broker time" in notes
    assert "2,000 connections were forgotten" in notes


def test_exports_alone_were_captured_nowhere() -> None:
    answer = TimingAnswer(Timing(TimingParameters(by=("api",))), slowest=3)
    assert answer.json()["captured"] is None
    captured = collected(EXCHANGES).json()["captured"]
    assert captured["near"] == {"client": 1, "broker": 1, "unknown": 0}
    assert captured["broker_round_trip"] == {"min_us": 20, "max_us": 4000}
