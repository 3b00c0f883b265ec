"""Findings about transport, authentication and authorization."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence, Finding, Severity, worst_first
from kafkasniff.analysis.security.denials import Denial
from kafkasniff.analysis.security.identities import ClientIdentity
from kafkasniff.text.printable import printable

__all__ = ["EXPIRES_SOON", "findings"]

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


def findings(identities: Iterable[ClientIdentity], denials: Iterable[Denial]) -> list[Finding]:
    """All findings, worst first."""
    known = list(identities)
    found = [one for judge in _JUDGES for one in judge(known)]
    return worst_first([*found, *_denied(denials)])


def _grouped(
    identities: Iterable[ClientIdentity], group: Callable[[ClientIdentity], tuple[Any, ...] | None]
) -> Iterator[tuple[tuple[Any, ...], list[ClientIdentity]]]:
    """Identities by what `group` says of them; None: nothing."""
    found: dict[tuple[Any, ...], list[ClientIdentity]] = {}
    for one in identities:
        key = group(one)
        if key is not None:
            found.setdefault(key, []).append(one)
    yield from found.items()


def _finding(
    kind: str, severity: Severity, of: list[ClientIdentity], *, title: str, meaning: str, advice: str, **subject: Any
) -> Finding:
    evidence = [
        Evidence(connection_id, None, time, connection=number, exchange=exchange)
        for one in of
        for connection_id, number, exchange, time in one.examples
    ]
    evidence.sort(key=lambda one: (one.time_ns is None, one.time_ns or 0, one.connection or 0))
    times = [time for one in of for time in (one.first, one.last) if time is not None]
    return Finding(
        detector=kind,
        severity=severity,
        title=title,
        meaning=meaning,
        advice=advice,
        subject=subject,
        count=sum(one.connections for one in of),
        first=min(times, default=None),
        last=max(times, default=None),
        evidence=tuple(evidence[:MAX_EVIDENCE]),
    )


def _who(of: list[ClientIdentity]) -> str:
    """`3 principals (alice, bob …)`, or the addresses if no principal is known."""
    names = dict.fromkeys(one.principal for one in of if one.principal is not None)
    what = "principal" if names else "client"
    shown = [printable(name) for name in names] or list(dict.fromkeys(one.client_ip for one in of))
    head = ", ".join(shown[:3]) + (" …" if len(shown) > 3 else "")
    return f"{what} {head}" if len(shown) == 1 else f"{len(shown)} {what}s ({head})"


def _connections(of: list[ClientIdentity]) -> str:
    count = sum(one.connections for one in of)
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
                "error",
                of,
                title=f"{named} without TLS: {_who(of)} at {broker} on {_connections(of)}",
                meaning=f"{named} sends the secret itself; anyone on the path can read it. {_BEHIND_PROXY}",
                advice="Use a SASL_SSL listener, and change these credentials.",
                **subject,
            )
        elif mechanism.startswith("SCRAM-"):
            yield _finding(
                "plaintext-scram",
                "warning",
                of,
                title=f"{named} without TLS: {_who(of)} at {broker} on {_connections(of)}",
                meaning="Anyone who records the exchange can guess weak passwords offline. All later "
                f"traffic is readable. {_BEHIND_PROXY}",
                advice="Use a SASL_SSL listener.",
                **subject,
            )


def _failed(identities: list[ClientIdentity]) -> Iterator[Finding]:
    def group(one: ClientIdentity) -> tuple[Any, ...] | None:
        if one.authentication != "failed":
            return None
        return one.client_ip, one.principal, one.mechanism, one.broker, one.reason

    for (client, principal, mechanism, broker, reason), of in _grouped(identities, group):
        name = client if principal is None else f"{printable(principal)} from {client}"
        yield _finding(
            "failed-authentication",
            "warning",
            of,
            title=f"{name}: {printable(mechanism or 'SASL')} refused by {broker} on {_connections(of)}",
            meaning=f"The broker's reason: {printable(reason or 'none')}.",
            advice="Check the client's mechanism and credentials. Repeated failures of one address may be guessing.",
            client_ip=client,
            principal=principal,
            mechanism=mechanism,
            broker=broker,
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
        found = one.transport.certificate
        return None if found is None else (one.broker, found)

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
        elif (last := max((one.last for one in of if one.last is not None), default=None)) is not None:
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
    def group(one: ClientIdentity) -> tuple[str] | None:
        return (one.broker,) if one.authentication == "none" and not one.transport.tls else None

    for (broker,), of in _grouped(identities, group):
        yield _finding(
            "without-authentication",
            "note",
            of,
            title=f"{broker} serves {_who(of)} without TLS and SASL on {_connections(of)}",
            meaning=f"By default, all clients are User:ANONYMOUS there, and all traffic is readable. {_BEHIND_PROXY}",
            advice="Unless the network is closed, use a SASL_SSL or SSL listener.",
            broker=broker,
        )


def _denied(denials: Iterable[Denial]) -> Iterator[Finding]:
    for one in denials:
        who = (
            printable(one.principal)
            if one.principal is not None
            else f"a client at {one.client or 'an unknown address'}"
        )
        resource = f"{one.kind} {printable(one.resource)}" if one.resource is not None else f"a {one.kind}"
        if one.kind == "cluster":
            resource = "the cluster"
        times = "once" if one.count == 1 else f"{one.count:,} times"
        yield Finding(
            detector="denied",
            severity="warning",
            title=f"{who} may not use {resource}: {one.error} for {one.api or 'a request'}, {times}",
            meaning="An ACL is missing, or the client should not try. Requests by topic id get UNKNOWN_TOPIC_ID "
            "instead for topics that the principal may not describe.",
            advice="Grant the operation with kafka-acls.sh, or fix the client's configuration.",
            subject={
                "principal": one.principal,
                "client_ip": one.client,
                "client_id": one.client_id,
                "resource_type": one.kind,
                "resource": one.resource,
                "api": one.api,
                "error": one.error,
            },
            count=one.count,
            first=one.first,
            last=one.last,
            evidence=tuple(
                Evidence(connection_id, None, time, exchange=number) for connection_id, number, time in one.exchanges
            ),
        )


_JUDGES: Final = (_plaintext, _failed, _old, _weak, _certificates, _open)
