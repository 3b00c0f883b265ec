"""Network trouble below Kafka: outages, retransmissions, closed windows and long round trips."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Annotated, Any, ClassVar, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import ORDER, column, in_any, integers, only
from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence, Finding, Severity
from kafkasniff.analysis.detectors.paths import (
    FAR_NS,
    WAY_COLUMNS,
    Outage,
    Way,
    add_stalls,
    add_ways,
    outages,
    round_trips,
    stalls_shapes,
    waited,
    ways,
    ways_shapes,
)
from kafkasniff.analysis.detectors.tally import PAIR, Tally, pairs
from kafkasniff.analysis.detectors.wording import elapsed, percent, plural, some
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.partials import Shape
from kafkasniff.analysis.percentiles import distribution_rows, distribution_shape, distributions
from kafkasniff.analysis.waits import WAIT_COLUMNS, excused_us, may_have_waited
from kafkasniff.sinks.summaries.phrases import amount
from kafkasniff.tables.rows.transport import TABLE
from kafkasniff.text.printable import word
from kafkasniff.text.times import clock_time

LARGE: Final = 16_384
"""Bytes of a message whose speed shows that of the network: more than the first window of a connection."""
ROUND_TRIPS: Final = 8
"""Round trips that a large message may take because of its connection's window."""
SEVERAL: Final = 3
MAX_THROTTLED: Final = 1 << 17
"""Maximum number of connections whose throttle times are added up, those that were throttled most."""
_NS_PER_MS: Final = 1_000_000
_LINK: Final = (
    "Compare the traffic with the bandwidth of the links between the two, and with limits of cloud instances, VPNs and "
    "policers (`kafkasniff stats` shows the clients with the most bytes). Compress batches (compression.type), or "
    "fetch from a nearby replica (client.rack)."
)
_PACKETS: Final = ("packets", "again", "lost", "missing_us")
_CLOSED: Final = ("client_closed", "broker_closed", "client_closed_us", "broker_closed_us")


class TransportThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `TransportTrouble`."""

    share: Annotated[float, Meta(ge=0, le=1, description="Retransmissions as a fraction of all packets.")] = 0.01
    heavy: Annotated[
        float, Meta(ge=0, le=1, description="This fraction is a warning, even if no exchange was slowed down.")
    ] = 0.05
    at_least: Annotated[int, Meta(ge=1, description="Minimum number of retransmissions between two hosts.")] = 5
    slow: Annotated[
        Duration,
        Meta(ge=0, description="An exchange with retransmissions that took at least this long was affected by them."),
    ] = 200_000_000
    stalled: Annotated[
        Duration,
        Meta(ge=0, description="Data that did not arrive for this long, despite retransmissions, is an outage."),
    ] = 1_000_000_000
    closed: Annotated[Duration, Meta(ge=0, description="Report windows closed for this long in total.")] = 500_000_000
    narrow: Annotated[
        int, Meta(ge=1, description="Large messages that pass at less than this many bytes per second are slow.")
    ] = 250_000
    way: Annotated[
        Duration, Meta(ge=0, description="A round trip to the broker of at least this duration is long.")
    ] = 5_000_000
    way_share: Annotated[
        float, Meta(gt=0, le=1, description="… if it is at least this fraction of the median latency.")
    ] = 0.5


class TransportTrouble(Detector[TransportThresholds]):
    """Outages, lost segments, closed receive windows and long round trips between a client's address and a broker.

    An outage is a time in which data did not arrive although it was sent: it was retransmitted and not acknowledged,
    or later data arrived and it did not. It is an error if the data never arrived. If only segments above a size never
    arrive, the finding says so (a black hole for large packets). Segments that were lost before the capture point count
    as retransmitted.

    A round trip of 200 ms or more is a warning: always (a slow path), or on several connections while others are
    faster, or for a third of a connection's round trips (a queue on the path, because a link is full). Data that is
    acknowledged that late while new data of the other end arrives waits in such a queue and did not get lost. A link
    that most large messages pass slowly is a warning, too.

    Caveats: segments retransmitted because of a late acknowledgement count, too. A closed window shows who does not
    read, not why.
    """

    name: ClassVar[str] = "transport-trouble"
    summary: ClassVar[str] = "Outages, lost packets, closed windows and long round trips."
    parameters_type = TransportThresholds

    _hit = Tally("hit", PAIR, sums=("again", "unanswered"), highs=("worst_us",))
    _shut = Tally("shut", (*PAIR, ("whole_id", pa.int64())), sums=_CLOSED)
    """By connection (`whole_id`), since quotas mute connections."""
    _slow = Tally("slow", PAIR)
    """Connections whose fastest round trip is long."""
    _narrow = Tally("narrow", PAIR, sums=("bytes", "took_us"), highs=("worst_us",))
    """Large messages that took long from their first byte to their last."""

    def reads(self) -> Mapping[str, TableReading]:
        ends = ("client_ip", "broker_ip", "broker_port")
        own = (
            "request_size",
            "response_size",
            "retransmits",
            "duration_us",
            "latency_us",
            "status",
            "throttle_time_ms",
            *WAIT_COLUMNS,
        )
        return {
            "exchanges": TableReading((*ORDER, *ends, *own)),
            "connections": TableReading(("connection_id", "time_ns", *ends, "packets", "retransmits", "verdict")),
            TABLE: TableReading(
                (
                    *("connection_id", "time_ns", "end_time_ns", *WAY_COLUMNS, *_CLOSED),
                    *("client_lost", "broker_lost", "lost_longest_us", "ended_ns", "stalls"),
                ),
                optional=True,
            ),
        }

    def shapes(self) -> Mapping[str, Shape]:
        sums: Any = tuple((name, pa.int64(), "max" if name == "missing_us" else "sum") for name in _PACKETS)
        return {
            **self._hit.shapes(),
            **self._shut.shapes(),
            **self._slow.shapes(),
            **self._narrow.shapes(),
            "large": Shape(keys=PAIR, measures=(("count", pa.int64(), "sum"),), weight="count"),
            **stalls_shapes(),
            **ways_shapes(),
            "packets": Shape(keys=PAIR, measures=sums, weight="again"),
            "latencies": distribution_shape(PAIR),
            "throttled": Shape(
                keys=(("whole_id", pa.int64()),),
                measures=(("throttle_us", pa.int64(), "sum"),),
                weight="throttle_us",
                bound=MAX_THROTTLED,
            ),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        if table == "connections":
            batch = only(batch, in_any(batch, "verdict", ["kafka"]))
            counts = {"packets": integers(column(batch, "packets")), "again": integers(column(batch, "retransmits"))}
            none = np.zeros(batch.num_rows, np.int64)
            self.parts["packets"].add({**pairs(batch), **counts, "lost": none, "missing_us": none})
        elif table == TABLE:
            add_stalls(self, batch)
            lost = integers(column(batch, "client_lost")) + integers(column(batch, "broker_lost"))
            late = only(batch, pa.array(lost > 0))
            none = np.zeros(late.num_rows, np.int64)
            missing = column(late, "lost_longest_us")
            counts = {"packets": none, "again": none, "lost": lost[lost > 0], "missing_us": missing}
            self.parts["packets"].add({**pairs(late), **counts})
            add_ways(self, batch)
            took = round_trips(batch)
            is_far = pc.fill_null(pc.greater_equal(took, FAR_NS // 1000), False)
            took = pc.if_else(is_far, took, column(batch, "slowest_round_trip_us"))
            is_slow = pc.or_(is_far, pa.array(waited(batch)))
            slow = only(batch, is_slow)
            notes = [
                f"round trips of {'at least' if far else 'up to'} {elapsed(us * 1000)}"
                for us, far in zip(took.filter(is_slow).to_pylist(), is_far.filter(is_slow).to_pylist(), strict=True)
            ]
            self._slow.add(self, slow, pairs(slow), pa.array(notes, pa.string()))
            shut = pc.greater(pc.add(column(batch, "client_closed"), column(batch, "broker_closed")), 0)
            batch = only(batch, shut)
            keys = {**pairs(batch), "whole_id": column(batch, "connection_id")}
            self._shut.add(self, batch, keys, **{name: integers(column(batch, name)) for name in _CLOSED})
        else:
            self._exchanges(batch)

    def _exchanges(self, batch: pa.RecordBatch) -> None:
        throttled = only(batch, pc.greater(column(batch, "throttle_time_ms"), 0))
        self.parts["throttled"].add(
            {
                "whole_id": column(throttled, "connection_id"),
                "throttle_us": integers(column(throttled, "throttle_time_ms")) * 1000,
            }
        )
        waits = may_have_waited(batch)
        answered = only(batch, pc.and_(pc.is_valid(column(batch, "latency_us")), pc.invert(waits)))
        self.parts["latencies"].add(distribution_rows(pairs(answered), column(answered, "latency_us")))
        self._passing(batch)
        took = integers(column(batch, "duration_us"))
        lost = in_any(batch, "status", ("unanswered", "open")).to_numpy(zero_copy_only=False)
        # A requested wait or a quota may take this long without any retransmission.
        slow = (took - excused_us(batch)) * 1000 >= self.thresholds.slow
        retransmits = integers(column(batch, "retransmits"))
        hit = (retransmits > 0) & (lost | slow)
        batch = only(batch, pa.array(hit))
        notes = [
            f"{plural(int(count), 'segment')} retransmitted, {'no response' if unanswered else elapsed(int(us) * 1000)}"
            for count, unanswered, us in zip(retransmits[hit], lost[hit], took[hit], strict=True)
        ]
        measures = {"again": retransmits[hit], "unanswered": lost[hit].astype(np.int64), "worst_us": took[hit]}
        self._hit.add(self, batch, pairs(batch), pa.array(notes, pa.string()), **measures)

    def _passing(self, batch: pa.RecordBatch) -> None:
        """How long the bytes of large messages are on their way, without the time in which the broker works."""
        size = integers(column(batch, "request_size")) + integers(column(batch, "response_size"))
        known = pc.is_valid(column(batch, "latency_us")).to_numpy(zero_copy_only=False)
        large = known & (size >= LARGE)
        batch, size = only(batch, pa.array(large)), size[large]
        self.parts["large"].add({**pairs(batch), "count": np.ones(batch.num_rows, np.int64)})
        took = integers(column(batch, "duration_us")) - integers(column(batch, "latency_us"))
        slow = (took * 1000 >= self.thresholds.slow) & (size * 1_000_000 < took * self.thresholds.narrow)
        batch, size, took = only(batch, pa.array(slow)), size[slow], took[slow]
        notes = [f"{amount(int(one))} in {elapsed(int(us) * 1000)}" for one, us in zip(size, took, strict=True)]
        measures = {"bytes": size, "took_us": took, "worst_us": took}
        self._narrow.add(self, batch, pairs(batch), pa.array(notes, pa.string()), **measures)

    def findings(self) -> list[Finding]:
        found = outages(self, self.thresholds.stalled)
        known = ways(self)
        delayed: dict[tuple[str | None, str], list[dict[str, Any]]] = {}
        for outage in found:
            if outage.queued(known):
                for row in outage.rows:
                    delayed.setdefault((row["client_ip"], row["broker"]), []).append(row)
        narrow = {(finding.subject["client_ip"], finding.subject["broker"]): finding for finding in self._narrow_ways()}
        return [
            *(self._outage(outage) for outage in found if not outage.queued(known)),
            *narrow.values(),
            *self._retransmitted(found, narrow.keys() | delayed.keys()),
            *self._closed(),
            *self._far(narrow.keys(), delayed),
        ]

    def _narrow_ways(self) -> Iterator[Finding]:
        large = {(row["client_ip"], row["broker"]): row["count"] for row in self.parts["large"].table().to_pylist()}
        closed = {
            (row["client_ip"], row["broker"]): row["client_closed_us"] + row["broker_closed_us"]
            for row, _ in self._shut_pairs()
        }
        known = ways(self)
        for row, evidence in self._narrow.rows(self):
            pair, took = (row["client_ip"], row["broker"]), row["took_us"]
            way = known.get(pair)
            # A window that opens slowly costs some round trips, and a receiver that does not read is another trouble.
            bound = way is not None and (way.far or way.least * row["count"] * ROUND_TRIPS > took * 1000)
            if bound or row["count"] < SEVERAL or 2 * row["count"] < large[pair] or 2 * closed.get(pair, 0) > took:
                continue
            rate = round(row["bytes"] * 1_000_000 / took)
            yield self.finding(
                "warning",
                f"slow network: large messages between {word(row['client_ip'])} and {row['broker']} pass at "
                f"{amount(rate)}/s: {row['count']:,} of {large[pair]:,} took up to {elapsed(row['worst_us'] * 1000)}",
                meaning=(
                    "These messages took this long from their first byte to their last; the time in which the broker "
                    "works is not included. A link on the path carries no more, or a rate limit lets no more pass. "
                    "Requests and acknowledgements after them wait and look late. The broker is not the cause."
                ),
                advice=_LINK,
                subject={"client_ip": row["client_ip"], "broker": row["broker"], "trouble": "narrow"},
                count=row["count"],
                first=row["first"],
                last=row["last"],
                evidence=evidence,
                values={"bytes_per_s": rate, "worst_ms": row["worst_us"] / 1000, "large": large[pair]},
            )

    def _outage(self, outage: Outage) -> Finding:
        clients, brokers = outage.hosts("client_ip"), outage.hosts("broker")
        first, until = outage.first_ns, outage.until_ns
        lasted = elapsed(until - first)
        between = f"{some(clients)} and {some(brokers)}"
        times = f"from {clock_time(first)[:-3]} to {clock_time(until)[:-3]} ({lasted})"
        connections = plural(outage.connections, "connection")
        end = "" if outage.over else "; the data never arrived"
        size = outage.largest
        way = "between"
        if outage.one_way:
            ends = (clients, brokers) if outage.senders == {"client"} else (brokers, clients)
            way, between = "from", f"{some(ends[0])} to {some(ends[1])}"
        title = f"network outage: no data arrived {way} {between} {times}, {connections}{end}"
        meaning = (
            "Data was sent again and again and did not arrive, or no acknowledgement of it came back. A kernel "
            "acknowledges data even if its program hangs, so the network, or a whole machine, was down. Requests of "
            "these connections were answered late or never for this reason."
        )
        advice = (
            "Compare the time with events of switches, links, firewalls, and of virtual machines that pause or move; "
            "`kafkasniff decode --connection N` shows which requests waited."
        )
        if size is not None:
            title = (
                f"large packets never arrive {way} {between}: segments of up to {plural(size, 'byte')} pass, larger "
                f"ones do not, {times}, {connections}"
            )
            meaning = (
                "A path that drops packets above its MTU, without the ICMP message that says so (a black hole). "
                "Connections open and small requests are answered, but large batches or responses never arrive, and "
                "clients time out and connect again."
            )
            advice = (
                "Compare the MTU of both ends with that of tunnels, VPNs and overlay networks in between (`ping -M do "
                "-s SIZE`). Lower it at the ends, clamp the MSS, allow ICMP 'fragmentation needed', or set "
                "net.ipv4.tcp_mtu_probing=1."
            )
        return self.finding(
            "warning" if outage.over else "error",
            title,
            meaning=meaning,
            advice=advice,
            subject={
                "client_ip": clients[0] if len(clients) == 1 else None,
                "broker": brokers[0] if len(brokers) == 1 else None,
                "trouble": "outage" if size is None else "large-packets",
            },
            count=len(outage.rows),
            first=first,
            last=until,
            evidence=outage.evidence,
            values={
                "clients": clients,
                "brokers": brokers,
                "lasted_ms": (until - first) / 1_000_000,
                "arrived": outage.over,
                "largest_segment": size,
            },
        )

    def _retransmitted(self, found: list[Outage], narrow: Set[Any]) -> Iterator[Finding]:
        limits = self.thresholds
        explained: dict[tuple[str, str], int] = {}
        for outage in found:
            for row in outage.rows:
                pair = row["client_ip"], row["broker"]
                explained[pair] = explained.get(pair, 0) + row["retries"]
        hit = {(row["client_ip"], row["broker"]): (row, evidence) for row, evidence in self._hit.rows(self)}
        queued = {pair for pair, way in ways(self).items() if way.queued}
        lossy: dict[Severity, list[dict[str, Any]]] = {}
        for row in self.parts["packets"].table().to_pylist():
            pair = row["client_ip"], row["broker"]
            if pair in queued | narrow:
                continue  # acknowledgements wait in the queue, too
            row["again"] += row["lost"] - explained.get(pair, 0)
            share = row["again"] / row["packets"] if row["packets"] else 0.0
            if row["again"] < limits.at_least or share < limits.share:
                continue
            row["trouble"], row["evidence"] = hit.get(pair, ({}, ()))
            slowed = row["trouble"] or row["missing_us"] * 1000 >= limits.slow
            lossy.setdefault("warning" if slowed or share >= limits.heavy else "note", []).append(row)
        for severity, rows in lossy.items():
            yield from (self._losses(severity, some) for some in _paths(rows))

    def _losses(self, severity: Severity, rows: list[dict[str, Any]]) -> Finding:
        """One finding for pairs of hosts that have an end in common."""
        again, packets = (sum(row[name] for row in rows) for name in ("again", "packets"))
        clients, brokers = (sorted({row[name] for row in rows}, key=str) for name in ("client_ip", "broker"))
        known = [row["trouble"] for row in rows if row["trouble"]]
        count, unanswered = (sum(one[name] for one in known) for name in ("count", "unanswered"))
        missing_us = max(row["missing_us"] for row in rows)
        effect = "no exchange was slowed down"
        if count:
            effect = f"{plural(count, 'exchange')} slowed down or unanswered"
        elif missing_us * 1000 >= self.thresholds.slow:
            effect = f"data was missing for up to {elapsed(missing_us * 1000)}"
        advice = ""
        if len(brokers) > 1 == len(clients):
            advice = f"All of these paths begin at {word(clients[0])}: look at this host and its link first. "
        elif len(clients) > 1 == len(brokers):
            advice = f"All of these paths end at {brokers[0]}: look at this host and its link first. "
        evidence = sorted((each for row in rows for each in row["evidence"]), key=_place)
        return self.finding(
            severity,
            f"{again:,} of {packets:,} packets ({percent(again / packets)}) between {some(clients)} and "
            f"{some(brokers)} retransmitted; {effect}",
            meaning=(
                "Packets are lost, or acknowledged too late. Each loss costs at least a round trip, and usually "
                "200 ms or more, during which everything after it on the connection waits."
            ),
            advice=(
                f"{advice}Look for saturated links, policers, duplex and MTU mismatches and overloaded virtual "
                "switches between the two; `kafkasniff timing --exchange N` shows on which side of the capture point "
                "packets were lost."
            ),
            subject={
                "client_ip": clients[0] if len(clients) == 1 else None,
                "broker": brokers[0] if len(brokers) == 1 else None,
                "trouble": "retransmits",
            },
            count=max(count, 1),
            first=min((one["first"] for one in known if one["first"] is not None), default=None),
            last=max((one["last"] for one in known if one["last"] is not None), default=None),
            evidence=tuple(evidence[:MAX_EVIDENCE]),
            values={
                "retransmits": again,
                "packets": packets,
                "share": again / packets,
                "unanswered": unanswered,
                "worst_ms": max((one["worst_us"] for one in known), default=0) / 1000,
            },
        )

    def _shut_pairs(self) -> list[tuple[dict[str, Any], tuple[Evidence, ...]]]:
        """Closed windows by pair, without the time for which quotas muted each connection (KIP-219)."""
        muted = {row["whole_id"]: row["throttle_us"] for row in self.parts["throttled"].table().to_pylist()}
        pairs: dict[tuple[Any, Any], tuple[dict[str, Any], list[Evidence]]] = {}
        for row, evidence in self._shut.rows(self):
            row["broker_closed_us"] = max(row["broker_closed_us"] - muted.get(row["whole_id"], 0), 0)
            if not row["broker_closed_us"]:
                row["broker_closed"] = 0
            if not (row["broker_closed"] or row["client_closed"]):
                continue
            pair = row["client_ip"], row["broker"]
            if pair not in pairs:
                pairs[pair] = row, [*evidence]
                continue
            known, named = pairs[pair]
            for name in (*_CLOSED, "count"):
                known[name] += row[name]
            known["first"] = min((one for one in (known["first"], row["first"]) if one is not None), default=None)
            known["last"] = max((one for one in (known["last"], row["last"]) if one is not None), default=None)
            named += evidence
        return [(row, tuple(sorted(named, key=_place)[:MAX_EVIDENCE])) for row, named in pairs.values()]

    def _closed(self) -> Iterator[Finding]:
        for row, evidence in self._shut_pairs():
            for whose, meaning, advice in _CLOSED_SAID:
                closed_us, count = row[f"{whose}_closed_us"], row[f"{whose}_closed"]
                if not count or closed_us * 1000 < self.thresholds.closed:
                    continue
                end = word(row["client_ip"]) if whose == "client" else row["broker"]
                yield self.finding(
                    "warning",
                    f"{end} accepted no data for {elapsed(closed_us * 1000)}: its window was closed "
                    f"{plural(count, 'time')} ({word(row['client_ip'])} and {row['broker']})",
                    meaning=meaning,
                    advice=advice,
                    subject={"client_ip": row["client_ip"], "broker": row["broker"], "trouble": f"{whose}-window"},
                    count=row["count"],
                    first=row["first"],
                    last=row["last"],
                    evidence=evidence,
                    values={"closed": count, "closed_ms": closed_us / 1000},
                )

    def _far(self, narrow: Set[Any], delayed: Mapping[Any, list[dict[str, Any]]]) -> Iterator[Finding]:
        keys, found = distributions(self.parts["latencies"], ("client_ip", "broker"), {"p50": 0.5})
        every = ways(self)
        slow = {(row["client_ip"], row["broker"]): (row, evidence) for row, evidence in self._slow.rows(self)}
        again = {(row["client_ip"], row["broker"]): row["again"] for row in self.parts["packets"].table().to_pylist()}
        for pair, way in every.items():
            if pair in narrow:
                continue
            if pair in delayed:
                yield self._slow_way(_with_delays(way, delayed[pair]), again.get(pair, 0), *_delays(delayed[pair]))
            elif way.far or way.queued:
                yield self._slow_way(way, again.get(pair, 0), *slow[pair])
        rows = zip(keys.to_pylist(), found["p50"].to_pylist(), found["count"].to_pylist(), strict=True)
        for key, median, count in rows:
            pair = key["client_ip"], key["broker"]
            known, limits = every.get(pair), self.thresholds
            if known is None or known.far or known.queued or pair in narrow or pair in delayed:
                continue
            round_trip = known.to_broker
            if round_trip < limits.way or round_trip < limits.way_share * median * 1000:
                continue
            yield self.finding(
                "note",
                f"round trip from {word(key['client_ip'])} to {key['broker']}: at least {elapsed(round_trip)} of a "
                f"median latency of {elapsed(median * 1000)}",
                meaning=(
                    "Most of the time, the client waits for the network between it and the broker. No broker setting "
                    "makes that faster."
                ),
                advice=(
                    "Transfer more per request (linger.ms and batch.size of producers, fetch.min.bytes of consumers, "
                    "more requests in flight), read from a nearby replica (client.rack), or move client and broker "
                    "closer together."
                ),
                subject={**key, "trouble": "distance"},
                count=count,
                first=None,
                last=None,
                values={"round_trip_ms": round_trip / _NS_PER_MS, "p50_ms": median / 1000},
            )

    def _slow_way(self, way: Way, again: int, row: dict[str, Any], evidence: tuple[Evidence, ...]) -> Finding:
        between = f"{word(row['client_ip'])} and {row['broker']}"
        if way.far:
            title = f"slow network: each round trip between {between} takes at least {elapsed(way.least)}"
            meaning = (
                "Kernels answer handshakes and acknowledge data at once, whatever the broker does, and even that takes "
                "this long. Each request waits for at least one round trip, a new connection for several, so all "
                "requests look late. The broker is not the cause."
            )
            advice = (
                "Find out which way the packets take (VPN, proxy, satellite or mobile link, distant region), and where "
                "they are delayed. Until that is solved, send more per request (linger.ms, batch.size, "
                "fetch.min.bytes), and allow for it in request.timeout.ms and session.timeout.ms."
            )
        else:
            title = (
                f"slow network: the round trip between {between} grows from {elapsed(way.least)} to "
                f"{elapsed(way.most)}, on {plural(way.slow, 'connection')}"
            )
            meaning = (
                "Even what kernels answer at once, handshakes and data, waits that long at times: packets queue on the "
                "path, because more is sent than a link carries, or a rate limit lets pass. Requests look late for "
                "this reason. The broker is not the cause."
                + (
                    f" {plural(again, 'packet')} were sent again, since no acknowledgement came in time."
                    if again
                    else ""
                )
            )
            advice = _LINK
        return self.finding(
            "warning",
            title,
            meaning=meaning,
            advice=advice,
            subject={
                "client_ip": row["client_ip"],
                "broker": row["broker"],
                "trouble": "far" if way.far else "queue",
            },
            count=row["count"],
            first=row["first"],
            last=row["last"],
            evidence=evidence,
            values={
                "round_trip_ms": way.least / _NS_PER_MS,
                "longest_ms": way.most / _NS_PER_MS,
                "retransmits": again,
            },
        )


_CLOSED_SAID: Final = (
    (
        "client",
        "The client does not read the broker's data: it is busy with earlier data, or hangs. Its responses look slow, "
        "but the broker is not the cause.",
        "Check what the client does between two polls, its garbage collection, and receive.buffer.bytes.",
    ),
    (
        "broker",
        "The broker does not read the client's data: its network threads are busy, it hangs, or the client sends "
        "faster than requests are handled. Throttle times (KIP-219) are subtracted.",
        "Check the broker's request queue, num.network.threads, garbage collection and disks.",
    ),
)


def _with_delays(way: Way, delays: list[dict[str, Any]]) -> Way:
    """The same with acknowledgements that waited in a queue."""
    most = max(way.most, *(row["until"] - row["since"] for row in delays))
    slow = max(way.slow, len({row["connection_id"] for row in delays}))
    return msgspec.structs.replace(way, most=most, slow=slow)


def _delays(delays: list[dict[str, Any]]) -> tuple[dict[str, Any], tuple[Evidence, ...]]:
    """What a finding says of these acknowledgements: subject, counts and times; and the evidence."""
    row = {name: delays[0][name] for name in ("client_ip", "broker")}
    row |= {"count": len(delays), "first": min(delay["since"] for delay in delays)}
    row |= {"last": max(delay["until"] for delay in delays)}
    evidence = (
        Evidence(
            delay["connection_id"],
            None,
            delay["time_ns"],
            f"data of the {delay['sender']} acknowledged after {elapsed(delay['until'] - delay['since'])}, while "
            "data of the other end arrived",
        )
        for delay in sorted(delays, key=lambda one: (one["since"], one["connection_id"]))
    )
    return row, tuple({one.connection_id: one for one in evidence}.values())[:MAX_EVIDENCE]


def _place(one: Evidence) -> tuple[int, int]:
    return one.time_ns or 0, one.connection_id


def _paths(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Pairs of a client and brokers, together if a chain of ends that they have in common connects them."""
    by_end: dict[tuple[str, Any], list[dict[str, Any]]] = {}
    ordered = sorted(rows, key=lambda row: (str(row["client_ip"]), str(row["broker"])))
    for row in ordered:
        for name in ("client_ip", "broker"):
            by_end.setdefault((name, row[name]), []).append(row)
    for row in ordered:
        path = []
        for name in ("client_ip", "broker"):
            path += by_end.pop((name, row[name]), [])
        for other in path:
            for name in ("client_ip", "broker"):
                path += by_end.pop((name, other[name]), [])
        if path:
            yield list({id(row): row for row in path}.values())
