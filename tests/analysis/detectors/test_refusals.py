"""`sasl-failures`: captures that show it, and captures that only look like it."""

from __future__ import annotations

from tests.analysis.detectors import network_scenes as scenes
from tests.analysis.detectors.known_answers import AT, Case, ignores
from tests.analysis.detectors.network_answers import finds, survives_a_cut

CASES = [
    Case(
        "sasl-failures",
        scenes.wrong_mechanism,
        "error",
        2,
        {**AT, "error_code": 33},
        "with SCRAM-SHA-256 refused by 10.0.0.9:9092: UNSUPPORTED_SASL_MECHANISM, the listener takes PLAIN",
        [(1, 1), (2, 2)],
        {"mechanism": "SCRAM-SHA-256", "taken": "PLAIN"},
    ),
    Case(
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
    Case(
        "sasl-failures",
        scenes.closed_after_a_token,
        "error",
        1,
        {**AT, "error_code": None},
        "with PLAIN refused by 10.0.0.9:9092: it closed the connection",
        [(1, None)],
    ),
]
LOOK_ALIKES = [
    ("sasl-failures", scenes.right_password),
]

test_finds = finds(CASES)
test_ignores = ignores(LOOK_ALIKES)
test_survives_a_cut = survives_a_cut(CASES[0])
