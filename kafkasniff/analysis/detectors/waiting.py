"""Requests that were never answered or answered late, not counting waits that are intended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Annotated, Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import ORDER, broker_endpoint, column, in_any, only, order_columns
from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence, Finding, Severity
from kafkasniff.analysis.detectors.tally import BROKER, CLIENT, CLIENT_COLUMNS, Tally, clients
from kafkasniff.analysis.detectors.wording import client, elapsed, plural, subject
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.partials import Shape
from kafkasniff.analysis.waits import WAIT_COLUMNS, excused_us, with_sender, work_us
from kafkasniff.kafka.connection.ends import CLOSED_BEFORE
from kafkasniff.text.printable import cut, printable, word

__all__ = ["LateAnswers", "UnansweredRequests"]

MAX_REQUESTS: Final = 100_000
"""Maximum number of unanswered requests that are examined, the earliest."""

MAX_CLIENTS: Final = 1 << 17
"""Maximum number of clients whose last request is known, the busiest."""
MAX_NOTE: Final = 200
"""Maximum number of characters of a problem's detail that are kept."""

_NS_PER_MS: Final = 1_000_000


class UnansweredThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `UnansweredRequests`."""

    after: Annotated[
        Duration,
        Meta(ge=0, description="A request that waited this long, beyond the wait that it asks for, is an error."),
    ] = 30_000_000_000


class UnansweredRequests(Detector[UnansweredThresholds]):
    """Requests whose response should be in the capture but is not.

    Requested waits, earlier requests of the connection and quotas (KIP-219) are subtracted. It is a note if the
    connection ended before `after` was over, or if the broker had closed the connection before the request. If the
    client closed it and sends nothing after that, the program has ended, or the capture: not a finding, and neither if
    another finding explains why these connections ended. Responses that a gap may have swallowed do not count.

    Caveats: loss without a visible gap (a capture filter, a second network path) looks the same. A JoinGroup may wait
    for longer than its own rebalance timeout.
    """

    name: ClassVar[str] = "unanswered-requests"
    summary: ClassVar[str] = "Requests that were never answered, beyond the wait that they allow."
    parameters_type = UnansweredThresholds

    def reads(self) -> Mapping[str, TableReading]:
        own = ("status", *CLIENT_COLUMNS, "broker_ip", "broker_port", "duration_us", *WAIT_COLUMNS)
        return {
            "exchanges": TableReading((*ORDER, *own)),
            "connections": TableReading(("connection_id", "end_time_ns", "unanswered", "captured"), optional=True),
            "problems": TableReading(("connection_id", "exchange_id", "kind", "detail"), optional=True),
            "transport": TableReading(("connection_id", "ended_by"), optional=True),
        }

    def shapes(self) -> Mapping[str, Shape]:
        order = tuple((name, pa.int64()) for name in ORDER)
        text = tuple((name, pa.string()) for name in ("api", "status"))
        keys = (*order, *CLIENT, *BROKER, *text, ("wait_ns", pa.int64()))
        high: Any = (("end_ns", pa.int64(), "max"),)
        kept: Any = {"weight": "count", "bound": MAX_CLIENTS}
        return {
            "requests": Shape(keys=keys, order=ORDER, keep="earliest", bound=MAX_REQUESTS),
            "connections": Shape(keys=(("connection_id", pa.int64()),), measures=high, bound=MAX_REQUESTS),
            "closed": Shape(
                keys=(("connection_id", pa.int64()), ("exchange_id", pa.int64()), ("detail", pa.string())),
                bound=MAX_REQUESTS,
            ),
            "by_broker": Shape(keys=(("connection_id", pa.int64()),), bound=MAX_REQUESTS),
            "seen": Shape(keys=CLIENT, measures=(("last_ns", pa.int64(), "max"), ("count", pa.int64(), "sum")), **kept),
            "end": Shape(keys=(("one", pa.int8()),), measures=(*high, ("answered", pa.int64(), "sum"))),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        if table == "connections":
            end = column(batch, "end_time_ns")
            # Acknowledgements of the broker's data would show that responses are missing (`lost`).
            self._ends(end, pc.sum(in_any(batch, "captured", ["both"])).as_py() or 0)
            mask = pc.greater(column(batch, "unanswered"), 0)
            self.parts["connections"].add(
                {"connection_id": column(batch, "connection_id").filter(mask), "end_ns": end.filter(mask)}
            )
            return
        if table == "transport":
            batch = only(batch, in_any(batch, "ended_by", ["broker"]))
            self.parts["by_broker"].add({"connection_id": column(batch, "connection_id")})
            return
        if table == "problems":
            batch = only(batch, in_any(batch, "kind", ["request-unanswered"]))
            batch = only(batch, pc.match_substring(column(batch, "detail"), CLOSED_BEFORE))
            detail = pc.utf8_slice_codeunits(column(batch, "detail"), 0, MAX_NOTE)
            ids = {name: column(batch, name) for name in ("connection_id", "exchange_id")}
            self.parts["closed"].add({**ids, "detail": detail})
            return
        lasted = pc.multiply(pc.fill_null(column(batch, "duration_us"), 0), 1000)
        over = pc.add(column(batch, "time_ns"), pc.max_element_wise(lasted, pa.scalar(0, pa.int64())))
        self._ends(over, pc.sum(in_any(batch, "status", ["answered", "orphan"])).as_py() or 0)
        counted = {"last_ns": column(batch, "time_ns"), "count": pa.array([1] * batch.num_rows, pa.int64())}
        self.parts["seen"].add({**clients(batch), **counted})
        batch = only(batch, in_any(batch, "status", ["unanswered", "open"]))
        self.parts["requests"].add(
            {
                **order_columns(batch),
                **clients(batch),
                "broker": broker_endpoint(batch),
                **{name: column(batch, name) for name in ("api", "status")},
                "wait_ns": excused_us(batch) * 1000,
            }
        )

    def _ends(self, times: pa.Array, answered: int) -> None:
        self.parts["end"].add({"one": [0], "end_ns": [pc.max(times).as_py()], "answered": [answered]})

    def findings(self) -> list[Finding]:
        ends = {row["connection_id"]: row["end_ns"] for row in self.parts["connections"].table().to_pylist()}
        whole = self.parts["end"].table()
        end, answered = (pc.max(whole.column(name)).as_py() for name in ("end_ns", "answered"))
        closed = {
            (row["connection_id"], row["exchange_id"]): row["detail"]
            for row in self.parts["closed"].table().to_pylist()
        }
        seen = {(row["client_id"], row["client_ip"]): row["last_ns"] for row in self.parts["seen"].table().to_pylist()}
        by_broker = set(self.parts["by_broker"].table().column("connection_id").to_pylist())
        found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        order = [(name, "ascending") for name in ORDER]
        table = self.parts["requests"].table()
        for row in table.take(pc.sort_indices(table, sort_keys=order)).to_pylist():
            over = end if row["status"] == "open" else ends.get(row["connection_id"])
            known = over is not None and row["time_ns"] is not None
            row["waited_ns"] = max(over - row["time_ns"], 0) if known else None
            # Without times it is unknown whether it was too early.
            beyond = row["waited_ns"] - row["wait_ns"] if known else None
            long = beyond is not None and beyond >= self.thresholds.after
            row["closed"] = closed.get((row["connection_id"], row["exchange_id"]))
            if row["closed"] is not None:
                key = (False, row["client_id"], row["client_ip"], row["broker"], row["api"], True)
                found.setdefault(key, []).append(row)
            elif (
                not (long or row["connection_id"] in by_broker)
                and over is not None
                and row["time_ns"] is not None
                and over >= (seen.get((row["client_id"], row["client_ip"])) or over)
            ):
                continue  # the program has ended, or the capture
            elif long or (row["status"] == "unanswered" and not (row["wait_ns"] and (beyond is None or beyond <= 0))):
                key = (long, row["client_id"], row["client_ip"], row["broker"], row["api"], False)
                found.setdefault(key, []).append(row)
        return [self._finding(key[0], rows, bool(answered)) for key, rows in found.items()]

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
                one["connection_id"],
                one["exchange_id"],
                one["time_ns"],
                _note(one),
            )
            for one in rows[:MAX_EVIDENCE]
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
        return finding.severity == "note" and all(one.connection_id in connections for one in finding.evidence)


def _note(row: dict[str, Any]) -> str:
    """Why a request has no response, or how long it waited."""
    if row["closed"] is not None:
        return cut(printable(CLOSED_BEFORE + row["closed"].partition(CLOSED_BEFORE)[2]), MAX_NOTE)
    return "" if row["waited_ns"] is None else f"waited {elapsed(row['waited_ns'])}"


class LateThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `LateAnswers`."""

    late: Annotated[
        Duration, Meta(ge=1, description="A response is late if it arrives this long after the request's own wait.")
    ] = 1_000_000_000
    at_least: Annotated[int, Meta(ge=1, description="This many late responses are a warning; fewer are a note.")] = 5
    timeout: Annotated[
        Duration, Meta(ge=1, description="A single response this late is an error (request.timeout.ms).")
    ] = 30_000_000_000


class LateAnswers(Detector[LateThresholds]):
    """Responses that took too long, from the request's last byte to the response's first.

    Requested waits, time queued after earlier requests, and throttle times are subtracted; the wait of acks=all for
    replicas is not.

    Caveats: network time and retransmissions are included. With acks=all another broker may be the slow one.
    """

    name: ClassVar[str] = "late-answers"
    summary: ClassVar[str] = "Requests that were answered late, beyond the wait that they allow."
    parameters_type = LateThresholds

    _late = Tally("late", (*CLIENT, *BROKER, ("api", pa.string())), sums=("total_us",), highs=("worst_us",))

    def reads(self) -> Mapping[str, TableReading]:
        own = ("latency_us", *CLIENT_COLUMNS, "broker_ip", "broker_port", *WAIT_COLUMNS)
        return {"exchanges": TableReading((*ORDER, *own))}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        threshold = self.thresholds.late // 1000
        batch = only(batch, pc.greater_equal(column(batch, "latency_us"), threshold))
        if not batch.num_rows:
            return
        late = work_us(batch)
        mask = late >= threshold
        batch, late = only(batch, pa.array(mask)), late[mask]
        keys = {**clients(batch, broker=True), "api": with_sender(batch)}
        note = pa.array([f"{elapsed(int(one) * 1000)} late" for one in late], pa.string())
        self._late.add(self, batch, keys, note, total_us=late, worst_us=late)

    def findings(self) -> Iterator[Finding]:
        for row, evidence in self._late.rows(self):
            worst, count = row["worst_us"], row["count"]
            severity: Severity = "note"
            if worst * 1000 >= self.thresholds.timeout:
                severity = "error"
            elif count >= self.thresholds.at_least:
                severity = "warning"
            requests = plural(count, f"{row['api']} request" if row["api"] is not None else "request")
            yield self.finding(
                severity,
                f"{requests} of {client(row)} answered late by {row['broker']}, by up to {elapsed(worst * 1000)}",
                meaning=(
                    "The broker was slow to process the requests, or to start on them; with acks=all a replica "
                    "may be the slow one. Waits that the requests allow, earlier requests of the connection and "
                    "quotas are not included in these times. After request.timeout.ms (30 s by default) clients "
                    "give up and retry. Packets do not show the cause."
                ),
                advice=(
                    "Compare the brokers (slow-broker), and look for retransmissions on the connection. On the "
                    "broker, check for full request queues, slow disks, long garbage collections, and with "
                    "acks=all for lagging replicas."
                ),
                subject=subject(row, "client_id", "client_ip", "broker", "api"),
                count=count,
                first=row["first"],
                last=row["last"],
                evidence=evidence,
                values={"worst_ms": worst / 1000, "mean_ms": row["total_us"] / count / 1000},
            )
