"""`sasl-failures`: captures that show it, and captures that only look like it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.analysis.detectors import network_scenes as scenes
from tests.analysis.detectors.network_answers import (
    AT,
    Fine,
    NetworkCase,
    check_cut,
    check_fine,
    check_network,
    name_of,
)

CASES = [
    NetworkCase(
        "sasl-failures",
        scenes.wrong_mechanism,
        "error",
        2,
        {**AT, "error_code": 33},
        "with SCRAM-SHA-256 refused by 10.0.0.9:9092: UNSUPPORTED_SASL_MECHANISM, the listener takes PLAIN",
        [(1, 1), (2, 2)],
        {"mechanism": "SCRAM-SHA-256", "taken": "PLAIN"},
    ),
    NetworkCase(
        "sasl-failures",
        scenes.wrong_password,
        "error",
        2,
        {**AT, "error_code": 58},
        "2 authentications of crafted at 10.0.0.5 with SCRAM-SHA-256 refused by 10.0.0.9:9092: "
        "SASL_AUTHENTICATION_FAILED",
        [(1, 2), (2, 4)],
        {"mechanism": "SCRAM-SHA-256"},
    ),
    NetworkCase(
        "sasl-failures",
        scenes.closed_after_a_token,
        "error",
        1,
        {**AT, "error_code": None},
        "with PLAIN refused by 10.0.0.9:9092: it closed the connection",
        [(1, None)],
    ),
]
FINE: list[Fine] = [
    ("sasl-failures", scenes.right_password),
]


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_what_is_there_is_found(case: NetworkCase, tmp_path: Path) -> None:
    check_network(case, tmp_path)


@pytest.mark.parametrize("fine", FINE, ids=name_of)
def test_what_is_fine_is_not(fine: Fine, tmp_path: Path) -> None:
    check_fine(fine, tmp_path)


def test_a_capture_that_is_cut(tmp_path: Path) -> None:
    check_cut(CASES[0], tmp_path)
