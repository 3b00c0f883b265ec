"""All connections of a run by their packets: where each begins and ends, and how many are remembered."""

from __future__ import annotations

import pytest

from kafkasniff.model import Endpoint
from kafkasniff.timing import Link, LinkWatch
from kafkasniff.timing import watch as watching
from tests.conftest import ROOT
from tests.craft.batches import batch
from tests.timing.test_link import BROKER, CLIENT, facts_of, watched
from tests.timing.timeline import MS, Timeline, at


def test_ports_that_are_used_again() -> None:
    """A connection is found by its ends and the time, even if the next one has begun within the same batch."""
    one, other = Timeline(), Timeline(isn=(5_000, 6_000))
    one.open(10, 1)
    one.data("client", 20, b"x" * 10)
    one.at(30).close()
    other.open(20, 1, begin=100)
    watch, reported = watched([*one.packets, *other.packets])
    found = [watch.find(CLIENT, BROKER, at(time)) for time in (20, 120)]
    assert [None if link is None else link.handshake()[0] for link in found] == [10 * MS, 20 * MS]
    assert reported == [found[0]]
    watch.feed(batch([], []))
    assert watch.find(CLIENT, BROKER, at(20)) is found[1]
    assert watch.find(CLIENT, Endpoint("10.0.0.9", 9093), at(20)) is None
    # Who is the client is for messages to say.
    swapped = watch.find(BROKER, CLIENT, at(120))
    assert swapped is found[1]
    assert swapped is not None
    assert swapped.end(swapped.client)[2] == 9092


def test_silence_ends_a_connection() -> None:
    line = Timeline()
    line.data("client", 0, b"a")
    line.data("client", 3_600_001, b"b")
    watch, reported = watched(line.packets)
    watch.close()
    assert [link.client.packets for link in reported] == [1, 1]


def test_other_ports_and_packets_without_a_time() -> None:
    line = Timeline()
    line.open(1, 1)
    watch, _ = watched(line.packets, ports=[9093])
    assert watch.find(CLIENT, BROKER, at(5)) is None
    watch, _ = watched([packet.but(time_ns=-(2**63)) for packet in line.packets])
    assert watch.find(CLIENT, BROKER, at(5)) is None


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "MAX_LINKS", 3)
    lines = [Timeline(client=("10.0.0.5", 50_000 + number)) for number in range(5)]
    for line in lines:
        line.open(1, 1)
    watch, reported = watched([packet for line in lines for packet in line.packets])
    assert watch.forgotten == 2
    assert [link.ends[0][2] for link in reported] == [50_000, 50_001]


def test_both_ends_the_same() -> None:
    """Nobody sends such packets but to see what happens."""
    line = Timeline(client=("10.0.0.9", 9092), broker=("10.0.0.9", 9092))
    line.open(1, 1)
    line.data("client", 5, b"x")
    watch, reported = watched(line.packets)
    watch.close()
    assert len(reported) >= 1


@pytest.mark.parametrize("name", [("java-group-classic", 3), ("franz-go", 7)])
def test_batches_change_nothing(name: tuple[str, int]) -> None:
    from kafkasniff.capture import open_captures

    found = []
    for split in (False, True):
        reported: list[Link] = []
        watch = LinkWatch(over=reported.append)
        with open_captures([str(ROOT / "captures" / f"{name[0]}.pcap")]) as source:
            for each in source:
                rest = each
                while split and len(rest) > name[1]:
                    part, rest = rest.split(name[1])
                    watch.feed(part)
                watch.feed(rest)
        watch.close()
        found.append([facts_of(link) for link in reported])
    assert found[0] == found[1]
    assert found[0]
