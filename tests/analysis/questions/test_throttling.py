from __future__ import annotations

from tests.analysis.tables import answers, exchange, moment, pick


def test_throttled_clients() -> None:
    rows = [
        exchange("Produce", 1, throttle_time_ms=100),
        exchange("Produce", 2, throttle_time_ms=0),
        exchange("Produce", 3, throttle_time_ms=300),
        exchange("Fetch", 4, throttle_time_ms=None),
        exchange("Fetch", 5, throttle_time_ms=7, client_id="other"),
    ]
    found = answers("throttling", rows)
    names = ("client_id", "api", "exchanges", "throttled", "throttle_ms", "max_ms", "mean_ms", "first", "last")
    assert pick(found, *names) == [
        ("app", "Produce", 3, 2, 400, 300, 200.0, moment(1), moment(3)),
        ("other", "Fetch", 1, 1, 7, 7, 7.0, moment(5), moment(5)),
    ]
