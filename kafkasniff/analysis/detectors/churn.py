"""Clients that keep opening new connections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

import pyarrow as pa
from msgspec import Meta

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading
from kafkasniff.analysis.columns import column, first_of_each, floor_divided, in_any, only
from kafkasniff.analysis.detectors.connections_known import (
    CONNECTIONS,
    add_connections,
    connections_by_id,
    connections_shape,
)
from kafkasniff.analysis.detectors.detector import Detector, evidence_columns, evidence_shape, united
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence, Finding
from kafkasniff.analysis.detectors.problems_known import (
    PROBLEMS,
    REJECTED,
    add_problems,
    cause_of,
    problems_by_time,
    problems_shape,
)
from kafkasniff.analysis.detectors.refusals import SASL_REFUSED, taken_mechanisms
from kafkasniff.analysis.detectors.tally import CLIENT
from kafkasniff.analysis.detectors.wording import client, elapsed, plural, subject
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.partials import Shape
from kafkasniff.analysis.questions.churn import Churn, ChurnParameters
from kafkasniff.text.printable import word

VALUES: Final = ("opened", "short", "reset", "without_requests", "requests")


class ChurnThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `ConnectionChurn`."""

    every: Annotated[Duration, Meta(ge=1, description="Time span in which connections are counted.")] = 60_000_000_000
    at_least: Annotated[int, Meta(ge=1, description="This many connections of a client in a span are churn …")] = 20
    crowd: Annotated[
        int, Meta(ge=1, description="… or this many of an address under different client ids, fewer each …")
    ] = 60
    short: Annotated[Duration, Meta(ge=0, description="A connection that ended within this time is short.")] = (
        5_000_000_000
    )
    share: Annotated[float, Meta(ge=0, le=1, description="… if at least this fraction of them was short.")] = 0.5


class ConnectionChurn(Detector[ChurnThresholds]):
    """Periods in which a client opened many connections, most of them short-lived.

    If the broker refused at least `share` of them, the finding names the refusal. Programs whose clients have a new id
    each time, as those of Kafka's Java libraries do (`producer-1`, `producer-2` …), are known by their address.

    Caveats: connections that are not decrypted do not count. Many programs that share an address (NAT) look like one.
    """

    name: ClassVar[str] = "connection-churn"
    summary: ClassVar[str] = "Clients that keep opening new connections."
    parameters_type = ChurnThresholds

    def questions(self) -> Mapping[str, Accumulator[Any]]:
        limits = self.thresholds
        return {"churn": Churn(ChurnParameters(every=limits.every, short=limits.short))}

    def reads(self) -> Mapping[str, TableReading]:
        problems = TableReading(PROBLEMS.columns, optional=True)
        return united(super().reads(), {"connections": CONNECTIONS, "problems": problems})

    def shapes(self) -> Mapping[str, Shape]:
        return {
            "evidence": evidence_shape((("span", pa.int64()), *CLIENT)),
            "known": connections_shape(),
            "problems": problems_shape(),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        if table == "problems":
            add_problems(self, batch, (SASL_REFUSED, REJECTED))
            return
        self.asked["churn"].update(batch, "connections")
        batch = only(batch, in_any(batch, "verdict", ["kafka"]))
        keys = {
            "span": floor_divided(column(batch, "time_ns"), self.thresholds.every),
            "client_id": first_of_each(column(batch, "client_ids")),
            "client_ip": column(batch, "client_ip"),
        }
        self.parts["evidence"].add(evidence_columns(batch, keys))
        add_connections(self, "known", batch)

    def findings(self) -> list[Finding]:
        limits, evidence = self.thresholds, self.evidence("evidence")
        by_client: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        crowds: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for row in self.parts["churn.connections"].table().to_pylist():
            if row["opened"] < limits.at_least:
                crowds.setdefault((row["span"], row["client_ip"]), []).append(row)
            elif row["short"] >= limits.share * row["opened"]:
                by_client.setdefault((row["client_id"], row["client_ip"]), []).append(
                    {**row, "ids": [row["client_id"]]}
                )
        for rows in crowds.values():
            if len(rows) > 1 and sum(row["opened"] for row in rows) >= limits.crowd:
                crowd = _together(rows)
                if crowd["short"] >= limits.share * crowd["opened"]:
                    by_client.setdefault((None, crowd["client_ip"]), []).append(crowd)
        refusals = self._refusals() if by_client else {}
        return [self._finding(rows, refusals, evidence) for rows in by_client.values()]

    def _refusals(self) -> dict[tuple[Any, ...], list[tuple[int | None, str]]]:
        """Time and cause of each refused connection, by client."""
        known = connections_by_id(self, "known")
        causes: dict[int, tuple[int | None, str]] = {}
        for problem in problems_by_time(self):
            connection = known.get(problem["connection_id"])
            if connection is None:
                continue
            cause, taken = cause_of(problem), taken_mechanisms(cause_of(problem))
            if taken is not None:
                asked = connection["sasl_mechanism"]
                what = "a SASL mechanism that it does not have" if asked is None else word(asked)
                cause = f"the client asks for {what}, the listener takes {taken}"
            causes.setdefault(problem["connection_id"], (connection["time_ns"], cause))
        found: dict[tuple[Any, ...], list[tuple[int | None, str]]] = {}
        for number, cause_at in causes.items():
            one = known[number]
            found.setdefault((one["client_id"], one["client_ip"]), []).append(cause_at)
        return found

    def _finding(
        self,
        rows: list[dict[str, Any]],
        refusals: Mapping[tuple[Any, ...], list[tuple[int | None, str]]],
        evidence: Mapping[tuple[Any, ...], tuple[Evidence, ...]],
    ) -> Finding:
        limits = self.thresholds
        worst = max(rows, key=lambda row: (row["opened"], -(row["span"] or 0)))
        keys = [(client_id, worst["client_ip"]) for client_id in worst["ids"]]
        who = client(worst) if not keys[1:] else f"{plural(len(keys), 'client')} at {word(worst['client_ip'])}"
        spans = [row["span"] for row in rows if row["span"] is not None]
        more = f", and likewise in {plural(len(rows) - 1, 'other such span')}" if rows[1:] else ""
        inside = [
            why
            for key in keys
            for time, why in refusals.get(key, ())
            if worst["span"] is None or (time or 0) // limits.every == worst["span"]
        ]
        refused = len(inside) >= limits.share * worst["opened"] and bool(inside)
        values: dict[str, Any] = {name: worst[name] for name in VALUES}
        if refused:
            # The most frequent cause; among equally frequent ones the first by name.
            cause = min(Counter(inside).items(), key=lambda one: (-one[1], one[0]))[0]
            what = f"the broker refused {len(inside):,} of them: {cause}"
            meaning = (
                "The client connects again because the broker refuses it. Each attempt costs the broker a connection, "
                "and with TLS a handshake."
            )
            advice = "Fix the cause of the refusals; see sasl-failures and wrong-protocol in this report."
            values |= {"refused": len(inside), "cause": cause}
        else:
            what = f"{worst['short']:,} of them for less than {elapsed(limits.short)}"
            meaning = (
                "Each connection costs a version exchange, authentication, metadata, and with TLS a handshake; members "
                "of groups also make their group rebalance. Brokers limit the number of connections per address. These "
                f"carried {plural(worst['requests'], 'request')} and lasted "
                f"{elapsed(1000 * worst['lived_us'] / worst['opened'])} on average."
            )
            advice = (
                "Keep one producer or consumer for as long as the program runs, instead of one for each message or "
                "web request. If connections are reset or carry no requests, look for clients that are refused "
                "(sasl-failures, wrong-protocol) and for health probes."
            )
        return self.finding(
            "warning",
            f"{who} opened {worst['opened']:,} connections within {elapsed(limits.every)}, {what}{more}",
            meaning=meaning,
            advice=advice,
            subject=subject(worst, "client_id", "client_ip"),
            count=sum(row["opened"] for row in rows),
            first=min(spans) * limits.every if spans else None,
            last=(max(spans) + 1) * limits.every if spans else None,
            evidence=tuple(each for key in keys for each in evidence.get((worst["span"], *key), ()))[:MAX_EVIDENCE],
            values={**values, "spans": len(rows)},
        )


def _together(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The same for all clients of an address, those with the most connections first."""
    rows = sorted(rows, key=lambda row: (-row["opened"], row["client_id"] or ""))
    sums = {name: sum(row[name] for row in rows) for name in (*VALUES, "lived_us")}
    return {**rows[0], **sums, "client_id": None, "ids": [row["client_id"] for row in rows]}
