"""`wrong-protocol`: captures that show it, and captures that only look like it."""

from __future__ import annotations

from tests.analysis.detectors import network_scenes as scenes
from tests.analysis.detectors.known_answers import AT, Case, ignores
from tests.analysis.detectors.network_answers import finds, survives_a_cut

CASES = [
    Case(
        "wrong-protocol",
        scenes.browser,
        "warning",
        1,
        {"client_id": None, "client_ip": "10.0.0.8", "broker": "10.0.0.9:9092", "kind": "not-kafka"},
        "1 connection of 10.0.0.8 to 10.0.0.9:9092: ",
        [(2, None)],
    ),
    Case(
        "wrong-protocol",
        scenes.web_server,
        "error",
        1,
        {**AT, "kind": "answer-not-kafka"},
        "1 connection of crafted at 10.0.0.5 to 10.0.0.9:9092: ",
        [(1, None)],
    ),
    Case(
        "wrong-protocol",
        scenes.tls_at_plaintext,
        "error",
        1,
        {"client_id": None, "client_ip": "10.0.0.8", "broker": "10.0.0.9:9092", "kind": "tls-unanswered"},
        "TLS",
        [(2, None)],
    ),
    Case(
        "wrong-protocol",
        scenes.nothing_but_closed,
        "error",
        2,
        {**AT, "kind": "connection-rejected"},
        "or the broker is older than 0.10, which introduced ApiVersions",
        [(1, None), (2, None)],
    ),
    Case(
        "wrong-protocol",
        scenes.closed_though_others_work,
        "warning",
        1,
        {"client_id": "crafted", "client_ip": "10.0.0.8", "broker": "10.0.0.9:9092", "kind": "closed-early"},
        "1 connection of crafted at 10.0.0.8",
        [(3, None)],
    ),
    Case(
        "wrong-protocol",
        scenes.old_client,
        "error",
        2,
        {**AT, "client_ip": "10.0.0.8", "kind": "version-not-taken"},
        "2 connections of crafted at 10.0.0.8 to 10.0.0.9:9092: closed after Produce v2, which Kafka 4.0 and newer do "
        "not support: v3 is the lowest there",
        [(3, None), (4, None)],
    ),
    Case(
        "wrong-protocol",
        scenes.without_sasl,
        "error",
        1,
        {**AT, "client_ip": "10.0.0.8", "kind": "sasl-missing"},
        "the broker closed the connection at Metadata v9, where other clients authenticate with SASL first",
        [(2, None)],
    ),
    Case(
        "wrong-protocol",
        scenes.tls_where_tls_works,
        "warning",
        1,
        {"client_id": None, "client_ip": "10.0.0.8", "broker": "10.0.0.9:9093", "kind": "closed-early"},
        "cause unknown",
        [(2, None)],
    ),
]
LOOK_ALIKES = [
    ("wrong-protocol", scenes.untrusting),
    ("wrong-protocol", scenes.old_version_at_a_dying_broker),
    ("wrong-protocol", scenes.old_version_that_others_use),
    ("wrong-protocol", scenes.web_beside),
    ("wrong-protocol", scenes.left_by_the_client),
    ("wrong-protocol", scenes.accepted_by_a_dying_broker),
    ("wrong-protocol", scenes.right_password),
]

test_finds = finds(CASES)
test_ignores = ignores(LOOK_ALIKES)
test_survives_a_cut = survives_a_cut(CASES[0])
