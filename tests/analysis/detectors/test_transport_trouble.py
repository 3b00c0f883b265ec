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
        **{
            "retried": round(until * SECOND),
            "quiet": round((until - since) * SECOND),
            "heard": 0,
            "over": True,
            "ended": False,
        },
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


def test_a_hole_lasts_until_the_end_of_the_capture_unless_the_connection_ended() -> None:
    hole = {"kind": "hole", "over": False, "heard": 1, "size": 100}
    assert found(stall("a", "x", 1, 1, **hole), end=9) == [(["a"], ["x"], 1, 9, None)]
    assert found(stall("a", "x", 1, 1, ended=True, **hole), end=9) == []


def test_only_large_segments_are_lost() -> None:
    lost = {"size": 1448, "passed": 300, "over": False}
    assert found(stall("a", "x", 1, 4, heard=1, **lost), stall("a", "x", 8, 9, **lost)) == [(["a"], ["x"], 1, 9, 300)]
    # Nothing was heard of the receiver, other segments of this size arrived, or these did in the end.
    assert [one[-1] for one in found(stall("a", "x", 1, 4, **lost))] == [None]
    assert [one[-1] for one in found(stall("a", "x", 1, 4, heard=1, size=1448, over=False))] == [None]
    assert [one[-1] for one in found(stall("a", "x", 1, 4, heard=1, size=1448, passed=300))] == [None]


def waits(detector: TransportTrouble, *rows: dict[str, Any], round_trip: float = 0.02) -> list[str]:
    """What the findings are called; `round_trip`: in seconds, of the fastest connection."""
    for row in rows:
        detector.parts["stalls"].add({name: [value] for name, value in row.items()})
    way = {"client_ip": ["a"], "broker": ["x"], "to_broker_us": [1], "least_us": [round(round_trip * 1e6)]}
    detector.parts["ways"].add(way | {"most_us": [round(round_trip * 1e6)], "slow": [0], "again": [0]})
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


def test_later_stalls_are_another_outage_and_short_ones_none() -> None:
    rows = [stall("a", "x", 1, 3), stall("a", "x", 5, 5.9), stall("a", "x", 7, 9)]
    assert found(*rows) == [(["a"], ["x"], 1, 3, None), (["a"], ["x"], 7, 9, None)]


def test_one_side_that_only_repeats_itself() -> None:
    """The capture begins within the outage. If the other direction is not captured, few segments are repeated."""

    def titles(**values: int) -> list[str]:
        row = {"connection_id": 1, "time_ns": SECOND, "end_time_ns": 7 * SECOND, "client_ip": "10.0.0.5"}
        row |= {"broker_ip": "10.0.0.9", "broker_port": 9092, "broker_packets": 0, **values}
        return [one.title for one in findings_of("transport-trouble", transport=[row])]

    (one,) = titles(client_packets=4, client_again=3)
    assert one.startswith("network outage: no data arrived between 10.0.0.5 and 10.0.0.9:9092")
    assert titles(client_packets=3, client_again=2) == []
    assert titles(client_packets=90, client_again=30) == []
    assert titles(client_packets=4, client_again=3, broker_packets=1) == []


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
