"""Outages: which stalls belong together, and what they prove."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from kafkasniff.analysis.detectors.outages import outages
from kafkasniff.analysis.detectors.transport_trouble import TransportTrouble

SECOND = 1_000_000_000


def stall(client: str, broker: str, since: float, until: float, **more: Any) -> dict[str, Any]:
    """A stall of a connection, times in seconds."""
    row = {
        **{"connection_id": round(since * 1000), "time_ns": 0, "client_ip": client},
        **{"broker": broker, "since": round(since * SECOND), "until": round(until * SECOND)},
        **{"sender": "client", "kind": "unacknowledged", "retries": 4, "size": 100, "passed": 1448},
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


def test_later_stalls_are_another_outage_and_short_ones_none() -> None:
    rows = [stall("a", "x", 1, 3), stall("a", "x", 5, 5.9), stall("a", "x", 7, 9)]
    assert found(*rows) == [(["a"], ["x"], 1, 3, None), (["a"], ["x"], 7, 9, None)]


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


def test_no_stalls() -> None:
    assert found() == []
    assert isinstance(TransportTrouble().parts["stalls"].table(), pa.Table)
