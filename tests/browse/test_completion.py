"""What completes a filter expression."""

from __future__ import annotations

from kafkasniff.browse.completion import completed

SEEN = {
    "api": ["Fetch v4", "Fetch v18", "FindCoordinator v4"],
    "client": ["10.0.0.5:4000"],
    "broker": ["10.0.0.9:9092"],
    "error": ["unanswered", "UNKNOWN_TOPIC_OR_PARTITION", "error 999"],
    "subject": ["", "orders", "orders-dlq", '"two words"', "long… +300"],
}


CASES = [
    ("", None),
    ("lat", "latency_ms"),
    ("latency_ms", None),
    ("not (gro", "not (group"),
    ("acks == 0 and top", "acks == 0 and topic"),
    ("nonsense", None),
    ("api ==", 'api =="Fetch"'),
    ('api == "Fi', 'api == "FindCoordinator"'),
    ('api == "fi', None),
    ('api == "Fetch"', None),
    ('topic == "ord', 'topic == "orders"'),
    ('topic == "orders-', 'topic == "orders-dlq"'),
    ('topic == "two', None),
    ('topic == "long', None),
    ('host in ("10.0.0.5:4000", "10.0.0.9', 'host in ("10.0.0.5:4000", "10.0.0.9:9092"'),
    ('topic startswith "', 'topic startswith "orders"'),
    ('acks == "', None),
    ('error == "', 'error == "UNKNOWN_TOPIC_OR_PARTITION"'),
    ('error == "un', None),
]


def test_completed() -> None:
    for expression, whole in CASES:
        assert completed(expression, lambda column: SEEN.get(column, [])) == whole, expression
