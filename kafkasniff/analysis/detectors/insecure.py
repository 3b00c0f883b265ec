"""Connections whose transport or authentication is insecure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import column, in_any
from kafkasniff.analysis.detectors.connections import LOGINS, ClientIdentity, add_logins, identities_of, logins_shape
from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence, Finding, Severity
from kafkasniff.analysis.detectors.wording import some
from kafkasniff.analysis.partials import Shape
from kafkasniff.text.printable import printable

EXPIRES_SOON: Final = timedelta(days=30)
"""A certificate that expires within this time of the capture is worth a note."""

_READABLE: Final = frozenset({"PLAIN", "OAUTHBEARER"})
"""Mechanisms that send the secret itself."""
_OLD: Final = frozenset({"SSL 3.0", "TLS 1.0", "TLS 1.1"})
_WEAK: Final = {
    **dict.fromkeys(("0x0001", "0x0002", "0x003b", "0xc006", "0xc010"), "no encryption"),
    **dict.fromkeys(("0x0004", "0x0005", "0xc007", "0xc011"), "RC4 (RFC 7465)"),
    **dict.fromkeys(("0x000a", "0x0016", "0xc008", "0xc012"), "3DES (CVE-2016-2183)"),
}
_BEHIND_PROXY: Final = "If TLS ends at a proxy before the capture point, this is the path after it."


def _grouped(
    identities: Iterable[ClientIdentity], group: Callable[[ClientIdentity], tuple[Any, ...] | None]
) -> Iterator[tuple[tuple[Any, ...], list[ClientIdentity]]]:
    """Identities by what `group` says of them; None: nothing."""
    found: dict[tuple[Any, ...], list[ClientIdentity]] = {}
    for identity in identities:
        key = group(identity)
        if key is not None:
            found.setdefault(key, []).append(identity)
    yield from found.items()


def _finding(
    kind: str, severity: Severity, of: list[ClientIdentity], *, title: str, meaning: str, advice: str, **subject: Any
) -> Finding:
    evidence = [
        Evidence(connection_id, exchange_id, time)
        for client_identity in of
        for connection_id, exchange_id, time in client_identity.examples
    ]
    evidence.sort(key=lambda one: (one.time_ns is None, one.time_ns or 0, one.connection_id))
    times = [
        time for client_identity in of for time in (client_identity.first, client_identity.last) if time is not None
    ]
    return Finding(
        detector=kind,
        severity=severity,
        title=title,
        meaning=meaning,
        advice=advice,
        subject=subject,
        count=sum(client_identity.connections for client_identity in of),
        first=min(times, default=None),
        last=max(times, default=None),
        evidence=tuple(evidence[:MAX_EVIDENCE]),
    )


def _who(of: list[ClientIdentity]) -> str:
    """`3 principals (alice, bob …)`, or the addresses if no principal is known."""
    names = dict.fromkeys(client_identity.principal for client_identity in of if client_identity.principal is not None)
    what = "principal" if names else "client"
    shown = [printable(name) for name in names] or list(
        dict.fromkeys(client_identity.client_ip for client_identity in of)
    )
    head = ", ".join(shown[:3]) + (" …" if len(shown) > 3 else "")
    return f"{what} {head}" if len(shown) == 1 else f"{len(shown)} {what}s ({head})"


def _connections(of: list[ClientIdentity]) -> str:
    count = sum(client_identity.connections for client_identity in of)
    return f"{count:,} connection{'' if count == 1 else 's'}"


def _plaintext(identities: list[ClientIdentity]) -> Iterator[Finding]:
    def group(one: ClientIdentity) -> tuple[str, str] | None:
        if one.transport.tls or one.mechanism is None or not one.credentials:
            return None
        return one.broker, one.mechanism

    for (broker, mechanism), of in _grouped(identities, group):
        subject = {"broker": broker, "mechanism": mechanism}
        named = printable(mechanism)
        if mechanism in _READABLE:
            yield _finding(
                "plaintext-credentials",
                "warning",
                of,
                title=f"{named} without TLS: {_who(of)} at {broker} on {_connections(of)}",
                meaning=f"{named} sends the secret itself; anyone on the path can read it. {_BEHIND_PROXY}",
                advice="Use a SASL_SSL listener, and change these credentials.",
                **subject,
            )
        elif mechanism.startswith("SCRAM-"):
            yield _finding(
                "plaintext-scram",
                "note",
                of,
                title=f"{named} without TLS: {_who(of)} at {broker} on {_connections(of)}",
                meaning="Anyone who records the exchange can guess weak passwords offline. All later "
                f"traffic is readable. {_BEHIND_PROXY}",
                advice="Use a SASL_SSL listener.",
                **subject,
            )


def _old(identities: list[ClientIdentity]) -> Iterator[Finding]:
    def group(one: ClientIdentity) -> tuple[str, str] | None:
        version = one.transport.version
        return (version, one.broker) if version in _OLD else None

    for (version, broker), of in _grouped(identities, group):
        yield _finding(
            "old-tls",
            "warning",
            of,
            title=f"{version} with {broker}: {_who(of)} on {_connections(of)}",
            meaning="Versions before TLS 1.2 are broken or deprecated (RFC 7568, RFC 8996).",
            advice="Upgrade the clients named here, then remove it from ssl.enabled.protocols of the broker.",
            broker=broker,
            version=version,
        )


def _weak(identities: list[ClientIdentity]) -> Iterator[Finding]:
    def group(one: ClientIdentity) -> tuple[str, str] | None:
        cipher = one.transport.cipher
        weak = cipher is not None and (cipher in _WEAK or "anon" in cipher)
        return (cipher, one.broker) if cipher is not None and weak else None

    for (cipher, broker), of in _grouped(identities, group):
        why = _WEAK.get(cipher, "the broker does not prove who it is")
        yield _finding(
            "weak-cipher",
            "warning",
            of,
            title=f"cipher suite {cipher} with {broker}: {_who(of)} on {_connections(of)}",
            meaning=f"It protects little: {why}.",
            advice="Set ssl.cipher.suites of the broker.",
            broker=broker,
            cipher=cipher,
        )


def _certificates(identities: list[ClientIdentity]) -> Iterator[Finding]:
    def group(one: ClientIdentity) -> tuple[Any, ...] | None:
        shown_certificate = one.transport.certificate
        return None if shown_certificate is None else (one.broker, shown_certificate)

    def own(one: ClientIdentity) -> tuple[Any, ...] | None:
        found = one.transport.client_certificate
        return None if found is None else (one.broker, found, one.client_ip)

    for key, of in (*_grouped(identities, group), *_grouped(identities, own)):
        broker, certificate, *clients = key
        about = {"broker": broker, "certificate": certificate.subject}
        if clients:
            about["client_ip"] = clients[0]
        name = f"certificate of {clients[0] if clients else broker} ({printable(certificate.subject)})"
        if certificate.flaws:
            yield _finding(
                "bad-certificate",
                "error" if any("expired" in flaw for flaw in certificate.flaws) else "warning",
                of,
                title=f"{name}: {printable('; '.join(certificate.flaws))}",
                meaning="The broker refuses it." if clients else "Clients that check certificates refuse it.",
                advice="Issue a valid certificate."
                if clients
                else "Issue a certificate that is valid for the names that clients use.",
                **about,
            )
        elif (
            last := max(
                (client_identity.last for client_identity in of if client_identity.last is not None), default=None
            )
        ) is not None:
            left = certificate.not_after - datetime.fromtimestamp(last // 1_000_000_000, UTC)
            if left <= EXPIRES_SOON:
                yield _finding(
                    "expiring-certificate",
                    "note",
                    of,
                    title=f"{name} expires on {certificate.not_after:%Y-%m-%d}, {left.days} days after the capture",
                    meaning="After that day, the broker refuses it."
                    if clients
                    else "After that day, clients refuse to connect.",
                    advice="Renew it.",
                    **about,
                )


def _open(identities: list[ClientIdentity]) -> Iterator[Finding]:
    of = [identity for identity in identities if identity.authentication == "none" and not identity.transport.tls]
    if not of:
        return
    brokers = sorted({client_identity.broker for client_identity in of})
    serve = f"{brokers[0]} serves" if len(brokers) == 1 else f"{len(brokers)} listeners ({some(brokers)}) serve"
    yield _finding(
        "without-authentication",
        "note",
        of,
        title=f"{serve} {_who(of)} without TLS and SASL on {_connections(of)}",
        meaning=f"By default, all clients are User:ANONYMOUS there, and all traffic is readable. {_BEHIND_PROXY}",
        advice="Unless the network is closed, use a SASL_SSL or SSL listener.",
        broker=brokers[0] if len(brokers) == 1 else None,
    )


class NoThresholds(Parameters, frozen=True, kw_only=True):
    """These detectors have no thresholds."""


class _Insecure(Detector[NoThresholds]):
    """A kind of weakness that rows of `connections` show."""

    parameters_type = NoThresholds

    def reads(self) -> Mapping[str, TableReading]:
        return {"connections": LOGINS}

    def shapes(self) -> Mapping[str, Shape]:
        return {"logins": logins_shape()}

    def update(self, batch: pa.RecordBatch, table: str = "connections") -> None:
        add_logins(self, batch, pc.fill_null(self.concerns(batch), False))

    def concerns(self, batch: pa.RecordBatch) -> pa.Array:
        """The rows of `connections` that may show it."""
        raise NotImplementedError

    def judged(self, identities: list[ClientIdentity]) -> Iterator[Finding]:
        """The findings about them, perhaps with those of a sibling."""
        raise NotImplementedError

    def findings(self) -> list[Finding]:
        known = identities_of(self.parts["logins"], MAX_EVIDENCE)
        return [finding for finding in self.judged(list(known.found.values())) if finding.detector == self.name]


class PlaintextCredentials(_Insecure):
    """SASL mechanisms that send the secret itself (PLAIN, OAUTHBEARER) on connections without TLS.

    Caveats: if TLS ends at a proxy before the capture point, this is only the path after it.
    """

    name: ClassVar[str] = "plaintext-credentials"
    summary: ClassVar[str] = "Passwords and tokens that anyone on the path can read."

    def concerns(self, batch: pa.RecordBatch) -> pa.Array:
        return pc.and_(pc.invert(column(batch, "tls")), column(batch, "credentials"))

    def judged(self, identities: list[ClientIdentity]) -> Iterator[Finding]:
        return _plaintext(identities)


class PlaintextScram(PlaintextCredentials):
    """SCRAM on connections without TLS: weak passwords can be guessed offline, and later traffic is readable.

    Caveats: if TLS ends at a proxy before the capture point, this is only the path after it.
    """

    name: ClassVar[str] = "plaintext-scram"
    summary: ClassVar[str] = "SCRAM without TLS."


class OldTls(_Insecure):
    """Connections with a version of TLS before 1.2."""

    name: ClassVar[str] = "old-tls"
    summary: ClassVar[str] = "Versions of TLS that are broken or deprecated."

    def concerns(self, batch: pa.RecordBatch) -> pa.Array:
        return in_any(batch, "tls_version", tuple(sorted(_OLD)))

    def judged(self, identities: list[ClientIdentity]) -> Iterator[Finding]:
        return _old(identities)


class WeakCiphers(_Insecure):
    """Connections with a cipher suite that encrypts nothing, uses RC4 or 3DES, or does not authenticate the broker."""

    name: ClassVar[str] = "weak-cipher"
    summary: ClassVar[str] = "Cipher suites of TLS that protect little."

    def concerns(self, batch: pa.RecordBatch) -> pa.Array:
        return pc.is_valid(column(batch, "tls_cipher"))

    def judged(self, identities: list[ClientIdentity]) -> Iterator[Finding]:
        return _weak(identities)


class BadCertificates(_Insecure):
    """Certificates of brokers and clients that are expired, not yet valid, or for other names.

    Caveats: TLS 1.3 encrypts certificates. Reading them needs the extra `tls`.
    """

    name: ClassVar[str] = "bad-certificate"
    summary: ClassVar[str] = "Certificates that the other end refuses."

    def concerns(self, batch: pa.RecordBatch) -> pa.Array:
        return pc.or_(
            pc.is_valid(column(batch, "tls_certificate")), pc.is_valid(column(batch, "tls_client_certificate"))
        )

    def judged(self, identities: list[ClientIdentity]) -> Iterator[Finding]:
        return _certificates(identities)

    def notes(self) -> list[str]:
        known = identities_of(self.parts["logins"], 0)
        unread = ["certificates were not read: pip install 'kafkasniff[tls]'"] if known.unread else []
        return [*super().notes(), *unread]


class ExpiringCertificates(BadCertificates):
    """Certificates that expire within 30 days of the capture.

    Caveats: TLS 1.3 encrypts certificates. Reading them needs the extra `tls`.
    """

    name: ClassVar[str] = "expiring-certificate"
    summary: ClassVar[str] = "Certificates that expire soon."

    def notes(self) -> list[str]:
        return _Insecure.notes(self)


class WithoutAuthentication(_Insecure):
    """Listeners that serve clients without TLS and SASL.

    Caveats: in a closed network this may be intended.
    """

    name: ClassVar[str] = "without-authentication"
    summary: ClassVar[str] = "Listeners that serve anyone."

    def concerns(self, batch: pa.RecordBatch) -> pa.Array:
        return pc.and_(pc.invert(column(batch, "tls")), pc.equal(column(batch, "authentication"), "none"))

    def judged(self, identities: list[ClientIdentity]) -> Iterator[Finding]:
        return _open(identities)
