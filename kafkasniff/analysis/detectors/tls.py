"""Failed TLS handshakes and trouble of connections that are not decrypted, explained without keys."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Annotated, Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import broker_endpoint, column, in_any, only
from kafkasniff.analysis.detectors.connections import (
    CONNECTIONS,
    PROBLEMS,
    add_connections,
    add_problems,
    cause_of,
    connections_by_id,
    connections_shape,
    problem_times,
    problems_by_time,
    problems_shape,
)
from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence, Finding, Severity
from kafkasniff.analysis.detectors.wording import client, elapsed, plural, some, subject
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.partials import Shape
from kafkasniff.analysis.visibility import TLS
from kafkasniff.tables.rows.transport import TABLE
from kafkasniff.text.printable import cut, word
from kafkasniff.tls.descriptions import (
    CLIENT,
    CLIENT_LEFT,
    CLIENT_REFUSED,
    EXPIRED,
    NAMED,
    NO_CLIENT_CERTIFICATE,
    NOT_YET_VALID,
    OTHER_NAME,
    OTHER_SIDE,
    SERVER_LEFT,
    SERVER_REFUSED,
    alert_in,
    flaws_in,
    lacks_keys,
)

MAX_NOTE: Final = 160
_KINDS: Final = ("tls-not-decrypted", "tls-alert")
_SHOWN: Final = re.compile(r"certificate of .*?(?=; the (?:client|other side|server) |$)")

_AUTHORITY: Final = (
    "Compare the authority that signed the broker's certificate (ssl.keystore) with those that the client trusts "
    "(ssl.truststore, ssl.ca.location), and check the intermediate certificates that the broker sends."
)
_CERTIFICATE: Final = (
    "Check the client's log for the reason: an untrusted authority, an expired certificate, or a name that is not "
    "in the certificate (ssl.endpoint.identification.algorithm)."
)
_CLIENTS_OWN: Final = (
    "Give the client a certificate (ssl.keystore, ssl.certificate.location) whose authority the broker trusts "
    "(ssl.truststore), or check whether the listener should require one (ssl.client.auth)."
)
_CAUSES: Final[Mapping[str, tuple[str, str, str]]] = {
    "expired": (
        "the broker's certificate has expired or is not valid yet",
        "Clients refuse a certificate outside its validity period.",
        "Renew the broker's certificate (ssl.keystore), and compare the clocks of both machines.",
    ),
    "name": (
        "the broker's certificate is not for the name that the client uses",
        "Clients compare the name in bootstrap.servers and advertised.listeners with those in the certificate.",
        "Add the name to the certificate (subject alternative names), or have clients use one of its names.",
    ),
    "authority": (
        "the client does not trust the authority of the broker's certificate",
        "The certificate is signed by an authority that the client does not trust.",
        _AUTHORITY,
    ),
    "certificate": (
        "the client refuses the broker's certificate",
        "The alert does not give the reason: an untrusted authority, a date, or a name.",
        _CERTIFICATE,
    ),
    "client-certificate": (
        "the client has no certificate, but the broker requires one",
        "The listener requires client certificates (ssl.client.auth=required). Clients also send none if theirs is not "
        "from an authority that the broker names in its request.",
        _CLIENTS_OWN,
    ),
    "client-refused": (
        "the broker refuses the client",
        "The broker requires a client certificate (ssl.client.auth=required), or does not accept the client's: it has "
        "expired, or comes from an authority that the broker does not trust.",
        _CLIENTS_OWN,
    ),
    "parameters": (
        "client and broker have no TLS version or cipher suite in common",
        "Neither side offers what the other one accepts.",
        "Compare ssl.enabled.protocols and ssl.cipher.suites of the listener with those of the client.",
    ),
    "other": (
        "the handshake ended with an alert",
        "One of the two sides refused the handshake.",
        "Check the logs of the client and of the broker at this time.",
    ),
    "unknown": (
        "the connection ended during the handshake, without an alert; cause unknown",
        "A client that refuses a certificate may close without an alert. So do health checks that stop halfway, and "
        "clients that time out.",
        "Check the client's log. Find out whether the address belongs to a health check.",
    ),
}
"""Title, meaning and advice by cause."""
_BY_ALERT: Final = {
    (CLIENT, "unknown_ca"): "authority",
    (CLIENT, "certificate_expired"): "expired",
    (CLIENT, "bad_certificate"): "certificate",
    (CLIENT, "certificate_unknown"): "certificate",
    (CLIENT, "unsupported_certificate"): "certificate",
    (CLIENT, "certificate_revoked"): "certificate",
    (OTHER_SIDE, "certificate_required"): "client-certificate",
    (OTHER_SIDE, "bad_certificate"): "client-refused",
    (OTHER_SIDE, "certificate_unknown"): "client-refused",
    (OTHER_SIDE, "certificate_expired"): "client-refused",
    (OTHER_SIDE, "unknown_ca"): "client-refused",
    (OTHER_SIDE, "handshake_failure"): "parameters",
    (OTHER_SIDE, "protocol_version"): "parameters",
    (OTHER_SIDE, "insufficient_security"): "parameters",
    (CLIENT, "handshake_failure"): "parameters",
    (CLIENT, "protocol_version"): "parameters",
}


_OF_SERVER: Final = frozenset({"expired", "name"})
"""Causes that lie in the server's certificate alone, not in what a client trusts."""


class TlsThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `TlsFailures`."""

    at_least: Annotated[
        int, Meta(ge=1, description="Report from this many failed handshakes of an address with a broker.")
    ] = 1
    silent: Annotated[int, Meta(ge=1, description="The same for handshakes that ended without a visible alert.")] = 3


class TlsFailures(Detector[TlsThresholds]):
    """Failed TLS handshakes; no keys are needed.

    It is an error if an alert is in clear text (up to TLS 1.2), or if TLS 1.3 hides it at least `silent` times; a
    warning if TLS 1.3 hides fewer, or if other connections from the address work, unless they do so in turns because
    of the server's certificate: several servers answer at the address. `cause` in the subject is one of:

    - `expired`: the alert `certificate_expired`, or a refused certificate that was not valid at the time of the
      capture.
    - `name`: a refused certificate without the server name that the client requested.
    - `authority`: the alert `unknown_ca` from the client.
    - `certificate`: another alert from the client, or an encrypted record of an alert's size right after the server's
      part of the handshake.
    - `client-certificate`: the server requested a certificate, and the client sent an empty list.
    - `client-refused`: an alert from the server about the client's certificate, or a record of an alert's size after
      the client's part.
    - `parameters`: `handshake_failure` or `protocol_version`: no common version or cipher suite.
    - `other`: another alert.
    - `unknown`: the connection ended within the handshake without an alert, `silent` times, and no connection from the
      address succeeded.

    Caveats: in TLS 1.3, record sizes are evidence, not proof. A program that stops during the handshake, or a health
    check, may look like a refusal. Java clients send `certificate_unknown` for any certificate that they refuse.
    """

    name: ClassVar[str] = "tls-failures"
    ends_connections = True
    summary: ClassVar[str] = "Clients whose TLS handshakes fail."
    parameters_type = TlsThresholds

    def reads(self) -> Mapping[str, TableReading]:
        return {"problems": PROBLEMS, "connections": CONNECTIONS}

    def shapes(self) -> Mapping[str, Shape]:
        return {"problems": problems_shape(), "connections": connections_shape()}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        if table == "connections":
            add_connections(self, "connections", batch)
        else:
            add_problems(self, batch, _KINDS)

    def findings(self) -> list[Finding]:
        known = connections_by_id(self, "connections")
        works: dict[tuple[Any, Any], list[int]] = {}
        """When handshakes that did not fail began, by address and broker."""
        for row in known.values():
            if row["verdict"] == "kafka":
                works.setdefault((row["client_ip"], row["broker"]), []).append(row["time_ns"] or 0)
        found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for problem in problems_by_time(self):
            connection = known.get(problem["connection_id"])
            if connection is None:
                continue
            ends = connection["client_ip"], connection["broker"]
            cause = _cause(problem)
            if cause is None:
                if lacks_keys(problem["detail"]):
                    works.setdefault(ends, []).append(connection["time_ns"] or 0)
            else:
                found.setdefault((connection["client_id"], *ends, cause), []).append(problem)
        return [
            self._finding(dict(zip(("client_id", "client_ip", "broker", "cause"), key, strict=True)), rows, works)
            for key, rows in found.items()
            if len(rows) >= self.thresholds.at_least
            and (key[3] != "unknown" or (len(rows) >= self.thresholds.silent and key[1:3] not in works))
        ]

    def _finding(
        self, row: dict[str, Any], rows: list[dict[str, Any]], works: dict[tuple[Any, Any], list[int]]
    ) -> Finding:
        what, meaning, advice = _CAUSES[row["cause"]]
        alerts = [found[1] for row in rows if (found := alert_in(row["detail"])) is not None]
        flaws = dict.fromkeys(flaw for row in rows for flaw in flaws_in(cause_of(row)))
        others = sorted(works.get((row["client_ip"], row["broker"]), ()))
        failed = sorted(problem["time_ns"] or 0 for problem in rows)
        # How often one that fails is followed by one that does not.
        turns = len({bisect(others, time) for time in failed} - {len(others)})
        in_turns = row["cause"] in _OF_SERVER and turns >= self.thresholds.silent
        sure = alerts or (row["cause"] != "unknown" and len(rows) >= self.thresholds.silent)
        severity: Severity = "error" if sure and (in_turns or not others) else "warning"
        details = [*flaws]
        if alerts:
            details.append(f"alert {some(list(dict.fromkeys(alerts)))}")
        elif row["cause"] != "unknown":
            what = f"probably {what}"
            details.append("by the size of the last record; TLS 1.3 hides the alert")
        shown = f" ({'; '.join(details)})" if details else ""
        who = client(row) if row["client_id"] is not None else word(row["client_ip"])
        if in_turns:
            meaning += (
                " Handshakes fail and work in turns, so several servers answer at this address (a load balancer, or "
                "broker addresses that change) with different certificates, or only some clients check them."
            )
            advice = f"Compare the certificates of all servers at this address. {advice}"
        elif others:
            meaning += " Other connections of this address to the broker work."
        notes = [_note(row) for row in rows]
        evidence = tuple(
            Evidence(row["connection_id"], None, row["time_ns"], "" if note == notes[0] and index else note)
            for index, (row, note) in enumerate(zip(rows[:MAX_EVIDENCE], notes, strict=False))
        )
        return self.finding(
            severity,
            f"{plural(len(rows), 'TLS handshake')} of {who} with {row['broker']} failed: {what}{shown}",
            meaning=meaning,
            advice=advice,
            subject=subject(row, "client_id", "client_ip", "broker", "cause"),
            count=len(rows),
            **problem_times(rows),
            evidence=evidence,
            values={"handshakes": len(rows), "alerts": sorted(set(alerts)), "in_turns": in_turns},
        )


def _cause(problem: dict[str, Any]) -> str | None:
    """Why a handshake failed; None: it did not fail, or the other side has no TLS."""
    detail = cause_of(problem)
    alert = alert_in(detail)
    if alert is None and problem["kind"] == "tls-alert":
        return None
    if NO_CLIENT_CERTIFICATE in detail:
        return "client-certificate"
    if alert is not None:
        cause = _BY_ALERT.get(alert, "other")
    elif CLIENT_REFUSED in detail:
        cause = "certificate"
    elif SERVER_REFUSED in detail:
        return "client-refused"
    elif CLIENT_LEFT in detail or SERVER_LEFT in detail:
        return "unknown"
    else:
        return None
    if cause in ("certificate", "authority"):
        # A problem with a cleartext certificate is more specific than the alert.
        if EXPIRED in detail or NOT_YET_VALID in detail:
            return "expired"
        if cause == "certificate" and OTHER_NAME in detail:
            return "name"
    return cause


def _note(problem: dict[str, Any]) -> str:
    """Version and cipher suite of a handshake, and the certificate."""
    what, _, rest = cause_of(problem).removeprefix(NAMED).partition(", ")
    shown = _SHOWN.search(rest)
    return what if shown is None else cut(f"{what}, {shown.group(0)}", MAX_NOTE)


MAX_CONNECTIONS: Final = 1 << 17
"""Maximum number of connections examined, the earliest."""
HANDSHAKES: Final = 5
"""Handshakes from which their median says something of the broker; fewer say it if all of them were slow …"""
ALL_SLOW: Final = 2
"""… at least this many."""

_KEYS: Final = (
    ("connection_id", pa.int64()),
    ("time_ns", pa.int64()),
    ("end_time_ns", pa.int64()),
    ("client_ip", pa.string()),
    ("tls_handshake_us", pa.int64()),
    ("tls_answers", pa.int64()),
    ("tls_unanswered_us", pa.int64()),
)
_ENDS: Final = (("connection_id", pa.int64()), ("ended_by", pa.string()), ("ended_with", pa.string()))
_LOGS: Final = (
    "Look at the broker's log and its metrics at this time. With a key log, kafkasniff shows the requests (`kafkasniff "
    "help tls`)."
)


class EncryptedThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `EncryptedTrouble`."""

    silent: Annotated[
        Duration, Meta(ge=0, description="A stall: the broker sends nothing for this long after data of a client.")
    ] = 10_000_000_000
    handshake: Annotated[Duration, Meta(ge=0, description="Handshakes are slow if their median is at least this.")] = (
        1_000_000_000
    )
    at_least: Annotated[
        int, Meta(ge=1, description="This many connections to a broker are a warning; fewer are a note.")
    ] = 3


class EncryptedTrouble(Detector[EncryptedThresholds]):
    """Stalls, cuts and slow handshakes of TLS connections that are not decrypted.

    `trouble` in the subject is one of:

    - `stalled`: the client's last data got no answer until the end of the connection or the capture.
    - `cut`: likewise, but the broker's side closed or reset the connection. It had answered before.
    - `handshakes`: the median handshake takes long. Brokers whose CPU is busy, or whose network threads are, are slow
      in this first.

    Caveats: requests are not visible. A producer with `acks=0` gets no answers, and a member that joins a group may
    wait for minutes, so a few stalls are only a note. A broker that sends an alert before it closes is not counted.
    """

    name: ClassVar[str] = "encrypted-trouble"
    summary: ClassVar[str] = "Stalls, cuts and slow handshakes of TLS connections without keys."
    parameters_type = EncryptedThresholds
    by_packets: ClassVar[str] = "who ended TLS connections is unknown"

    def reads(self) -> Mapping[str, TableReading]:
        own = (*(name for name, _ in _KEYS), "broker_ip", "broker_port", "protocol")
        return {
            "connections": TableReading(own, optional=True),
            TABLE: TableReading(tuple(name for name, _ in _ENDS), optional=True),
        }

    def shapes(self) -> Mapping[str, Shape]:
        keys = (*_KEYS, ("broker", pa.string()))
        order: Any = {"order": ("connection_id",), "keep": "earliest", "bound": MAX_CONNECTIONS}
        return {
            "sealed": Shape(keys=keys, order=("time_ns", "connection_id"), keep="earliest", bound=MAX_CONNECTIONS),
            "ends": Shape(keys=_ENDS, **order),
        }

    def update(self, batch: pa.RecordBatch, table: str = "connections") -> None:
        if table == TABLE:
            batch = only(batch, in_any(batch, "ended_by", ["broker"]))
            self.parts["ends"].add({name: column(batch, name) for name, _ in _ENDS})
            return
        timed = pc.or_(pc.is_valid(column(batch, "tls_handshake_us")), pc.is_valid(column(batch, "tls_unanswered_us")))
        batch = only(batch, pc.and_(in_any(batch, "protocol", [TLS]), timed))
        columns = {name: column(batch, name) for name, _ in _KEYS}
        self.parts["sealed"].add({**columns, "broker": broker_endpoint(batch)})

    def findings(self) -> Iterator[Finding]:
        ended = {row["connection_id"]: row["ended_with"] for row in self.parts["ends"].table().to_pylist()}
        brokers: dict[str, list[dict[str, Any]]] = {}
        for row in self.parts["sealed"].table().to_pylist():
            brokers.setdefault(row["broker"], []).append(row)
        for broker, rows in brokers.items():
            rows.sort(key=lambda row: (row["time_ns"] or 0, row["connection_id"]))
            waiting = [row for row in rows if row["tls_unanswered_us"] is not None]
            # Without any answer the handshake may have failed.
            cut = [row for row in waiting if row["connection_id"] in ended and row["tls_answers"]]
            stalled = [row for row in waiting if row["tls_unanswered_us"] * 1000 >= self.thresholds.silent]
            stalled = [row for row in stalled if row["connection_id"] not in ended]
            if stalled:
                yield self._stalled(broker, stalled)
            if cut:
                yield self._cut(broker, cut, {ended[row["connection_id"]] for row in cut})
            shaken = [row for row in rows if row["tls_handshake_us"] is not None]
            usual = median(row["tls_handshake_us"] for row in shaken) * 1000 if shaken else 0
            enough = HANDSHAKES
            if shaken and min(row["tls_handshake_us"] for row in shaken) * 1000 >= self.thresholds.handshake:
                enough = ALL_SLOW
            if len(shaken) >= enough and usual >= self.thresholds.handshake:
                yield self._slow(broker, shaken, usual)

    def _stalled(self, broker: str, rows: list[dict[str, Any]]) -> Finding:
        longest = max(row["tls_unanswered_us"] for row in rows) * 1000
        return self._of(
            "stalled",
            self._severity(rows),
            f"{plural(len(rows), 'TLS connection')} of {_clients(rows)} to {broker} got no answer to their last data, "
            f"for up to {elapsed(longest)} (estimated without keys)",
            "The broker does not answer, or its answers do not arrive. Producers with acks=0 expect none, and members "
            "that join a group wait for the others.",
            _LOGS,
            rows,
            {"longest_ms": longest / 1e6},
        )

    def _cut(self, broker: str, rows: list[dict[str, Any]], ways: set[str]) -> Finding:
        how = "reset" if ways == {"rst"} else "closed" if ways == {"fin"} else "closed or reset"
        return self._of(
            "cut",
            self._severity(rows),
            f"{broker} {how} {plural(len(rows), 'TLS connection')} of {_clients(rows)} instead of an answer to their "
            "last data",
            "The broker ended, or refused what it was asked, or something in between dropped the connection.",
            _LOGS,
            rows,
            {},
        )

    def _slow(self, broker: str, rows: list[dict[str, Any]], usual: float) -> Finding:
        return self._of(
            "handshakes",
            "warning",
            f"TLS handshakes with {broker} are slow: {elapsed(usual)} in the median of {len(rows):,}",
            "Each new connection waits this long before its first request.",
            "Check the CPU of the broker and its network threads (num.network.threads, the metric "
            "NetworkProcessorAvgIdlePercent), and which clients connect often.",
            rows,
            {"median_ms": usual / 1e6},
        )

    def _severity(self, rows: list[dict[str, Any]]) -> Severity:
        return "warning" if len(rows) >= self.thresholds.at_least else "note"

    def _of(  # noqa: PLR0917 - the parts of a finding
        self,
        trouble: str,
        severity: Severity,
        title: str,
        meaning: str,
        advice: str,
        rows: list[dict[str, Any]],
        values: dict[str, Any],
    ) -> Finding:
        return self.finding(
            severity,
            title,
            meaning=meaning,
            advice=advice,
            subject={"broker": rows[0]["broker"], "trouble": trouble},
            count=len(rows),
            first=min((row["time_ns"] for row in rows if row["time_ns"] is not None), default=None),
            last=max((row["end_time_ns"] for row in rows if row["end_time_ns"] is not None), default=None),
            evidence=tuple(Evidence(row["connection_id"], None, row["time_ns"], "") for row in rows[:MAX_EVIDENCE]),
            values={"connections": len(rows), **values},
        )


def _clients(rows: list[dict[str, Any]]) -> str:
    return some(sorted({row["client_ip"] for row in rows}))
