"""Failed TLS handshakes, as far as they can be explained without keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

import pyarrow as pa
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.detectors.connections_known import (
    CONNECTIONS,
    add_connections,
    connections_by_id,
    connections_shape,
)
from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence, Finding, Severity
from kafkasniff.analysis.detectors.problems_known import (
    PROBLEMS,
    add_problems,
    cause_of,
    problem_times,
    problems_by_time,
    problems_shape,
)
from kafkasniff.analysis.detectors.wording import client, plural, some, subject
from kafkasniff.analysis.partials import Shape
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
        "The broker does not trust the client's certificate, or requires one (ssl.client.auth=required).",
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


class TlsThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `TlsFailures`."""

    at_least: Annotated[
        int, Meta(ge=1, description="Report from this many failed handshakes of an address with a broker.")
    ] = 1
    silent: Annotated[int, Meta(ge=1, description="The same for handshakes that ended without a visible alert.")] = 3


class TlsFailures(Detector[TlsThresholds]):
    """Failed TLS handshakes; no keys are needed.

    It is an error if an alert is in clear text (up to TLS 1.2), or if TLS 1.3 hides it at least `silent` times; a
    warning if TLS 1.3 hides fewer, or if other connections from the address work. `cause` in the subject is one of:

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
        works = {(one["client_ip"], one["broker"]) for one in known.values() if one["verdict"] == "kafka"}
        found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for problem in problems_by_time(self):
            connection = known.get(problem["connection_id"])
            if connection is None:
                continue
            ends = connection["client_ip"], connection["broker"]
            cause = _cause(problem)
            if cause is None:
                if lacks_keys(problem["detail"]):
                    works.add(ends)
            else:
                found.setdefault((connection["client_id"], *ends, cause), []).append(problem)
        return [
            self._finding(dict(zip(("client_id", "client_ip", "broker", "cause"), key, strict=True)), rows, works)
            for key, rows in found.items()
            if len(rows) >= self.thresholds.at_least
            and (key[3] != "unknown" or (len(rows) >= self.thresholds.silent and key[1:3] not in works))
        ]

    def _finding(self, row: dict[str, Any], rows: list[dict[str, Any]], works: set[tuple[Any, Any]]) -> Finding:
        what, meaning, advice = _CAUSES[row["cause"]]
        alerts = [found[1] for one in rows if (found := alert_in(one["detail"])) is not None]
        flaws = dict.fromkeys(flaw for one in rows for flaw in flaws_in(cause_of(one)))
        others = (row["client_ip"], row["broker"]) in works
        sure = alerts or (row["cause"] != "unknown" and len(rows) >= self.thresholds.silent)
        severity: Severity = "error" if sure and not others else "warning"
        details = [*flaws]
        if alerts:
            details.append(f"alert {some(list(dict.fromkeys(alerts)))}")
        elif row["cause"] != "unknown":
            what = f"probably {what}"
            details.append("by the size of the last record; TLS 1.3 hides the alert")
        shown = f" ({'; '.join(details)})" if details else ""
        who = client(row) if row["client_id"] is not None else word(row["client_ip"])
        if others:
            meaning += " Other connections of this address to the broker work."
        notes = [_note(one) for one in rows]
        evidence = tuple(
            Evidence(one["connection_id"], None, one["time_ns"], "" if note == notes[0] and place else note)
            for place, (one, note) in enumerate(zip(rows[:MAX_EVIDENCE], notes, strict=False))
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
            values={"handshakes": len(rows), "alerts": sorted(set(alerts))},
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
