"""`hanging-transactions` and `fenced-producers`: captures that show them, or only look like them."""

from __future__ import annotations

from tests.analysis.detectors import scenes
from tests.analysis.detectors.known_answers import IN_PAYMENTS, PRODUCER, Case, finds, ignores

CASES = [
    Case(
        "hanging-transactions",
        scenes.hanging,
        "error",
        2,
        IN_PAYMENTS,
        "open for longer than 10 s, the longest for 21 s; 1 still open at the end of the capture",
        [4, 6],
        {"timeout_told": True, "timeout_ms": 10_000.0, "not_ended": 1},
    ),
    Case(
        "fenced-producers",
        scenes.fenced(3),
        "warning",
        3,
        {**PRODUCER, "transactional_id": "payments", "error_code": 47},
        "3 requests of crafted at 10.0.0.5 (payments) refused with INVALID_PRODUCER_EPOCH",
        [1, 2, 3],
    ),
]
LOOK_ALIKES = [
    ("hanging-transactions", scenes.in_time),
    ("fenced-producers", scenes.fenced(3, error=51)),
]

test_finds = finds(CASES)
test_ignores = ignores(LOOK_ALIKES)
