"""`small-batches`, `uncompressed-batches` and `oversized-messages`: captures that show them, or only look like them."""

from __future__ import annotations

from tests.analysis.detectors import scenes
from tests.analysis.detectors.known_answers import ORDERS, Case, finds, ignores
from tests.kafka.records_craft import GZIP

CASES = [
    Case(
        "oversized-messages",
        scenes.produced(2, scenes.records(1, 3000), error=10),
        "error",
        2,
        {**ORDERS, "error_code": 10},
        "2 batches of crafted at 10.0.0.5 for topic orders refused with MESSAGE_TOO_LARGE, the largest 3.1 kB",
        [1, 2],
    ),
    Case(
        "oversized-messages",
        scenes.produced(1, scenes.records(1, 3000)),
        "note",
        1,
        ORDERS,
        "1 batch of crafted at 10.0.0.5 for topic orders near the size limit of brokers",
        [1],
        settings=("oversized-messages.limit=3100",),
    ),
    Case(
        "small-batches",
        scenes.produced(40, scenes.records()),
        "warning",
        40,
        ORDERS,
        "sent 40 records to topic orders in 40 batches",
        [1, 2, 3, 4, 5],
        {"batches": 40, "records_per_batch": 1.0},
        settings=("small-batches.at_least=40",),
    ),
    Case(
        "uncompressed-batches",
        scenes.produced(3, scenes.records(10, 1000)),
        "note",
        3,
        ORDERS,
        "sent 30 kB to topic orders without compression",
        [1, 2, 3],
        settings=("uncompressed-batches.size=30000",),
    ),
]
LOOK_ALIKES = [
    ("oversized-messages", scenes.produced(1, scenes.records(1, 3000))),
    ("small-batches", scenes.produced(40, scenes.records(2)), "small-batches.at_least=40"),
    ("small-batches", scenes.produced(40, scenes.records(), then=0.05), "small-batches.at_least=40"),
    (
        "uncompressed-batches",
        scenes.produced(3, scenes.records(10, 1000, codec=GZIP)),
        "uncompressed-batches.size=1",
        "uncompressed-batches.batch=0",
    ),
]

test_finds = finds(CASES)
test_ignores = ignores(LOOK_ALIKES)
