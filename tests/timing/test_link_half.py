"""One sender of a connection: round trips, retransmitted and late data, closed windows."""

from __future__ import annotations

import pytest

from kafkasniff.timing import Trouble
from kafkasniff.timing import link_half as halves
from tests.timing.timeline import MS, Timeline, at, only, watched


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
    assert link.client.records == [(at(20), 20 * MS), (at(42), 12 * MS)]
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
    client = only(line.packets).client
    assert (client.late, client.late_sum, client.again) == ([at(9)], [0, 7 * MS], [at(10), at(30)])
    assert client.between(at(0), at(50)) == Trouble(again=2, late=1, late_ns=7 * MS)
    assert client.between(at(10), at(29)) == Trouble(again=1)
    assert client.between(at(31), at(50)) == Trouble()


def test_a_hole_that_is_filled_in_pieces() -> None:
    line = Timeline()
    whole = line.data("client", 0, b"x" * 10)
    line.packets.clear()
    begin = whole.seq + 10
    for time, offset, length in ((0, 0, 10), (1, 40, 10), (2, 20, 10), (3, 10, 10), (4, 30, 10), (5, 30, 10)):
        line.add(time, whole.but(seq=begin - 10 + offset, payload=b"x" * length, ident=time))
    client = only(line.packets).client
    assert client.late == [at(2), at(3), at(4)]
    assert client.again == [at(5)]


def test_keep_alives_are_no_retransmissions() -> None:
    line = Timeline()
    line.data("client", 0, b"a" * 10)
    line.at(5).keep_alive("client", garbage=True)
    assert only(line.packets).client.again == []


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
    client = only(line.packets).client
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
    found = {span: client.between(at(span[0]), at(span[1])) for span in cases}
    assert found == cases


def test_a_window_that_stays_closed() -> None:
    line = Timeline(window=0)
    line.data("broker", 0, b"x")
    line.acked("client", 10)
    client = only(line.packets).client
    assert client.between(at(0), at(25)) == Trouble(closed=1, closed_ns=15 * MS)
    assert client.between(at(12), at(13)) == Trouble(closed=1, closed_ns=MS)


def test_what_went_wrong_is_remembered_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forgotten segments are counted; state that nobody needs any more makes room."""
    monkeypatch.setattr(halves, "MAX_REMEMBERED", 3)
    one, other = Timeline(), Timeline(isn=(5_000, 6_000))
    for line, begin in ((one, 0), (other, 100)):
        line.open(1, 1, begin=begin)
        first = line.data("client", begin + 5, b"x" * 10)
        for number in range(5):
            line.add(begin + 6 + number, first.but(ident=100 + number))
    watch, told = watched([*one.packets, *other.packets], size=9)
    watch.close()
    assert [(len(link.client.again), link.client.lost_count) for link in told] == [(3, 2), (3, 2)]
