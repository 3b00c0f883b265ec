"""Requests that brokers answered late or never, not counting waits that are intended."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.between_brokers import is_broker, is_for_controllers, is_forwarded, is_work
from kafkasniff.analysis.columns import broker_endpoint, column, in_any, only
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence, Finding, Severity
from kafkasniff.analysis.detectors.silences import (
    CONNECTIONS,
    LATE_NS,
    MAX_REQUESTS,
    SILENT_NS,
    SLOT_NS,
    Owed,
    OwedResponses,
    Pauses,
    Silence,
    add_held,
    held_shapes,
    repeated_pauses,
    silences,
)
from kafkasniff.analysis.detectors.tally import BROKER, CLIENT, clients
from kafkasniff.analysis.detectors.wording import client, elapsed, percent, plural, some, span, subject
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.partials import Shape
from kafkasniff.kafka.connection.events import CLOSED_BEFORE
from kafkasniff.tables.rows.transport import TABLE
from kafkasniff.text.printable import cut, printable, word
from kafkasniff.text.times import clock_time

MAX_CLIENTS: Final = 1 << 17
"""Maximum number of clients whose last request is known, the busiest."""
SPREAD: Final = 0.2
"""Largest difference of times that count as the same, as a fraction."""
EARLY: Final = 3
"""So many connections in a row show that a client gives up before the wait that it asks for is over: programs that end
also close connections within such waits …"""
EARLY_NS: Final = 1_000_000_000
"""… and after at least this time."""
LONGEST_WAIT_NS: Final = 86_400_000_000_000
"""Longer waits are unknown ones."""
MAX_NOTE: Final = 200
"""Maximum number of characters of a problem's detail that are kept."""

_NS_PER_MS: Final = 1_000_000
_IMPATIENT: Final = (
    "The client closes connections after a constant time, its request timeout, while the broker does what the request "
    "asks for: it waits until there is enough to send, or until the wait is over. Whatever takes longer than the "
    "timeout never arrives, and the client connects again each time."
)
_PATIENCE: Final = (
    "Set the client's timeout (request.timeout.ms; socket.timeout.ms of librdkafka) above the wait that it asks for "
    "(fetch.max.wait.ms of consumers, max.poll.interval.ms of group members), or lower that wait."
)


class UnansweredThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `UnansweredRequests`."""

    after: Annotated[
        Duration,
        Meta(ge=0, description="A request that waited this long, beyond the wait that it asks for, is an error."),
    ] = 30_000_000_000
    forwarded: Annotated[
        Duration,
        Meta(ge=0, description="The same, from the request on, for what brokers pass to the controller (KIP-590)."),
    ] = 5_000_000_000
    given_up: Annotated[
        Duration, Meta(ge=1, description="A client gives up a request if it closes the connection this long after …")
    ] = 100_000_000
    connections: Annotated[
        int, Meta(ge=2, description="… the response was due; reported if it closed this many after the same time.")
    ] = 2


class UnansweredRequests(OwedResponses[UnansweredThresholds]):
    """Requests whose response should be in the capture but is not, and clients that do not wait for responses.

    Requested waits, earlier requests of the connection and quotas (KIP-219) are subtracted. It is a note if the
    connection ended before `after` was over, or if the broker had closed the connection before the request. If the
    client closed it and sends nothing after that, the program has ended, or the capture: not a finding, and neither if
    another finding explains why these connections ended. Responses that a gap may have swallowed do not count, nor
    those that an outage (`transport-trouble`) or a broker that answered nothing (`late-answers`) explains.

    A client that closes several connections after the same time without a response has a timeout that is too short: an
    error. So has one that closes them while the broker may still wait, as the request asks (`fetch.max.wait.ms`).

    Caveats: exports do not say who closed a connection. Loss without a visible gap (a capture filter, a second network
    path) looks the same. A JoinGroup may wait for longer than its own rebalance timeout.
    """

    name: ClassVar[str] = "unanswered-requests"
    by_absence = True
    summary: ClassVar[str] = "Requests that were never answered, beyond the wait that they allow."
    parameters_type = UnansweredThresholds

    def reads(self) -> Mapping[str, TableReading]:
        problems = TableReading(("connection_id", "exchange_id", "time_ns", "kind", "detail"), optional=True)
        return {**super().reads(), "problems": problems}

    def shapes(self) -> Mapping[str, Shape]:
        ids = tuple((name, pa.int64()) for name in ("connection_id", "exchange_id"))
        last: Any = (("last_ns", pa.int64(), "max"), ("count", pa.int64(), "sum"))
        return {
            **super().shapes(),
            "closed": Shape(keys=(*ids, ("detail", pa.string())), bound=MAX_REQUESTS),
            "by_broker": Shape(keys=(("connection_id", pa.int64()),), bound=MAX_REQUESTS),
            "seen": Shape(keys=CLIENT, measures=last, weight="count", bound=MAX_CLIENTS),
        }

    @property
    def kept_ns(self) -> int:
        return self.thresholds.given_up

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        super().update(batch, table)
        if table != "problems":
            if table == TABLE:
                batch = only(batch, in_any(batch, "ended_by", ["broker"]))
                self.parts["by_broker"].add({"connection_id": column(batch, "connection_id")})
            elif table == "exchanges":
                counted = {"last_ns": column(batch, "time_ns"), "count": pa.array([1] * batch.num_rows, pa.int64())}
                self.parts["seen"].add({**clients(batch), **counted})
            return
        batch = only(batch, in_any(batch, "kind", ["request-unanswered"]))
        batch = only(batch, pc.match_substring(column(batch, "detail"), CLOSED_BEFORE))
        detail = pc.utf8_slice_codeunits(column(batch, "detail"), 0, MAX_NOTE)
        ids = {name: column(batch, name) for name in ("connection_id", "exchange_id")}
        self.parts["closed"].add({**ids, "detail": detail})

    def findings(self) -> list[Finding]:
        owed = self.owed()
        known = silences(self, owed)
        given_up = list(self._given_up([one for one in owed if not any(silence.explains(one) for silence in known)]))
        done = {id(owed) for rows, _ in given_up for owed in rows}
        answered = pc.max(self.parts["whole"].table().column("answered")).as_py()
        closed = {
            (row["connection_id"], row["exchange_id"]): row["detail"]
            for row in self.parts["closed"].table().to_pylist()
        }
        seen = {(row["client_id"], row["client_ip"]): row["last_ns"] for row in self.parts["seen"].table().to_pylist()}
        by_broker = set(self.parts["by_broker"].table().column("connection_id").to_pylist())
        muted: dict[int, int] = {}
        """Until when brokers do not read from connections, because of a quota."""
        for one in owed:
            until = (one.row["time_ns"] or 0) + 1000 * one.row["muted_us"] if one.row["muted_us"] else 0
            muted[one.connection_id] = max(until, muted.get(one.connection_id, until))
        found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for one in owed:
            row, reason = one.row, closed.get((one.connection_id, one.row["exchange_id"]))
            if row["end_ns"] is not None or id(one) in done:
                continue
            # Without times it is unknown whether it was too early.
            timed = one.end_ns is not None and row["time_ns"] is not None
            if one.end_ns is not None and row["time_ns"] is not None and is_forwarded(row["api"]):
                read = max(row["time_ns"], muted.get(one.connection_id, 0))
                long = one.end_ns - read >= self.thresholds.forwarded
            else:
                long = timed and one.overdue_ns >= self.thresholds.after
            if reason is None and any(silence.explains(one) for silence in known):
                continue
            last = seen.get((row["client_id"], row["client_ip"]))
            ended = timed and (last is None or (one.end_ns is not None and one.end_ns >= last))
            if reason is None and not long and ended and one.connection_id not in by_broker:
                continue  # the program has ended, or the capture
            waits = one.due_ns is not None and row["time_ns"] is not None and one.due_ns > row["time_ns"]
            early = waits and (not timed or not one.overdue_ns)
            if reason is None and not long and (row["status"] == "open" or early):
                continue
            waited = max(one.end_ns - row["time_ns"], 0) if timed and one.end_ns is not None else None
            key = (long and reason is None, row["client_id"], row["client_ip"], one.broker, row["api"], reason is None)
            found.setdefault(key, []).append({**row, "closed": reason, "waited_ns": waited})
        return [
            *(self._impatient(rows, waited) for rows, waited in given_up),
            *(self._finding(key[0], rows, bool(answered)) for key, rows in found.items()),
        ]

    def _given_up(self, owed: Iterable[Owed]) -> Iterator[tuple[list[Owed], int]]:
        """Requests that a client and broker have in common, and after which time (ns) the client closes connections."""
        left = {row["connection_id"]: row["end_ns"] for row in self.parts["left"].table().to_pylist()}
        pairs: dict[tuple[Any, ...], dict[int, list[Owed]]] = {}
        for one in owed:
            over = left.get(one.connection_id)
            if over is None or one.due_ns is None or over - one.due_ns >= self.thresholds.after:
                continue
            if one.row["client_id"] is None or is_broker(one.row["client_id"], ()):
                continue  # it may be several, and brokers have short timeouts on purpose
            early = over < one.due_ns
            if not early and over - one.due_ns < self.kept_ns:
                continue
            if one.row["end_ns"] is None or one.row["end_ns"] > over:
                pair = one.row["client_id"], one.row["client_ip"], one.broker, early
                pairs.setdefault(pair, {}).setdefault(one.connection_id, []).append(one)
        for (*_, early), connections in pairs.items():
            waited = {number: left[number] - rows[0].row["time_ns"] for number, rows in connections.items()}
            usual = sorted(waited.values())[len(waited) // 2]
            alike = [number for number, time in waited.items() if abs(time - usual) <= usual * SPREAD]
            # One that ends may have been stopped; a constant time is a timeout.
            if len(alike) < self.thresholds.connections or 2 * len(alike) <= len(waited):
                continue
            rows = [owed for number in alike for owed in connections[number]]
            if not early or _in_a_row([connections[number][0] for number in alike], usual):
                yield rows, usual

    def _impatient(self, given_up: list[Owed], waited: int) -> Finding:
        rows = sorted((owed.row for owed in given_up), key=lambda row: (row["time_ns"], row["exchange_id"]))
        row, later = rows[0], sum(row["end_ns"] is not None for row in rows)
        connections = len({row["connection_id"] for row in rows})
        apis = some(sorted({str(row["api"]) for row in rows}))
        what = plural(len(rows), f"{apis} request")
        came = f"; {plural(later, 'response')} came after that" if later else ""
        replicas = all(owed.replicas for owed in given_up)
        # Others may have waited for this one.
        allowed = max((owed.due_ns or 0) - owed.row["time_ns"] for owed in given_up if owed.row is row)
        early = allowed > waited
        asks = f", but lets the broker wait for {elapsed(allowed)}" if early else f" without a response{came}"
        return self.finding(
            "error",
            f"{client(row)} gave up {what} to {row['broker']}: it closed {plural(connections, 'connection')} after "
            f"{elapsed(waited)}{asks}",
            meaning=_IMPATIENT
            if early
            else (
                "The client closes connections with outstanding requests after a constant time, which is its request "
                "timeout. The broker may have executed the requests; the client sends them again, on a new connection."
                + (" All of them wait for replicas (acks=all), so a slow follower delays them." if replicas else "")
            ),
            advice=_PATIENCE
            if early
            else (
                "Set the client's timeout (request.timeout.ms, 30 s by default; socket.timeout.ms of librdkafka, 60 s) "
                "above the longest time that the broker needs, and find out what makes the broker"
                f"{', or one of its followers,' if replicas else ''} slower than {elapsed(waited)}."
            ),
            subject=subject(row, "client_id", "client_ip", "broker"),
            count=len(rows),
            first=rows[0]["time_ns"],
            last=rows[-1]["time_ns"],
            evidence=tuple(
                Evidence(
                    row["connection_id"],
                    row["exchange_id"],
                    row["time_ns"],
                    "no response"
                    if row["end_ns"] is None
                    else f"response after {elapsed(row['end_ns'] - row['time_ns'])}",
                )
                for row in rows[:MAX_EVIDENCE]
            ),
            values={
                "waited_ms": waited / _NS_PER_MS,
                "connections": connections,
                "later": later,
                "allowed_ms": allowed / _NS_PER_MS if early else None,
            },
        )

    def _finding(self, long: bool, rows: list[dict[str, Any]], answered: bool) -> Finding:
        row, times = rows[0], [row["time_ns"] for row in rows if row["time_ns"] is not None]
        waited = max((row["waited_ns"] for row in rows if row["waited_ns"] is not None), default=None)
        requests = plural(len(rows), f"{word(row['api'])} request" if row["api"] is not None else "request")
        who = f"of {client(row)} to {row['broker']}"
        if long:
            severity: Severity = "error" if answered else "warning"
            title = f"{requests} {who} never answered; the longest waited {elapsed(waited or 0)}"
            meaning = (
                "The broker received the request and did not respond, for longer than clients wait by default "
                "(request.timeout.ms). It is overloaded or hangs, or something on the path dropped the response."
            )
            if not answered:
                meaning = f"The capture holds only client traffic, and the clients acknowledge no response. {meaning}"
            advice = (
                "Check what else this broker answered at that time, and its request queue and log; look for "
                "retransmissions on the connection, and for proxies or firewalls that forget connections."
            )
            if is_forwarded(row["api"]):
                meaning = (
                    "Brokers pass such requests to the controller (KIP-590) and wait for it, up to a minute, while "
                    "they answer others. Probably no controller is active, or this broker cannot reach it: no topic is "
                    "created or changed, and no leader moves."
                )
                advice = (
                    "Check whether the controllers run and a majority of them can reach each other "
                    "(`kafka-metadata-quorum --bootstrap-controller HOST:PORT describe --status`), and whether this "
                    "broker reaches them."
                )
        elif row["closed"] is not None:
            severity = "note"
            title = f"{requests} {who} sent after the broker had closed the connection"
            meaning = (
                "The broker had closed its side of the connection before the request arrived, so there is no "
                "response; the client did not know yet. Clients open another connection and send most requests again."
            )
            advice = (
                "Brokers close connections without requests after connections.max.idle.ms (10 minutes by default), "
                "and all of them when they stop. Keep the client's connections.max.idle.ms below the broker's."
            )
        else:
            severity = "note"
            title = f"{requests} {who} cut off by the end of the connection"
            meaning = (
                "The connection ended before the response came. The client cannot know whether the broker executed "
                "the request."
            )
            advice = "Find out who closed the connection, and check the broker's log at that time."
        evidence = tuple(
            Evidence(
                row["connection_id"],
                row["exchange_id"],
                row["time_ns"],
                _note(row),
            )
            for row in rows[:MAX_EVIDENCE]
        )
        return self.finding(
            severity,
            title,
            meaning=meaning,
            advice=advice,
            subject=subject(row, "client_id", "client_ip", "broker", "api"),
            count=len(rows),
            first=min(times, default=None),
            last=max(times, default=None),
            evidence=evidence,
            values={"waited_ms": None if waited is None else waited / _NS_PER_MS},
        )

    def explained(self, finding: Finding, connections: Set[int]) -> bool:
        return finding.severity == "note" and all(
            evidence.connection_id in connections for evidence in finding.evidence
        )


def _in_a_row(given_up: Sequence[Owed], waited: int) -> bool:
    """Whether one soon followed the other: the client did not end, but asked again."""
    if len(given_up) < EARLY or waited < EARLY_NS:
        return False
    if any((owed.due_ns or 0) - owed.row["time_ns"] > LONGEST_WAIT_NS for owed in given_up):
        return False
    times = sorted(owed.row["time_ns"] for owed in given_up)
    return bool(times[-1] - times[0] <= 2 * waited * (len(times) - 1))


def _note(row: dict[str, Any]) -> str:
    """Why a request has no response, or how long it waited."""
    if row["closed"] is not None:
        return cut(printable(CLOSED_BEFORE + row["closed"].partition(CLOSED_BEFORE)[2]), MAX_NOTE)
    return "" if row["waited_ns"] is None else f"waited {elapsed(row['waited_ns'])}"


FEW: Final = 3
"""This many late changes of the cluster are a warning: there are few of them."""
_LOGIN: Final = "SaslAuthenticate"
_GREETINGS: Final = ("ApiVersions", "SaslHandshake")
"""APIs of a connection's first request, which take a broker no time."""
_WRITES: Final = frozenset(
    {
        *("Produce", "OffsetCommit", "TxnOffsetCommit", "EndTxn", "AddPartitionsToTxn", "AddOffsetsToTxn"),
        *("InitProducerId", "SyncGroup", "JoinGroup", "LeaveGroup", "Heartbeat", "ConsumerGroupHeartbeat"),
    }
)
"""Requests that a broker answers when it has written to a log, the partition's or its coordinator's, or that a
coordinator handles after those."""
_WRITTEN: Final = "All requests that waited make it write to its logs, so perhaps only its disks stood still."


class _Logins:
    """Late logins at a broker, and the time in which at least one of them was not answered."""

    def __init__(self, owed: Sequence[Owed]) -> None:
        self.owed = owed
        self.others = 0
        """Number of other requests that waited meanwhile."""
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._sums = [0]
        """Lengths of the first spans together."""
        for first, until in sorted((one.due_ns or 0, one.end_ns or 0) for one in owed):
            if self._ends and first <= self._ends[-1]:
                more = max(until - self._ends[-1], 0)
                self._ends[-1] += more
                self._sums[-1] += more
            else:
                self._starts.append(first)
                self._ends.append(until)
                self._sums.append(self._sums[-1] + until - first)

    def before(self, time_ns: int) -> int:
        """The part of this time that was before another one."""
        index = bisect_right(self._starts, time_ns)
        return self._sums[index] - max(self._ends[index - 1] - time_ns, 0) if index else 0


def _waits_for(one: Owed, logins: Mapping[str, _Logins]) -> bool:
    """Whether a response was due mostly while logins of its broker were late."""
    known = logins.get(one.broker)
    if known is None or one.due_ns is None or one.end_ns is None:
        return False
    return 0 < one.overdue_ns <= 2 * (known.before(one.end_ns) - known.before(one.due_ns))


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

    Where only requests that make the broker write to its logs were late, its disks are named, in one finding; where
    most logins were late, one after the other, what checks the credentials.

    Times are from a request's last byte to its response's first. Requested waits, time queued after earlier requests,
    throttle times and the fastest round trip to the broker are subtracted; the wait of acks=all for replicas is not.

    Caveats: retransmissions are included; of network time, only the fastest round trip is not. With acks=all another
    broker may be the slow one. Exports do not contain outages.
    """

    name: ClassVar[str] = "late-answers"
    by_absence = True
    summary: ClassVar[str] = "Brokers that answered nothing for a while, and requests that were answered late."
    parameters_type = LateThresholds

    @property
    def kept_ns(self) -> int:
        return self.thresholds.late

    def shapes(self) -> Mapping[str, Shape]:
        logins = Shape(keys=BROKER, measures=(("count", pa.int64(), "sum"),), weight="count", bound=MAX_REQUESTS)
        return {**super().shapes(), **held_shapes(), "logins": logins}

    def _exchanges(self, batch: pa.RecordBatch) -> None:
        super()._exchanges(batch)
        add_held(self, batch)
        logins = only(batch, in_any(batch, "api", [_LOGIN]))
        self.parts["logins"].add({"broker": broker_endpoint(logins), "count": np.ones(logins.num_rows, np.int64)})

    def findings(self) -> list[Finding]:
        limits = self.thresholds
        owed = self.owed()
        found = silences(self, owed, late_ns=limits.late, connections=limits.connections, silent_ns=limits.silent)
        paused = repeated_pauses(self, connections=limits.connections, times=limits.pauses, share=limits.paused)
        # The silences of a broker that pauses again and again are one finding, except those that last.
        pausing = {pauses.broker for pauses in paused}
        known = [*found, *(pause for pauses in paused for pause in pauses.each)]
        found = [
            silence
            for silence in found
            if silence.back_ns is None
            or silence.until_ns - silence.first_ns >= limits.silent
            or not pausing.issuperset(silence.brokers)
        ]
        late = [one for one in owed if one.row["end_ns"] is not None and one.row["late_us"] * 1000 >= limits.late]
        # The broker's own wait was over: what it waited for is the cause of the error (hidden-errors).
        late = [owed for owed in late if not owed.row["failed"]]
        slow = self._slow_logins(late)
        for one in owed:
            if one.row["api"] != _LOGIN and _waits_for(one, slow):
                slow[one.broker].others += 1
        found = [silence for silence in found if not all(_waits_for(one, slow) for one in silence.owed)]
        paused = [pauses for pauses in paused if not all(_waits_for(one, slow) for one in pauses.owed)]
        late = [one for one in late if not _waits_for(one, slow)]
        rest = [owed.row for owed in late if not any(silence.explains(owed) for silence in known)]
        writes = _late_writes(rest)
        rest = [row for row in rest if row["broker"] not in writes]
        # Nothing else was due when it only seemed to be silent.
        seeming = [one for one in found if one.brokers[0] in writes and _only_writes(one.owed) and one.back_ns]
        for silence in seeming:
            writes[silence.brokers[0]] += [owed.row for owed in silence.owed if owed.row["late_us"] is not None]
        return [
            *map(self._silent, (one for one in found if one not in seeming)),
            *(self._pausing(one) for one in paused if one.broker not in writes or not _only_writes(one.owed)),
            *map(self._writing, writes.values()),
            *map(self._logging_in, slow.values()),
            *self._late(rest),
        ]

    def _slow_logins(self, late: Iterable[Owed]) -> dict[str, _Logins]:
        """By broker, if most of its logins were late. A broker that stood still answers all that waited at once."""
        counts = {row["broker"]: row["count"] for row in self.parts["logins"].table().to_pylist()}
        found: dict[str, list[Owed]] = {}
        for one in late:
            if one.row["api"] == _LOGIN and one.end_ns is not None:
                found.setdefault(one.broker, []).append(one)
        ends = {broker: sorted(one.end_ns or 0 for one in logins) for broker, logins in found.items()}
        return {
            broker: _Logins(logins)
            for broker, logins in found.items()
            if 2 * len(logins) >= counts.get(broker, 0)
            and any(after - before >= SLOT_NS for before, after in pairwise(ends[broker]))
        }

    @property
    def _heard(self) -> set[str]:
        """Brokers that answered anything."""
        return set(self.parts["answers"].table().column("broker").to_pylist())

    def _pausing(self, pauses: Pauses) -> Finding:
        each, owed = pauses.each, pauses.owed
        addresses = sorted({str(one.row["client_ip"]) for one in owed})
        replicas = all(silence.replicas for silence in each)
        several = all(silence.connections > 1 for silence in each)
        writes = not replicas and _only_writes(owed)
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
                + (f" {_WRITTEN}" if writes else "")
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
        addresses = sorted({str(owed.row["client_ip"]) for owed in silence.owed})
        names = sorted({client(owed.row) for owed in silence.owed})
        whom = names[0] if len(names) == 1 else some(addresses)
        who = f"{plural(count, 'request')} of {whom} waited on {plural(silence.connections, 'connection')}"
        if silence.waiting:
            who += f"; {some(silence.waiting)} waited for it as a follower"
        controls = any(is_for_controllers(owed.row["api"]) for owed in silence.owed)
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
        if not silence.replicas and _only_writes(silence.owed):
            meaning = f"{meaning} {_WRITTEN}"
        if all(owed.row["api"] in _GREETINGS for owed in silence.owed) and not self._heard.intersection(brokers):
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

    def _severity(self, late: Sequence[dict[str, Any]]) -> Severity:
        worst_ns = _worst_us(late) * 1000
        if worst_ns >= self.thresholds.timeout:
            return "error"
        clients_work = is_work(late[0]["api"]) and not is_broker(late[0]["client_id"], ())
        long = worst_ns >= self.thresholds.long and clients_work
        enough = FEW if is_forwarded(late[0]["api"]) else self.thresholds.at_least
        return "warning" if long or len(late) >= enough else "note"

    def _writing(self, late: Sequence[dict[str, Any]]) -> Finding:
        rows = sorted(late, key=lambda row: (row["time_ns"], row["exchange_id"]))
        worst = _worst_us(rows)
        counts = Counter(str(row["api"]) for row in rows)
        requests = ", ".join(plural(count, f"{api} request") for api, count in counts.most_common())
        names = len({(row["client_id"], row["client_ip"]) for row in rows})
        replicas = all(row["replicas"] for row in rows if row["api"] == "Produce")
        return self.finding(
            self._severity(rows),
            f"broker {rows[0]['broker']} was late only with what it writes, by up to {elapsed(worst * 1000)}: "
            f"{requests} of {plural(names, 'client')}",
            meaning=(
                "Requests that make it write to its log, records and offsets alike, were answered late on several "
                "connections, and it answered others meanwhile. So neither the network nor its whole process is slow, "
                f"but its disks{', or with acks=all and committed offsets a follower' if replicas else ''}."
            ),
            advice=(
                "Look at the disks of the log folders at that time (`iostat -x`: await, queue length; exhausted burst "
                "credits of cloud volumes), at log.flush.interval.messages and .ms, and at the broker's metrics: "
                "LogFlushRateAndTimeMs, LocalTimeMs and RemoteTimeMs of Produce (the wait for followers)."
            ),
            subject={"broker": rows[0]["broker"], "trouble": "writes"},
            count=len(rows),
            first=rows[0]["time_ns"],
            last=rows[-1]["time_ns"],
            evidence=_late_evidence(rows),
            values={"worst_ms": worst / 1000, "requests": dict(counts), "clients": names, "replicas": replicas},
        )

    def _logging_in(self, logins: _Logins) -> Finding:
        rows = sorted((one.row for one in logins.owed), key=lambda row: (row["time_ns"], row["exchange_id"]))
        names = {(row["client_id"], row["client_ip"]) for row in rows}
        who = client(rows[0]) if len(names) == 1 else plural(len(names), "client")
        worst, others = _worst_us(rows), logins.others
        return self.finding(
            self._severity(rows),
            f"logins at broker {rows[0]['broker']} take up to {elapsed(worst * 1000)}: "
            f"{plural(len(rows), f'{_LOGIN} request')} of {who} answered late"
            + (f", and {plural(others, 'other request')} waited meanwhile" if others else ""),
            meaning=(
                "Most logins were late, one after the other, so what checks the credentials is slow. Brokers do this "
                "in their network threads: other connections of the same thread wait for it, new ones first."
            ),
            advice=(
                "Look at what the listener asks (sasl.server.callback.handler.class): LDAP or another directory, the "
                "endpoint of the token keys (JWKS) or of token introspection, the KDC and DNS for GSSAPI. Until it is "
                "faster, let clients keep their connections, and raise num.network.threads of the listener."
            ),
            subject={"broker": rows[0]["broker"], "trouble": "logins"},
            count=len(rows),
            first=rows[0]["time_ns"],
            last=rows[-1]["time_ns"],
            evidence=_late_evidence(rows),
            values={"worst_ms": worst / 1000, "clients": len(names), "others": others},
        )

    def _late(self, late: Sequence[dict[str, Any]]) -> Iterator[Finding]:
        groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for one in late:
            groups.setdefault((one["client_id"], one["client_ip"], one["broker"], one["api"]), []).append(one)
        for rows in groups.values():
            row, count, worst = rows[0], len(rows), _worst_us(rows)
            requests = plural(count, f"{row['api']} request" if row["api"] is not None else "request")
            # The kernel accepts connections that the broker does not serve yet.
            controller = is_forwarded(row["api"])
            accepted = count > 1 and row["api"] in _GREETINGS and all(row["exchange_id"] == 0 for row in rows)
            which = ", each the first of its connection," if accepted else ""
            yield self.finding(
                self._severity(rows),
                f"{requests} of {client(row)}{which} answered late by {row['broker']}, by up to "
                f"{elapsed(worst * 1000)}" + (", which had to wait for the controller" if controller else ""),
                meaning=(
                    "Brokers pass such requests to the active controller (KIP-590), which stores the changes in its "
                    "log, and wait for it. So the controller is slow, its disk, or the other controllers that have to "
                    "store them, too."
                    if controller
                    else "The broker let new connections wait and answered normally after that: it limits how many it "
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
                    else "Look at the active controller, above all at its disk: the metrics of its event queue "
                    "(EventQueueTimeMs, EventQueueProcessingTimeMs), and `kafka-metadata-quorum describe "
                    "--replication` for controllers that lag behind."
                    if controller
                    else "Compare the brokers (slow-broker), and look for retransmissions on the connection. On the "
                    "broker, check for full request queues, slow disks, long garbage collections, and with "
                    "acks=all for lagging replicas."
                ),
                subject=subject(row, "client_id", "client_ip", "broker", "api"),
                count=count,
                first=rows[0]["time_ns"],
                last=rows[-1]["time_ns"],
                evidence=_late_evidence(rows),
                values={
                    "worst_ms": worst / 1000,
                    "mean_ms": sum(row["late_us"] for row in rows) / count / 1000,
                    "replicas": all(row["replicas"] for row in rows),
                },
            )


def _worst_us(late: Iterable[dict[str, Any]]) -> int:
    return max(int(row["late_us"]) for row in late)


def _only_writes(owed: Iterable[Owed]) -> bool:
    return all(one.row["api"] in _WRITES for one in owed)


def _late_writes(late: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Late requests by broker, if all of them make it write, and they are of several kinds or clients."""
    by_broker: dict[str, list[dict[str, Any]]] = {}
    for row in late:
        by_broker.setdefault(row["broker"], []).append(row)
    writes = {}
    for broker, rows in by_broker.items():
        kinds = {(row["client_id"], row["client_ip"], row["api"]) for row in rows}
        connections = {row["connection_id"] for row in rows}
        apis = {row["api"] for row in rows}
        if apis <= _WRITES and "Produce" in apis and min(len(kinds), len(connections)) > 1:
            writes[broker] = rows
    return writes


def _late_evidence(rows: Sequence[dict[str, Any]]) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(row["connection_id"], row["exchange_id"], row["time_ns"], f"{elapsed(row['late_us'] * 1000)} late")
        for row in rows[:MAX_EVIDENCE]
    )


def _waited(owed: Sequence[Owed]) -> tuple[Evidence, ...]:
    """The exchanges whose responses a silence delayed."""
    return tuple(
        Evidence(one.connection_id, one.row["exchange_id"], one.row["time_ns"], f"waited {elapsed(one.overdue_ns)}")
        for one in owed[:MAX_EVIDENCE]
    )
