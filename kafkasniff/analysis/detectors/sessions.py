"""Sessions that end because their client does not authenticate again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import ORDER, column, in_any, integers, only, order_columns
from kafkasniff.analysis.detectors.connections_known import (
    CONNECTIONS,
    MAX_CONNECTIONS,
    add_connections,
    connections_by_id,
    connections_shape,
)
from kafkasniff.analysis.detectors.detector import Detector, Effect
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence, Finding
from kafkasniff.analysis.detectors.wording import client, elapsed, plural, span, subject
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.partials import Shape
from kafkasniff.engine.roles import Bodies

_CONNECTION: Final[Any] = (("connection_id", pa.int64()),)
_WITHOUT_ANSWER: Final = ("unanswered", "no_response")


class ExpiredSessionThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `ExpiredSessions`."""

    at_least: Annotated[int, Meta(ge=1, description="Report from this many connections of a client to a broker.")] = 1
    soon: Annotated[
        Duration, Meta(ge=0, description="The connection ends this soon after the request that came too late.")
    ] = 2_000_000_000


class ExpiredSessions(Detector[ExpiredSessionThresholds]):
    """Connections that brokers close because their SASL session is over (`connections.max.reauth.ms`, KIP-368).

    The broker limits a session in its SaslAuthenticate response (`session_lifetime_ms`) and closes the connection at
    the first request after that, unless the client has authenticated again.

    Caveats: brokers do not send the lifetime to clients that authenticate with raw tokens or SaslAuthenticate v0.
    """

    name: ClassVar[str] = "expired-sessions"
    summary: ClassVar[str] = "Clients that do not authenticate again before their SASL session ends."
    parameters_type = ExpiredSessionThresholds
    bodies: ClassVar[Bodies] = {("response", "SaslAuthenticate"): None}

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", "status", "latency_us", "response_body")
        return {"exchanges": TableReading((*ORDER, *own)), "connections": CONNECTIONS}

    def shapes(self) -> Mapping[str, Shape]:
        number = pa.int64()
        # In reverse order: the last authentication of each connection.
        order = ("before", "exchange_id")
        sessions: Any = tuple((name, number, "first") for name in (*order, "granted_ns", "lifetime_ms"))
        return {
            "sessions": Shape(keys=_CONNECTION, measures=sessions, order=order, keep="earliest", bound=MAX_CONNECTIONS),
            "lost": Shape(
                keys=_CONNECTION,
                measures=(("count", number, "sum"), ("first", number, "min"), ("last", number, "max")),
                weight="count",
                bound=MAX_CONNECTIONS,
            ),
            "connections": connections_shape(),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        if table == "connections":
            add_connections(self, "connections", only(batch, pc.is_valid(column(batch, "sasl_mechanism"))))
            return
        lost = only(batch, in_any(batch, "status", _WITHOUT_ANSWER))
        ones, time = np.ones(lost.num_rows, np.int64), column(lost, "time_ns")
        unanswered = in_any(lost, "status", ["unanswered"])
        first = pc.if_else(unanswered, time, pa.scalar(None, pa.int64()))
        self.parts["lost"].add(
            {"connection_id": column(lost, "connection_id"), "count": ones, "first": first, "last": time}
        )
        batch = only(batch, in_any(batch, "api", ["SaslAuthenticate"]))
        found = pc.struct_field(
            pc.extract_regex(column(batch, "response_body"), r'"session_lifetime_ms":(?P<number>[1-9]\d{0,15})[,}]'),
            "number",
        ).cast(pa.int64())
        known = pc.and_(pc.is_valid(found), pc.is_valid(column(batch, "time_ns")))
        batch, found = only(batch, known), found.filter(known)
        time = integers(column(batch, "time_ns"))
        granted = time + 1000 * integers(column(batch, "latency_us"))
        self.parts["sessions"].add(
            {**order_columns(batch), "before": -time, "granted_ns": granted, "lifetime_ms": found}
        )

    def findings(self) -> Iterator[Finding]:
        connections = connections_by_id(self, "connections")
        lost = {row["connection_id"]: row for row in self.parts["lost"].table().to_pylist()}
        found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for session in self.parts["sessions"].table().to_pylist():
            number = session["connection_id"]
            one, late = connections.get(number), lost.get(number)
            if one is None or late is None or one["ended"] not in {"fin", "rst"} or late["last"] is None:
                continue
            # With acks=0, all requests of a connection are without an answer.
            asked = late["last"] if late["first"] is None else late["first"]
            over = session["granted_ns"] + 1_000_000 * session["lifetime_ms"]
            if asked >= over and one["end_time_ns"] - asked <= self.thresholds.soon:
                key = tuple(one[name] for name in ("client_id", "client_ip", "broker"))
                found.setdefault(key, []).append(
                    {**one, **session, "time_ns": -session["before"], "asked": asked, "silent": late["first"] is None}
                )
        for rows in found.values():
            if len(rows) >= self.thresholds.at_least:
                yield self._finding(sorted(rows, key=lambda row: (row["asked"], row["connection_id"])))

    def _finding(self, rows: list[dict[str, Any]]) -> Finding:
        lifetime = min(row["lifetime_ms"] for row in rows)
        first, last = rows[0]["asked"], rows[-1]["asked"]
        silent = any(row["silent"] for row in rows)
        return self.finding(
            "error" if silent else "warning",
            f"{plural(len(rows), 'connection')} of {client(rows[0])} closed by {rows[0]['broker']}{span(first, last)}: "
            f"the SASL session of {elapsed(lifetime * 1e6)} was over, and the client had not authenticated again",
            meaning=(
                "The broker limits sessions (connections.max.reauth.ms) and closes a connection at the first request "
                "after that. The request is lost; the client has to connect, authenticate and send it again."
                + (" With acks=0 it does not: its records are lost." if silent else "")
            ),
            advice=(
                "Use a client that authenticates again in time (KIP-368: Kafka's Java client since 2.2, librdkafka "
                "since 2.2). If it already does, check whether its credentials or tokens expire earlier than the "
                "session. Otherwise raise connections.max.reauth.ms."
            ),
            subject=subject(rows[0], "client_id", "client_ip", "broker"),
            count=len(rows),
            first=first,
            last=last,
            evidence=tuple(
                Evidence(
                    row["connection_id"],
                    None,
                    row["time_ns"],
                    f"request {elapsed(row['asked'] - row['granted_ns'])} after the authentication",
                )
                for row in rows[:MAX_EVIDENCE]
            ),
            values={"lifetime_ms": lifetime, "mechanism": rows[0]["sasl_mechanism"]},
        )

    def effects(self, finding: Finding) -> Iterator[Effect]:
        who = {name: finding.subject[name] for name in ("client_id", "client_ip", "broker")}
        yield "unanswered-requests", {**who, "severity": "note"}
        yield "lost-records", who
        yield "cut-connections", {"broker": who["broker"]}
