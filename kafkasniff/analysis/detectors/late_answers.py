"""Brokers that answered nothing for a while, and requests that were answered late, not counting intended waits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final

import pyarrow as pa
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters
from kafkasniff.analysis.between_brokers import is_broker, is_for_controllers, is_work
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence, Finding, Severity
from kafkasniff.analysis.detectors.pauses import Pauses, add_held, held_shapes, repeated_pauses
from kafkasniff.analysis.detectors.silences import (
    CONNECTIONS,
    LATE_NS,
    SILENT_NS,
    Owed,
    OwedResponses,
    Silence,
    silences,
)
from kafkasniff.analysis.detectors.wording import client, elapsed, percent, plural, some, span, subject
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.partials import Shape
from kafkasniff.text.times import clock_time

_NS_PER_MS: Final = 1_000_000
_GREETINGS: Final = ("ApiVersions", "SaslHandshake")
"""APIs of a connection's first request, which take a broker no time."""


class LateThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `LateAnswers`."""

    late: Annotated[
        Duration, Meta(ge=1, description="A response is late if it arrives this long after the request's own wait.")
    ] = LATE_NS
    at_least: Annotated[int, Meta(ge=1, description="This many late responses are a warning; fewer are a note.")] = 5
    long: Annotated[
        Duration,
        Meta(ge=1, description="A response to a client's work, no administration, this late is a warning."),
    ] = 2_500_000_000
    timeout: Annotated[
        Duration, Meta(ge=1, description="A single response this late is an error (request.timeout.ms).")
    ] = 30_000_000_000
    connections: Annotated[
        int, Meta(ge=1, description="Report a broker that answered nothing while this many connections waited …")
    ] = CONNECTIONS
    silent: Annotated[Duration, Meta(ge=1, description="… or one that waited this long.")] = SILENT_NS
    pauses: Annotated[
        int,
        Meta(ge=1, description="Report a broker that paused this often, for 200 ms or longer each time …"),
    ] = 3
    paused: Annotated[float, Meta(ge=0, le=1, description="… and for at least this fraction of the time.")] = 0.02


class LateAnswers(OwedResponses[LateThresholds]):
    """Brokers that answered nothing for a while, and other responses that took too long.

    A broker that answered nothing while several connections waited, or for long, is reported once, for all its clients;
    an error if that lasts until the end of the capture. A leader whose requests with acks=all wait for it meanwhile is
    not reported. A broker that does so again and again, even for fractions of a second, is reported once, as a warning.
    Responses that an outage of the network held up (`transport-trouble`) do not count, nor those near a gap in the
    capture. A single late response with an error is reported as that error (`hidden-errors`).

    Times are from a request's last byte to its response's first. Requested waits, time queued after earlier requests,
    throttle times and the fastest round trip to the broker are subtracted; the wait of acks=all for replicas is not.

    Caveats: retransmissions are included; of network time, only the fastest round trip is not. With acks=all another
    broker may be the slow one. Exports do not contain outages.
    """

    name: ClassVar[str] = "late-answers"
    summary: ClassVar[str] = "Brokers that answered nothing for a while, and requests that were answered late."
    parameters_type = LateThresholds

    @property
    def kept_ns(self) -> int:
        return self.thresholds.late

    def shapes(self) -> Mapping[str, Shape]:
        return {**super().shapes(), **held_shapes()}

    def _exchanges(self, batch: pa.RecordBatch) -> None:
        super()._exchanges(batch)
        add_held(self, batch)

    def findings(self) -> list[Finding]:
        limits = self.thresholds
        owed = self.owed()
        found = silences(self, owed, late_ns=limits.late, connections=limits.connections, silent_ns=limits.silent)
        paused = repeated_pauses(self, connections=limits.connections, times=limits.pauses, share=limits.paused)
        # The silences of a broker that pauses again and again are one finding, except those that last.
        pausing = {one.broker for one in paused}
        known = [*found, *(pause for one in paused for pause in one.each)]
        found = [
            one
            for one in found
            if one.back_ns is None
            or one.until_ns - one.first_ns >= limits.silent
            or not pausing.issuperset(one.brokers)
        ]
        late = [one for one in owed if one.row["end_ns"] is not None and one.row["late_us"] * 1000 >= limits.late]
        # The broker's own wait was over: what it waited for is the cause of the error (hidden-errors).
        late = [one for one in late if not one.row["failed"]]
        rest = [one.row for one in late if not any(silence.explains(one) for silence in known)]
        return [*map(self._silent, found), *map(self._pausing, paused), *self._late(rest)]

    @property
    def _heard(self) -> set[str]:
        """Brokers that answered anything."""
        return set(self.parts["answers"].table().column("broker").to_pylist())

    def _pausing(self, pauses: Pauses) -> Finding:
        each, owed = pauses.each, pauses.owed
        addresses = sorted({str(one.row["client_ip"]) for one in owed})
        replicas = all(one.replicas for one in each)
        several = all(one.connections > 1 for one in each)
        first, last = each[0].first_ns, each[-1].until_ns
        return self.finding(
            "warning",
            f"broker {pauses.broker} answered nothing for up to {elapsed(pauses.longest_ns)}, "
            f"{len(each):,} times{span(first, last)} ({percent(pauses.share)} of the time): "
            f"{plural(len(owed), 'request')} of {some(addresses)} waited"
            + (", with acks=all: it, or a follower, pauses" if replicas else ""),
            meaning=(
                (
                    "Each time, the broker owed responses on several connections, sent none on any, and then answered "
                    "all of them together: its process pauses. "
                    if several
                    else "Each time, the broker owed responses and sent nothing to anybody, so its process may pause. "
                )
                + "Latency jumps for all of its clients, while medians look good."
            ),
            advice=(
                "Compare the times with the broker's garbage collection log (heap size, humongous allocations), with "
                "limits of CPU (throttled containers, stolen time of virtual machines), and with stalls of its disks "
                "(fsync, swapping)."
            ),
            subject={"broker": pauses.broker, "trouble": "silent"},
            count=len(each),
            first=first,
            last=last,
            evidence=_waited(owed),
            values={
                "pauses": len(each),
                "longest_ms": pauses.longest_ns / _NS_PER_MS,
                "share": pauses.share,
                "clients": addresses,
            },
        )

    def _silent(self, silence: Silence) -> Finding:
        brokers = silence.brokers
        first = clock_time(silence.first_ns)[:-3]
        lasted = silence.until_ns - silence.first_ns
        if silence.back_ns is None:
            times = f"since {first}, for {elapsed(lasted)} until the end of the capture"
        else:
            times = f"from {first} to {clock_time(silence.until_ns)[:-3]} ({elapsed(lasted)})"
        count = len(silence.owed)
        addresses = sorted({str(one.row["client_ip"]) for one in silence.owed})
        names = sorted({client(one.row) for one in silence.owed})
        whom = names[0] if len(names) == 1 else some(addresses)
        who = f"{plural(count, 'request')} of {whom} waited on {plural(silence.connections, 'connection')}"
        if silence.waiting:
            who += f"; {some(silence.waiting)} waited for it as a follower"
        controls = any(is_for_controllers(one.row["api"]) for one in silence.owed)
        name = f"{'controller' if controls else 'broker'}{'' if len(brokers) == 1 else 's'} {some(brokers)}"
        title = f"{name} answered nothing {times}: {who}"
        meaning = (
            "It owed responses on these connections and sent none on any. Its kernel still accepted data, so its "
            "process stood still, or all its request handlers were blocked. "
        ) + (
            "Meanwhile no leader moves, no topic is created or changed, and brokers that stop or start are not noticed."
            if controls
            else "Clients see timeouts, and other brokers wait for it."
        )
        if silence.replicas:
            title = f"{name} answered nothing {times}: {who}, with acks=all: it, or a follower, stood still"
            meaning = (
                "All requests that waited ask for acknowledgements of replicas (acks=all), so a follower that stood "
                "still is as likely as the leader: a leader waits for its followers for up to "
                "replica.lag.time.max.ms. The capture does not show which."
            )
        advice = (
            "Compare the time with the broker's garbage collection log, with stalls of its disks (fsync, a full or "
            "failing volume), with snapshots and migrations of its virtual machine, and with its limits of CPU and "
            "memory (swapping)."
        )
        if all(one.row["api"] in _GREETINGS for one in silence.owed) and not self._heard.intersection(brokers):
            title = f"{title}; it never answered anything in the capture"
            advice = (
                "Check first that a listener of Kafka is at this address and port: another service may wait for "
                f"something else, such as the end of a line (HTTP). {advice}"
            )
        # A short silence at the end may be a pause.
        grave = lasted >= (self.thresholds.silent if silence.back_ns is None else self.thresholds.timeout)
        severity: Severity = "error" if grave else "warning"
        return self.finding(
            severity,
            title,
            meaning=meaning,
            advice=advice,
            subject={
                **(subject(silence.owed[0].row, "client_id", "client_ip") if len(names) == 1 else {}),
                "broker": brokers[0] if len(brokers) == 1 else None,
                "trouble": "silent",
            },
            count=count,
            first=silence.first_ns,
            last=silence.until_ns,
            evidence=_waited(silence.owed),
            values={
                "brokers": list(brokers),
                "lasted_ms": lasted / _NS_PER_MS,
                "connections": silence.connections,
                "replicas": silence.replicas,
                "clients": addresses,
                "back": silence.back_ns is not None,
                "leaders_waiting": list(silence.waiting),
            },
        )

    def _late(self, late: Sequence[dict[str, Any]]) -> Iterator[Finding]:
        groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for one in late:
            groups.setdefault((one["client_id"], one["client_ip"], one["broker"], one["api"]), []).append(one)
        for rows in groups.values():
            row, count, worst = rows[0], len(rows), max(one["late_us"] for one in rows)
            severity: Severity = "note"
            if worst * 1000 >= self.thresholds.timeout:
                severity = "error"
            elif count >= self.thresholds.at_least or (
                worst * 1000 >= self.thresholds.long and is_work(row["api"]) and not is_broker(row["client_id"], ())
            ):
                severity = "warning"
            requests = plural(count, f"{row['api']} request" if row["api"] is not None else "request")
            # The kernel accepts connections that the broker does not serve yet.
            accepted = count > 1 and row["api"] in _GREETINGS and all(one["exchange_id"] == 0 for one in rows)
            which = ", each the first of its connection," if accepted else ""
            yield self.finding(
                severity,
                f"{requests} of {client(row)}{which} answered late by {row['broker']}, by up to "
                f"{elapsed(worst * 1000)}",
                meaning=(
                    "The broker let new connections wait and answered normally after that: it limits how many it "
                    "accepts in a second or at a time, or its threads for new connections and authentication are busy."
                    if accepted
                    else "The broker was slow to process the requests, or to start on them; with acks=all a replica "
                    "may be the slow one. Waits that the requests allow, earlier requests of the connection and "
                    "quotas are not included in these times. After request.timeout.ms (30 s by default) clients "
                    "give up and retry. Packets do not show the cause."
                ),
                advice=(
                    "Compare the number of new connections with max.connection.creation.rate, max.connections and the "
                    "quota connection_creation_rate of the address, and find clients that connect too often "
                    "(connection-churn)."
                    if accepted
                    else "Compare the brokers (slow-broker), and look for retransmissions on the connection. On the "
                    "broker, check for full request queues, slow disks, long garbage collections, and with "
                    "acks=all for lagging replicas."
                ),
                subject=subject(row, "client_id", "client_ip", "broker", "api"),
                count=count,
                first=rows[0]["time_ns"],
                last=rows[-1]["time_ns"],
                evidence=tuple(
                    Evidence(
                        one["connection_id"],
                        one["exchange_id"],
                        one["time_ns"],
                        f"{elapsed(one['late_us'] * 1000)} late",
                    )
                    for one in rows[:MAX_EVIDENCE]
                ),
                values={
                    "worst_ms": worst / 1000,
                    "mean_ms": sum(one["late_us"] for one in rows) / count / 1000,
                    "replicas": all(one["replicas"] for one in rows),
                },
            )


def _waited(owed: Sequence[Owed]) -> tuple[Evidence, ...]:
    """The exchanges whose responses a silence delayed."""
    return tuple(
        Evidence(one.connection_id, one.row["exchange_id"], one.row["time_ns"], f"waited {elapsed(one.overdue_ns)}")
        for one in owed[:MAX_EVIDENCE]
    )
