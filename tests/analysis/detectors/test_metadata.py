"""`metadata-storms` and `all-topics`: captures that show them, or only look like them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.analysis.detectors import scenes
from tests.analysis.detectors.known_answers import PRODUCER, Case, Fine, check_fine, check_found, name_of

CASES = [
    Case(
        "metadata-storms",
        scenes.metadata(35, {"topics": [{"name": "orders"}]}),
        "warning",
        35,
        PRODUCER,
        "asked for metadata 35 times within 10 s",
        [1, 2, 3, 4, 5],
        {"requests": 35, "spans": 1, "errors": 0},
    ),
    Case(
        "all-topics",
        scenes.all_topics,
        "note",
        6,
        PRODUCER,
        "of all topics 6 times",
        [1, 2, 3, 4, 5],
        {"requests": 6},
    ),
]
FINE: list[Fine] = [
    ("metadata-storms", scenes.metadata(35, {"topics": [{"name": "orders"}]}, then=0.5), ()),
    ("all-topics", scenes.metadata(6, {"topics": [{"name": "orders"}]}), ()),
]


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_what_is_there_is_found(case: Case, tmp_path: Path) -> None:
    check_found(case, tmp_path)


@pytest.mark.parametrize("fine", FINE, ids=name_of)
def test_what_is_fine_is_not(fine: Fine, tmp_path: Path) -> None:
    check_fine(fine, tmp_path)
