from __future__ import annotations

from typing import Any

import pytest

from tests.analysis.tables import answers, exchange, moment, partition, pick

TOLD = ("group_id", "topic", "partition", "committed_offset", "fetched_offset", "high_watermark", "log_end_offset")
LAGS = ("commit_lag", "fetch_lag", "max_fetch_lag")


def commit(at: float, offset: int, group: str = "g", client: str = "c1", **facts: Any) -> dict[str, Any]:
    parts = [partition("orders", 0, offset=offset, **facts)]
    return exchange("OffsetCommit", at, exchange_id=int(at * 10), client_id=client, group_id=group, partitions=parts)


def fetch(at: float, offset: int, watermark: int | None, client: str = "c1", **facts: Any) -> dict[str, Any]:
    parts = [partition("orders", 0, offset=offset, high_watermark=watermark, **facts)]
    return exchange("Fetch", at, exchange_id=int(at * 10), client_id=client, partitions=parts)


def test_commits_and_fetches_against_the_end() -> None:
    rows = [commit(2, 10), commit(5, 40), fetch(1, 0, 100), fetch(6, 60, 130), fetch(4, 50, 120)]
    (found,) = answers("lag", rows)
    assert [found[name] for name in TOLD] == ["g", "orders", 0, 40, 60, 130, None]
    assert [found[name] for name in LAGS] == [90, 70, 100]
    assert pick([found], "client_id", "committed_at", "fetched_at", "watermark_at") == [
        ("c1", moment(5), moment(6), moment(6))
    ]


def test_a_producer_shows_the_end_too() -> None:
    produced = exchange("Produce", 9, partitions=[partition("orders", offset=200, record_count=5)])
    (found,) = answers("lag", [commit(1, 150), produced])
    assert [found[name] for name in ("log_end_offset", *LAGS)] == [205, 55, None, None]


def test_only_successful_commits_count() -> None:
    rows = [
        commit(1, 10),
        commit(2, 99, error_code=27),
        commit(3, 98, error_code=None),
        fetch(4, 5, -1),
        fetch(5, 6, 50, error_code=1),
    ]
    (found,) = answers("lag", rows)
    assert (found["committed_offset"], found["high_watermark"], found["commit_lag"]) == (10, None, None)
    # A request counts with the offset that it asks for.
    assert found["fetched_offset"] == 6


def test_a_client_without_a_group_has_its_own_row() -> None:
    found = answers("lag", [fetch(1, 10, 30, client="alone"), commit(2, 20)])
    assert pick(found, "group_id", "client_id", "fetched_offset", "committed_offset") == [
        ("g", None, None, 20),
        (None, "alone", 10, None),
    ]


def test_the_last_member_that_had_the_partition() -> None:
    rows = [commit(1, 5), commit(1, 5, client="c2"), fetch(7, 70, 100, client="c2"), fetch(3, 30, 100)]
    (found,) = answers("lag", rows)
    assert (found["client_id"], found["fetched_offset"], found["max_fetch_lag"]) == ("c2", 70, 70)


def test_replicating_brokers_are_not_consumers() -> None:
    assert answers("lag", [fetch(1, 10, 30, client="broker-1-fetcher-0")]) == []


def test_past_the_last_watermark_there_is_no_lag() -> None:
    (found,) = answers("lag", [fetch(1, 0, 50), commit(2, 60)])
    assert found["commit_lag"] == 0


@pytest.mark.parametrize(("at_least", "shown"), [(0, 1), (50, 1), (51, 0)])
def test_only_large_lags(at_least: int, shown: int) -> None:
    assert len(answers("lag", [fetch(1, 0, 50)], at_least=at_least)) == shown
