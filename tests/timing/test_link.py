"""Facts about a connection's network from its packets: handshakes, round trips, trouble."""

from __future__ import annotations

from random import Random

import pytest

from kafkasniff.model import Endpoint
from kafkasniff.timing import Link, LinkWatch
from kafkasniff.timing import watch as watching
from tests.conftest import ROOT
from tests.craft.batches import batch
from tests.craft.packet import ACK, FIN, RST, SYN, Packet
from tests.timing.timeline import MS, Timeline, at, only, watched

CLIENT, BROKER = Endpoint("10.0.0.5", 51334), Endpoint("10.0.0.9", 9092)


@pytest.mark.parametrize(
    ("broker_ms", "client_ms", "vantage"),
    [(12, 0.02, "client"), (0.05, 12, "broker"), (6, 7, "between"), (0.03, 0.02, "anywhere")],
)
def test_the_handshake_tells_where_the_capture_was_made(broker_ms: float, client_ms: float, vantage: str) -> None:
    line = Timeline()
    line.open(broker_ms, client_ms)
    link = only(line.packets)
    assert link.vantage() == vantage
    assert link.handshake() == (round(broker_ms * MS), round(client_ms * MS))
    assert (link.to_broker(at(100)), link.to_client(at(100))) == link.handshake()
    assert (link.opening, link.syns) == ("answered", 1)


def test_a_syn_that_is_sent_again() -> None:
    """The round trip is that of the SYN that was answered; of a copy of one packet there is one."""
    line = Timeline()
    line.open(1030, 1)
    syn = line.packets[0]
    line.add(0, syn)
    line.add(1000, syn.but(ident=77))
    link = only(line.in_order())
    assert (link.syns, link.handshake()) == (2, (30 * MS, 1 * MS))


def test_refused_and_without_an_answer() -> None:
    refused, silent, half = (Timeline(client=("10.0.0.5", port)) for port in (50_001, 50_002, 50_003))
    for line in (refused, silent, half):
        line.at(0)._add("client", SYN)
    refused._seen["broker"] = refused._next["client"]
    refused.at(1)._add("broker", RST | ACK)
    silent.add(1000, silent.packets[0].but(ident=9))
    half.packets.clear()
    half.data("client", 5, b"in the midst")
    watch, told = watched([*refused.packets, *silent.packets, *half.packets])
    watch.close()
    assert [link.opening for link in told] == ["refused", "unanswered", None]
    assert [link.syns for link in told] == [1, 2, 0]
    assert told[0].reset_by is told[0].broker


def test_ports_that_are_used_again() -> None:
    """A connection is found by its ends and the time, also when the next one has begun within the same batch."""
    one, other = Timeline(), Timeline(isn=(5_000, 6_000))
    one.open(10, 1)
    one.data("client", 20, b"x" * 10)
    one.at(30).close()
    other.open(20, 1, begin=100)
    watch, told = watched([*one.packets, *other.packets])
    found = [watch.find(CLIENT, BROKER, at(time)) for time in (20, 120)]
    assert [None if link is None else link.handshake()[0] for link in found] == [10 * MS, 20 * MS]
    assert told == [found[0]]
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
    watch, told = watched(line.packets)
    watch.close()
    assert [link.client.packets for link in told] == [1, 1]


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
    watch, told = watched([packet for line in lines for packet in line.packets])
    assert watch.forgotten == 2
    assert [link.ends[0][2] for link in told] == [50_000, 50_001]


def test_both_ends_the_same() -> None:
    """Nobody sends such packets but to see what happens."""
    line = Timeline(client=("10.0.0.9", 9092), broker=("10.0.0.9", 9092))
    line.open(1, 1)
    line.data("client", 5, b"x")
    watch, told = watched(line.packets)
    watch.close()
    assert len(told) >= 1


@pytest.mark.parametrize("seed", range(4))
def test_packets_that_nobody_sends(seed: int) -> None:
    """Whatever packets say, nothing fails or is negative, and batches change nothing."""
    random = Random(seed)
    ends = [("10.0.0.1", 1), ("10.0.0.1", 2), ("10.0.0.2", 9092)]
    packets, time = [], at(0)
    for _ in range(800):
        source, target = random.choice(ends), random.choice(ends)
        time += random.choice((0, 1000, MS, 40 * MS, -MS, 70_000 * MS if random.random() < 0.01 else 5))
        near = random.choice((0, 2**32 - 50)) + random.randrange(200)
        packets.append(
            Packet(
                time_ns=time,
                src=source[0],
                sport=source[1],
                dst=target[0],
                dport=target[1],
                seq=near % 2**32 if random.random() < 0.9 else random.getrandbits(32),
                ack=random.randrange(300),
                flags=random.choice((ACK, ACK, ACK, ACK, SYN, SYN | ACK, RST, FIN | ACK, 0, 0xFF)),
                payload=bytes(random.choice((0, 0, 1, 10, 50))),
                window=random.choice((0, 1, 500)),
                ident=random.randrange(5),
            )
        )
    found = []
    for size in (None, 1, 13):
        watch, told = watched(packets, size)
        watch.close()
        found.append([_facts(link) for link in told])
    assert found[0] == found[1] == found[2]
    for link in told:
        for half in link.halves:
            for _ in range(20):
                first = time - random.randrange(100 * MS)
                trouble = half.between(first, first + random.randrange(50 * MS))
                assert min(trouble) >= 0
                assert trouble.closed_ns <= 50 * MS
                again = half.sent_again(first, first + 30 * MS)
                assert again is None or first < again <= first + 30 * MS


def _facts(link: Link) -> tuple[object, ...]:
    halves = [
        (half.packets, half.data, half.records, half.samples, half.again, half.late_sum, half.closed, half.opened)
        for half in link.halves
    ]
    return link.ends, link.first_time, link.last_time, link.opening, link.syns, link.handshake(), halves


@pytest.mark.parametrize("name", [("java-group-classic", 3), ("franz-go", 7)])
def test_batches_change_nothing(name: tuple[str, int]) -> None:
    from kafkasniff.capture import open_captures

    found = []
    for split in (False, True):
        told: list[Link] = []
        watch = LinkWatch(over=told.append)
        with open_captures([str(ROOT / "captures" / f"{name[0]}.pcap")]) as source:
            for each in source:
                rest = each
                while split and len(rest) > name[1]:
                    part, rest = rest.split(name[1])
                    watch.feed(part)
                watch.feed(rest)
        watch.close()
        found.append([_facts(link) for link in told])
    assert found[0] == found[1]
    assert found[0]
