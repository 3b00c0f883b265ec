"""Clients that do not get in: authentication that fails, and connections that speak another protocol."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, Reading
from kafkasniff.analysis.columns import ORDER, column, in_any, only
from kafkasniff.analysis.partials import Shape
from kafkasniff.detectors.absences import TRANSPORT_READING, add_links, links_by_broker, links_shape, usual_absences
from kafkasniff.detectors.connections_known import CONNECTIONS, add_connections, connections_by_id, connections_shape
from kafkasniff.detectors.detector import Detector
from kafkasniff.detectors.finding import MAX_EVIDENCE, Evidence, Finding
from kafkasniff.detectors.tally import BROKER, CLIENT, CLIENT_COLUMNS, Tally, clients
from kafkasniff.detectors.wording import client, plural, subject
from kafkasniff.exports.transport import TABLE as TRANSPORT
from kafkasniff.kafka.errors import error_name
from kafkasniff.sinks.printable import cut, printable, word

__all__ = ["SaslFailures", "WrongProtocol"]

MAX_PROBLEMS: Final = 100_000
"""Problems that are looked at, the earliest."""
MAX_DETAIL: Final = 600
"""Characters of a problem's detail: all that kafkasniff says of any, so that no cause is cut off."""
MAX_NOTE: Final = 120
REJECTED: Final = "connection-rejected"
CLOSED_EARLY: Final = "closed-early"
"""A rejected connection to a listener that speaks Kafka with others."""

_PROBLEM_KEYS: Final = (
    ("time_ns", pa.int64()),
    ("connection_id", pa.int64()),
    ("kind", pa.string()),
    ("detail", pa.string()),
    ("ends", pa.string()),
)
_PROBLEMS: Final = Shape(
    keys=_PROBLEM_KEYS, order=("time_ns", "connection_id", "kind", "detail"), keep="earliest", bound=MAX_PROBLEMS
)


def _add_problems(detector: Detector[Any], batch: pa.RecordBatch, kinds: tuple[str, ...]) -> None:
    batch = only(batch, pc.and_(in_any(batch, "kind", kinds), pc.is_valid(column(batch, "connection_id"))))
    ends = pa.nulls(batch.num_rows, pa.string())
    if "_endpoints" in batch.schema.names:
        ends = column(batch, "_endpoints")
    columns = {name: column(batch, name) for name, _ in _PROBLEM_KEYS if name not in ("ends", "detail")}
    detail = pc.utf8_slice_codeunits(column(batch, "detail"), 0, 2 * MAX_DETAIL)
    detector.parts["problems"].add({**columns, "detail": detail, "ends": ends})


def _problems(detector: Detector[Any]) -> list[dict[str, Any]]:
    """Those that were kept, the earliest first."""
    order = [(name, "ascending") for name in ("time_ns", "connection_id", "kind", "detail")]
    found: list[dict[str, Any]] = detector.parts["problems"].table().sort_by(order).to_pylist()
    return found


def _evidence(rows: list[dict[str, Any]]) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(row["connection_id"], None, row["time_ns"], cut(printable(row["detail"]), MAX_NOTE))
        for row in rows[:MAX_EVIDENCE]
    )


def _times(rows: list[dict[str, Any]]) -> dict[str, int | None]:
    times = [row["time_ns"] for row in rows if row["time_ns"] is not None]
    return {"first": min(times, default=None), "last": max(times, default=None)}


class SaslThresholds(Parameters, frozen=True, kw_only=True):
    """Of `SaslFailures`."""

    at_least: Annotated[int, Meta(ge=1, description="So many failures of a client at a broker are told.")] = 1


class SaslFailures(Detector[SaslThresholds]):
    """Authentication that a broker refuses with an error code, or by closing the connection behind raw tokens."""

    name: ClassVar[str] = "sasl-failures"
    summary: ClassVar[str] = "Clients whose authentication fails."
    parameters_type = SaslThresholds
    error_bodies = True

    _refused = Tally("refused", (*CLIENT, *BROKER, ("error_code", pa.int32())))

    def reads(self) -> Mapping[str, Reading]:
        own = ("api", "error_code", *CLIENT_COLUMNS, "broker_ip", "broker_port")
        apis = ("SaslHandshake", "SaslAuthenticate")
        return {
            "exchanges": Reading((*ORDER, *own), apis),
            "connections": CONNECTIONS,
            "problems": Reading(("connection_id", "time_ns", "kind", "detail"), optional=True),
        }

    def shapes(self) -> Mapping[str, Shape]:
        return {**self._refused.shapes(), "problems": _PROBLEMS, "connections": connections_shape()}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        match table:
            case "connections":
                add_connections(self, "connections", only(batch, pc.is_valid(column(batch, "sasl_mechanism"))))
            case "problems":
                _add_problems(self, batch, (REJECTED,))
            case _:
                asked = in_any(batch, "api", ("SaslHandshake", "SaslAuthenticate"))
                failed = pc.not_equal(pc.fill_null(column(batch, "error_code"), 0), 0)
                batch = only(batch, pc.and_(asked, failed))
                names = [error_name(code) or f"error {code}" for code in column(batch, "error_code").to_pylist()]
                keys = {**clients(batch, broker=True), "error_code": column(batch, "error_code")}
                self._refused.add(self, batch, keys, pa.array(names, pa.string()))

    def findings(self) -> list[Finding]:
        known = connections_by_id(self, "connections")
        found = []
        for row, evidence in self._refused.rows(self):
            mechanism = known.get(evidence[0].connection_id, {}).get("sasl_mechanism") if evidence else None
            reason = error_name(row["error_code"]) or f"error {row['error_code']}"
            found += self._finding(row, reason, mechanism, row["count"], evidence, row["first"], row["last"])
        closed: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for problem in _problems(self):
            connection = known.get(problem["connection_id"])
            if connection is not None:
                key = tuple(connection[name] for name in ("client_id", "client_ip", "broker", "sasl_mechanism"))
                closed.setdefault(key, []).append(problem)
        for key, rows in closed.items():
            who = dict(zip(("client_id", "client_ip", "broker"), key[:3], strict=True)) | {"error_code": None}
            times = _times(rows)
            found += self._finding(
                who, "the connection is closed", key[3], len(rows), _evidence(rows), times["first"], times["last"]
            )
        return found

    def _finding(  # noqa: PLR0917 - what the two ways to fail have in common
        self,
        row: dict[str, Any],
        reason: str,
        mechanism: str | None,
        count: int,
        evidence: tuple[Evidence, ...],
        first: int | None,
        last: int | None,
    ) -> list[Finding]:
        if count < self.thresholds.at_least:
            return []
        how = "" if mechanism is None else f" with {word(mechanism)}"
        return [
            self.finding(
                "error",
                f"{plural(count, 'authentication')} of {client(row)}{how} refused by {row['broker']}: {reason}",
                meaning=(
                    "The broker does not know the user, the password or token is wrong, or it does not take this "
                    "mechanism. Older clients show it as a connection that is closed again and again."
                ),
                advice=(
                    "Compare the client's sasl.mechanism, sasl.jaas.config and security.protocol with the listener's "
                    "settings; the broker's log says more than it tells the client."
                ),
                subject=subject(row, "client_id", "client_ip", "broker", "error_code"),
                count=count,
                first=first,
                last=last,
                evidence=evidence,
                values={"mechanism": mechanism},
            )
        ]


_MEANINGS: Final = {
    "answer-not-kafka": (
        "error",
        "The client speaks Kafka, and something else answers: another service has the port, a proxy, or a listener "
        "that expects TLS.",
    ),
    "tls-unanswered": (
        "error",
        "The client begins with TLS and the broker says nothing to it: probably the listener has no TLS.",
    ),
    "tls-alert": ("error", "TLS was refused by one of the two: certificates, names, versions or cipher suites."),
    REJECTED: (
        "error",
        "The broker closed the connection before it answered anything but a greeting: brokers do that with clients "
        "that come to a listener of another security protocol.",
    ),
    CLOSED_EARLY: (
        "warning",
        "The broker closed the connection before it answered anything but a greeting, while the listener speaks Kafka "
        "with other clients. The packets do not show the cause: a limit of connections (max.connections.per.ip), a "
        "version of the client's that the broker does not take, or something between them.",
    ),
    "not-kafka": (
        "warning",
        "Something that is not Kafka talks to a broker: a probe, a scanner, a browser, or a client with the wrong port "
        "or security.protocol.",
    ),
}
_BY_CLOSING: Final = frozenset({REJECTED, CLOSED_EARLY, "tls-unanswered"})
"""Kinds of which all that is known is that the broker closed the connection."""
_NEVER: Final = 1 << 63
_ALERT: Final = "ended the handshake with the alert"
"""How tls.telling says it of a connection that was not decrypted."""
_BETWEEN: Final = re.compile(r"^the connection between \S+ and \S+?( is not Kafka)?: ")
"""What problems of connections begin with; the finding names them otherwise."""
_KINDS: Final = ("answer-not-kafka", "not-kafka", "tls-alert", "tls-not-decrypted", REJECTED)


class WrongProtocolThresholds(Parameters, frozen=True, kw_only=True):
    """Of `WrongProtocol`."""

    at_least: Annotated[int, Meta(ge=1, description="So many connections of an address to a broker are told.")] = 1


class WrongProtocol(Detector[WrongProtocolThresholds]):
    """Connections of which the two ends do not speak the same, by their problems (docs/problems.md).

    Not those that a broker let go of because it went (broker-gone), nor those that the client closed first.
    """

    name: ClassVar[str] = "wrong-protocol"
    summary: ClassVar[str] = "Connections on which client and broker do not speak the same protocol."
    parameters_type = WrongProtocolThresholds

    def reads(self) -> Mapping[str, Reading]:
        return {
            "problems": Reading(("connection_id", "time_ns", "kind", "detail")),
            "connections": CONNECTIONS,
            TRANSPORT: TRANSPORT_READING,
        }

    def shapes(self) -> Mapping[str, Shape]:
        return {"problems": _PROBLEMS, "connections": connections_shape(), "links": links_shape()}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        if table == TRANSPORT:
            add_links(self, "links", batch)
        elif table == "connections":
            add_connections(self, "connections", batch)
        else:
            _add_problems(self, batch, _KINDS)

    def findings(self) -> list[Finding]:
        known = connections_by_id(self, "connections")
        kafka: dict[str, int] = {}
        """Brokers, and when somebody was first seen to speak Kafka to each."""
        for one in known.values():
            if one["verdict"] == "kafka" and one["time_ns"] is not None:
                kafka[one["broker"]] = min(kafka.get(one["broker"], one["time_ns"]), one["time_ns"])
        working: dict[str, set[int]] = {}
        """By broker, the connections on which it answered Kafka."""
        refused = {one["connection_id"] for one in _problems(self) if one["kind"] == REJECTED}
        for one in known.values():
            if one["verdict"] == "kafka" and one["broker_bytes"] and one["connection_id"] not in refused:
                working.setdefault(one["broker"], set()).add(one["connection_id"])
        excused = self._excused()
        chosen: dict[int, tuple[int, str, dict[str, Any]]] = {}
        """Of each connection the problem that says most."""
        for problem in _problems(self):
            connection = known.get(problem["connection_id"])
            kind = None if connection is None else self._kind(problem, connection, kafka)
            if kind == REJECTED and connection is not None and connection["broker"] in working:
                kind = CLOSED_EARLY
            if kind in _BY_CLOSING and problem["connection_id"] in excused:
                kind = None
            if kind is not None:
                rank = list(_MEANINGS).index(kind)
                before = chosen.get(problem["connection_id"])
                if before is None or rank < before[0]:
                    chosen[problem["connection_id"]] = rank, kind, problem
        found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for key, (_, kind, problem) in chosen.items():
            connection = known[key]
            # Without a word of Kafka the roles are a guess: the broker is who was spoken Kafka to.
            turned = connection["client"] in kafka and connection["broker"] not in kafka
            broker = connection["client"] if turned else connection["broker"]
            address = connection["broker"].rpartition(":")[0] if turned else connection["client_ip"]
            found.setdefault((connection["client_id"], address, broker, kind), []).append(problem)
        return [
            self._finding(dict(zip(("client_id", "client_ip", "broker", "kind"), key, strict=True)), rows)
            for key, rows in found.items()
            if len(rows) >= self.thresholds.at_least
        ]

    def _excused(self) -> set[int]:
        """Connections whose end says nothing: the client closed first, or the broker was about to go."""
        found: set[int] = set()
        for links in links_by_broker(self, "links").values():
            gone = usual_absences(links)
            for link in links:
                ended = link.end_time_ns if link.ended_ns is None else link.ended_ns
                if link.ended_by == "client" or any(one.holds(ended) for one in gone):
                    found.add(link.connection_id)
        return found

    @staticmethod
    def _kind(problem: dict[str, Any], connection: dict[str, Any], kafka: Mapping[str, int]) -> str | None:
        """What it is one of; None: something else, or nothing that is wrong."""
        kind: str = problem["kind"]
        if kind == "not-kafka" and problem["ends"] is not None:
            # Rows of captures have all such connections; an export only those at an endpoint that spoke Kafka.
            ends = (connection["broker"], connection["client"])
            return kind if any(kafka.get(end, _NEVER) < (problem["time_ns"] or 0) for end in ends) else None
        if kind == "tls-not-decrypted":
            if _ALERT in problem["detail"]:
                return "tls-alert"
            silent = not connection["broker_bytes"] and connection["ended"] in ("fin", "rst")
            return "tls-unanswered" if silent else None
        if kind == REJECTED and connection["sasl_mechanism"] is not None:
            return None  # sasl-failures has it
        return kind

    def _finding(self, row: dict[str, Any], rows: list[dict[str, Any]]) -> Finding:
        severity, meaning = _MEANINGS[row["kind"]]
        detail = cut(printable(_BETWEEN.sub("", rows[0]["detail"])), MAX_DETAIL)
        # The title has it; only what differs is worth saying again.
        notes = [{**one, "detail": "" if one["detail"] == rows[0]["detail"] else one["detail"]} for one in rows]
        who = client(row) if row["client_id"] is not None else word(row["client_ip"])
        return self.finding(
            severity,  # type: ignore[arg-type]
            f"{plural(len(rows), 'connection')} of {who} to {row['broker']}: {detail}",
            meaning=meaning,
            advice=(
                "Compare the client's bootstrap.servers and security.protocol with the broker's listeners and "
                "listener.security.protocol.map; see who else may use the port (probes, proxies, scanners)."
            ),
            subject=subject(row, "client_id", "client_ip", "broker", "kind"),
            count=len(rows),
            **_times(rows),
            evidence=_evidence(notes),
            values={"connections": len(rows)},
        )
