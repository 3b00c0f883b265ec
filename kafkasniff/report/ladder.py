"""Some exchanges of each connection, and its ladder: its requests and responses in order of time, one step each.

Which connections are worth showing is known only at the end. So some exchanges of every connection are kept: the first
ones, the first ones with trouble, and the slowest ones. They show how client and broker talked, and what went wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading
from kafkasniff.analysis.columns import ORDER, column, first_of_each, in_any, integers, only
from kafkasniff.analysis.detectors import Evidence, Finding
from kafkasniff.analysis.detectors.finding import Numbers
from kafkasniff.analysis.overview.counts import NOT_ANSWERED, TEXT, api_labels
from kafkasniff.analysis.partials import Shape
from kafkasniff.analysis.waits import WAIT_COLUMNS, may_have_waited, work_us
from kafkasniff.enrich.hosts import Hosts
from kafkasniff.model import Endpoint
from kafkasniff.sinks.summaries.phrases import amount, count
from kafkasniff.text.printable import printable, word
from kafkasniff.text.times import duration

MAX_CONNECTIONS: Final = 1 << 16
"""Maximum number of connections that are counted; those with the lowest weight are dropped first."""
MAX_KEPT: Final = 1 << 16
"""Maximum number of exchanges of each kind that are kept for all connections, some 300 bytes each."""
EARLIEST: Final = 40
"""Exchanges that are kept per connection: the first ones,"""
TROUBLED: Final = 40
"""the first ones with errors, unanswered, throttled or retransmitted,"""
SLOWEST: Final = 20
"""and the slowest ones, except those in which the broker waited on purpose."""
TROUBLE_WEIGHT: Final = 50
"""Weight of an exchange with trouble, in normal exchanges."""

_PLACE: Final[Any] = (
    ("connection_id", pa.int64()),
    ("client_ip", TEXT),
    ("client_port", pa.int32()),
    ("broker_ip", TEXT),
    ("broker_port", pa.int32()),
)
_RUNG: Final[dict[str, pa.DataType]] = {
    **dict.fromkeys(ORDER, pa.int64()),
    "api": TEXT,
    "api_version": pa.int32(),
    "correlation_id": pa.int32(),
    "status": TEXT,
    "request_size": pa.int64(),
    "response_size": pa.int64(),
    "latency_us": pa.int64(),
    "duration_us": pa.int64(),
    "throttle_time_ms": pa.int32(),
    "error": TEXT,
    "error_code": pa.int32(),
    "error_count": pa.int32(),
    "group_id": TEXT,
    "transactional_id": TEXT,
    "topic": TEXT,
    "topic_id": TEXT,
    "partition": pa.int32(),
    "partition_count": pa.int64(),
    "record_count": pa.int64(),
    "acks": pa.int32(),
    "retransmits": pa.int32(),
}
_FIRST_PARTITION: Final = ("topic", "topic_id", "partition")


class Rung(msgspec.Struct, frozen=True, kw_only=True):
    """One exchange; fields as the columns of `exchanges`. `topic`, `partition`: the first partition that it names."""

    time_ns: int | None
    connection_id: int
    exchange_id: int
    api: str | None
    api_version: int | None
    correlation_id: int | None
    status: str
    request_size: int | None
    response_size: int | None
    latency_us: int | None
    duration_us: int | None
    throttle_time_ms: int | None
    error: str | None
    error_code: int | None
    error_count: int | None
    group_id: str | None
    transactional_id: str | None
    topic: str | None
    topic_id: str | None
    partition: int | None
    partition_count: int
    record_count: int | None
    acks: int | None
    retransmits: int | None


class Talk(msgspec.Struct, frozen=True, kw_only=True):
    """One connection."""

    connection_id: int
    client_ip: str | None
    client_port: int | None
    broker_ip: str | None
    broker_port: int | None
    client_id: str | None
    """From its first exchange."""
    exchanges: int
    with_errors: int
    unanswered: int
    bytes: int
    time_ns: int | None
    """From its first exchange."""
    last: int | None


class Shown(msgspec.Struct, frozen=True):
    """A connection whose exchanges are shown."""

    talk: Talk
    rungs: list[Rung]
    """In order of time; some exchanges in between may be missing."""


class Ladder(Accumulator[Parameters]):
    """Connections that spoke Kafka, and some exchanges of each."""

    name: ClassVar[str] = "report-connections"

    def reads(self) -> Mapping[str, TableReading]:
        own = [name for name in _RUNG if name not in (*_FIRST_PARTITION, "partition_count")]
        return {
            "exchanges": TableReading(
                (*own, "api_key", "client_id", "partitions", *WAIT_COLUMNS, *(name for name, _ in _PLACE))
            )
        }

    def shapes(self) -> Mapping[str, Shape]:
        sums: Any = tuple((name, pa.int64(), "sum") for name in ("exchanges", "with_errors", "unanswered", "bytes"))
        first: Any = (
            ("time_ns", pa.int64(), "first"),
            ("exchange_id", pa.int64(), "first"),
            ("client_id", TEXT, "first"),
        )
        connections = Shape(
            keys=_PLACE,
            measures=(*sums, *first, ("last", pa.int64(), "max"), ("weight", pa.int64(), "sum")),
            order=ORDER,
            weight="weight",
            bound=MAX_CONNECTIONS,
        )
        return {
            "connections": connections,
            "earliest": _kept(EARLIEST),
            "troubled": _kept(TROUBLED),
            "slowest": _kept(SLOWEST, "faster"),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        errors = integers(column(batch, "error_count")) > 0
        unanswered = in_any(batch, "status", NOT_ANSWERED).to_numpy(zero_copy_only=False)
        slowed = (integers(column(batch, "throttle_time_ms")) > 0) | (integers(column(batch, "retransmits")) > 0)
        orphan = in_any(batch, "status", ["orphan"]).to_numpy(zero_copy_only=False)
        trouble = errors | unanswered | slowed | orphan
        times = column(batch, "time_ns")
        self.parts["connections"].add(
            {
                **{name: column(batch, name) for name, _ in _PLACE},
                "exchanges": np.ones(batch.num_rows, np.int64),
                "with_errors": errors.astype(np.int64),
                "unanswered": unanswered.astype(np.int64),
                "bytes": integers(column(batch, "request_size")) + integers(column(batch, "response_size")),
                "time_ns": times,
                "exchange_id": column(batch, "exchange_id"),
                "client_id": column(batch, "client_id"),
                "last": times,
                "weight": 1 + TROUBLE_WEIGHT * trouble.astype(np.int64),
            }
        )
        rungs = _rungs(batch)
        self.parts["earliest"].add(_columns(rungs))
        self.parts["troubled"].add(_columns(only(rungs, pa.array(trouble))))
        mask = pc.and_(pc.invert(may_have_waited(batch)), pc.is_valid(column(batch, "latency_us")))
        faster = pa.array(-work_us(batch)).filter(mask)
        self.parts["slowest"].add({**_columns(only(rungs, mask)), "faster": faster})

    def result(self) -> pa.Table:
        """Connections, the highest weight first."""
        order = [("weight", "descending"), ("time_ns", "ascending"), ("connection_id", "ascending")]
        return self.parts["connections"].table().sort_by(order)

    def talks(self) -> list[Talk]:
        """The same as `Talk`s."""
        rows = self.result().to_pylist()
        return [Talk(**{name: row[name] for name in Talk.__struct_fields__}) for row in rows]

    def rungs(self, connection_ids: set[int]) -> dict[int, list[Rung]]:
        """The kept exchanges of some connections, each in order of time."""
        wanted = pa.array(sorted(connection_ids), pa.int64())
        found: dict[tuple[int, int], dict[str, Any]] = {}
        for name in ("earliest", "troubled", "slowest"):
            table = self.parts[name].table()
            table = table.filter(pc.is_in(table.column("connection_id"), value_set=wanted)).select(list(_RUNG))
            found |= {(row["connection_id"], row["exchange_id"]): row for row in table.to_pylist()}
        ladders: dict[int, list[Rung]] = {}
        for row in found.values():
            if self.names is not None and row["topic"] is None:
                row["topic"] = self.names.topic(row["topic_id"])
            ladders.setdefault(row["connection_id"], []).append(Rung(**row))
        for ladder in ladders.values():
            ladder.sort(key=lambda rung: (rung.time_ns is None, rung.time_ns or 0, rung.exchange_id))
        return ladders


def _kept(each: int, *first: str) -> Shape:
    """Some exchanges of each connection: the first ones, or the lowest by a column."""
    keys = tuple((name, _RUNG[name]) for name in ORDER)
    rest = {name: kind for name, kind in _RUNG.items() if name not in ORDER} | dict.fromkeys(first, pa.int64())
    return Shape(
        keys=keys,
        measures=tuple((name, kind, "first") for name, kind in rest.items()),
        order=(*first, *ORDER),
        keep="earliest",
        group=("connection_id",),
        each=each,
        bound=MAX_KEPT,
    )


def _rungs(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns of `Rung`s."""
    lists = column(batch, "partitions")
    first = first_of_each(lists)
    columns = {name: column(batch, name) for name in _RUNG if name in batch.column_names}
    columns |= {name: pc.struct_field(first, name) for name in _FIRST_PARTITION}
    columns["api"] = api_labels(batch)
    columns["partition_count"] = pc.fill_null(pc.list_value_length(lists), 0).cast(pa.int64())
    return pa.RecordBatch.from_arrays([columns[name].cast(kind) for name, kind in _RUNG.items()], names=list(_RUNG))


def _columns(rungs: pa.RecordBatch) -> dict[str, Any]:
    return {name: rungs.column(name) for name in rungs.column_names}


MAX_NOTES: Final = 3
"""Maximum number of findings shown at one step."""

Kind = Literal["request", "response", "gap", "witness"]


class PageLink(msgspec.Struct, frozen=True):
    """A link to a place in the page."""

    anchor: str
    text: str


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A request, a response, exchanges that are not shown, or one that a finding names but that was not kept."""

    kind: Kind
    time: str = ""
    """Since the connection's first exchange."""
    title: str
    detail: str = ""
    trouble: str = ""
    """The problem, if any."""
    anchor: str = ""
    findings: list[PageLink] = []


class ConnectionSteps(msgspec.Struct, frozen=True, kw_only=True):
    """One connection."""

    anchor: str
    client: str
    broker: str
    client_id: str
    summary: str
    """A summary with numbers."""
    trouble: str
    findings: list[PageLink]
    """Findings about the connection as a whole."""
    steps: list[Step]


class Sighting(msgspec.Struct, frozen=True):
    """A finding's note on one exchange or connection."""

    link: PageLink
    evidence: Evidence


def connection_label(connection_id: int, numbers: Numbers) -> str:
    """`conn 3`; empty for a connection of an export, which has no number."""
    number = numbers.connection(connection_id)
    return "" if number is None else f"conn {number}"


def exchange_label(connection_id: int, exchange_id: int, numbers: Numbers) -> str:
    """`#17`; for exports, which have no such numbers, the ordinal within the connection, with its column's name."""
    number = numbers.exchange(connection_id, exchange_id)
    return f"exchange_id {exchange_id}" if number is None else f"#{number}"


def anchors_of(shown: Iterable[Shown]) -> dict[int, str]:
    """The anchors of connections that are shown."""
    return {one.talk.connection_id: f"connection-{number}" for number, one in enumerate(shown, 1)}


def ladders_of(
    shown: Sequence[Shown], findings: Sequence[Finding], hosts: Hosts | None = None, numbers: Numbers | None = None
) -> list[ConnectionSteps]:
    """The ladders, in order, with links from their steps to the findings (`finding-N`).

    `hosts`: names of addresses; `numbers`: numbers of exchanges and connections.
    """
    numbers = Numbers() if numbers is None else numbers
    sightings: dict[int, list[Sighting]] = {}
    for number, finding in enumerate(findings, 1):
        link = PageLink(f"finding-{number}", f"{finding.severity} {number}")
        for evidence in finding.evidence:
            sightings.setdefault(evidence.connection_id, []).append(Sighting(link, evidence))
    anchors = anchors_of(shown)
    return [
        _ladder(one, anchors[one.talk.connection_id], sightings.get(one.talk.connection_id, []), hosts, numbers)
        for one in shown
    ]


def _ladder(
    shown: Shown, anchor: str, sightings: Sequence[Sighting], hosts: Hosts | None, numbers: Numbers
) -> ConnectionSteps:
    talk = shown.talk
    label = connection_label(talk.connection_id, numbers)
    summary = f"{label and f'{label}, '}{count(talk.exchanges, 'exchange')}, {amount(talk.bytes)}"
    if talk.time_ns is not None and talk.last is not None:
        summary += f", {duration(talk.last - talk.time_ns)}"
    trouble = [
        f"{number:,} {name}"
        for number, name in ((talk.with_errors, "with errors"), (talk.unanswered, "unanswered"))
        if number
    ]
    by_exchange: dict[int, list[Sighting]] = {}
    for sighting in sightings:
        if sighting.evidence.exchange_id is not None:
            by_exchange.setdefault(sighting.evidence.exchange_id, []).append(sighting)
    return ConnectionSteps(
        anchor=anchor,
        client=_place(talk.client_ip, talk.client_port, hosts),
        broker=_place(talk.broker_ip, talk.broker_port, hosts),
        client_id="" if talk.client_id is None else word(talk.client_id),
        summary=summary,
        trouble=", ".join(trouble),
        findings=_links(sighting for sighting in sightings if sighting.evidence.exchange_id is None),
        steps=_steps(shown, anchor, by_exchange, numbers),
    )


def _place(ip: str | None, port: int | None, hosts: Hosts | None) -> str:
    if ip is None or port is None:
        return "?"
    name = None if hosts is None else hosts.name(ip, port)
    place = printable(str(Endpoint(ip, port)))
    return place if name is None else f"{word(name)} ({place})"


def _links(sightings: Iterable[Sighting]) -> list[PageLink]:
    return list({sighting.link.anchor: sighting.link for sighting in sightings}.values())[:MAX_NOTES]


def _steps(shown: Shown, anchor: str, sightings: dict[int, list[Sighting]], numbers: Numbers) -> list[Step]:
    start = shown.talk.time_ns
    kept = {rung.exchange_id for rung in shown.rungs}
    # (time, exchange, order within it) → step; without times, exchanges stay in order.
    placed: list[tuple[int, int, int, Step]] = []
    for rung in shown.rungs:
        begin = rung.time_ns if rung.time_ns is not None else 0
        about = _links(sightings.get(rung.exchange_id, ()))
        place = f"{anchor}-{rung.exchange_id}"
        label = exchange_label(rung.connection_id, rung.exchange_id, numbers)
        if rung.correlation_id is not None:
            label += f", corr {rung.correlation_id}"
        if rung.status != "orphan":
            placed.append((begin, rung.exchange_id, 0, _request(rung, label, start, place, about)))
        if rung.response_size is not None:
            end = begin + 1000 * (rung.latency_us or 0)
            alone = rung.status == "orphan"
            time_ns = None if rung.time_ns is None else end
            anchored, page_links = (place, about) if alone else ("", [])
            step = _response(rung, label, time_ns, start, anchor=anchored, findings=page_links)
            placed.append((end, rung.exchange_id, 1, step))
    for exchange_id in sightings.keys() - kept:
        seen = sightings[exchange_id]
        time_ns = seen[0].evidence.time_ns
        step = Step(
            kind="witness",
            time=_since(time_ns, start),
            title=exchange_label(shown.talk.connection_id, exchange_id, numbers),
            detail="; ".join(dict.fromkeys(sighting.evidence.note for sighting in seen if sighting.evidence.note)),
            anchor=f"{anchor}-{exchange_id}",
            findings=_links(seen),
        )
        placed.append((time_ns or 0, exchange_id, 0, step))
    placed.sort(key=lambda each: each[:3])
    return _with_gaps(placed, shown.talk.exchanges)


def _with_gaps(placed: Sequence[tuple[int, int, int, Step]], exchanges: int) -> list[Step]:
    """The steps, with markers where exchanges are not shown; these are numbered in the order of their requests."""
    ids = sorted({exchange_id for _, exchange_id, _, _ in placed})
    missing = {id_: id_ - before - 1 for before, id_ in zip([-1, *ids], ids, strict=False)}
    steps: list[Step] = []
    for _, exchange_id, _, step in placed:
        hidden = missing.pop(exchange_id, 0)
        if hidden > 0:
            steps.append(Step(kind="gap", title=f"{count(hidden, 'exchange')} not shown"))
        steps.append(step)
    rest = exchanges - 1 - ids[-1] if ids else exchanges
    if rest > 0:
        steps.append(Step(kind="gap", title=f"{count(rest, 'exchange')} not shown"))
    return steps


def _since(time_ns: int | None, start: int | None) -> str:
    if time_ns is None or start is None:
        return ""
    return f"{(time_ns - start) / 1e9:.6f}"


def _request(rung: Rung, label: str, start: int | None, anchor: str, findings: list[PageLink]) -> Step:
    version = "" if rung.api_version is None else f" v{rung.api_version}"
    api = "?" if rung.api is None else word(rung.api)
    silent = {
        "unanswered": "unanswered",
        "open": "no response by the end",
        "lost": "no response seen: bytes are missing",
    }
    trouble = [silent.get(rung.status, "")]
    if rung.retransmits:
        trouble.append(count(rung.retransmits, "retransmit"))
    return Step(
        kind="request",
        time=_since(rung.time_ns, start),
        title=f"{api}{version}",
        detail=", ".join(one for one in (label, *_about(rung), _size(rung.request_size)) if one),
        trouble=", ".join(one for one in trouble if one),
        anchor=anchor,
        findings=findings,
    )


def _about(rung: Rung) -> list[str]:
    parts: list[str] = []
    topic = rung.topic or rung.topic_id
    if topic is not None:
        more = "" if rung.partition_count <= 1 else f" and {count(rung.partition_count - 1, 'partition')} more"
        parts.append(f"{word(topic)}-{'?' if rung.partition is None else rung.partition}{more}")
    if rung.group_id is not None:
        parts.append(f"group {word(rung.group_id)}")
    if rung.transactional_id is not None:
        parts.append(f"transaction {word(rung.transactional_id)}")
    if rung.record_count and rung.api == "Produce":
        parts.append(count(rung.record_count, "record"))
    if rung.acks is not None:
        parts.append(f"acks {rung.acks}")
    return parts


def _response(
    rung: Rung, label: str, time_ns: int | None, start: int | None, *, anchor: str, findings: list[PageLink]
) -> Step:
    parts = [label]
    if rung.record_count and rung.api != "Produce":
        parts.append(count(rung.record_count, "record"))
    parts.append(_size(rung.response_size))
    trouble = []
    if rung.error_code or rung.error:
        error = rung.error or f"error {rung.error_code}"
        more = "" if not rung.error_count or rung.error_count == 1 else f" and {rung.error_count - 1} more"
        trouble.append(f"{error}{more}")
    if rung.throttle_time_ms:
        trouble.append(f"throttled for {rung.throttle_time_ms:,} ms")
    if rung.status == "orphan":
        trouble.append("its request was not captured")
    return Step(
        kind="response",
        time=_since(time_ns, start),
        title="" if rung.latency_us is None else duration(1000 * rung.latency_us),
        detail=", ".join(part for part in parts if part),
        trouble=", ".join(trouble),
        anchor=anchor,
        findings=findings,
    )


def _size(size: int | None) -> str:
    return "" if size is None else amount(size)
