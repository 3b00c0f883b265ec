"""Paths between clients and brokers: round trips, outages, and middleboxes that cut or forget connections.

Kernels answer handshakes and acknowledge data whatever their programs do, so a fast broker does not make round trips
shorter, nor a slow one longer. A firewall, NAT or load balancer may cut connections at a certain age, or forget those
that are idle.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from statistics import median
from typing import Annotated, Any, ClassVar, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading
from kafkasniff.analysis.columns import ORDER, broker_endpoint, column, first_of_each, in_any, integers, only
from kafkasniff.analysis.detectors.absences import (
    TRANSPORT_READING,
    Spans,
    TcpLink,
    add_links,
    closed_at_once,
    links_by_broker,
    links_shape,
    usual_absences,
)
from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence, Finding
from kafkasniff.analysis.detectors.tally import BROKER, CLIENT, CLIENT_COLUMNS, PAIR, clients, pairs
from kafkasniff.analysis.detectors.wording import client, elapsed, plural, span, subject
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.partials import Shape
from kafkasniff.tables.rows.transport import TABLE

FAR_NS: Final = 200_000_000
"""A round trip this long is trouble: it is more than between any two places on Earth with a good network."""
SEVERAL: Final = 2
"""Connections whose fastest round trip is long, while that of others is short, show a queue on the path."""
WAITED: Final = 3
"""This many slow round trips of a connection, a third of those that were measured, show the same."""
ENOUGH: Final = 20
"""Packets of a connection without a handshake: an acknowledgement of few may have been delayed."""
WAY_COLUMNS: Final = (
    *("client_ip", "broker_ip", "broker_port", "opening", "broker_round_trip_us", "client_round_trip_us"),
    *("client_packets", "broker_packets", "client_data", "broker_data"),
    *("client_round_trips", "broker_round_trips", "client_slow_round_trips", "broker_slow_round_trips"),
    *("slowest_round_trip_us", "client_again", "broker_again", "client_lost", "broker_lost"),
)
"""Columns of the table `transport` that are needed."""


class Way(msgspec.Struct, frozen=True):
    """Between a client's address and a broker. Times in ns, of the round trip."""

    to_broker: int
    """The shortest time from the capture point to the broker; 0: unknown."""
    least: int
    """The same for the whole way, by the fastest connection."""
    most: int
    """By the slowest connection: its fastest round trip, or its slowest if many are slow (`waited`)."""
    slow: int
    """Number of connections whose fastest round trip is at least `FAR_NS`, or many of whose round trips are slow."""
    waited: int
    """Number of the latter."""
    again: int
    """Number of segments that were sent again, or lost before the capture point."""

    @property
    def far(self) -> bool:
        """It always takes long."""
        return self.least >= FAR_NS

    @property
    def queued(self) -> bool:
        """It takes longer at times, although nothing is lost."""
        return (self.slow >= SEVERAL or self.waited > 0) and self.most - self.least >= FAR_NS


def ways_shapes() -> dict[str, Shape]:
    """For `Detector.shapes`."""
    measures: Any = (
        ("to_broker_us", pa.int64(), "min"),
        ("least_us", pa.int64(), "min"),
        ("most_us", pa.int64(), "max"),
        ("slow", pa.int64(), "sum"),
        ("waited", pa.int64(), "sum"),
        ("again", pa.int64(), "sum"),
    )
    return {"ways": Shape(keys=PAIR, measures=measures)}


def round_trips(batch: pa.RecordBatch) -> pa.Array:
    """The fastest round trip of each connection between its ends (rows of `transport`), in µs; null: unknown."""
    both = pc.add(column(batch, "broker_round_trip_us"), column(batch, "client_round_trip_us"))
    spoke = (integers(column(batch, "client_data")) > 0) & (integers(column(batch, "broker_data")) > 0)
    enough = integers(column(batch, "client_packets")) + integers(column(batch, "broker_packets")) >= ENOUGH
    opened = in_any(batch, "opening", ["answered"]).to_numpy(zero_copy_only=False)
    return pc.if_else(pa.array(spoke & (opened | enough)), both, pa.scalar(None, pa.int64()))


def waited(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Whether many round trips of a connection were slow (rows of `transport`): acknowledgements wait on the way."""
    found = np.zeros(batch.num_rows, np.bool_)
    for end in ("client", "broker"):
        slow = integers(column(batch, f"{end}_slow_round_trips"))
        found |= (slow >= WAITED) & (3 * slow >= integers(column(batch, f"{end}_round_trips")))
    return found


def add_ways(detector: Accumulator[Any], batch: pa.RecordBatch) -> None:
    """Add rows of the table `transport`."""
    both = round_trips(batch)
    slow = pc.fill_null(pc.greater_equal(both, FAR_NS // 1000), False).to_numpy(zero_copy_only=False)
    queued = waited(batch)
    slowest = pc.if_else(pa.array(queued), column(batch, "slowest_round_trip_us"), both)
    detector.parts["ways"].add(
        {
            **pairs(batch),
            "to_broker_us": column(batch, "broker_round_trip_us"),
            "least_us": both,
            "most_us": slowest,
            "slow": (slow | queued).astype(np.int64),
            "waited": queued.astype(np.int64),
            "again": sum(integers(column(batch, name)) for name in WAY_COLUMNS[-4:]),
        }
    )


def ways(detector: Accumulator[Any]) -> dict[tuple[str | None, str], Way]:
    """By client's address and broker."""
    return {
        (row["client_ip"], row["broker"]): Way(
            (row["to_broker_us"] or 0) * 1000,
            (row["least_us"] or 0) * 1000,
            (row["most_us"] or 0) * 1000,
            row["slow"],
            row["waited"],
            row["again"],
        )
        for row in detector.parts["ways"].table().to_pylist()
    }


MAX_STALLS: Final = 1 << 16
"""Maximum number of stalls that are examined, the earliest."""
UNHEARD: Final = 3
"""So many retransmissions without any packet of the other side show that nothing arrives."""
ANSWER_NS: Final = 50_000_000
"""By this much, an acknowledgement may be later than a round trip (delayed acknowledgements: 40 ms in Linux)."""

_KEYS: Final = (
    ("since", pa.int64()),
    ("connection_id", pa.int64()),
    ("time_ns", pa.int64()),
    ("client_ip", pa.string()),
    ("broker", pa.string()),
    ("sender", pa.string()),
    ("until", pa.int64()),
    ("kind", pa.string()),
    ("retries", pa.int64()),
    ("retried", pa.int64()),
    ("size", pa.int64()),
    ("passed", pa.int64()),
    ("heard", pa.int64()),
    ("quiet", pa.int64()),
    ("over", pa.bool_()),
    ("ended", pa.bool_()),
)


class Outage(msgspec.Struct, frozen=True):
    """Stalls that have one cause: they overlap, or always concern packets above a size, and share a host."""

    rows: list[dict[str, Any]]
    """Its stalls by time, as in the partial answer."""
    largest: int | None
    """Bytes of data in the largest segment that arrives, if only larger ones are lost; otherwise None."""

    def hosts(self, name: str) -> list[str]:
        """Different values of `client_ip` or `broker`."""
        return sorted({row[name] for row in self.rows})

    @property
    def first_ns(self) -> int:
        return int(min(row["since"] for row in self.rows))

    @property
    def until_ns(self) -> int:
        return int(max(row["until"] for row in self.rows))

    @property
    def over(self) -> bool:
        """All data arrived in the end."""
        return all(row["over"] for row in self.rows)

    @property
    def connections(self) -> int:
        return len({row["connection_id"] for row in self.rows})

    @property
    def senders(self) -> set[str]:
        """client, broker, or both: whose data did not arrive."""
        return {row["sender"] for row in self.rows}

    @property
    def one_way(self) -> bool:
        """Only data of one side was lost, since other data of this side arrived meanwhile."""
        is_partial = self.largest is not None or all(row["kind"] == "hole" or _flowed(row) for row in self.rows)
        return len(self.senders) == 1 and is_partial

    def queued(self, ways: Mapping[tuple[str | None, str], Way]) -> bool:
        """Nothing was lost: acknowledgements waited in a queue, and arrived in the end.

        The other end sent new data all the time, which TCP does not without acknowledgements: packets passed both ways.
        If the acknowledgement had answered the last retransmission, it would have come a round trip after that.
        """
        waited = set()
        for row in self.rows:
            way = ways.get(_pair(row))
            if way is not None and way.least and _flowed(row):
                fastest = way.to_broker if row["sender"] == "client" else way.least - way.to_broker
                if not fastest <= row["until"] - row["retried"] <= 2 * fastest + ANSWER_NS:
                    waited.add(_pair(row))
        return self.over and waited == {_pair(row) for row in self.rows}

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """The first connections, with what each waited for."""
        found: dict[int, Evidence] = {}
        for row in self.rows:
            what = "bytes missing" if row["kind"] == "hole" else "retransmissions"
            count = row["size"] if row["kind"] == "hole" else row["retries"]
            end = "" if row["over"] else ", never arrived"
            note = (
                f"data of the {row['sender']} stuck for {elapsed(row['until'] - row['since'])}, {count:,} {what}{end}"
            )
            found.setdefault(row["connection_id"], Evidence(row["connection_id"], None, row["time_ns"], note))
        return tuple(list(found.values())[:MAX_EVIDENCE])


def _pair(row: dict[str, Any]) -> tuple[str | None, str]:
    return row["client_ip"], row["broker"]


def _flowed(row: dict[str, Any]) -> bool:
    """The receiver sent new data all the time."""
    return bool(row["kind"] == "unacknowledged" and 2 * row["quiet"] <= row["until"] - row["since"])


def stalls_shapes() -> dict[str, Shape]:
    """For `Detector.shapes`."""
    high: Any = (("until", pa.int64(), "max"),)
    return {
        "stalls": Shape(keys=_KEYS, order=("since", "connection_id"), keep="earliest", bound=MAX_STALLS),
        "end": Shape(keys=(("one", pa.int8()),), measures=high),
    }


def add_stalls(detector: Accumulator[Any], batch: pa.RecordBatch) -> None:
    """Add rows of the table `transport`."""
    detector.parts["end"].add({"one": [0], "until": [pc.max(column(batch, "end_time_ns")).as_py()]})
    for side, other in (("client", "broker"), ("broker", "client")):
        _add_unheard(detector, batch, side, other)
    lists = column(batch, "stalls")
    structs = pc.list_flatten(lists)
    if not len(structs):
        return
    parents = pc.list_parent_indices(lists)
    fields = [structs.type.field(place).name for place in range(structs.type.num_fields)]
    columns = dict(zip(fields, structs.flatten(), strict=True))
    columns |= {name: column(batch, name).take(parents) for name in ("connection_id", "time_ns", "client_ip")}
    columns |= {"broker": broker_endpoint(batch).take(parents)}
    columns["ended"] = pc.is_valid(column(batch, "ended_ns")).take(parents)
    detector.parts["stalls"].add(columns)


def _add_unheard(detector: Accumulator[Any], batch: pa.RecordBatch, side: str, other: str) -> None:
    """Connections that began before the capture, on which one side only repeats itself, and the other says nothing.

    If only one direction was captured, the other acknowledges: retransmissions are few.
    """
    again, packets = (integers(column(batch, f"{side}_{name}")) for name in ("again", "packets"))
    nothing = integers(column(batch, f"{other}_packets")) == 0
    rows = only(batch, pa.array(nothing & (again >= UNHEARD) & (2 * again > packets)))
    if not rows.num_rows:
        return
    since, until = column(rows, "time_ns"), column(rows, "end_time_ns")
    none = np.zeros(rows.num_rows, np.int64)
    detector.parts["stalls"].add(
        {
            **{name: column(rows, name) for name in ("connection_id", "time_ns", "client_ip")},
            "since": since,
            "broker": broker_endpoint(rows),
            "sender": [side] * rows.num_rows,
            "until": until,
            "kind": ["unacknowledged"] * rows.num_rows,
            "retries": column(rows, f"{side}_again"),
            "retried": until,
            "size": none + 1,
            "passed": none,
            "heard": none,
            "quiet": pc.subtract(until, since),
            "over": none > 0,
            "ended": pc.is_valid(column(rows, "ended_ns")),
        }
    )


def outages(detector: Accumulator[Any], at_least_ns: int) -> list[Outage]:
    """Those with a stall of at least `at_least_ns`."""
    end = pc.max(detector.parts["end"].table().column("until")).as_py()
    rows = []
    for row in detector.parts["stalls"].table().to_pylist():
        # Both ends of a connection with a hole may be silent until the end of the capture.
        if row["kind"] == "hole" and not row["over"] and not row["ended"]:
            row["until"] = max(row["until"], end)
        if row["until"] - row["since"] >= at_least_ns:
            rows.append(row)
    rows.sort(key=itemgetter("since", "connection_id", "sender"))
    pairs: dict[tuple[str | None, str], list[dict[str, Any]]] = {}
    for row in rows:
        pairs.setdefault(_pair(row), []).append(row)
    found: list[Outage] = []
    rest: list[dict[str, Any]] = []
    for some in pairs.values():
        largest = _largest(some)
        if largest is None:
            rest += some
        else:
            found.append(Outage(some, largest))
    rest.sort(key=itemgetter("since", "connection_id", "sender"))
    return found + [Outage(group, None) for group in _overlapping(rest)]


def _largest(rows: Sequence[dict[str, Any]]) -> int | None:
    """The largest segment that arrives, if all stuck data is larger and some smaller one arrived meanwhile."""
    stuck = min(row["size"] for row in rows)
    passed = int(max(row["passed"] for row in rows))
    if passed >= stuck or any(row["over"] for row in rows) or not any(row["heard"] for row in rows):
        return None
    return passed


def _overlapping(rows: Iterable[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Groups of stalls that share a time and a host."""
    open_groups: list[tuple[int, set[str], list[dict[str, Any]]]] = []
    done: list[list[dict[str, Any]]] = []
    for row in rows:
        hosts = {f"client {row['client_ip']}", f"broker {row['broker']}"}
        until, some, kept = row["until"], [row], []
        for group in open_groups:
            if group[0] < row["since"]:
                done.append(group[2])
            elif hosts & group[1]:
                until, some = max(until, group[0]), group[2] + some
                hosts |= group[1]
            else:
                kept.append(group)
        open_groups = [*kept, (until, hosts, some)]
    return done + [group for _, _, group in open_groups]


MAX_USED: Final = 1 << 17
"""Maximum number of connections that are known to have served a request, the earliest."""
_OPENING: Final = ("ApiVersions", "SaslHandshake", "SaslAuthenticate")
_IN_USE: Final = 0.25
"""The client was silent for less than this fraction of the connection's life."""
_ALIKE: Final = 0.1
"""Ages differ from their median by at most this fraction."""
_MOST: Final = 0.8
"""Fraction of the connections in use that the broker's side ended; others were ended for a reason of their own."""


_MOMENT_NS: Final = 20_000_000
"""Longest time between the ends of two connections that something dropped together."""
REFUSED: Final = 2
"""So many refused connects, at least, would show that the broker has stopped."""


class CutThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `CutConnections`."""

    at_least: Annotated[int, Meta(ge=2, description="Report from this many connections of the same age …")] = 3
    age: Annotated[Duration, Meta(ge=0, description="… if they are at least this old.")] = 500_000_000
    times: Annotated[int, Meta(ge=2, description="Or if several of them ended together, this often.")] = 3


class CutConnections(Detector[CutThresholds]):
    """Connections in use that the broker's side closes or resets, all at the same age, or together again and again.

    Brokers close idle connections, and those whose SASL session is over (`expired-sessions`), but do not limit the age
    of a connection. Proxies, load balancers, service meshes and firewalls do. A proxy that restarts or loads its
    configuration ends all connections together, while the broker continues.

    Caveats: captures, or exports with the table `transport`, are needed.
    """

    name: ClassVar[str] = "cut-connections"
    by_closing = True
    summary: ClassVar[str] = "Connections in use that something ends at a certain age, such as a proxy's limit."
    parameters_type = CutThresholds
    by_packets: ClassVar[str] = "who ended connections is unknown"

    def reads(self) -> Mapping[str, TableReading]:
        return {"exchanges": TableReading(("connection_id", "time_ns", "api", "status")), TABLE: TRANSPORT_READING}

    def shapes(self) -> Mapping[str, Shape]:
        number = pa.int64()
        used = Shape(
            keys=(("connection_id", number),),
            measures=(("time_ns", number, "min"),),
            order=("time_ns", "connection_id"),
            keep="earliest",
            bound=MAX_USED,
        )
        return {"used": used, "links": links_shape()}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        if table == TABLE:
            add_links(self, batch)
            return
        served = pc.and_(in_any(batch, "status", ["answered"]), pc.invert(in_any(batch, "api", _OPENING)))
        batch = only(batch, pc.and_(served, pc.is_valid(column(batch, "time_ns"))))
        self.parts["used"].add({name: column(batch, name) for name in ("connection_id", "time_ns")})

    def absent(self, finding: Finding) -> int:
        return REFUSED

    def findings(self) -> Iterator[Finding]:
        used = set(self.parts["used"].table().column("connection_id").to_pylist())
        for broker, links in links_by_broker(self).items():
            down = Spans((*(absence.span for absence in usual_absences(links)), *closed_at_once(links)))
            cut = [
                link
                for link in links
                if link.connection_id in used and _is_cut(link) and not down.surround(link.over_ns, link.over_ns)
            ]
            if len(cut) < self.thresholds.at_least:
                continue
            usual = median(_age(link) for link in cut)
            alike = [link for link in cut if abs(_age(link) - usual) <= usual * _ALIKE]
            enough = len(alike) >= max(self.thresholds.at_least, _MOST * len(cut))
            # Connections that began together and were dropped once have the same age, too.
            if enough and usual >= self.thresholds.age and len(_ended_together(alike)) > 1:
                yield self._finding(broker, alike, usual)
                continue
            together = [some for some in _ended_together(cut) if len(some) > 1]
            several = [link for some in together for link in some]
            if len(together) >= self.thresholds.times and len(several) >= _MOST * len(cut):
                yield self._together(broker, several, len(together))

    def _together(self, broker: str, links: list[TcpLink], times: int) -> Finding:
        return self._of(
            broker,
            links,
            f"that are in use together, {times:,} times",
            meaning=(
                "Several connections end at the same moment, and the broker accepts new ones right after that. So "
                "something in front of it drops them: a proxy or load balancer that is restarted or loads its "
                "configuration, or one of its instances that fails. Requests that were on their way are lost or sent "
                "again."
            ),
            advice=(
                "Look at its log at these times: restarts, changes of its configuration, failed health checks, limits "
                "of memory. Let it drain connections, or change it less often."
            ),
            values={"times": times},
        )

    def _finding(self, broker: str, links: list[TcpLink], age: float) -> Finding:
        return self._of(
            broker,
            links,
            f"that are in use after {elapsed(age)} each",
            meaning=(
                "Brokers close connections that are idle, or whose SASL session is over, but set no limit to their "
                "age. So something in front of the broker does: a proxy, a load balancer, a service mesh or a "
                "firewall. Requests that were on their way are lost or sent again, and each new connection costs "
                "authentication and metadata."
            ),
            advice=(
                "Raise or remove the maximum duration of TCP connections there (in Envoy max_connection_duration and "
                "max_downstream_connection_duration, in HAProxy timeout client and timeout server)."
            ),
            values={"age_ms": age / 1e6},
        )

    def _of(self, broker: str, links: list[TcpLink], how: str, *, values: dict[str, Any], **texts: str) -> Finding:
        links.sort(key=lambda link: (link.over_ns, link.connection_id))
        first, last = links[0].over_ns, links[-1].over_ns
        addresses = sorted({link.client_ip for link in links})
        return self.finding(
            "warning",
            f"{broker} ends connections {how}: {plural(len(links), 'connection')} "
            f"of {plural(len(addresses), 'client address', 'client addresses')}{span(first, last)}",
            **texts,
            subject={"broker": broker},
            count=len(links),
            first=first,
            last=last,
            evidence=tuple(
                Evidence(link.connection_id, None, link.time_ns, f"ended after {elapsed(_age(link))}")
                for link in links[:MAX_EVIDENCE]
            ),
            values={**values, "connections": len(links), "clients": addresses[:MAX_EVIDENCE]},
        )


def _ended_together(links: Iterable[TcpLink]) -> list[list[TcpLink]]:
    """The connections in groups, each of which ended at the same moment."""
    groups: list[list[TcpLink]] = []
    for link in sorted(links, key=lambda link: (link.over_ns, link.connection_id)):
        if groups and link.over_ns - groups[-1][-1].over_ns <= _MOMENT_NS:
            groups[-1].append(link)
        else:
            groups.append([link])
    return groups


def _age(link: TcpLink) -> int:
    return link.over_ns - link.time_ns


def _is_cut(link: TcpLink) -> bool:
    """Whether the broker's side ended the connection, whose beginning is known, and the client was not silent."""
    quiet = link.quiet_ns or 0
    return link.opening == "answered" and link.ended_by == "broker" and quiet < _IN_USE * _age(link)


MAX_CONNECTIONS: Final = 1 << 17
"""Maximum number of connections of producers that are kept, the earliest."""
_PRODUCER: Final = ("producer_id", "producer_epoch")


class ForgottenThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `ForgottenConnections`."""

    silent: Annotated[
        Duration, Meta(ge=0, description="A connection is given up if its producer uses another one this much later.")
    ] = 1_000_000_000
    at_least: Annotated[
        int, Meta(ge=1, description="This many connections of a client to a broker are a warning; fewer are a note.")
    ] = 2


class ForgottenConnections(Detector[ForgottenThresholds]):
    """Connections that fall silent and are never closed, although their producer continues with another one.

    A client that gives up a connection closes it. If its packets no longer arrive at the broker, something between the
    two has forgotten the connection, usually a firewall, NAT or load balancer after an idle time. The producer is known
    by its producer id. At the client's end, the same is an outage (`transport-trouble`): retransmissions.

    Caveats: captures, or exports with the table `transport`, are needed. Producers without a producer id (without
    idempotence) and consumers are not judged. A FIN that is missing from the capture looks the same.
    """

    name: ClassVar[str] = "forgotten-connections"
    summary: ClassVar[str] = "Connections that fall silent and are never closed: a firewall or NAT forgot them."
    parameters_type = ForgottenThresholds
    by_packets: ClassVar[str] = "connections that nobody closes are unknown"

    def reads(self) -> Mapping[str, TableReading]:
        own = (*CLIENT_COLUMNS, "broker_ip", "broker_port", "partitions")
        return {
            "exchanges": TableReading((*ORDER, *own), ("Produce",)),
            TABLE: TableReading(("connection_id", "time_ns", "end_time_ns", "ended_ns"), optional=True),
        }

    def shapes(self) -> Mapping[str, Shape]:
        number = pa.int64()
        keys = (("connection_id", number), *CLIENT, *BROKER, *((name, number) for name in _PRODUCER))
        used: Any = (("first", number, "min"),)
        opened: Any = (("since", number, "min"), ("until", number, "max"))
        return {
            "used": Shape(keys=keys, measures=used, order=("first",), keep="earliest", bound=MAX_CONNECTIONS),
            "open": Shape(keys=keys[:1], measures=opened, order=("since",), keep="earliest", bound=MAX_CONNECTIONS),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        if table == TABLE:
            batch = only(batch, pc.is_null(column(batch, "ended_ns")))
            times = {"since": column(batch, "time_ns"), "until": column(batch, "end_time_ns")}
            self.parts["open"].add({"connection_id": column(batch, "connection_id"), **times})
            return
        places = first_of_each(column(batch, "partitions"))
        numbers = {name: pc.struct_field(places, name).cast(pa.int64()) for name in _PRODUCER}
        known = pc.and_(
            pc.fill_null(pc.greater_equal(numbers["producer_id"], 0), False), pc.is_valid(column(batch, "time_ns"))
        )
        batch = only(batch, known)
        self.parts["used"].add(
            {
                "connection_id": column(batch, "connection_id"),
                **clients(batch, broker=True),
                **{name: values.filter(known) for name, values in numbers.items()},
                "first": column(batch, "time_ns"),
            }
        )

    def findings(self) -> Iterator[Finding]:
        opened = {row["connection_id"]: row for row in self.parts["open"].table().to_pylist()}
        producers: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for row in (
            self.parts["used"].table().sort_by([("first", "ascending"), ("connection_id", "ascending")]).to_pylist()
        ):
            key = tuple(row[name] for name in (*CLIENT_COLUMNS, "broker", *_PRODUCER))
            producers.setdefault(key, []).append(row)
        found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for rows in producers.values():
            for row, later in itertools.pairwise(rows):
                own = opened.get(row["connection_id"])
                if own is not None and later["first"] - own["until"] >= self.thresholds.silent:
                    key = tuple(row[name] for name in (*CLIENT_COLUMNS, "broker"))
                    found.setdefault(key, []).append({**row, **own, "later": later["first"]})
        for rows in found.values():
            yield self._finding(sorted(rows, key=lambda row: (row["until"], row["connection_id"])))

    def _finding(self, rows: list[dict[str, Any]]) -> Finding:
        first, last = rows[0]["until"], rows[-1]["later"]
        shortest = min(row["later"] - row["until"] for row in rows)
        return self.finding(
            "warning" if len(rows) >= self.thresholds.at_least else "note",
            f"{plural(len(rows), 'connection')} of {client(rows[0])} to {rows[0]['broker']} fell silent and "
            f"{'was' if len(rows) == 1 else 'were'} never closed{span(first, last)}: the same producer continued with "
            f"another connection, {elapsed(shortest)} or more later",
            meaning=(
                "A client that gives up a connection closes it, but no packet of that arrived: a firewall, NAT or load "
                "balancer on the path forgets idle connections and drops what comes later. Requests on them wait until "
                "the client's request timeout, and the broker keeps the dead connections for "
                "connections.max.idle.ms."
            ),
            advice=(
                "Raise the idle timeout of firewalls, NAT gateways and load balancers between the two above the "
                "client's connections.max.idle.ms (9 minutes by default), or lower that below the timeout; "
                "socket.keepalive.enable of librdkafka helps, too."
            ),
            subject=subject(rows[0], "client_id", "client_ip", "broker"),
            count=len(rows),
            first=first,
            last=last,
            evidence=tuple(
                Evidence(
                    row["connection_id"],
                    None,
                    row["since"],
                    f"last packet {elapsed(row['later'] - row['until'])} before the next connection was used",
                )
                for row in rows[:MAX_EVIDENCE]
            ),
            values={"shortest_ms": shortest / 1_000_000},
        )
