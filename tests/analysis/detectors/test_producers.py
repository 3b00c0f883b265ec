"""`repeated-sequences` and `acks-zero`: captures that show them, or only look like them."""

from __future__ import annotations

from tests.analysis.detectors import scenes
from tests.analysis.detectors.known_answers import PRODUCER, Case, finds, ignores

CASES = [
    Case(
        "repeated-sequences",
        scenes.repeated(0),
        "note",
        1,
        {"client_id": "crafted", "topic": "orders", "partition": 0, "producer_id": 7, "producer_epoch": 0},
        "crafted sent 5 records more than once for orders-0 (producer id 7)",
        [1],
        {"records": 15, "repeated_records": 5, "duplicate_errors": 0, "out_of_order_errors": 0},
    ),
    Case(
        "repeated-sequences",
        scenes.repeated(45),
        "error",
        2,
        {"client_id": "crafted", "topic": "orders", "partition": 0, "producer_id": 7, "producer_epoch": 0},
        "got OUT_OF_ORDER_SEQUENCE_NUMBER 1 time for orders-0",
        [1, 3],
    ),
    Case(
        "acks-zero",
        scenes.produced(3, scenes.records(2), acks=0),
        "note",
        3,
        PRODUCER,
        "sent 3 Produce requests with acks=0 for orders",
        [1, 2, 3],
        {"requests": 3, "records": 6, "topics": ["orders"]},
    ),
]
LOOK_ALIKES = [
    ("repeated-sequences", scenes.in_order),
    ("acks-zero", scenes.produced(3, scenes.records(2), acks=1)),
]

test_finds = finds(CASES)
test_ignores = ignores(LOOK_ALIKES)
