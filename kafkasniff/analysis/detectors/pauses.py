"""Brokers that answer nothing for fractions of a second, again and again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.between_brokers import is_broker, is_work
from kafkasniff.analysis.columns import (
    ORDER,
    broker_endpoint,
    column,
    floor_divided,
    in_any,
    integers,
    only,
    order_columns,
)
from kafkasniff.analysis.detectors.silences import (
    LATE_NS,
    PART_NS,
    SLOT_NS,
    Answers,
    Owed,
    OwedResponses,
    Silence,
    without_leaders,
)
from kafkasniff.analysis.detectors.tally import BROKER, CLIENT, clients
from kafkasniff.analysis.detectors.ways import PAIR, ways
from kafkasniff.analysis.partials import Shape
from kafkasniff.analysis.waits import with_sender, work_us

PAUSE_NS: Final = SLOT_NS
"""Shortest pause that counts."""
_AUTHENTICATION: Final = ("SaslHandshake", "SaslAuthenticate")
HELD_US: Final = 20_000
"""A response this late may have waited for a part of the pause."""
EACH: Final = 8
"""Number of late responses of a broker that are kept for each time span, those with the earliest requests."""
ALONE: Final = 5
"""Pauses that are reported although one connection alone waited each time …"""
ALONE_SHARE: Final = 0.05
"""… for this share of the time, if fewer segments were sent again."""
SHORT_NS: Final = 2 * PART_NS
"""Shorter pauses count if several connections waited each time …"""
SHORT: Final = 20
"""… this often …"""
SHORT_SHARE: Final = 0.05
"""… for this share of the time."""
MAX_HELD: Final = 1 << 16
"""Maximum number of late responses that are kept, the earliest."""


class Pauses(msgspec.Struct, frozen=True):
    """The pauses of one broker."""

    broker: str
    each: list[Silence]
    """By time, without overlaps."""
    share: float
    """Part of the time between its first and last response."""

    @property
    def longest_ns(self) -> int:
        return max(one.until_ns - one.first_ns for one in self.each)

    @property
    def owed(self) -> list[Owed]:
        """What waited, by time."""
        return [one for pause in self.each for one in pause.owed]


def held_shapes() -> dict[str, Shape]:
    """For `Detector.shapes`."""
    order = tuple((name, pa.int64()) for name in ORDER)
    times = tuple((name, pa.int64()) for name in ("due_ns", "end_ns"))
    keys = (("slot", pa.int64()), *order, *CLIENT, *BROKER, ("api", pa.string()), *times, ("replicas", pa.bool_()))
    fastest: Any = (("fastest_us", pa.int64(), "min"),)
    return {
        "held": Shape(
            keys=keys, order=("slot", *ORDER), keep="earliest", group=("broker", "slot"), each=EACH, bound=MAX_HELD
        ),
        "fastest": Shape(keys=(*PAIR, ("api", pa.string()), ("replicas", pa.bool_())), measures=fastest),
    }


def add_held(detector: OwedResponses[Any], batch: pa.RecordBatch) -> None:
    """Add rows of the table `exchanges`."""
    batch = only(batch, pc.and_(pc.is_valid(column(batch, "latency_us")), pc.is_valid(column(batch, "time_ns"))))
    pair = {"client_ip": column(batch, "client_ip"), "broker": broker_endpoint(batch)}
    replicas = pc.fill_null(pc.equal(column(batch, "waits_for"), "replicas"), False)
    kind = {"api": with_sender(batch), "replicas": replicas}
    detector.parts["fastest"].add({**pair, **kind, "fastest_us": column(batch, "latency_us")})
    work = work_us(batch)
    # Brokers let clients wait whose authentication fails; what was sent again was late for the network.
    mask = (work >= HELD_US) & ~in_any(batch, "api", _AUTHENTICATION).to_numpy(zero_copy_only=False)
    mask &= integers(column(batch, "retransmits")) == 0
    batch, work = only(batch, pa.array(mask)), work[mask]
    kind = {name: values.filter(pa.array(mask)) for name, values in kind.items()}
    end = pc.add(column(batch, "time_ns"), pc.multiply(column(batch, "latency_us"), 1000))
    detector.parts["held"].add(
        {
            "slot": floor_divided(end, SLOT_NS),
            **order_columns(batch),
            **clients(batch, broker=True),
            **kind,
            "due_ns": integers(end) - work * 1000,
            "end_ns": end,
        }
    )


def repeated_pauses(detector: OwedResponses[Any], *, connections: int, times: int, share: float) -> list[Pauses]:
    """Brokers that paused this many times, while this many connections waited each time, for this share of the time.

    Or more often and for longer, while one client's connection waited.

    A response is due when the fastest one to the same address could be there. Responses that waited in a queue of the
    network do not count.
    """
    fastest: dict[tuple[Any, ...], int] = {}
    """By address and broker, and also by kind of request."""
    for row in detector.parts["fastest"].table().to_pylist():
        pair, took = (row["client_ip"], row["broker"]), row["fastest_us"] * 1000
        fastest[pair] = min(fastest.get(pair, took), took)
        fastest[*pair, row["api"], row["replicas"]] = took
    known = ways(detector)
    queued = {pair for pair, way in known.items() if way.queued}
    owed: list[Owed] = []
    beyond: list[Owed] = []
    """Requests that waited for longer than the fastest to the same address, and than the fastest of their kind."""
    for row in detector.parts["held"].table().to_pylist():
        pair = row["client_ip"], row["broker"]
        for waited, kind in ((owed, pair), (beyond, (*pair, row["api"], row["replicas"]))):
            due = row["due_ns"] + fastest.get(kind, 0)
            if due < row["end_ns"] and pair not in queued:
                waited.append(Owed(row, row["broker"], row["connection_id"], due, row["end_ns"], row["replicas"]))
    answers = Answers(detector)
    every = answers.missing(owed, PAUSE_NS)
    together = without_leaders([one for one in every if one.connections >= connections], owed)
    found = _by_broker(together, answers, times, share)
    # One connection alone may wait for many reasons; responses that are later than this are reported one by one.
    pausing = {one.broker for one in found}
    alone = [
        one
        for one in every
        if pausing.isdisjoint(one.brokers) and one.until_ns - one.first_ns < LATE_NS and all(map(_is_work, one.owed))
    ]
    for pauses in _by_broker(without_leaders(alone, owed), answers, max(times, ALONE), max(share, ALONE_SHARE)):
        pairs = {(one.row["client_ip"], one.broker) for one in pauses.owed}
        if sum(known[pair].again for pair in pairs & known.keys()) < len(pauses.each):
            found.append(pauses)
    pausing = {one.broker for one in found}
    short = [
        one
        for one in answers.missing((one for one in beyond if _is_work(one)), SHORT_NS, fine=True)
        if one.connections >= connections and pausing.isdisjoint(one.brokers)
    ]
    return [*found, *_by_broker(without_leaders(short, beyond), answers, max(times, SHORT), max(share, SHORT_SHARE))]


def _by_broker(pauses: Iterable[Silence], answers: Answers, times: int, share: float) -> list[Pauses]:
    """Pauses that are over, of brokers with at least `times` of them for at least `share` of the time."""
    by_broker: dict[str, list[Silence]] = {}
    for pause in pauses:
        if pause.back_ns is not None:
            by_broker.setdefault(pause.brokers[0], []).append(pause)
    every = [
        Pauses(broker, some, sum(one.until_ns - one.first_ns for one in some) / max(answers.lasted_ns(broker), 1))
        for broker, some in by_broker.items()
    ]
    return [one for one in every if len(one.each) >= times and one.share >= share]


def _is_work(one: Owed) -> bool:
    """Whether a client waited for records, offsets or members, not a broker."""
    api = one.row["api"]
    return api is not None and " " not in api and is_work(api) and not is_broker(one.row["client_id"], ())
