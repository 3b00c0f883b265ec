"""Times in which data does not arrive: what proves them, and what only looks like them."""

from __future__ import annotations

from tests.craft.packet import Packet
from tests.kernel.test_link import only
from tests.oracle.timing.stalls import Stall
from tests.timing.timeline import Timeline, at


def opened() -> Timeline:
    line = Timeline()
    line.open(0.1, 0.1)
    line.data("client", 1, b"first")
    line.acked("broker", 2)
    return line


def stalls(line: Timeline) -> list[Stall]:
    """Those of the client."""
    found = only(line.in_order())["stalls"]
    return [Stall(**{name: stall[name] for name in Stall._fields}) for stall in found if stall["sender"] == "client"]


def retried(line: Timeline, *times: float, size: int = 100) -> None:
    """A segment of the client, sent again at these times (ms)."""
    packet = line.data("client", 10, bytes(size))
    for number, time in enumerate(times):
        line.add(time, packet.but(ident=50 + number))


def old_acknowledgement(line: Timeline, time: float) -> Packet:
    """Data of the broker that does not acknowledge the client's last 100 bytes."""
    packet = line.data("broker", time, b"response")
    line.packets.pop()
    return packet.but(ack=packet.ack - 100)


def test_retransmissions_until_the_acknowledgement() -> None:
    line = opened()
    retried(line, 200, 600, 1400)
    line.acked("broker", 1401)
    (stall,) = stalls(line)
    assert stall == (at(10), at(1401), "unacknowledged", 3, at(1400), 100, 100, 0, at(1401) - at(10), True)


def test_retransmissions_that_nobody_acknowledges() -> None:
    line = opened()
    retried(line, 200, 600, 1400)
    (stall,) = stalls(line)
    assert (stall.until, stall.over) == (at(1400), False)


def test_an_acknowledgement_in_time_is_no_stall() -> None:
    line = opened()
    retried(line, 200, 300)
    line.acked("broker", 400)
    retried(line, 5000)
    line.acked("broker", 6000)
    assert stalls(line) == []


def test_a_receiver_that_sends_new_data() -> None:
    line = opened()
    retried(line, 200, 600, 1400)
    for time in (100, 700, 1300):
        line.packets.append(old_acknowledgement(line, time))
    line.acked("broker", 1600)
    (stall,) = stalls(line)
    assert (stall.until, stall.retried, stall.heard, stall.quiet) == (at(1600), at(1400), 3, at(700) - at(100))


def test_a_receiver_that_repeats_its_data() -> None:
    line = opened()
    retried(line, 200, 600, 1400)
    for time in (100, 300):
        line.packets.append(old_acknowledgement(line, time))
    line.add(1300, line.packets[-1].but(ident=99))
    line.acked("broker", 1600)
    (stall,) = stalls(line)
    assert (stall.heard, stall.quiet) == (3, at(1600) - at(300))


def test_a_receiver_without_room_is_no_stall() -> None:
    line = opened()
    packet = line.data("client", 10, bytes(100))
    closed = line.acked("broker", 11)
    line.packets[-1] = closed.but(ack=closed.ack - 100, window=0)
    for number, time in enumerate((200, 600, 1400, 2800)):
        line.add(time, packet.but(ident=50 + number))
    line.acked("broker", 3000)
    assert [one for one in stalls(line) if one.retries > 2] == []


def with_a_hole(acknowledged: bool) -> Timeline:
    """The client's second segment is missing in the capture; the broker has received it, or not."""
    line = opened()
    line.data("client", 10, bytes(1448))
    line.packets.pop()
    line.data("client", 11, bytes(300))
    ack = line.acked("broker", 12)
    if not acknowledged:
        line.packets[-1] = ack.but(ack=ack.ack - 1748)
    return line


def test_a_hole_that_stays() -> None:
    (stall,) = stalls(with_a_hole(acknowledged=False))
    assert (stall.since, stall.kind, stall.size, stall.passed, stall.heard, stall.over) == (
        *(at(11), "hole", 1448, 300, 1, False),
    )


def test_a_hole_in_the_capture_alone() -> None:
    assert stalls(with_a_hole(acknowledged=True)) == []
