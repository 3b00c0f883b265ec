"""The law of engines: the kernel, in batches of any size, yields the events and the state of Python one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkasniff.engine.inspector import Inspector
from kafkasniff.model import NO_TIME, Connection, Exchange
from kafkasniff.native import kernel
from kafkasniff.packets import PacketBatch
from kafkasniff.tables.rows.exchange_columns import ExchangeFinder
from tests.choice import fewer, one_in
from tests.craft import kafka_bytes as kafka
from tests.craft.batches import batch
from tests.craft.packet import Packet
from tests.engine.talks import (
    BEGINNINGS,
    RECORDS,
    SAID,
    UNUSUAL,
    USUAL,
    Say,
    all_heard,
    beats,
    ended,
    exchange_of,
    opened,
    packets_of,
    said_by,
    talks,
    together,
)
from tests.oracle.inspector import ByPython, kept


def run(kind: type[Inspector], batches: Sequence[PacketBatch], **options: Any) -> list[Any]:
    """Everything that an inspector yields, what it kept at the end, and its summary."""
    inspector = kind(**options)
    out = [event for one in batches for event in inspector.feed(one)]
    state = kept(inspector)
    return [*out, state, *inspector.close(), inspector.summary]


def same(batches: Sequence[PacketBatch], **options: Any) -> None:
    """Both engines yield the same."""
    found, expected = (run(kind, batches, **options) for kind in (Inspector, ByPython))
    for one, other in zip(found, expected, strict=False):
        assert one == other
    assert len(found) == len(expected)


def cut_before(packets: Sequence[Packet], cuts: Sequence[int]) -> list[PacketBatch]:
    parts, rest, gone = [], batch(packets), 0
    for place in cuts:
        head, rest = rest.split(place - gone)
        gone = place
        parts.append(head)
    return [*parts, rest]


OPTIONS = st.fixed_dictionaries(
    {
        "exchanges": st.booleans(),
        "connections": st.booleans(),
        "records": st.sampled_from(["full", "columns", "skip"]),
        "max_frame": st.sampled_from([100 << 20, 1000]),
    }
)


@given(
    said=st.lists(
        st.lists(st.sampled_from(sorted(SAID)) | st.sampled_from(sorted(USUAL)), max_size=12), min_size=1, max_size=4
    ),
    cuts=st.lists(st.integers(0, 100), max_size=3),
    skew_ns=st.sampled_from([0, 0, -150_000, -50_000, 350_000, None]),
    options=OPTIONS,
)
@example(said=[[name, "heartbeat", "produce"] for name in UNUSUAL], cuts=[], skew_ns=0, options={})
@example(said=[["heartbeat", "produce", name] for name in UNUSUAL], cuts=[], skew_ns=-150_000, options={})
@example(said=[["produce", name] for name in UNUSUAL], cuts=[50], skew_ns=0, options={"connections": True})
@example(said=[["an answer first", "produce"]], cuts=[], skew_ns=350_000, options={})
@example(said=[["large", "produce"]], cuts=[], skew_ns=0, options={"max_frame": 1000})
@example(said=[["heartbeat"] * 4], cuts=[30], skew_ns=None, options={})
def test_any_talk(said: list[list[str]], cuts: list[int], skew_ns: int | None, options: dict[str, Any]) -> None:
    """`skew_ns`: of the broker's clock; None: packets without times."""
    packets = talks(said, skew_ns or 0)
    if skew_ns is None:
        packets = [[packet._replace(time_ns=NO_TIME) for packet in part] for part in packets]
    same(packets_of(packets, cuts), **options)


LOSSY = [
    *sorted(USUAL),
    *("in a row", "crossing", "in pieces", "one and a piece", "many in a segment", "the same id"),
    *("acks 0", "acks 0, many", "acks 0, version 9", "more than a body", "ahead, more than a body"),
]
REPEATED = [*["heartbeat"] * 40, "the same id", "the same id", "more than a body", *["heartbeat"] * 9]
AHEAD = [*["heartbeat"] * 40, "ahead, more than a body", *["heartbeat"] * 3]


@given(
    said=st.lists(st.lists(st.sampled_from(LOSSY), min_size=20, max_size=40), min_size=1, max_size=2),
    lost=st.lists(st.tuples(st.integers(0, 250), st.sampled_from([1, 1, 2, 7])), min_size=1, max_size=4),
    repeated=st.lists(st.integers(0, 250), max_size=2),
    cuts=st.lists(st.integers(0, 100), max_size=6),
    exchanges=st.booleans(),
)
@example(said=[["heartbeat"] * 60], lost=[(11, 1)], repeated=[], cuts=[5, 15, 60], exchanges=True)
@example(said=[["heartbeat"] * 60], lost=[(12, 1)], repeated=[], cuts=[5, 15, 60], exchanges=True)
@example(said=[["in a row"] * 30], lost=[(12, 1), (14, 2)], repeated=[10, 13], cuts=[50], exchanges=False)
@example(said=[["heartbeat"] * 60], lost=[(10, 1)], repeated=[10], cuts=[60], exchanges=True)
@example(said=[["heartbeat"] * 60], lost=[(12, 1)], repeated=[12], cuts=[60], exchanges=True)
@example(said=[REPEATED], lost=[(6, 1)], repeated=[], cuts=[60], exchanges=True)
@example(said=[AHEAD], lost=[(10, 1), (124, 1)], repeated=[], cuts=[60], exchanges=True)
def test_gaps_anywhere(
    said: list[list[str]], lost: list[tuple[int, int]], repeated: list[int], cuts: list[int], *, exchanges: bool
) -> None:
    """`lost`: where packets are missing, and how many. `repeated`: packets that are repeated at the end."""
    before, after = talks(said)
    again = [after[place]._replace(time_ns=after[-1].time_ns + 1) for place in repeated if place < len(after)]
    gone = {place + one for place, count in lost for one in range(count)}
    left = [*(one for place, one in enumerate(after) if place not in gone), *again]
    same(packets_of([before, left], cuts), exchanges=exchanges)


# -- connections that begin in the kernel -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", BEGINNINGS)
def test_a_connection_begins_the_same_in_any_batches(name: str) -> None:
    packets = together(BEGINNINGS[name], opened(40, "produce", "heartbeat"), opened(41, "fetch"))
    # Some of the cuts: all beginnings together cover every cut.
    place = list(BEGINNINGS).index(name)
    for ports in one_in(2, ((), (9092,)), place % 2):
        expected = run(ByPython, [batch(packets)], connections=True, ports=ports)
        step = fewer(8, 3)
        for cut in range(place // 2 % step, min(len(packets), 16), step):
            found = run(Inspector, cut_before(packets, [cut] if cut else []), connections=True, ports=ports)
            assert found == expected, cut


GREETINGS = ["versions", "versions refused", "versions of tomorrow", "versions in error"]
LATER = ["heartbeat", "produce", "versions", "acks 0", "no answer", "an answer first", "another id", "crossing"]


@given(
    said=st.lists(st.sampled_from(GREETINGS) | st.sampled_from(LATER), min_size=1, max_size=4),
    lost=st.lists(st.integers(0, 11), max_size=2),
    moved=st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=3),
    close=st.sampled_from([0x11, 0x14, None]),
    cuts=st.lists(st.integers(1, 15), max_size=2, unique=True),
)
@example(said=["versions", "versions refused"], lost=[], moved=[(3, 4)], close=0x11, cuts=[])
@example(said=["versions of tomorrow", "versions refused"], lost=[], moved=[(3, 4)], close=0x14, cuts=[7])
@example(said=["versions", "heartbeat"], lost=[3], moved=[], close=0x11, cuts=[])
def test_openings_out_of_order(
    said: list[str], lost: list[int], moved: list[tuple[int, int]], close: int | None, cuts: list[int]
) -> None:
    """Requests and responses of an opening overtake each other or are lost; `close`: flags of the end."""
    packets = opened(40, *said)
    shake, rest = packets[:3], packets[3:]
    for at in lost[: len(rest) - 1]:
        del rest[at % len(rest)]
    for begin, end in moved:
        rest.insert(end % len(rest), rest.pop(begin % len(rest)))
    packets = [*shake, *rest]
    if close is not None:
        packets = [one._replace(flags=close) if one.flags == 0x11 else one for one in ended(packets)]
    same(cut_before(packets, sorted(one for one in cuts if one < len(packets))), exchanges=True, connections=True)


# -- exchanges as columns ---------------------------------------------------------------------------------------------

MORE: dict[str, Say] = {
    "an API of tomorrow between others": exchange_of(
        lambda n: beats((n * 1000,)) + kafka.request(120, 0, n * 1000 + 1, b"whatever") + beats((n * 1000 + 2,)),
        lambda n: all_heard(range(n * 1000, n * 1000 + 3)),
        [60_000],
    ),
    "throttled before its response": exchange_of(
        lambda n: kafka.produce_request(n, "orders", RECORDS),
        lambda n: kafka.produce_response(n, "orders", n)[:-4] + kafka.int32(7),
    ),
    "throttled after its response": exchange_of(
        lambda n: kafka.produce_request(n, "orders", RECORDS, version=9),
        lambda n: kafka.produce_response(n, "orders", n, version=9)[:-5] + kafka.int32(5) + kafka.NO_TAGS,
    ),
}
MORE |= {f"said by {name}": said_by(name) for name in ("first", "second")}
MORE["a stranger"] = exchange_of(
    lambda n: kafka.request(120, 0, n, b"whatever", client_id="stranger"), lambda n: all_heard((n,))
)
MUTED = [*sorted(USUAL), *MORE, "error", "in a row", "crossing", "versions", "an API of tomorrow", "acks 0", "join"]


def in_columns(batches: Sequence[PacketBatch]) -> tuple[list[Any], dict[Any, Any]]:
    """Events, and the exchanges that are columns by connection and request: number, latency, and both waits."""
    inspector, finder = Inspector(connections=True), ExchangeFinder(kernel())
    events: list[Any] = []
    found: dict[Any, Any] = {}
    for one in batches:
        for emitted, columns in inspector.feed_columns(one, finder):
            events += emitted
            for pairs in columns:
                waits = (pairs.answered[name] for name in ("latency", "behind", "muted"))
                values = zip(pairs.asked["number"], *waits, strict=True)
                for asked, value in zip(pairs.asked, values, strict=True):
                    owner = pairs.owners[asked["connection"]]
                    assert owner is not None
                    key = owner.number, int(asked["time"]), int(asked["correlation"])
                    assert key not in found
                    found[key] = tuple(map(int, value))
    return [*events, *inspector.close()], found


def test_columns_are_made() -> None:
    """Else the test below would compare events with events."""
    events, found = in_columns(packets_of(talks([[*MORE, "crossing"] * 5] * 2, words=SAID | MORE), []))
    assert len(found) > 20
    assert any(behind for _, _, behind, _ in found.values())
    assert any(muted for *_, muted in found.values())
    assert any(isinstance(one, Exchange) for one in events)


@given(
    said=st.lists(st.lists(st.sampled_from(MUTED), min_size=4, max_size=25), min_size=1, max_size=3),
    cuts=st.lists(st.integers(0, 100), max_size=4),
    early=st.sets(st.integers(0, 60), max_size=8),
)
@example(said=[MUTED, MUTED[::-1]], cuts=[], early=set())
@example(said=[[*MORE, "heartbeat", "crossing", "error", "heartbeat"] * 5] * 2, cuts=[30, 60], early={8, 9, 20, 33})
@example(said=[["heartbeat", "crossing"] * 9], cuts=[], early={*range(4, 40, 7), *range(5, 40, 9)})
def test_exchanges_in_columns(said: list[list[str]], cuts: list[int], early: set[int]) -> None:
    """Numbers, waits for other exchanges, and what connections count, are those of exchanges one by one.

    `early`: packets with an earlier timestamp than the ones before.
    """
    before, after = talks(said, words=SAID | MORE)
    after = [one._replace(time_ns=one.time_ns - 450_000 * (at in early)) for at, one in enumerate(after)]
    batches = packets_of([before, after], cuts)
    expected = run(ByPython, batches, connections=True)
    events, found = in_columns(batches)
    ends = [one for one in events if isinstance(one, Connection)]
    assert ends == [one for one in expected if isinstance(one, Connection)]
    exchanges = {}
    for one in expected:
        if isinstance(one, Exchange) and one.request is not None:
            key = one.connection, one.request.time_ns, one.request.correlation_id
            exchanges[key] = (one.exchange, one.latency_ns, one.behind_ns or 0, one.muted_ns or 0)
    assert found.items() <= exchanges.items()
    emitted = [one for one in events if isinstance(one, Exchange) and one.request is not None]
    assert len(found) + len(emitted) == len(exchanges)
    alone = {(one.connection, one.request.time_ns, one.request.correlation_id): one for one in emitted if one.request}
    for key, one in alone.items():
        assert exchanges[key] == (one.exchange, one.latency_ns, one.behind_ns or 0, one.muted_ns or 0)
