"""Exchanges of crafted captures whose every time is known, and of real ones; their phases and vantage points."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.capture import open_captures
from kafkasniff.engine.inspector import Inspector
from kafkasniff.enrich import Enricher
from kafkasniff.model import NO_TIME
from kafkasniff.native import kernel
from kafkasniff.native.streams import UNKNOWN, Network
from kafkasniff.packets import PacketBatch
from kafkasniff.sinks.native_lines import AddedNames
from kafkasniff.tables.rows.exchange_columns import ExchangeFinder
from kafkasniff.timing import (
    PARTS,
    ExchangeNetwork,
    ExchangeTimes,
    Marks,
    Timed,
    TimedColumns,
    TimeParts,
    Wait,
    Waits,
)
from kafkasniff.timing import (
    split as split_in_phases,
)
from kafkasniff.timing.exchanges import DurationRange, Vantages, unknown_of
from tests.choice import one_in
from tests.conftest import ROOT
from tests.craft import kafka_bytes as kafka
from tests.craft.batches import batch
from tests.craft.conversation import interleaved
from tests.craft.from_layout import request_bytes, response_bytes
from tests.craft.packet import Packet
from tests.kernel.followers import split
from tests.timing.timeline import MS, Timeline


def columns_of(batches: Sequence[PacketBatch], *, finds: bool = False) -> list[TimedColumns]:
    """The exchanges of each batch; `finds`: most of them as columns, in no particular order."""
    inspector = Inspector(connections=True, records="batches", network="exchanges")
    times = ExchangeTimes(inspector)
    finder = ExchangeFinder(kernel(), names=AddedNames(Enricher(sessions=False)))
    found = []
    for each in batches:
        for events, columns in inspector.feed_columns(each, finder if finds else None):
            times.take(events)
            if not events:
                found.append(times.finish(columns))
    for events in inspector.close_slices():
        if times.is_full:
            found.append(times.finish())
        times.take(events)
    found.append(times.finish())
    return [one for one in found if one is not None]


def timed(batches: Sequence[PacketBatch], *, finds: bool = False) -> list[Timed]:
    return [each.one(row) for each in columns_of(batches, finds=finds) for row in range(len(each))]


def of(packets: Sequence[Packet]) -> list[Timed]:
    """The same one by one, as columns, and packet by packet."""
    found = timed([batch(packets)])
    for batches in ([batch(packets)], list(split(batch(packets), itertools.repeat(1)))):
        again = timed(batches, finds=True)
        assert sorted(map(_facts, again), key=_KEY) == sorted(map(_facts, found), key=_KEY)
    return found


def parts(one: Timed) -> dict[str, float]:
    """The parts that took any time, in milliseconds."""
    names = (*PARTS, "throttled", "may_wait")
    return {name: getattr(one.parts, name) / MS for name in names if getattr(one.parts, name)}


def asked(number: int) -> bytes:
    return kafka.metadata_request(number, ["orders"])


def answered(number: int) -> bytes:
    return kafka.metadata_response(number, "broker", 9092, ["orders"])


def test_think_network_broker_and_transfers() -> None:
    line = Timeline()
    line.open(4, 0.02)
    request, response = asked(1), answered(1)
    line.data("client", 10, request[:20])
    line.data("client", 13, request[20:])
    line.data("broker", 50, response[:30])
    line.data("broker", 52, response[30:])
    line.data("client", 152, asked(2))
    line.data("broker", 155, answered(2))
    first, second = of(line.packets)
    assert parts(first) == {"request": 3, "network": 4, "broker": 33, "response": 2}
    # The way back and forth took less this time than in the handshake, but that is not known before it is measured.
    assert parts(second) == {"think": 100, "network": 3}
    assert first.network is not None
    assert first.network.vantage == "client"
    assert unknown_of(first) == ("beyond-least",)


def test_waiting_for_data() -> None:
    """`fetch_request` asks for one byte at least within 500 ms."""
    records = kafka.record_batch([kafka.record(0, b"k", b"v")], 7)
    line = Timeline()
    line.open(1, 1)
    line.data("client", 10, kafka.fetch_request(1, "orders", 7))
    line.data("broker", 513, kafka.fetch_response(1, "orders", b"", 7))
    line.data("client", 520, kafka.fetch_request(2, "orders", 7))
    line.data("broker", 620, kafka.fetch_response(2, "orders", records, 8))
    empty, full = of(line.packets)
    assert parts(empty) == {"network": 1, "wait": 500, "broker": 2}
    assert empty.parts.reason == "data"
    assert parts(full) == {"think": 7, "network": 1, "broker": 99, "may_wait": 99}
    assert "wait" in unknown_of(full)


def test_throttled_by_version() -> None:
    """Produce v9: the broker answers at once and does not read for 200 ms. Produce v3: it holds the answer back."""

    def talk(version: int, answer_ms: float) -> list[Timed]:
        line = Timeline()
        line.open(0.01, 0.01)
        data = kafka.record_batch([kafka.record(0, b"k", b"v")])
        line.data("client", 10, kafka.produce_request(1, "orders", data, version=version, acks=1))
        line.data("broker", 10 + answer_ms, response_bytes(0, version, 1, throttle_time_ms=200))
        line.data("client", 110 + answer_ms, asked(2))
        line.data("broker", 260 + answer_ms, answered(2))
        return of(line.packets)

    first, second = talk(9, 5)
    assert parts(first) == {"network": 0.01, "broker": 4.99}
    assert parts(second) == {"think": 100, "throttled": 100, "muted": 100, "network": 0.01, "broker": 49.99}
    assert (first.throttle_ms, second.throttle_ms) == (200, 0)
    first, second = talk(3, 205)
    assert parts(first) == {"held": 200, "network": 0.01, "broker": 4.99}
    assert parts(second) == {"think": 100, "network": 0.01, "broker": 149.99}
    # A newer broker and an old client: it came too soon to have been held back.
    first, second = talk(3, 5)
    assert "held" not in parts(first)
    assert parts(second)["muted"] == 100


def test_members_of_a_group_wait() -> None:
    line = Timeline()
    line.open(0.01, 0.01)
    line.data("client", 10, request_bytes(11, 5, 1, group_id="g", rebalance_timeout_ms=60_000))
    line.data("broker", 3010, response_bytes(11, 5, 1))
    line.data("client", 3011, request_bytes(14, 3, 2, group_id="g"))
    line.data("broker", 3050, response_bytes(14, 3, 2))
    join, sync = of(line.packets)
    assert parts(join) == {"network": 0.01, "wait": 2999.99}
    assert parts(sync) == {"think": 1, "network": 0.01, "wait": 38.99}
    assert (join.parts.reason, sync.parts.reason) == ("members", "leader")


def test_vantages() -> None:
    near, far = Timeline(client=("10.0.0.5", 50_001)), Timeline(client=("10.0.0.5", 50_002))
    near.open(8, 0.01)
    far.open(0.02, 20)
    for line in (near, far):
        line.data("client", 50, asked(1))
        line.data("broker", 60, answered(1))
        line.data("client", 70, asked(2))
        line.data("broker", 80, answered(2))
    vantages = Vantages()
    packets = batch(interleaved([near, far]))
    for columns in columns_of([packets]):
        vantages.take(columns)
    found = timed([packets])
    assert (vantages.connections, vantages.counts, vantages.unknown) == (2, {"client": 1, "broker": 1}, 0)
    assert vantages.to_broker == DurationRange(20_000, 8 * MS)
    assert vantages.to_client == DurationRange(10_000, 20 * MS)
    assert sorted(unknown_of(one) for one in found)[-1] == ("beyond-least", "client-side")


_KEY = itemgetter(0, 1)


def _facts(one: Timed) -> tuple[Any, ...]:
    return (
        one.exchange.exchange_id,
        one.exchange.connection_id,
        one.exchange.exchange,
        one.wait,
        one.marks,
        one.parts,
        one.client_trouble,
        one.broker_trouble,
    )


def _shipped(name: str, rows: int) -> list[PacketBatch]:
    batches = []
    with open_captures([str(ROOT / "captures" / f"{name}.pcap")]) as source:
        for each in source:
            batches += split(each, itertools.repeat(rows))
    return batches


@pytest.mark.parametrize(
    ("name", "rows"), one_in(2, [("java-group-classic", 1), ("java-errors", 5), ("librdkafka-1.4", 11)], 1)
)
def test_batches_change_nothing(name: str, rows: int) -> None:
    whole, pieces = timed(_shipped(name, 1 << 20)), timed(_shipped(name, rows))
    assert [_facts(one) for one in whole] == [_facts(one) for one in pieces]
    as_columns = timed(_shipped(name, 1 << 20), finds=True)
    assert sorted(map(_facts, as_columns), key=_KEY) == sorted(map(_facts, whole), key=_KEY)
    done = [one for one in whole if one.marks is not None]
    assert len(done) > 20
    for one in done:
        assert one.marks is not None
        total = sum(getattr(one.parts, name) or 0 for name in PARTS if name != "think")
        assert total == one.exchange.duration_ns == one.marks.response_done - one.marks.request_first
        assert one.exchange.latency_ns == one.marks.response_first - one.marks.request_done
        assert one.exchange.retransmits >= one.client_trouble.again + one.broker_trouble.again


def test_exchanges_that_end_with_the_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same whether the engine leaves all connections at once or one by one."""
    begun = _shipped("kraft-three-brokers", 188)[:1]
    found = [columns_of(begun)]
    monkeypatch.setattr("kafkasniff.engine.stream_feeding.ENDED_AT_ONCE", 1)
    found.append(columns_of(begun))
    assert [len(one) for one in found] == [2, 3]
    together, apart = ([_facts(each.one(row)) for each in one for row in range(len(each))] for one in found)
    assert together == apart


def network(broker: float, client: float) -> ExchangeNetwork:
    """With these durations of the handshake in ms."""
    handshake = [UNKNOWN if one < 0 else round(one * MS) for one in (broker, client)]
    nothing = [0, 0]
    return ExchangeNetwork.of(Network(handshake, [5, UNKNOWN], *[NO_TIME] * 4, *[nothing] * 5))


@pytest.mark.parametrize(
    ("broker_ms", "client_ms", "vantage"),
    [
        *((12, 0.02, "client"), (0.05, 12, "broker"), (6, 7, "between"), (0.03, 0.02, "anywhere")),
        *((6, -1, None), (-1, 6, None)),
    ],
)
def test_the_handshake_tells_where_the_capture_was_made(broker_ms: float, client_ms: float, vantage: str) -> None:
    assert network(broker_ms, client_ms).vantage == vantage


class One(NamedTuple):
    """The marks of one exchange."""

    request_first: int
    request_done: int
    response_first: int
    response_done: int
    before_done: int | None = None
    quiet_since: int | None = None
    resent_at: int | None = None
    muted_until: int | None = None


def parts_of(marks: One, *, network: int | None, wait: Wait | None, throttle_ns: int, at_once: bool) -> TimeParts:
    columns = Marks(*(np.array([NO_TIME if one is None else one], np.int64) for one in marks))
    found = split_in_phases(
        columns,
        network=np.array([UNKNOWN if network is None else network]),
        waits=Waits.of([wait]),
        throttle_ns=np.array([throttle_ns]),
        at_once=np.array([at_once]),
    )
    return found.one(0, wait)


TIMES = st.integers(0, 1000)


MAYBE = st.none() | TIMES


@given(st.lists(TIMES, min_size=4, max_size=4).map(sorted), st.tuples(MAYBE, MAYBE, MAYBE, MAYBE), TIMES, st.booleans())
def test_parts_add_up_to_the_duration(
    times: list[int], others: tuple[int | None, ...], throttle: int, at_once: bool
) -> None:
    before, muted, network, limit = others
    resent = times[1] + throttle % 7 if throttle % 3 else None
    wait = None if limit is None else Wait("data", limit, sure=bool(limit % 2))
    marks = One(*times, before, before, resent, muted)
    found = parts_of(marks, network=network, wait=wait, throttle_ns=throttle, at_once=at_once)
    values = [getattr(found, name) for name in PARTS if name != "think"]
    assert sum(values) == times[3] - times[0]
    assert min(values) >= 0
    assert 0 <= found.may_wait <= found.broker  # type: ignore[operator]
    assert 0 <= found.throttled <= (found.think or 0)
