"""Data that does not arrive, and acknowledgements that are slow: what proves them, and what only looks like them."""

from __future__ import annotations

from typing import Any

import pytest

from kafkasniff.engine.inspector import Inspector
from kafkasniff.tables.rows.transport import transport_rows
from tests.craft.batches import batch
from tests.timing.timeline import Timeline, at


@pytest.fixture
def line() -> Timeline:
    """A client that writes 100 bytes every 20 ms, each acknowledged at once, until 100 ms."""
    found = Timeline()
    found.open(0.1, 0.1)
    for number in range(5):
        found.data("client", 20 * (number + 1), bytes(100))
        found.acked("broker", 20 * (number + 1) + 1)
    return found


def row(line: Timeline) -> dict[str, Any]:
    inspector = Inspector(network="links")
    inspector.feed(batch(line.in_order()))
    inspector.close()
    (found,) = transport_rows(inspector.take_links()).to_pylist()
    return dict(found)


def stalls(line: Timeline) -> list[tuple[str, int, int, bool]]:
    found = row(line)["stalls"]
    assert all(one["sender"] == "client" for one in found)
    return [(one["kind"], one["since"], one["until"], one["over"]) for one in found]


def sent_again(line: Timeline, *times: float) -> None:
    """A segment of 200 ms, sent again at these times."""
    packet = line.data("client", 200, bytes(100))
    for number, time in enumerate(times):
        line.add(time, packet.but(ident=50 + number))


@pytest.mark.parametrize("answered", [True, False])
def test_retransmissions(line: Timeline, answered: bool) -> None:
    sent_again(line, 400, 800, 1600)
    if answered:
        line.acked("broker", 1601)
    assert stalls(line) == [("unacknowledged", at(200), at(1601 if answered else 1600), answered)]


def test_retransmissions_within_the_usual_time(line: Timeline) -> None:
    sent_again(line, 400, 500)
    line.acked("broker", 600)
    assert stalls(line) == []


@pytest.mark.parametrize("acknowledged", [True, False])
def test_a_hole_counts_if_the_receiver_has_it_too(line: Timeline, acknowledged: bool) -> None:
    line.data("client", 200, bytes(1448))
    line.packets.pop()
    line.data("client", 201, bytes(300))
    ack = line.acked("broker", 202)
    if not acknowledged:
        line.packets[-1] = ack.but(ack=ack.ack - 1748)
    assert stalls(line) == ([] if acknowledged else [("hole", at(201), at(202), False)])


def resumed(line: Timeline, *, pause: float = 5000, first: int = 1, lost: int = 1000) -> None:
    """After a pause, the client sends a few segments, and what it had sent after them is missing until it comes."""
    for number in range(first):
        line.data("client", pause + number, bytes(100))
    acked = line.acked("broker", pause + 10)
    late = line.data("client", pause + 11, bytes(lost))
    line.packets.pop()
    line.data("client", pause + 12, bytes(100))
    line.packets.append(acked.but(time_ns=at(pause + 13)))
    line.add(pause + 14, late.but(ident=4000))
    line.acked("broker", pause + 15)


def test_an_outage_that_only_the_resumption_shows(line: Timeline) -> None:
    resumed(line)
    assert stalls(line) == [("hole", at(100), at(5012), True)]


@pytest.mark.parametrize("change", [{"pause": 700}, {"first": 2}, {"lost": 150}])
def test_losses_after_a_pause(line: Timeline, change: dict[str, Any]) -> None:
    """A short pause, several segments before the hole, or one lost segment prove no outage."""
    resumed(line, **change)
    assert stalls(line) == []


def test_losses_of_a_client_that_often_pauses(line: Timeline) -> None:
    for number in range(1, 6):
        line.data("client", 2000 * number, bytes(100))
        line.acked("broker", 2000 * number + 1)
    resumed(line, pause=15_000)
    assert stalls(line) == []


def test_round_trips(line: Timeline) -> None:
    for number in range(4):
        line.data("client", 1000 * (number + 1), bytes(100))
        line.acked("broker", 1000 * (number + 1) + (249 if number == 0 else 250))
    found = row(line)
    assert (found["broker_round_trips"], found["broker_slow_round_trips"]) == (9, 3)
    assert (found["slowest_round_trip_us"], found["broker_round_trip_us"]) == (250_000, 100)
    assert (found["client_round_trips"], found["client_slow_round_trips"]) == (0, 0)
