"""`unreached-listeners`: captures that show it, and captures that only look like it."""

from __future__ import annotations

from kafkasniff.analysis.detectors import broker_facts
from kafkasniff.analysis.detectors import listeners as listening
from tests.analysis.detectors import network_scenes as scenes
from tests.analysis.detectors.known_answers import AT, Case, ignores
from tests.analysis.detectors.network_answers import NOBODY, finds, survives_a_cut

CASES = [
    Case(
        "unreached-listeners",
        scenes.refused,
        "error",
        3,
        NOBODY,
        "3 connections from 10.0.0.5 to 10.0.0.10:9092, as advertised by brokers, refused; none succeeded",
        [(None, None)] * 3,
        {"attempts": 3, "opening": "refused"},
    ),
    Case(
        "unreached-listeners",
        scenes.unanswered,
        "error",
        2,
        NOBODY,
        "unanswered",
        [(None, None)] * 2,
        {"attempts": 2, "opening": "unanswered"},
    ),
    Case(
        "unreached-listeners",
        scenes.in_a_container,
        "error",
        4,
        AT,
        "asked 10.0.0.9:9092 4 times for metadata and nothing else; brokers send it to its own machine: 127.0.0.1:9092",
        [(1, 2), (1, 3), (1, 4)],
        {"asks": 4, "advertised": ["127.0.0.1:9092"]},
    ),
    Case(
        "unreached-listeners",
        scenes.unknown_name,
        "note",
        4,
        AT,
        "brokers send it to kafka.internal:9092",
        [(1, 2), (1, 3), (1, 4)],
    ),
]
LOOK_ALIKES = [
    ("unreached-listeners", scenes.refused_at_first),
    ("unreached-listeners", scenes.arrived),
]

test_finds = finds(CASES)
test_ignores = ignores(LOOK_ALIKES)
test_survives_a_cut = survives_a_cut(CASES[0])


def test_unusable_bodies() -> None:
    long = "x" * (broker_facts.MAX_BODY + 1)
    for body in ("", "{", '{"brokers":[}', '{"brokers":[{"node_id":"x"}]}', long):
        assert listening._brokers(body) == []
    assert listening._brokers('{"throttle_time_ms":0,"brokers":[{"node_id":1,"host":"a","port":9}]}') == [("a", 9)]
