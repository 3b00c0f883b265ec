"""Outages: which stalls belong together, and what they prove; lost segments: on which paths, and how many."""

from __future__ import annotations

from typing import Any

import pytest

from kafkasniff.analysis.detectors.paths import outages
from kafkasniff.analysis.detectors.transport_trouble import TransportTrouble
from tests.analysis.detectors.talks import findings_of
from tests.analysis.tables import SECOND, Row, connection


def stall(client: str, broker: str, since: float, until: float, **more: Any) -> dict[str, Any]:
    """A stall of a connection, times in seconds."""
    row = {
        **{"connection_id": round(since * 1000), "time_ns": 0, "client_ip": client},
        **{"broker": broker, "since": round(since * SECOND), "until": round(until * SECOND)},
        **{"sender": "client", "kind": "unacknowledged", "retries": 4, "size": 100, "passed": 1448},
        **{"retried": round(until * SECOND), "quiet": round((until - since) * SECOND)},
        **{"heard": 0, "over": True, "ended": False},
    }
    return {**row, **more}


def found(*rows: dict[str, Any], end: float = 100) -> list[tuple[list[str], list[str], float, float, int | None]]:
    detector = TransportTrouble()
    for row in rows:
        columns = {name: [value] for name, value in row.items()}
        detector.parts["stalls"].add(columns)
    detector.parts["end"].add({"one": [0], "until": [round(end * SECOND)]})
    return [
        (one.hosts("client_ip"), one.hosts("broker"), one.first_ns / SECOND, one.until_ns / SECOND, one.largest)
        for one in outages(detector, SECOND)
    ]


def test_stalls_at_one_time_with_a_common_host_are_one_outage() -> None:
    rows = [stall("a", "x", 1, 4), stall("a", "y", 2, 5), stall("b", "y", 4.5, 6), stall("c", "z", 3, 5)]
    expected = [(["a", "b"], ["x", "y"], 1, 6, None), (["c"], ["z"], 3, 5, None)]
    assert sorted(found(*rows)) == expected
    assert sorted(found(*reversed(rows))) == expected


def waits(detector: TransportTrouble, *rows: dict[str, Any], round_trip: float = 0.02) -> list[str]:
    """What the findings are called; `round_trip`: in seconds, of the fastest connection."""
    for row in rows:
        detector.parts["stalls"].add({name: [value] for name, value in row.items()})
    way = {"client_ip": ["a"], "broker": ["x"], "to_broker_us": [1], "least_us": [round(round_trip * 1e6)]}
    detector.parts["ways"].add(way | {"most_us": [round(round_trip * 1e6)], "slow": [0], "waited": [0], "again": [0]})
    return [str(one.subject["trouble"]) for one in detector.findings()]


def test_acknowledgements_in_a_queue_are_no_outage() -> None:
    late = {"quiet": SECOND // 4, "retried": round(1.9 * SECOND)}
    assert waits(TransportTrouble(), stall("a", "x", 1, 2.2, **late)) == ["queue"]
    # The acknowledgement came sooner than an answer to the last attempt.
    soon = {"quiet": SECOND // 4, "retried": round(2.195 * SECOND), "sender": "broker"}
    assert waits(TransportTrouble(), stall("a", "x", 1, 2.2, **soon)) == ["queue"]
    # Another connection whose receiver had nothing to send waited in the same queue.
    assert waits(TransportTrouble(), stall("a", "x", 1, 2.2, **late), stall("a", "x", 1.5, 3)) == ["queue"]


def test_data_that_had_to_be_sent_again_was_lost() -> None:
    quiet = SECOND // 4
    for more in (
        # The acknowledgement came a round trip after the last attempt.
        {"quiet": quiet, "retried": round(2.17 * SECOND)},
        # The receiver was not acknowledged either.
        {"quiet": SECOND, "retried": round(1.9 * SECOND)},
        {"quiet": quiet, "retried": round(1.9 * SECOND), "over": False},
    ):
        assert waits(TransportTrouble(), stall("a", "x", 1, 2.2, **more)) == ["outage"]


def lossy(client: str, port: int, again: int, packets: int = 100) -> Row:
    return connection(client_ip=client, broker_ip="10.0.0.9", broker_port=port, packets=packets, retransmits=again)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([lossy("a", 1, 10)], ["warning: a and 10.0.0.9:1"]),
        ([lossy("a", 1, 4, 50), lossy("a", 1, 1, 100)], ["note: a and 10.0.0.9:1"]),
        ([lossy("a", 1, 4)], []),
        # Paths with an end in common are one finding.
        ([lossy("a", 1, 10), lossy("a", 2, 9)], ["warning: a and 10.0.0.9:1, 10.0.0.9:2"]),
        ([lossy("a", 1, 10), lossy("b", 1, 9)], ["warning: a, b and 10.0.0.9:1"]),
        ([lossy("a", 1, 9), lossy("c", 2, 9), lossy("a", 2, 9)], ["warning: a, c and 10.0.0.9:1, 10.0.0.9:2"]),
        ([lossy("a", 1, 10), lossy("b", 2, 9)], ["warning: a and 10.0.0.9:1", "warning: b and 10.0.0.9:2"]),
        ([lossy("a", 1, 10), lossy("a", 2, 3, 20)], ["warning: a and 10.0.0.9:1"]),
    ],
)
def test_losses_by_path(rows: list[Row], expected: list[str]) -> None:
    for order in (rows, rows[::-1]):
        found = findings_of("transport-trouble", connections=order)
        between = ((one.severity, one.title.partition(" between ")[2]) for one in found)
        assert [f"{severity}: {path.partition(' retransmitted')[0]}" for severity, path in between] == expected
