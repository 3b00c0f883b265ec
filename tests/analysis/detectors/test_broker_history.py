"""Lookups of broker facts and absences: as a scan of all rows finds them, with work linear in rows and absences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from kafkasniff.analysis.detectors import broker_history
from kafkasniff.analysis.detectors.absences import Absence, links_shape
from kafkasniff.analysis.detectors.broker_gone import NODE_NS, BrokerGone, _by_node
from kafkasniff.analysis.detectors.broker_history import BrokerHistory
from tests.steps import steps

SECOND = 1_000_000_000


def add(detector: BrokerGone, part: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add rows of a partial answer, each counted once."""
    if rows:
        names = rows[0].keys()
        detector.parts[part].add({**{name: [row[name] for row in rows] for name in names}, "count": [1] * len(rows)})


def restless(brokers: int, absences: int) -> BrokerGone:
    """Brokers that refuse every second connect, each a node with as many leaders, lists and epochs."""
    detector = BrokerGone()
    links: list[dict[str, Any]] = []
    leaders: list[dict[str, Any]] = []
    listed: list[dict[str, Any]] = []
    epochs: list[dict[str, Any]] = []
    for node in range(brokers):
        broker = f"10.0.1.{node}:9092"
        # The last broker's number is unknown: its absences are compared with the epochs of the others.
        if node < brokers - 1:
            add(detector, "nodes", [{"node": node, "broker": broker}])
        for number in range(2 * absences):
            time, refused = number * 3 * SECOND, number % 2 == 1
            link: dict[str, Any] = dict.fromkeys(name for name, _ in links_shape().keys)
            links.append(
                link
                | {"connection_id": len(links), "time_ns": time, "end_time_ns": time + 1, "client_ip": "10.0.0.1"}
                | {"client_port": 1, "opening": "refused" if refused else "answered", "syns": 1, "broker": broker}
                | {"broker_packets": 2, "broker_data": 10}
            )
        for number in range(absences):
            time = number * 6 * SECOND + node
            seen = {"cluster": None, "first": time, "last": time + 1}
            epochs.append({**seen, "node": node, "epoch": number})
            listed.append({**seen, "broker": "10.0.0.9:9092", "nodes": str(node), "second": time // SECOND})
            for leader in (node, (node + 1) % brokers):
                leaders.append({**seen, "topic": f"{node}", "partition": number, "leader": leader, "leader_epoch": 0})
    for name, rows in (("leaders", leaders), ("listed", listed), ("epochs", epochs)):
        add(detector, name, rows)
    detector.parts["links"].add({name: [link[name] for link in links] for name in links[0]})
    names = [f"10.0.1.{node}:9092" for node in range(brokers)]
    detector.parts["brokers"].add({"broker": pa.array(names), "count": [1] * brokers})
    return detector


def test_work_is_linear_in_absences_and_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten times as many absences, and as many of all other rows. `new_leaders` has its own bound."""
    monkeypatch.setattr(broker_history, "MAX_LOOKUPS", 0)
    small, large = restless(4, 50), restless(4, 500)
    assert sum(one.values.get("absences", 1) for one in large.findings()) >= 4 * 500
    assert steps(large.findings) < 12 * steps(small.findings)


def test_searches_for_new_leaders_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    detector = restless(2, 6)
    full = [one.values.get("leaders_moved") for one in detector.findings() if "leaders_moved" in one.values]
    assert None not in full
    # Each absence has one more partition to search than the previous one.
    monkeypatch.setattr(broker_history, "MAX_LOOKUPS", 4)
    cut = [one.values.get("leaders_moved") for one in detector.findings() if "leaders_moved" in one.values]
    assert cut != full
    assert None in cut
    assert all(some in (None, whole) for some, whole in zip(cut, full, strict=True))


def test_listeners_of_one_node() -> None:
    """Together if they were gone at once, unless metadata gives them different numbers or only one of them returned."""

    def gone(first: int, back: int | None = None) -> Absence:
        return Absence(first, back, (), ())

    def nodes(*met: tuple[str, Absence, int | None]) -> list[tuple[str, int | None, list[str]]]:
        found = [
            [(broker, number, others) for broker, _, number, others in _by_node(some)] for some in (met, met[::-1])
        ]
        assert found[0] == found[1], "their order does not matter"
        return found[0]

    at = 10**18
    soon, later = at + NODE_NS, at + NODE_NS + 1
    assert nodes(("a:1", gone(at), None), ("a:2", gone(soon), 7)) == [("a:2", 7, ["a:1"])]
    assert len(nodes(("a:1", gone(at), None), ("a:2", gone(later), 7))) == 2
    assert len(nodes(("a:1", gone(at), 6), ("a:2", gone(at), 7))) == 2
    assert len(nodes(("a:1", gone(at), 7), ("b:1", gone(at), None))) == 2
    assert len(nodes(("a:1", gone(at), 7), ("a:2", gone(at, later), None))) == 2
    assert len(nodes(("a:1", gone(at), 7), ("a:1", gone(soon), 7))) == 2


def test_leaders_that_moved_before() -> None:
    detector = BrokerGone()
    place = {"cluster": None, "topic": "orders"}
    moves = [(0, 1, 0), (0, 2, 55), (1, 1, 0), (1, 2, 20), (2, 1, 0), (2, 2, 65), (3, 2, 0), (4, 1, 50)]
    # The last one moves back to a leader that it had before.
    moves += [(5, 2, 0), (5, 1, 10), (5, 2, 55)]
    rows = [
        {**place, "partition": number, "leader": leader, "leader_epoch": epoch, "first": second * SECOND}
        for epoch, (number, leader, second) in enumerate(moves)
    ]
    add(detector, "leaders", [{**row, "last": row["first"]} for row in rows])
    # Not the second partition, which moved long before, nor the third, which moved later, nor others.
    assert BrokerHistory(detector).moved_before((None, 1), 60 * SECOND) == 2
    assert BrokerHistory(detector).moved_before((None, 2), 60 * SECOND) == 0
