"""Connections by their packets: handshakes, round trips, trouble, where each begins and ends, and bounds."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from kafkasniff.capture import open_captures
from kafkasniff.model import Endpoint
from kafkasniff.timing import Link, LinkWatch, Trouble, trouble
from kafkasniff.timing import watch as watching
from tests.choice import fewer
from tests.conftest import ROOT
from tests.craft.batches import batch
from tests.craft.packet import ACK, FIN, RST, SYN, Packet
from tests.timing.timeline import MS, Timeline, at

CLIENT, BROKER = Endpoint("10.0.0.5", 51334), Endpoint("10.0.0.9", 9092)


def watched(packets: Sequence[Packet], size: int | None = None, **options: object) -> tuple[LinkWatch, list[Link]]:
    """A watch that has seen packets in batches of `size`, and all connections that it reported."""
    reported: list[Link] = []
    watch = LinkWatch(over=reported.append, **options)  # type: ignore[arg-type]
    size = size or max(len(packets), 1)
    for first in range(0, len(packets), size):
        some = packets[first : first + size]
        watch.feed(batch(some, range(first, first + len(some))))
    return watch, reported


def only(packets: Sequence[Packet]) -> Link:
    watch, reported = watched(packets)
    watch.close()
    (link,) = reported
    return link


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
    watch, reported = watched([*refused.packets, *silent.packets, *half.packets])
    watch.close()
    assert [link.opening for link in reported] == ["refused", "unanswered", None]
    assert [link.syns for link in reported] == [1, 2, 0]
    assert reported[0].reset_by is reported[0].broker


def test_round_trips_by_acknowledgements() -> None:
    """Round trips for each side's data; retransmitted data is not measured (Karn)."""
    line = Timeline()
    line.data("client", 0, b"a" * 100)
    line.acked("broker", 20)
    line.data("client", 30, b"b" * 100)
    line.acked("broker", 42)
    lost = line.data("client", 50, b"c" * 100)
    line.add(60, lost.but(ident=5))
    line.acked("broker", 61)
    line.data("broker", 70, b"d" * 100)
    line.acked("client", 70.5)
    link = only(line.packets)
    assert link.client.records == ((at(20), 20 * MS), (at(42), 12 * MS))
    assert (link.client.samples, link.client.total_ns) == (2, 32 * MS)
    assert [link.to_broker(at(time)) for time in (19, 20, 41, 42, 99)] == [None, 20 * MS, 20 * MS, 12 * MS, 12 * MS]
    assert link.to_client(at(99)) == MS // 2
    assert (link.handshake(), link.vantage()) == ((None, None), None)


def test_what_came_again_and_what_came_late() -> None:
    line = Timeline()
    first = line.data("client", 0, b"a" * 100)
    second = line.data("client", 1, b"b" * 100)
    third = line.data("client", 2, b"c" * 100)
    line.packets.clear()
    line.add(0, first)
    line.add(2, third)
    line.add(9, second)  # lost in front of the capture point, or overtaken
    line.add(10, third.but(ident=99))
    line.add(10, third.but(ident=99))  # the same packet, captured twice
    line.add(30, first.but(ident=98))
    log = only(line.packets).client.trouble
    assert (log.late, log.late_sum, log.again) == ([at(9)], [0, 7 * MS], [at(10), at(30)])
    assert log.between(at(0), at(50)) == Trouble(again=2, late=1, late_ns=7 * MS)
    assert log.between(at(10), at(29)) == Trouble(again=1)
    assert log.between(at(31), at(50)) == Trouble()


def test_a_hole_that_is_filled_in_pieces() -> None:
    line = Timeline()
    whole = line.data("client", 0, b"x" * 10)
    line.packets.clear()
    begin = whole.seq + 10
    for time, offset, length in ((0, 0, 10), (1, 40, 10), (2, 20, 10), (3, 10, 10), (4, 30, 10), (5, 30, 10)):
        line.add(time, whole.but(seq=begin - 10 + offset, payload=b"x" * length, ident=time))
    log = only(line.packets).client.trouble
    assert log.late == [at(2), at(3), at(4)]
    assert log.again == [at(5)]


def test_closed_windows() -> None:
    """The broker's answer comes, the client does not read: it says so, and later that it does again."""
    line = Timeline()
    line.data("broker", 0, b"x" * 1000)
    line.window = 0
    line.acked("client", 10)
    line.acked("client", 15)
    line.window = 5000
    line.acked("client", 30)
    line.window = 0
    line.acked("client", 50)
    line.window = 1
    line.acked("client", 60)
    log = only(line.packets).client.trouble
    cases = {
        (0, 9): Trouble(),
        (0, 10): Trouble(closed=1),
        (0, 40): Trouble(closed=1, closed_ns=20 * MS),
        (20, 25): Trouble(closed=1, closed_ns=5 * MS),
        (20, 55): Trouble(closed=2, closed_ns=15 * MS),
        (0, 99): Trouble(closed=2, closed_ns=30 * MS),
        (30, 49): Trouble(),
        (60, 99): Trouble(),
    }
    found = {span: log.between(at(span[0]), at(span[1])) for span in cases}
    assert found == cases


def test_what_went_wrong_is_remembered_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forgotten segments are counted; state that nobody needs any more makes room."""
    monkeypatch.setattr(trouble, "MAX_REMEMBERED", 3)
    one, other = Timeline(), Timeline(isn=(5_000, 6_000))
    for line, begin in ((one, 0), (other, 100)):
        line.open(1, 1, begin=begin)
        first = line.data("client", begin + 5, b"x" * 10)
        for number in range(5):
            line.add(begin + 6 + number, first.but(ident=100 + number))
    watch, reported = watched([*one.packets, *other.packets], size=9)
    watch.close()
    assert [(len(link.client.trouble.again), link.client.trouble.counts[0]) for link in reported] == [(3, 5), (3, 5)]


@pytest.mark.parametrize("seed", range(fewer(2, 4)))
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
        watch, reported = watched(packets, size)
        watch.close()
        found.append([facts_of(link) for link in reported])
    assert found[0] == found[1] == found[2]
    for link in reported:
        for half in link.halves:
            for _ in range(20):
                first = time - random.randrange(100 * MS)
                trouble = half.trouble.between(first, first + random.randrange(50 * MS))
                assert min(trouble) >= 0
                assert trouble.closed_ns <= 50 * MS
                again = half.trouble.retransmitted_at(first, first + 30 * MS)
                assert again is None or first < again <= first + 30 * MS


def facts_of(link: Link) -> tuple[object, ...]:
    halves = [
        (half.packets, half.data, half.records, half.samples, log.again, log.late_sum, log.closed, log.opened)
        for half in link.halves
        for log in (half.trouble,)
    ]
    return link.ends, link.first_time, link.last_time, link.opening, link.syns, link.handshake(), halves


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


def test_the_number_of_connections_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "MAX_LINKS", 3)
    lines = [Timeline(client=("10.0.0.5", 50_000 + number)) for number in range(5)]
    for line in lines:
        line.open(1, 1)
    watch, reported = watched([packet for line in lines for packet in line.packets])
    assert watch.forgotten == 2
    assert [link.ends[0][2] for link in reported] == [50_000, 50_001]


def test_batches_of_a_real_capture_change_nothing() -> None:
    found = []
    for split in (False, True):
        reported: list[Link] = []
        watch = LinkWatch(over=reported.append)
        with open_captures([str(ROOT / "captures" / "java-group-classic.pcap")]) as source:
            for each in source:
                rest = each
                while split and len(rest) > 3:
                    part, rest = rest.split(3)
                    watch.feed(part)
                watch.feed(rest)
        watch.close()
        found.append([facts_of(link) for link in reported])
    assert found[0] == found[1]
    assert found[0]
