"""The connections of `LinkWatch`, as rows of `transport`, whatever the batches are and however often it is swept."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from kafkasniff.tables.rows.transport import transport_row
from kafkasniff.tcp.reassembly import IDLE_NS, LINGER_NS
from kafkasniff.timing import LinkWatch
from tests.craft.batches import batch
from tests.craft.packet import ACK, FIN, RST, SYN, Packet

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND
Step = tuple[int, bool, int, int]
"""Connection, whether the client sends, flags, and nanoseconds since the packet before, which may be negative."""

STEPS = st.tuples(
    st.integers(0, 2),
    st.booleans(),
    st.sampled_from([SYN, SYN | ACK, ACK, ACK | FIN, ACK | RST]),
    st.sampled_from(
        [0, SECOND, -SECOND, LINGER_NS // 2, -LINGER_NS, LINGER_NS, -2 * LINGER_NS, 2 * LINGER_NS, IDLE_NS]
    ),
)


def packets_of(steps: Sequence[Step]) -> list[Packet]:
    found, time = [], START
    for place, (number, by_client, flags, later) in enumerate(steps):
        time += later
        ends: Any = (("10.0.0.5", 50_000 + number), ("10.0.0.9", 9092))
        (src, sport), (dst, dport) = ends if by_client else ends[::-1]
        found.append(Packet(time, src, sport, dst, dport, 1 + place, 1, flags, b"" if flags & SYN else b"x"))
    return found


def rows(packets: Sequence[Packet], cuts: Collection[int], sweeps: Collection[int]) -> list[str]:
    """The rows of connections in batches that end before these packets, some of them with a sweep."""
    found: list[str] = []
    watch = LinkWatch(over=lambda link: found.append(str(transport_row(link))), looks_up=False)
    ends = sorted({*cuts, len(packets)})
    for begin, end in zip([0, *ends], ends, strict=False):
        watch.feed(batch(packets[begin:end], range(begin, end)))
        if end in sweeps:
            watch.sweep()
    watch.close()
    return sorted(found)


# A connection is closed, the clock of another one goes back, and a late packet follows.
@example(
    steps=[
        (0, True, ACK | RST, 0),
        (1, True, ACK, 3 * LINGER_NS),
        (0, True, ACK, -5 * LINGER_NS // 2),
        (1, True, ACK, 0),
    ],
    cuts={2},
    sweeps={2},
)
@given(
    steps=st.lists(STEPS, min_size=2, max_size=12),
    cuts=st.sets(st.integers(1, 12), max_size=12),
    sweeps=st.sets(st.integers(1, 12), max_size=4),
)
def test_neither_batches_nor_sweeps_change_a_row(steps: list[Step], cuts: set[int], sweeps: set[int]) -> None:
    packets = packets_of(steps)
    inside = {cut for cut in cuts | sweeps if cut < len(packets)}
    assert rows(packets, inside, sweeps) == rows(packets, (), ())
