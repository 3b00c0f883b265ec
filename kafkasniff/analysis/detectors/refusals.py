"""Clients whose authentication fails."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import ORDER, column, in_any, only
from kafkasniff.analysis.detectors.connections_known import (
    CONNECTIONS,
    add_connections,
    connections_by_id,
    connections_shape,
)
from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.analysis.detectors.finding import Evidence, Finding
from kafkasniff.analysis.detectors.problems_known import (
    MAX_DETAIL,
    REJECTED,
    add_problems,
    cause_of,
    problem_evidence,
    problem_times,
    problems_by_time,
    problems_shape,
)
from kafkasniff.analysis.detectors.tally import BROKER, CLIENT, CLIENT_COLUMNS, Tally, clients
from kafkasniff.analysis.detectors.wording import client, plural, subject
from kafkasniff.analysis.partials import Shape
from kafkasniff.kafka.schema.errors import error_by_code, error_name
from kafkasniff.text.printable import cut, printable, word

__all__ = ["SASL_REFUSED", "SaslFailures", "taken_mechanisms"]

SASL_REFUSED: Final = "sasl-refused"
UNSUPPORTED_SASL_MECHANISM: Final = 33
SASL_AUTHENTICATION_FAILED: Final = 58
_TAKES: Final = re.compile(r"; it takes (.+)$")
"""How `connection.opening` ends when a client asks for a mechanism that the listener does not take."""


def taken_mechanisms(detail: str) -> str | None:
    """The mechanisms that a listener takes, from the detail of a problem that names them."""
    found = _TAKES.search(detail)
    return None if found is None else found.group(1)


class SaslThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `SaslFailures`."""

    at_least: Annotated[int, Meta(ge=1, description="Report from this many failures of a client at a broker.")] = 1


class SaslFailures(Detector[SaslThresholds]):
    """Authentication that a broker refuses, with an error code or by closing the connection after raw tokens.

    If the listener does not support the client's mechanism, the finding lists those that it supports.

    Caveats: a broker that dies right after a raw token looks like a refusal.
    """

    name: ClassVar[str] = "sasl-failures"
    ends_connections = True
    summary: ClassVar[str] = "Clients whose authentication fails."
    parameters_type = SaslThresholds
    error_bodies = True

    _refused = Tally("refused", (*CLIENT, *BROKER, ("error_code", pa.int32())))

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", "error_code", *CLIENT_COLUMNS, "broker_ip", "broker_port")
        apis = ("SaslHandshake", "SaslAuthenticate")
        return {
            "exchanges": TableReading((*ORDER, *own), apis),
            "connections": CONNECTIONS,
            "problems": TableReading(("connection_id", "time_ns", "kind", "detail"), optional=True),
        }

    def shapes(self) -> Mapping[str, Shape]:
        return {**self._refused.shapes(), "problems": problems_shape(), "connections": connections_shape()}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        match table:
            case "connections":
                add_connections(self, "connections", only(batch, pc.is_valid(column(batch, "sasl_mechanism"))))
            case "problems":
                add_problems(self, batch, (REJECTED, SASL_REFUSED))
            case _:
                asked = in_any(batch, "api", ("SaslHandshake", "SaslAuthenticate"))
                failed = pc.not_equal(pc.fill_null(column(batch, "error_code"), 0), 0)
                batch = only(batch, pc.and_(asked, failed))
                names = [error_name(code) or f"error {code}" for code in column(batch, "error_code").to_pylist()]
                keys = {**clients(batch, broker=True), "error_code": column(batch, "error_code")}
                self._refused.add(self, batch, keys, pa.array(names, pa.string()))

    def findings(self) -> list[Finding]:
        known = connections_by_id(self, "connections")
        takes: dict[int, str] = {}
        closed: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for problem in problems_by_time(self):
            if problem["kind"] == SASL_REFUSED:
                mechanisms = taken_mechanisms(cause_of(problem))
                if mechanisms is not None:
                    takes[problem["connection_id"]] = mechanisms
                continue
            connection = known.get(problem["connection_id"])
            if connection is not None:
                key = tuple(
                    connection[name] for name in ("client_id", "client_ip", "broker", "sasl_mechanism", "principal")
                )
                closed.setdefault(key, []).append(problem)
        found = []
        for row, evidence in self._refused.rows(self):
            shown = evidence[0].connection_id if evidence else 0
            mechanism, principal = (known.get(shown, {}).get(name) for name in ("sasl_mechanism", "principal"))
            reason = error_name(row["error_code"]) or f"error {row['error_code']}"
            words = known.get(shown, {}).get("authentication_error") or ""
            if words.startswith(f"{reason}: "):
                reason = cut(printable(words), MAX_DETAIL)
            times = {"first": row["first"], "last": row["last"]}
            found += self._finding(row, reason, mechanism, principal, takes.get(shown), row["count"], evidence, times)
        for key, rows in closed.items():
            who = dict(zip(("client_id", "client_ip", "broker"), key[:3], strict=True)) | {"error_code": None}
            evidence = problem_evidence(rows)
            found += self._finding(
                who, "it closed the connection", key[3], key[4], None, len(rows), evidence, problem_times(rows)
            )
        return found

    def _finding(  # noqa: PLR0917 - what the two ways to fail have in common
        self,
        row: dict[str, Any],
        reason: str,
        mechanism: str | None,
        principal: str | None,
        takes: str | None,
        count: int,
        evidence: tuple[Evidence, ...],
        times: dict[str, int | None],
    ) -> list[Finding]:
        """`takes`: the mechanisms that the listener takes, if it named them and the client's is not among them."""
        if count < self.thresholds.at_least:
            return []
        how = "" if mechanism is None else f" with {word(mechanism)}"
        error = None if row["error_code"] is None else error_by_code(row["error_code"])
        why = reason if takes is None else f"{reason}, the listener takes {takes}"
        return [
            self.finding(
                "error",
                f"{plural(count, 'authentication')} of {client(row)}{how} refused by {row['broker']}: {why}",
                meaning=(
                    "The broker does not know the user, or the password or token is wrong. Older clients only show it "
                    "as a connection that is closed again and again."
                    if takes is None and (error is None or error.code == SASL_AUTHENTICATION_FAILED)
                    else f"{error.name}: {error.meaning}. No user and password were checked."
                    if takes is None and error is not None
                    else (
                        "The client asks for a SASL mechanism that the listener does not have "
                        "(sasl.enabled.mechanisms). Its user and password were not checked."
                    )
                ),
                advice=(
                    "Compare the client's sasl.jaas.config, sasl.mechanism and security.protocol with the listener's "
                    "settings; the broker's log has more detail than its response to the client."
                    if takes is None and (error is None or error.code == SASL_AUTHENTICATION_FAILED)
                    else f"{error.advice}."
                    if takes is None and error is not None
                    else (
                        f"Set the client's sasl.mechanism to what the listener takes ({takes}), or add the mechanism "
                        "to sasl.enabled.mechanisms of the listener."
                    )
                ),
                subject=subject(row, "client_id", "client_ip", "broker", "error_code"),
                count=count,
                **times,
                evidence=evidence,
                values={
                    "mechanism": mechanism,
                    "principal": principal,
                    **({} if takes is None else {"taken": takes}),
                },
            )
        ]
