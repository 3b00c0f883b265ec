from __future__ import annotations

import msgspec

from kafkasniff.live.counts import Counts
from kafkasniff.live.rows import api_name, live_row, recent_row, waiting_row
from kafkasniff.model import ErrorCode
from tests.live.scenes import SECOND, START_NS, Scene, Talk

MS = SECOND // 1000


def talk() -> Talk:
    return Talk(Scene(), 7, "billing", "10.0.0.5", "apache-kafka-java")


def counts(**values: int) -> Counts:
    made = Counts()
    for name, value in values.items():
        setattr(made, name, value)
    return made


def test_names_of_apis() -> None:
    request = talk().request(0, "Fetch")
    assert api_name(request) == "Fetch"
    assert api_name(msgspec.structs.replace(request, api=None, api_key=999)) == "key 999"
    assert api_name(msgspec.structs.replace(request, api=None, api_key=None)) == "?"


def test_rates_of_the_window_and_sums_of_the_run() -> None:
    now = counts(requests=20, errors=5, sent=1_000, received=500, produced=40, fetched=10)
    total = counts(requests=300, errors=9, sent=7_000, received=8_000)
    row = live_row("Produce", now, total, 4.0, None, client="10.0.0.5")
    assert (row.name, row.client) == ("Produce", "10.0.0.5")
    assert (row.requests, row.errors, row.sent, row.received) == (5.0, 1.25, 250.0, 125.0)
    assert (row.produced, row.fetched) == (10.0, 2.5)
    assert (row.total, row.total_errors, row.total_sent, row.total_received) == (300, 9, 7_000, 8_000)


def test_latencies_are_those_that_were_measured() -> None:
    measured = counts(requests=3, measured=2, latency_sum=301, latency_max=200)
    row = live_row("Fetch", measured, measured, 1.0, [150, 203])
    # Quantiles are middles of buckets: none exceeds the greatest latency.
    assert (row.mean, row.slowest, row.p50, row.p99) == (150, 200, 150, 200)
    assert (live_row("Fetch", measured, measured, 1.0, None).p50, row.open) == (None, True)
    silent = live_row("Fetch", Counts(), measured, 1.0, None)
    assert (silent.mean, silent.slowest, silent.p99) == (None, None, None)


def test_recent_exchanges() -> None:
    one = talk()
    request = one.request(2 * SECOND, "Produce", size=100)
    errors = ErrorCode(6, "NOT_LEADER_OR_FOLLOWER", "a"), ErrorCode(3, "UNKNOWN_TOPIC_OR_PARTITION", "b")
    response = one.response(request, 3 * MS, size=60, errors=errors)
    row = recent_row(one.end(request, response))
    assert (row.exchange, row.time_ns, row.api, row.api_version) == (1, START_NS + 2 * SECOND, "Produce", 9)
    assert (row.status, row.latency_ns, row.sent, row.received) == ("answered", 3 * MS, 104, 64)
    assert row.error == "NOT_LEADER_OR_FOLLOWER"
    unknown = msgspec.structs.replace(response, errors=(ErrorCode(999, None, "a"),))
    assert recent_row(one.end(request, unknown)).error == "error 999"


def test_exchanges_with_one_message() -> None:
    one = talk()
    request = one.request(0, "Fetch")
    unanswered = recent_row(one.end(request, None, "unanswered"))
    assert (unanswered.sent, unanswered.received, unanswered.latency_ns, unanswered.error) == (104, 0, None, "")
    response = one.response(request, MS)
    orphan = recent_row(msgspec.structs.replace(one.end(request, response, "orphan"), request=None))
    assert (orphan.api, orphan.sent, orphan.received) == ("Fetch", 0, 64)


def test_waiting_requests() -> None:
    row = waiting_row(talk().request(SECOND, "Fetch"), START_NS + 4 * SECOND)
    assert (row.exchange, row.age_ns, row.api, row.client_id) == (1, 3 * SECOND, "Fetch", "billing")
    assert (row.client, row.broker, row.connection) == ("10.0.0.5:51007", "10.0.0.9:9092", 7)
