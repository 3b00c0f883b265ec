"""Brokers that answer nothing for fractions of a second, again and again."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.columns import ORDER, broker_endpoint, column, floor_divided, integers, only, order_columns
from kafkasniff.analysis.detectors.silences import SLOT_NS, Answers, Owed, OwedResponses, Silence, without_leaders
from kafkasniff.analysis.detectors.tally import BROKER, CLIENT, clients
from kafkasniff.analysis.detectors.ways import PAIR, ways
from kafkasniff.analysis.partials import Shape
from kafkasniff.analysis.waits import with_sender, work_us

__all__ = ["PAUSE_NS", "Pauses", "add_held", "held_shapes", "repeated_pauses"]

PAUSE_NS: Final = SLOT_NS
"""Shortest pause that counts."""
HELD_US: Final = 20_000
"""A response this late may have waited for a part of the pause."""
EACH: Final = 8
"""Number of late responses of a broker that are kept for each time span, those with the earliest requests."""
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
        "fastest": Shape(keys=PAIR, measures=fastest),
    }


def add_held(detector: OwedResponses[Any], batch: pa.RecordBatch) -> None:
    """Add rows of the table `exchanges`."""
    batch = only(batch, pc.and_(pc.is_valid(column(batch, "latency_us")), pc.is_valid(column(batch, "time_ns"))))
    pair = {"client_ip": column(batch, "client_ip"), "broker": broker_endpoint(batch)}
    detector.parts["fastest"].add({**pair, "fastest_us": column(batch, "latency_us")})
    work = work_us(batch)
    mask = work >= HELD_US
    batch, work = only(batch, pa.array(mask)), work[mask]
    end = pc.add(column(batch, "time_ns"), pc.multiply(column(batch, "latency_us"), 1000))
    detector.parts["held"].add(
        {
            "slot": floor_divided(end, SLOT_NS),
            **order_columns(batch),
            **clients(batch, broker=True),
            "api": with_sender(batch),
            "due_ns": integers(end) - work * 1000,
            "end_ns": end,
            "replicas": pc.fill_null(pc.equal(column(batch, "waits_for"), "replicas"), False),
        }
    )


def repeated_pauses(detector: OwedResponses[Any], *, connections: int, times: int, share: float) -> list[Pauses]:
    """Brokers that paused this many times, while this many connections waited each time, for this share of the time.

    A response is due when the fastest one to the same address could be there. Responses that waited in a queue of the
    network do not count.
    """
    fastest = {
        (row["client_ip"], row["broker"]): row["fastest_us"] * 1000
        for row in detector.parts["fastest"].table().to_pylist()
    }
    queued = {pair for pair, way in ways(detector).items() if way.queued}
    owed = []
    for row in detector.parts["held"].table().to_pylist():
        pair = row["client_ip"], row["broker"]
        due = row["due_ns"] + fastest.get(pair, 0)
        if due < row["end_ns"] and pair not in queued:
            owed.append(Owed(row, row["broker"], row["connection_id"], due, row["end_ns"], row["replicas"]))
    answers = Answers(detector)
    found = [one for one in answers.missing(owed, PAUSE_NS) if one.connections >= connections]
    by_broker: dict[str, list[Silence]] = {}
    for pause in without_leaders(found, owed):
        if pause.back_ns is not None:
            by_broker.setdefault(pause.brokers[0], []).append(pause)
    every = [
        Pauses(broker, some, sum(one.until_ns - one.first_ns for one in some) / max(answers.lasted_ns(broker), 1))
        for broker, some in by_broker.items()
    ]
    return [one for one in every if len(one.each) >= times and one.share >= share]
