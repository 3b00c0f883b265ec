"""Clients and brokers that do not speak the same protocol, or the same versions of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import ORDER, broker_endpoint, column, in_any, integers, looked_up, only
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
from kafkasniff.analysis.detectors.connections import (
    CONNECTIONS,
    PROBLEMS,
    REJECTED,
    add_connections,
    add_problems,
    cause_of,
    connections_by_id,
    connections_shape,
    problem_evidence,
    problem_times,
    problems_by_time,
    problems_shape,
)
from kafkasniff.analysis.detectors.detector import Detector, Effect
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence, Finding, Severity
from kafkasniff.analysis.detectors.tally import BROKER, Tally
from kafkasniff.analysis.detectors.wording import client, plural, subject
from kafkasniff.analysis.partials import Shape
from kafkasniff.analysis.questions.versions import is_controller, offered_in
from kafkasniff.engine.roles import Bodies
from kafkasniff.kafka.apis.dissectors import api, api_by_name
from kafkasniff.kafka.apis.releases import dropped_in, releases, spoken_by
from kafkasniff.kafka.messages.plausibility import MAX_REFUSAL_NS, NAMED
from kafkasniff.tables.rows.transport import TABLE as TRANSPORT
from kafkasniff.text.printable import word
from kafkasniff.tls.descriptions import NO_ANSWER, is_about_tls

VERSION_NOT_TAKEN: Final = "version-not-taken"
"""A rejected connection on which the client used a version that newer releases have dropped."""
SASL_MISSING: Final = "sasl-missing"
"""A rejected connection without SASL to a listener on which others authenticate."""
CLOSED_EARLY: Final = "closed-early"
"""A rejected connection to a listener that speaks Kafka with others; the cause is unknown."""
NOT_KAFKA: Final = "answer-not-kafka"
"""Something answers on the connection, but nothing in Kafka, and no other client gets an answer in Kafka there."""
UNANSWERED: Final = "tls-unanswered"
TOO_LARGE: Final = "request-too-large"
"""A connection that the broker closed at a request that is larger than all that it answered."""
LARGE: Final = 1 << 14
"""Brokers do not close connections because of smaller requests."""

MAX_VERSIONS: Final = 1 << 16
"""Versions of APIs that brokers answered, by endpoint."""
MAX_WAITING: Final = 1 << 16
"""Maximum number of connections that ended with an unanswered request, the earliest."""

_LISTENERS: Final = (
    "Compare the client's bootstrap.servers and security.protocol with the broker's listeners and "
    "listener.security.protocol.map; check who else may use the port (probes, proxies, scanners)."
)
_KNOWN: Final[Mapping[str, tuple[Severity, str, str]]] = {
    NOT_KAFKA: (
        "error",
        "The client speaks Kafka, but something else answers: another service on the port, a proxy, or a listener "
        "that expects TLS.",
        _LISTENERS,
    ),
    UNANSWERED: (
        "error",
        "The client begins with TLS and the broker does not answer: the listener probably has no TLS.",
        _LISTENERS,
    ),
    VERSION_NOT_TAKEN: (
        "error",
        "The client uses a version of a request that the broker does not support, so the broker closes the "
        "connection. Such clients are too old to ask for supported versions (ApiVersions), or are set to a fixed "
        "broker version.",
        "Upgrade the client (KIP-896: Java clients from 2.1 on work with brokers of 4.0), or remove its fixed version "
        "(api.version.request, broker.version.fallback, api_version).",
    ),
    SASL_MISSING: (
        "error",
        "Others authenticate with SASL on this listener. A broker closes the connection of a client that sends any "
        "other request first.",
        "Set the client's security.protocol to SASL_PLAINTEXT or SASL_SSL, as on the listener.",
    ),
    TOO_LARGE: (
        "error",
        "Brokers close the connection on a request of more than socket.request.max.bytes, without an answer. The "
        "client sends it again, and it never arrives.",
        "Send smaller requests (max.request.size and batch.size of Java clients, message.max.bytes and batch.size of "
        "librdkafka), or raise socket.request.max.bytes; the broker's log has an InvalidReceiveException.",
    ),
    REJECTED: (
        "error",
        "The broker closed the connection before it answered anything but ApiVersions. Brokers do that if a client "
        "connects to a listener with another security protocol.",
        _LISTENERS,
    ),
    CLOSED_EARLY: (
        "warning",
        "The broker closed the connection before it answered anything but ApiVersions, while the listener speaks "
        "Kafka with other clients. The packets do not show the cause. It may be a connection limit "
        "(max.connections.per.ip), a proxy or a firewall.",
        "Check the broker's log at this time, and its connection limits.",
    ),
    "not-kafka": (
        "warning",
        "Something that is not Kafka connects to a broker: a probe, a scanner, a browser, or a client with the wrong "
        "port or security.protocol.",
        _LISTENERS,
    ),
}
"""Severity, meaning and advice by kind, the most specific first."""
_BY_CLOSING: Final = frozenset({REJECTED, CLOSED_EARLY, SASL_MISSING, TOO_LARGE, UNANSWERED, VERSION_NOT_TAKEN})
"""Kinds that only show that the broker closed the connection."""
_NEVER: Final = 1 << 63
_TLS_ANSWER: Final = "is answered with an alert of TLS"
"""The wording of kafka.other_protocols."""
_NOT_TAKEN: Final = re.compile(r"its answer to ApiVersions (?:has|does not have)")
"""The wording of kafka.opening."""
_RECEIVING: Final = "while it received a request of"
"""The wording of kafka.opening for requests of more than 1 MiB, 512 KiB before authentication."""
_CAUSES: Final = re.compile(r"(, before any authentication)?: probably .*$")
"""The judgement of kafka.opening on a single connection; other connections may refute it."""
_NO_FRAME: Final = "frame-size"
_KINDS: Final = (NOT_KAFKA, "not-kafka", "tls-not-decrypted", REJECTED, _NO_FRAME)


class WrongProtocolThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `WrongProtocol`."""

    at_least: Annotated[int, Meta(ge=1, description="Report from this many connections of an address to a broker.")] = 1


class _Listeners(msgspec.Struct):
    """Facts about the brokers' endpoints, learned from connections."""

    kafka: dict[str, int]
    """When each was first seen to speak Kafka."""
    works: dict[str, set[str | None]]
    """Endpoints that answered Kafka, with the SASL mechanisms on these connections; None: without SASL."""
    tls: set[str]
    """Endpoints that answered a ClientHello."""
    responded: set[str]
    """Endpoints with a response in Kafka."""
    others: set[str]
    """Endpoints that answered a Kafka client in another protocol."""


class WrongProtocol(Detector[WrongProtocolThresholds]):
    """Connections whose two ends do not speak the same protocol.

    `kind` in the subject is one of:

    - `answer-not-kafka`: something other than Kafka answers, for example a TLS listener.
    - `tls-unanswered`: the client starts TLS and gets no answer.
    - `version-not-taken`: the broker closes the connection on a version that Kafka has dropped: an old client, or one
      set to a fixed version.
    - `sasl-missing`: the broker closes the connection on a client without SASL where others authenticate.
    - `request-too-large`: the broker closes the connection at requests that are larger than all that it answers.
    - `connection-rejected`: the broker closes the connection, and no client gets further at this listener. The title
      lists likely causes.
    - `closed-early`: the broker closes the connection, but other clients work here without SASL. The cause is unknown.
    - `not-kafka`: a client that does not speak Kafka connects to a broker.

    Connections that the client closed first, or that ended because the broker went down, are not reported. Exports do
    not say who closed first.
    """

    name: ClassVar[str] = "wrong-protocol"
    by_closing = True
    ends_connections = True
    summary: ClassVar[str] = "Connections on which client and broker do not speak the same protocol."
    parameters_type = WrongProtocolThresholds

    def reads(self) -> Mapping[str, TableReading]:
        exchanges = TableReading(
            (*ORDER, "api", "api_version", "status", "request_size", "broker_ip", "broker_port"), optional=True
        )
        return {
            "exchanges": exchanges,
            "problems": PROBLEMS,
            "connections": CONNECTIONS,
            TRANSPORT: TRANSPORT_READING,
        }

    def shapes(self) -> Mapping[str, Shape]:
        version = (*BROKER, ("api", pa.string()), ("version", pa.int64()))
        count: Any = (("count", pa.int64(), "sum"), ("size", pa.int64(), "max"))
        return {
            "answered": Shape(keys=version, measures=count, weight="count", bound=MAX_VERSIONS),
            "waiting": Shape(
                keys=(*((name, pa.int64()) for name in ORDER), ("api", pa.string()), ("version", pa.int64())),
                measures=(("size", pa.int64(), "max"),),
                order=ORDER,
                keep="earliest",
                group=("connection_id",),
                each=1,
                bound=MAX_WAITING,
            ),
            "problems": problems_shape(),
            "connections": connections_shape(),
            "links": links_shape(),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        if table == TRANSPORT:
            add_links(self, batch)
        elif table == "connections":
            add_connections(self, "connections", batch)
        elif table == "problems":
            add_problems(self, batch, _KINDS)
        else:
            self._exchanges(batch)

    def _exchanges(self, batch: pa.RecordBatch) -> None:
        version = column(batch, "api_version").cast(pa.int64())
        asked = {"api": column(batch, "api"), "version": version, "size": integers(column(batch, "request_size"))}
        rows = pa.RecordBatch.from_pydict(
            {**{name: column(batch, name) for name in (*ORDER, "status")}, **asked, "broker": broker_endpoint(batch)}
        )
        answered = only(rows, in_any(rows, "status", ("answered",)))
        names = ("broker", "api", "version", "size")
        ones = np.ones(answered.num_rows, np.int64)
        self.parts["answered"].add({**{name: answered.column(name) for name in names}, "count": ones})
        waiting = only(rows, in_any(rows, "status", ("unanswered",)))
        self.parts["waiting"].add({name: waiting.column(name) for name in (*ORDER, "api", "version", "size")})

    def findings(self) -> list[Finding]:
        known = connections_by_id(self, "connections")
        problems = problems_by_time(self)
        listeners = _listeners(known, problems)
        links = {link.connection_id: link for tcp_links in self._links.values() for link in tcp_links}
        problems += [*self._old_versions(known, links), *self._large_requests(known, links)]
        excused = self._excused()
        chosen: dict[int, tuple[int, str, dict[str, Any]]] = {}
        """The most specific problem of each connection."""
        for problem in problems:
            connection = known.get(problem["connection_id"])
            kind = None if connection is None else _kind(problem, connection, listeners)
            if kind is None or (kind in _BY_CLOSING and problem["connection_id"] in excused):
                continue
            rank = list(_KNOWN).index(kind)
            before = chosen.get(problem["connection_id"])
            if before is None or rank < before[0]:
                chosen[problem["connection_id"]] = rank, kind, problem
        found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for key, (_, kind, problem) in chosen.items():
            connection = known[key]
            # Without any Kafka the roles are a guess: the side that received Kafka is the broker.
            turned = connection["client"] in listeners.kafka and connection["broker"] not in listeners.kafka
            broker = connection["client"] if turned else connection["broker"]
            address = connection["broker"].rpartition(":")[0] if turned else connection["client_ip"]
            found.setdefault((connection["client_id"], address, broker, kind), []).append(problem)
        return [
            self._finding(dict(zip(("client_id", "client_ip", "broker", "kind"), key, strict=True)), rows, listeners)
            for key, rows in found.items()
            if len(rows) >= self.thresholds.at_least
        ]

    @property
    def _links(self) -> dict[str, list[TcpLink]]:
        return links_by_broker(self)

    def _old_versions(
        self, known: Mapping[int, dict[str, Any]], links: Mapping[int, TcpLink]
    ) -> Iterator[dict[str, Any]]:
        """Connections closed after a request in a version that newer releases do not support, as problems.

        Only the first unanswered request counts, since brokers answer in order.
        """
        answered = {(row["broker"], row["api"], row["version"]) for row in self.parts["answered"].table().to_pylist()}
        for row, connection in self._closed(known, links):
            found = None if row["api"] is None else api_by_name(row["api"])
            dropped = None if found is None or row["version"] is None else dropped_in(found.key, row["version"])
            if dropped is None:
                continue
            # If this broker answered others in this version, it closed the connection for another reason.
            if (connection["broker"], row["api"], row["version"]) in answered:
                continue
            yield {
                "connection_id": row["connection_id"],
                "time_ns": row["time_ns"],
                "kind": VERSION_NOT_TAKEN,
                "detail": (
                    f"closed after {row['api']} v{row['version']}, which Kafka {dropped[0]} and newer do not "
                    f"support: v{dropped[1]} is the lowest there"
                ),
                "ends": None,
            }

    def _large_requests(
        self, known: Mapping[int, dict[str, Any]], links: Mapping[int, TcpLink]
    ) -> Iterator[dict[str, Any]]:
        """Connections closed at a request that is larger than all that the broker answered, at least two, as problems.

        A single one may have met a broker that stops.
        """
        largest: dict[str, int] = {}
        for row in self.parts["answered"].table().to_pylist():
            largest[row["broker"]] = max(largest.get(row["broker"], 0), row["size"])
        found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for row, connection in self._closed(known, links):
            broker = connection["broker"]
            if broker in largest and row["size"] > max(largest[broker], LARGE):
                found.setdefault((connection["client_id"], connection["client_ip"], broker), []).append(row)
        for (_, _, broker), rows in found.items():
            for row in rows if len(rows) > 1 else ():
                yield {
                    "connection_id": row["connection_id"],
                    "time_ns": row["time_ns"],
                    "kind": TOO_LARGE,
                    "detail": (
                        f"closed at a {row['api'] or 'request'} of {row['size']:,} bytes; those that it answered have "
                        f"up to {largest[broker]:,} bytes"
                    ),
                    "ends": None,
                }

    def _closed(
        self, known: Mapping[int, dict[str, Any]], links: Mapping[int, TcpLink]
    ) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """First unanswered requests upon which their connection was closed, and the connection."""
        for row in self.parts["waiting"].table().to_pylist():
            connection, link = known.get(row["connection_id"]), links.get(row["connection_id"])
            if connection is None or connection["ended"] not in ("fin", "rst"):
                continue
            ended = connection["end_time_ns"] if link is None or link.ended_ns is None else link.ended_ns
            if None not in (row["time_ns"], ended) and 0 <= ended - row["time_ns"] <= MAX_REFUSAL_NS:
                yield row, connection

    def _excused(self) -> set[int]:
        """Connections whose end proves nothing: the client closed first, or the broker was about to stop."""
        found: set[int] = set()
        for links in self._links.values():
            down = Spans((*(absence.span for absence in usual_absences(links)), *closed_at_once(links)))
            for link in links:
                if link.ended_by == "client" or down.surround(link.over_ns, link.over_ns):
                    found.add(link.connection_id)
        return found

    def effects(self, finding: Finding) -> Iterator[Effect]:
        if finding.subject["kind"] == NOT_KAFKA and not finding.values["speaks_kafka"]:
            yield "late-answers", {"broker": finding.subject["broker"], "trouble": "silent"}

    def _finding(self, row: dict[str, Any], rows: list[dict[str, Any]], listeners: _Listeners) -> Finding:
        severity, meaning, advice = _KNOWN[row["kind"]]
        cause = cause_of(rows[0])
        if row["kind"] == CLOSED_EARLY:
            cause = f"{_CAUSES.sub('', cause)}; cause unknown"
        elif row["kind"] == TOO_LARGE:
            cause = _CAUSES.sub("", cause)
        elif row["kind"] == SASL_MISSING:
            cause = f"{_CAUSES.sub('', cause)}, where other clients authenticate with SASL first"
        elif row["kind"] == UNANSWERED:
            cause = "the client begins with TLS, and the connection is closed without an answer"
        elif rows[0]["kind"] == _NO_FRAME:
            cause = "what answers a Kafka client does not speak Kafka (wrong host or port?)"
        elif _TLS_ANSWER in cause:
            meaning = "The listener expects TLS, and the client does not use it."
        who = client(row) if row["client_id"] is not None else word(row["client_ip"])
        return self.finding(
            severity,
            f"{plural(len(rows), 'connection')} of {who} to {row['broker']}: {cause}",
            meaning=meaning,
            advice=advice,
            subject=subject(row, "client_id", "client_ip", "broker", "kind"),
            count=len(rows),
            **problem_times(rows),
            evidence=problem_evidence(rows),
            values={"connections": len(rows), "speaks_kafka": row["broker"] in listeners.responded},
        )


def _listeners(known: Mapping[int, dict[str, Any]], problems: list[dict[str, Any]]) -> _Listeners:
    listeners = _Listeners({}, {}, set(), {row["broker"] for row in known.values() if row["responses"]}, set())
    refused = {problem["connection_id"] for problem in problems if problem["kind"] == REJECTED}
    for row in known.values():
        if row["verdict"] != "kafka":
            continue
        broker = row["broker"]
        if row["time_ns"] is not None:
            listeners.kafka[broker] = min(listeners.kafka.get(broker, row["time_ns"]), row["time_ns"])
        if row["broker_bytes"] and row["connection_id"] not in refused:
            listeners.works.setdefault(broker, set()).add(row["sasl_mechanism"])
    for problem in problems:
        connection = known.get(problem["connection_id"])
        if connection is not None and problem["kind"] == "tls-not-decrypted" and NO_ANSWER not in problem["detail"]:
            listeners.tls.add(connection["broker"])
        if connection is not None and problem["kind"] == NOT_KAFKA:
            listeners.others.add(connection["broker"])
    return listeners


def _kind(problem: dict[str, Any], connection: dict[str, Any], listeners: _Listeners) -> str | None:
    """The kind of a problem; None: another kind, or nothing is wrong."""
    kind: str = problem["kind"]
    broker = connection["broker"]
    if kind == "tls-not-decrypted" or is_about_tls(cause_of(problem)):
        silent = not connection["broker_bytes"] and connection["ended"] in ("fin", "rst")
        # With only one direction in the capture, missing data proves nothing.
        silent = silent and connection["captured"] == "both"
        if not silent or NO_ANSWER not in problem["detail"]:
            return None  # no known problem, or reported by tls-failures
        return CLOSED_EARLY if broker in listeners.tls else UNANSWERED
    if kind == _NO_FRAME:
        # Many services answer as soon as the client gives up: for them, its request had no end (of a line).
        whole = connection["syn_seen"] and connection["captured"] == "both" and not connection["bytes_lost"]
        other = connection["requests"] and connection["broker_bytes"] and broker not in listeners.responded
        return NOT_KAFKA if whole and other else None
    if kind == "not-kafka" and connection["captured"] == "broker" and NAMED not in problem["detail"]:
        return None  # responses whose requests were not captured, which no version explains
    if kind == "not-kafka" and broker in listeners.others - listeners.responded:
        return None  # a client that left before it asked anything: others show that this is not a broker
    if kind == "not-kafka" and problem["ends"] is not None:
        # Rows of captures have all such connections; exports only those at an endpoint that spoke Kafka.
        ends = (broker, connection["client"])
        return kind if any(listeners.kafka.get(end, _NEVER) < (problem["time_ns"] or 0) for end in ends) else None
    if kind != REJECTED:
        return kind  # also VERSION_NOT_TAKEN
    if _NOT_TAKEN.search(problem["detail"]) is not None:
        return VERSION_NOT_TAKEN
    if _RECEIVING in problem["detail"]:
        return TOO_LARGE
    if connection["sasl_mechanism"] is not None:
        return None  # reported by sasl-failures
    if broker not in listeners.works:
        return REJECTED
    return CLOSED_EARLY if None in listeners.works[broker] else SASL_MISSING


MAX_OFFERS: Final = 1 << 12
"""Maximum number of different broker answers that are kept; some kB each."""
MAX_APIS: Final = 256
"""Maximum number of APIs of an answer that are compared; Kafka has 95."""
SHOWN: Final = 4


class MixedVersionsThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `MixedBrokerVersions`."""

    apis: Annotated[
        int, Meta(ge=1, description="Report if at least this many APIs differ in their highest version.")
    ] = 1


class MixedBrokerVersions(Detector[MixedVersionsThresholds]):
    """Brokers of a cluster whose ApiVersions responses differ in the highest versions, or change over time.

    Without cluster ids, it is a note. Listeners without Produce belong to controllers and are ignored.

    Caveats: settings (`unstable.api.versions.enable`, features not finalized) change versions, too.
    """

    name: ClassVar[str] = "mixed-broker-versions"
    summary: ClassVar[str] = "Brokers that offer different versions of the protocol."
    parameters_type = MixedVersionsThresholds
    bodies: ClassVar[Bodies] = {("response", "ApiVersions"): None}
    parts_clusters = True

    _offers = Tally("offers", (*BROKER, ("offer", pa.string())), bound=MAX_OFFERS)

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", "broker_ip", "broker_port", "response_body")
        return {"exchanges": TableReading((*ORDER, *own), ("ApiVersions",))}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        batch = only(batch, pc.and_(in_any(batch, "api", ["ApiVersions"]), pc.is_valid(column(batch, "response_body"))))
        # The rest of the answer, such as features and their epochs, changes by the minute.
        offer = looked_up(batch, "response_body", _offer, pa.string())
        known = pc.is_valid(offer)
        batch, offer = only(batch, known), offer.filter(known)
        self._offers.add(self, batch, {"broker": broker_endpoint(batch), "offer": offer})

    def findings(self) -> list[Finding]:
        by_cluster: dict[str | None, list[_Offer]] = {}
        for row, evidence in self._offers.rows(self):
            # If the cluster is unknown, only the offers of one broker at two times can be compared.
            cluster = self.clusters.label(row["broker"])
            offer = _Offer(row, evidence, dict(msgspec.json.decode(row["offer"])))
            by_cluster.setdefault(cluster, []).append(offer)
        unknown = by_cluster.pop(None, [])
        found = []
        for cluster, offers in by_cluster.items():
            found += self._compared(offers, cluster)
        alone: dict[str, list[_Offer]] = {}
        for offer in unknown:
            alone.setdefault(offer.row["broker"], []).append(offer)
        for offers in alone.values():
            found += self._compared(offers, None)
        if not found and not self.clusters.several:
            found += self._compared([*unknown, *(offer for offers in by_cluster.values() for offer in offers)], None)
        return found

    def _compared(self, offers: list[_Offer], cluster: str | None) -> list[Finding]:
        """A finding if the offers differ; `cluster` None: it is unknown whether these brokers belong to one."""
        offers = sorted(offers, key=lambda offer: (offer.row["first"] or 0, offer.row["broker"], offer.row["offer"]))
        if len(offers) < 2:
            return []
        # An API that only some brokers offer proves less: listeners of one broker may differ in that.
        common = set.intersection(*(set(offer.versions) for offer in offers))
        differ = sorted(key for key in common if len({offer.versions[key] for offer in offers}) > 1)
        if len(differ) < self.thresholds.apis:
            return []
        endpoints = sorted({offer.row["broker"] for offer in offers})
        sure = cluster is not None or len(endpoints) == 1
        brokers = list(dict.fromkeys(f"{offer.row['broker']} {_release(offer.versions)}" for offer in offers))
        names = [_range(key, [offer.versions for offer in offers]) for key in differ]
        evidence = sorted(
            (seen for offer in offers for seen in offer.evidence[:1]),
            key=lambda seen: (seen.time_ns or 0, seen.connection_id),
        )
        times = [offer.row[end] for offer in offers for end in ("first", "last") if offer.row[end] is not None]
        where = "" if cluster is None else f" of cluster {word(cluster)}"
        if not sure:
            where = ", perhaps of different clusters,"
        return [
            self.finding(
                "warning" if sure else "note",
                f"{plural(len(endpoints), 'broker')}{where} with different versions of {plural(len(differ), 'API')}: "
                f"{_listed(brokers)} ({_listed(names)})",
                meaning=(
                    "Brokers of different releases: an upgrade is in progress, or one broker was forgotten. Clients "
                    "use the versions that each broker offers, so features depend on the broker, and clients may "
                    "behave differently after a partition moves."
                    if sure
                    else (
                        "No message shows whether these brokers belong to one cluster. If they do, an upgrade is in "
                        "progress, or one broker was forgotten."
                    )
                ),
                advice=(
                    "Finish the upgrade. Until then, use no feature that the oldest broker lacks."
                    if sure
                    else "Nothing if they belong to different clusters; otherwise finish the upgrade."
                ),
                subject={"brokers": endpoints, **({} if cluster is None else {"cluster": cluster})},
                count=sum(offer.row["count"] for offer in offers),
                first=min(times, default=None),
                last=max(times, default=None),
                evidence=tuple(
                    Evidence(one.connection_id, one.exchange_id, one.time_ns, "offer of the broker")
                    for one in evidence[:MAX_EVIDENCE]
                ),
                values={
                    "apis": len(differ),
                    "offers": [_release(offer.versions) for offer in offers],
                    "different": names[:MAX_APIS],
                },
            )
        ]


class _Offer(NamedTuple):
    row: dict[str, Any]
    evidence: tuple[Evidence, ...]
    versions: dict[int, int]


def _offer(text: str) -> str | None:
    """The highest versions as text that is equal for equal ones; None if the answer is not from a broker."""
    found = offered_in(text)
    if not found or is_controller(found):
        return None
    return msgspec.json.encode(sorted(found.items())[:MAX_APIS]).decode()


def _release(offer: Mapping[int, int]) -> str:
    """The oldest Kafka release that has all of these versions: the broker is not older."""
    for release in releases():
        spoken = spoken_by(release)
        if all(key in spoken and version in spoken[key] for key, version in offer.items()):
            return f"({release} or later)"
    return f"({len(offer)} APIs)"


def _name(key: int) -> str:
    found = api(key)
    return f"API {key}" if found is None else found.name


def _range(key: int, offers: list[dict[int, int]]) -> str:
    """`Produce v9 and v11`."""
    versions = sorted({offer[key] for offer in offers})
    return f"{_name(key)} {' and '.join(f'v{version}' for version in versions[:SHOWN])}"


def _listed(names: list[str]) -> str:
    """Some of the names, which are already safe to print."""
    listed = ", ".join(names[:SHOWN])
    return f"{listed} and {len(names) - SHOWN:,} more" if len(names) > SHOWN else listed
