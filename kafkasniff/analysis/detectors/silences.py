"""Times in which a broker answered nothing, although it owed responses, and short ones that repeat (pauses)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import Parameters, TableReading
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
from kafkasniff.analysis.detectors.connections import add_gaps, gap_shapes, gaps_of
from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.analysis.detectors.paths import (
    WAY_COLUMNS,
    add_stalls,
    add_ways,
    outages,
    stalls_shapes,
    ways,
    ways_shapes,
)
from kafkasniff.analysis.detectors.tally import BROKER, CLIENT, CLIENT_COLUMNS, PAIR, clients, pairs
from kafkasniff.analysis.partials import Shape
from kafkasniff.analysis.waits import WAIT_COLUMNS, Integers, excused_us, may_have_waited, with_sender, work_us
from kafkasniff.tables.rows.transport import TABLE as TRANSPORT

P = TypeVar("P", bound=Parameters)
LATE_NS: Final = 1_000_000_000
CONNECTIONS: Final = 2
SILENT_NS: Final = 5_000_000_000
"""Default thresholds of late-answers."""
MAX_REQUESTS: Final = 100_000
"""Maximum number of requests that were not answered in time that are examined, the earliest."""
SLOT_NS: Final = 200_000_000
"""A broker's first and last response are remembered for each span of this length, so no longer pause is missed."""
PARTS: Final = 10
"""Each such span has this many parts; responses are counted in each of them …"""
PART_NS: Final = SLOT_NS // PARTS
DIGITS: Final = 12
"""… as digits of this many bits of two numbers, which are sums. A broker that answers more is not silent anyway."""
GAP_NS: Final = 10_000_000_000
"""For this long after a gap in a connection, a request may wait for one that is not in the capture."""
MAX_SLOTS: Final = 1 << 19
"""Maximum number of such spans that are remembered, the earliest."""
MAX_PAUSES: Final = 64
"""Maximum number of a broker's pauses that are examined for one request."""
FOREVER: Final = (1 << 63) - 1
_HALVES: Final = ("early", "late")
_HALF: Final = PARTS // len(_HALVES)

_Gaps = tuple[Integers, Integers, npt.NDArray[np.bool_]]
"""Beginnings and ends of times, and whether the capture ends with it."""


class Owed(msgspec.Struct, frozen=True):
    """A request whose response was due for a while. Times are ns since the epoch."""

    row: dict[str, Any]
    broker: str
    connection_id: int
    due_ns: int | None
    """When its own wait was over, and the fastest response could be here; None: there are no times."""
    end_ns: int | None
    """When it was answered, or its connection or the capture ended; None: unknown."""
    replicas: bool
    """It asks the broker to wait for its followers (acks=all)."""

    @property
    def overdue_ns(self) -> int:
        """For how long the response was due; 0 if that is unknown."""
        return self.overdue_between(0, FOREVER)

    def overdue_between(self, first_ns: int, until_ns: int) -> int:
        """The same within a time."""
        if self.due_ns is None or self.end_ns is None:
            return 0
        return max(min(self.end_ns, until_ns) - max(self.due_ns, first_ns), 0)


class Silence(msgspec.Struct, frozen=True):
    """A time in which some brokers answered nothing."""

    brokers: tuple[str, ...]
    """Several only if they may have waited for each other."""
    first_ns: int
    back_ns: int | None
    """Its next response; None: there was none until the end of the capture."""
    until_ns: int
    """Until then it owed responses: the same, or the end of the last connection or of the capture."""
    owed: list[Owed]
    """What waited, by time."""
    replicas: bool
    """All of them wait for followers: one of these may be the one that was silent."""
    waiting: tuple[str, ...] = ()
    """Leaders that were silent only because they waited for followers meanwhile."""

    @property
    def connections(self) -> int:
        """Number of connections that waited."""
        return len({owed.connection_id for owed in self.owed})

    def explains(self, one: Owed) -> bool:
        """Whether it explains most of the time for which a response was due, from itself or from a leader."""
        concerned = one.broker in self.brokers or (one.replicas and not self.replicas)
        return concerned and 0 < one.overdue_ns <= 2 * one.overdue_between(self.first_ns, self.until_ns)


class OwedResponses(Detector[P]):
    """A detector that needs to know which responses were late or missing, and which silences explain them."""

    def reads(self) -> Mapping[str, TableReading]:
        own = (
            "latency_us",
            "duration_us",
            "retransmits",
            "status",
            "error_count",
            *CLIENT_COLUMNS,
            "broker_ip",
            "broker_port",
            *WAIT_COLUMNS,
        )
        transport = ("connection_id", "time_ns", "end_time_ns", *WAY_COLUMNS, "ended_by", "ended_ns", "stalls")
        return {
            "exchanges": TableReading((*ORDER, *own)),
            "connections": TableReading(
                ("connection_id", "end_time_ns", "unanswered", "captured", "broker_ip", "broker_port"), optional=True
            ),
            TRANSPORT: TableReading(transport, optional=True),
            "problems": TableReading(("connection_id", "time_ns", "kind"), optional=True),
        }

    def shapes(self) -> Mapping[str, Shape]:
        order = tuple((name, pa.int64()) for name in ORDER)
        text = tuple((name, pa.string()) for name in ("api", "status"))
        times = tuple((name, pa.int64()) for name in ("due_ns", "end_ns", "late_us", "muted_us"))
        flags = tuple((name, pa.bool_()) for name in ("replicas", "lost", "failed"))
        keys = (*order, *CLIENT, *BROKER, *text, *times, *flags)
        high: Any = ("end_ns", pa.int64(), "max")
        one: Any = (("one", pa.int8()),)
        counts: Any = tuple((half, pa.int64(), "sum") for half in _HALVES)
        span: Any = (("first", pa.int64(), "min"), ("last", pa.int64(), "max"), *counts)
        connection: Any = (("connection_id", pa.int64()),)
        return {
            **stalls_shapes(),
            **ways_shapes(),
            "owed": Shape(keys=keys, order=ORDER, keep="earliest", bound=MAX_REQUESTS),
            "answers": Shape(
                keys=(("slot", pa.int64()), *BROKER),
                measures=span,
                order=("slot", "broker"),
                keep="earliest",
                bound=MAX_SLOTS,
            ),
            "whole": Shape(keys=one, measures=(high, ("answered", pa.int64(), "sum"))),
            "connections": Shape(keys=connection, measures=(high,), bound=MAX_REQUESTS),
            "heard": Shape(keys=BROKER, measures=(("count", pa.int64(), "sum"),), weight="count", bound=MAX_REQUESTS),
            "left": Shape(keys=connection, measures=(high,), bound=MAX_REQUESTS),
            "last": Shape(keys=connection, measures=(high,), bound=MAX_REQUESTS),
            **gap_shapes(),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        if table == TRANSPORT:
            add_stalls(self, batch)
            add_ways(self, batch)
            batch = only(batch, in_any(batch, "ended_by", ("client",)))
            left = {"connection_id": column(batch, "connection_id"), "end_ns": column(batch, "ended_ns")}
            self.parts["left"].add(left)
        elif table == "problems":
            add_gaps(self, batch)
        elif table == "connections":
            end = column(batch, "end_time_ns")
            # Acknowledgements of the broker's data would show that responses are missing (`lost`).
            self._whole(end, pc.sum(in_any(batch, "captured", ["both"])).as_py() or 0)
            mask = pc.greater(column(batch, "unanswered"), 0)
            ends = {"connection_id": column(batch, "connection_id").filter(mask), "end_ns": end.filter(mask)}
            self.parts["connections"].add(ends)
            heard = only(batch, in_any(batch, "captured", ["both"]))
            self.parts["heard"].add({"broker": broker_endpoint(heard), "count": np.ones(heard.num_rows, np.int64)})
        else:
            self._exchanges(batch)

    def _whole(self, times: pa.Array, answered: int) -> None:
        self.parts["whole"].add({"one": [0], "end_ns": [pc.max(times).as_py()], "answered": [answered]})

    def _exchanges(self, batch: pa.RecordBatch) -> None:
        lasted = pc.max_element_wise(pc.fill_null(column(batch, "duration_us"), 0), pa.scalar(0, pa.int64()))
        over = pc.add(column(batch, "time_ns"), pc.multiply(lasted, 1000))
        self._whole(over, pc.sum(in_any(batch, "status", ["answered", "orphan"])).as_py() or 0)
        time = pc.add(column(batch, "time_ns"), pc.multiply(column(batch, "latency_us"), 1000))
        known = pc.is_valid(time)
        time = time.filter(known)
        slot = floor_divided(time, SLOT_NS)
        broker = broker_endpoint(batch).filter(known)
        self.parts["answers"].add({"slot": slot, "broker": broker, "first": time, "last": time, **_in_parts(time)})
        waited = may_have_waited(batch).filter(known)
        connection = column(batch, "connection_id").filter(known).filter(waited)
        self.parts["last"].add({"connection_id": connection, "end_ns": time.filter(waited)})
        missing = in_any(batch, "status", ["unanswered", "open"])
        long = pc.fill_null(pc.greater_equal(column(batch, "latency_us"), self.kept_ns // 1000), False)
        batch = only(batch, pc.or_(missing, long))
        if not batch.num_rows:
            return
        late = work_us(batch)
        mask = (late >= self.kept_ns // 1000) | in_any(batch, "status", ["unanswered", "open"]).to_numpy(False)
        batch, late = only(batch, pa.array(mask)), late[mask]
        time = column(batch, "time_ns")
        self.parts["owed"].add(
            {
                **order_columns(batch),
                **clients(batch, broker=True),
                "api": with_sender(batch),
                "status": column(batch, "status"),
                "due_ns": pc.add(time, pa.array(excused_us(batch) * 1000)),
                "end_ns": pc.add(time, pc.multiply(column(batch, "latency_us"), 1000)),
                "late_us": late,
                "muted_us": pc.fill_null(column(batch, "muted_us"), 0),
                "replicas": pc.fill_null(in_any(batch, "waits_for", ["replicas"]), False),
                "lost": pc.fill_null(pc.greater(column(batch, "retransmits"), 0), False),
                "failed": pc.fill_null(pc.greater(column(batch, "error_count"), 0), False),
            }
        )

    @property
    def kept_ns(self) -> int:
        """Responses that came this long after they were due are examined."""
        return LATE_NS

    def owed(self) -> list[Owed]:
        """The requests whose responses were late or missing, by time, without those that an outage explains.

        Nor those near a gap: what the broker was doing meanwhile, or its response, may be in it.
        """
        end = self.end_ns
        ends = {row["connection_id"]: row["end_ns"] for row in self.parts["connections"].table().to_pylist()}
        stuck: dict[int, list[tuple[int, int]]] = {}
        for outage in outages(self, LATE_NS):
            for row in outage.rows:
                stuck.setdefault(row["connection_id"], []).append((row["since"], row["until"]))
        for connection, gaps in gaps_of(self).items():
            stuck.setdefault(connection, []).extend((gap - 1, gap + GAP_NS) for gap in gaps)
        for connection, times in gaps_of(self, resynced=True).items():
            stuck.setdefault(connection, []).extend((time - 1, time + 1) for time in times)
        found = []
        known = ways(self)
        last = {row["connection_id"]: row["end_ns"] for row in self.parts["last"].table().to_pylist()}
        table = self.parts["owed"].table()
        for row in table.take(pc.sort_indices(table, sort_keys=[(name, "ascending") for name in ORDER])).to_pylist():
            time, over = row["time_ns"], row["end_ns"]
            if over is None:
                over = end if row["status"] == "open" else ends.get(row["connection_id"])
            spans = stuck.get(row["connection_id"], ())
            if time is None or over is None or not any(min(over, b) > max(time, a) for a, b in spans):
                due, way = row["due_ns"], known.get((row["client_ip"], row["broker"]))
                if due is not None and row["end_ns"] is None:
                    # Until then, an earlier request of the connection let the broker wait.
                    due = max(due, last.get(row["connection_id"]) or due)
                if way is not None:
                    due = None if due is None else due + way.to_broker
                    row["late_us"] = max(row["late_us"] - way.to_broker // 1000, 0)
                found.append(Owed(row, row["broker"], row["connection_id"], due, over, row["replicas"]))
        return found

    @property
    def end_ns(self) -> int | None:
        """Time of the last packet that is known; None: there are no times."""
        end: int | None = pc.max(self.parts["whole"].table().column("end_ns")).as_py()
        return end


def silences(
    detector: OwedResponses[Any],
    owed: Sequence[Owed],
    *,
    late_ns: int = LATE_NS,
    connections: int = CONNECTIONS,
    silent_ns: int = SILENT_NS,
) -> list[Silence]:
    """Find those of at least `late_ns` in which `connections` waited, or that lasted for `silent_ns`.

    Requests that had to be sent again do not count: a kernel acknowledges what it has, even if its broker stands still.
    Brokers that only owe responses to requests with acks=all may wait for a follower. They are not reported if another
    broker is silent meanwhile and owes something else.
    """
    answers = Answers(detector)
    owed = [one for one in owed if one.overdue_ns >= late_ns and not one.row["lost"]]
    # One connection alone may have waited for what its error names.
    found = [
        silence
        for silence in answers.missing(owed, late_ns)
        if silence.connections >= connections
        or (silence.until_ns - silence.first_ns >= silent_ns and not all(owed.row["failed"] for owed in silence.owed))
    ]
    return without_leaders(found, owed)


class Answers:
    """When brokers answered anything."""

    def __init__(self, detector: OwedResponses[Any]) -> None:
        part = detector.parts["answers"]
        rows = part.table().sort_by("slot").to_pylist()
        self._end_ns = detector.end_ns
        if part.lost.rows and rows and self._end_ns is not None:
            self._end_ns = min(self._end_ns, rows[-1]["last"])  # what follows is unknown
        self._slots: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            self._slots.setdefault(row["broker"], []).append(row)
        # A broker that never answered: its packets without data prove that responses would be in the capture.
        for row in detector.parts["heard"].table().to_pylist():
            self._slots.setdefault(row["broker"], [])

    def lasted_ns(self, broker: str) -> int:
        """Time between its first and its last response."""
        slots = self._slots.get(broker)
        return int(slots[-1]["last"] - slots[0]["first"]) if slots else 0

    def _gaps(self, broker: str, fine: bool) -> _Gaps:
        """Times between responses of a broker."""
        slots = self._slots.get(broker)
        if slots is None or (fine and not slots):
            none = np.empty(0, np.int64)
            return none, none, none.astype(np.bool_)
        if fine:
            parts = np.array([slot["slot"] * PARTS + part for slot in slots for part in _parts(slot)], np.int64)
            return (parts[:-1] + 1) * PART_NS, parts[1:] * PART_NS, np.zeros(len(parts) - 1, np.bool_)
        starts = np.array([0, *(row["last"] for row in slots)], np.int64)
        end = max([self._end_ns or 0, *(row["last"] for row in slots[-1:])])
        ends = np.array([*(row["first"] for row in slots), end], np.int64)
        return starts, ends, np.arange(len(ends)) == len(ends) - 1

    def missing(self, owed: Iterable[Owed], at_least_ns: int, *, fine: bool = False) -> list[Silence]:
        """Times of at least `at_least_ns` in which a broker that owed these responses answered nothing, in order.

        `fine`: also those within a slot, in whole parts of it, and only those that are over.
        """
        if self._end_ns is None:
            return []
        by_broker: dict[str, list[Owed]] = {}
        for one in owed:
            by_broker.setdefault(one.broker, []).append(one)
        found = [
            silence
            for broker, some in by_broker.items()
            for silence in _of_broker(broker, some, self._gaps(broker, fine), at_least_ns)
        ]
        return sorted(found, key=lambda one: (one.first_ns, one.brokers))


def _in_parts(times: pa.Array) -> dict[str, Integers]:
    """A response at each of these times, as digits of the halves of its slot."""
    part = integers(times) % SLOT_NS // PART_NS
    digit = np.left_shift(1, DIGITS * (part % _HALF))
    return {half: np.where(part // _HALF == index, digit, 0) for index, half in enumerate(_HALVES)}


def _parts(slot: Mapping[str, Any]) -> list[int]:
    """The parts of a slot in which there was a response."""
    digits = ((slot[half] >> (DIGITS * place)) % (1 << DIGITS) for half in _HALVES for place in range(_HALF))
    return [part for part, digit in enumerate(digits) if digit]


def _of_broker(broker: str, owed: Sequence[Owed], gaps: _Gaps, at_least_ns: int) -> Iterable[Silence]:
    starts, ends, is_last = gaps
    long = ends - starts >= at_least_ns
    starts, ends, is_last = starts[long], ends[long], is_last[long]
    pauses: dict[int, list[Owed]] = {}
    for one in owed:
        first, last = bisect_right(ends, one.due_ns), bisect_left(starts, one.end_ns)
        for index in range(first, min(last, first + MAX_PAUSES)):
            pauses.setdefault(index, []).append(one)
    for index, waiting in sorted(pauses.items()):
        # What waits for much longer than the pause waits for something else.
        pause = int(starts[index]), int(ends[index])
        some = [owed for owed in waiting if 2 * owed.overdue_between(*pause) >= owed.overdue_ns]
        if not some:
            continue
        some.sort(key=lambda one: (one.due_ns, one.connection_id))
        start, end = max(pause[0], some[0].due_ns or 0), pause[1]
        until = min(end, max(owed.end_ns or 0 for owed in some))
        if until - start >= at_least_ns:
            back = None if is_last[index] else end
            yield Silence((broker,), start, back, until, some, all(owed.replicas for owed in some))


def without_leaders(found: Sequence[Silence], owed: Sequence[Owed]) -> list[Silence]:
    """Leaders that wait for followers cause nothing themselves; those that are silent together are one finding."""
    causes = [silence for silence in found if not silence.replicas]
    rest: list[Silence] = []
    for silence in (silence for silence in found if silence.replicas):
        if any(_overlap(silence, other) for other in causes):
            continue
        if rest and _overlap(rest[-1], silence):
            rest[-1] = _joined(rest[-1], silence)
        else:
            rest.append(silence)
    replica = [one for one in owed if one.replicas]
    return [
        *(
            msgspec.structs.replace(
                cause,
                waiting=tuple(sorted({owed.broker for owed in replica if cause.explains(owed)} - {*cause.brokers})),
            )
            for cause in causes
        ),
        *rest,
    ]


def _overlap(one: Silence, other: Silence) -> bool:
    """Whether most of the first lies in the other."""
    shared = min(one.until_ns, other.until_ns) - max(one.first_ns, other.first_ns)
    return 2 * shared >= one.until_ns - one.first_ns


def _joined(one: Silence, other: Silence) -> Silence:
    open_end = one.back_ns is None or other.back_ns is None
    until = max(one.until_ns, other.until_ns)
    return Silence(
        tuple(sorted({*one.brokers, *other.brokers})),
        min(one.first_ns, other.first_ns),
        None if open_end else max(one.back_ns or 0, other.back_ns or 0),
        until,
        sorted((*one.owed, *other.owed), key=lambda owed: (owed.due_ns, owed.connection_id)),
        replicas=True,
    )


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
        return max(silence.until_ns - silence.first_ns for silence in self.each)

    @property
    def owed(self) -> list[Owed]:
        """What waited, by time."""
        return [owed for pause in self.each for owed in pause.owed]


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
    pair = pairs(batch)
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
    together = without_leaders([silence for silence in every if silence.connections >= connections], owed)
    found = _by_broker(together, answers, times, share)
    # One connection alone may wait for many reasons; responses that are later than this are reported one by one.
    pausing = {pauses.broker for pauses in found}
    alone = [
        silence
        for silence in every
        if pausing.isdisjoint(silence.brokers)
        and silence.until_ns - silence.first_ns < LATE_NS
        and all(map(_is_work, silence.owed))
    ]
    for pauses in _by_broker(without_leaders(alone, owed), answers, max(times, ALONE), max(share, ALONE_SHARE)):
        pairs = {(owed.row["client_ip"], owed.broker) for owed in pauses.owed}
        if sum(known[pair].again for pair in pairs & known.keys()) < len(pauses.each):
            found.append(pauses)
    pausing = {pauses.broker for pauses in found}
    short = [
        silence
        for silence in answers.missing((owed for owed in beyond if _is_work(owed)), SHORT_NS, fine=True)
        if silence.connections >= connections and pausing.isdisjoint(silence.brokers)
    ]
    return [*found, *_by_broker(without_leaders(short, beyond), answers, max(times, SHORT), max(share, SHORT_SHARE))]


def _by_broker(pauses: Iterable[Silence], answers: Answers, times: int, share: float) -> list[Pauses]:
    """Pauses that are over, in order, of brokers with at least `times` of them for at least `share` of the time."""
    by_broker: dict[str, list[Silence]] = {}
    for pause in sorted(pauses, key=lambda pause: pause.first_ns):
        if pause.back_ns is not None:
            by_broker.setdefault(pause.brokers[0], []).append(pause)
    every = [
        Pauses(
            broker,
            some,
            sum(silence.until_ns - silence.first_ns for silence in some) / max(answers.lasted_ns(broker), 1),
        )
        for broker, some in by_broker.items()
    ]
    return [pauses for pauses in every if len(pauses.each) >= times and pauses.share >= share]


def _is_work(one: Owed) -> bool:
    """Whether a client waited for records, offsets or members, not a broker."""
    api = one.row["api"]
    return api is not None and " " not in api and is_work(api) and not is_broker(one.row["client_id"], ())
