"""Lost segments: on which paths, and how many."""

from __future__ import annotations

import pytest

from kafkasniff.analysis.detectors import find_detector
from tests.analysis.tables import Row, batch_of, connection


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
        detector = find_detector("transport-trouble")()
        detector.update(batch_of(order, "connections"), "connections")
        between = ((one.severity, one.title.partition(" between ")[2]) for one in detector.findings())
        assert [f"{severity}: {path.partition(' retransmitted')[0]}" for severity, path in between] == expected
