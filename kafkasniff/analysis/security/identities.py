"""Connections that look alike: from the same address, as the same principal, over the same transport."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from kafkasniff.analysis.security.logins import Login
from kafkasniff.model import Connection
from kafkasniff.tls.certificates import ShownCertificate, shown_certificate
from kafkasniff.tls.ciphers import suite
from kafkasniff.tls.descriptions import version_name

__all__ = ["Authentication", "ClientIdentity", "Identities", "Transport"]

MAX_IDENTITIES: Final = 1 << 14
"""Maximum number of different identities that are listed; connections of others are only counted."""
MAX_CERTIFICATES: Final = 1 << 10
"""Maximum number of parsed certificates that are cached."""

Authentication = Literal["none", "begun", "succeeded", "failed", "unserved", "hidden", "unknown"]
"""none: the broker serves it without SASL; begun: the end of SASL was not seen; unserved: no SASL, and no request was
answered; hidden: encrypted; unknown: the connection began before the capture."""


class Transport(msgspec.Struct, frozen=True):
    """The transport of connections."""

    tls: bool
    """Whether it is TLS."""
    decrypted: bool = False
    """Its messages were decrypted."""
    version: str | None = None
    """The version of TLS; None if its handshake was not seen."""
    cipher: str | None = None
    """The cipher suite, or its number if it has no known name."""
    server_name: str | None = None
    """The host that the client asks for (SNI)."""
    certificate: ShownCertificate | None = None
    """The server's; TLS 1.3 encrypts it."""
    certificate_note: str | None = None
    """Why there is no certificate."""
    without_client_certificate: bool = False
    """The client was asked for a certificate and sent none."""
    client_certificate: ShownCertificate | None = None
    """The client's own; a broker takes the principal from its subject, by default as it is."""


class ClientIdentity(msgspec.Struct):
    """Who connects as whom."""

    client_ip: str
    """Address of the client."""
    client_ids: tuple[str, ...]
    """Client ids of its connections."""
    software_name: str | None
    """Name of the client's software."""
    software_version: str | None
    """Its version."""
    broker: str
    """The listener: address and port."""
    transport: Transport
    """TLS and its certificates."""
    mechanism: str | None
    """The SASL mechanism."""
    principal: str | None
    """The user that authenticates with SASL, by name alone."""
    by_token: bool
    """The principal is the id of a delegation token."""
    credentials: bool
    """Messages of the mechanism were sent, and with them what it proves or gives away."""
    authentication: Authentication
    """none, begun, succeeded, failed, unserved (no request was answered), hidden (encrypted), unknown (it began before
    the capture).
    """
    reason: str | None
    """Why authentication failed."""
    connections: int = 0
    """Number of connections."""
    first: int | None = None
    """Time of the first connection's first packet, in nanoseconds; None if captures have no times."""
    last: int | None = None
    """Likewise of the last one."""
    examples: list[tuple[int, int, int | None, int | None]] = []
    """The first connections: connection_id, number, the exchange that decided, and time; in JSON `connection`,
    `exchange` and `time`.
    """

    @property
    def address(self) -> str:
        """The client's, by the name that tables look for."""
        return self.client_ip


class Identities:
    """Counts connections by identity."""

    def __init__(self, kept: int) -> None:
        """`kept`: connections that are named for each identity."""
        self._kept = kept
        self.found: dict[tuple[object, ...], ClientIdentity] = {}
        self.beyond = 0
        """Connections of other identities than the first MAX_IDENTITIES."""
        self._certificates: dict[tuple[bytes, str | None], ShownCertificate | None] = {}
        self.unread = False
        """There are certificates, which only the package `cryptography` can read."""

    def feed(self, connection: Connection, login: Login) -> None:
        """Take a connection that is over."""
        transport = self._transport(connection)
        # If TLS is not decrypted, only its application protocol shows that it is not Kafka.
        if connection.verdict != "kafka" and (not transport.tls or connection.protocol == "TLS with ALPN"):
            return
        authentication = _authentication(connection, login, transport)
        made = ClientIdentity(
            connection.client.address,
            tuple(
                one if isinstance(one, str) else one.decode("utf-8", "backslashreplace")
                for one in connection.client_ids
            ),
            connection.software_name,
            connection.software_version,
            str(connection.broker),
            transport,
            login.mechanism,
            login.principal,
            login.token,
            login.credentials,
            authentication,
            login.reason if authentication == "failed" else None,
        )
        key = msgspec.structs.astuple(made)[:12]
        identity = self.found.get(key)
        if identity is None:
            if len(self.found) >= MAX_IDENTITIES:
                self.beyond += 1
                return
            identity = self.found[key] = made
        identity.connections += 1
        time = connection.time_ns
        if time is not None:
            identity.first = time if identity.first is None else min(identity.first, time)
            identity.last = time if identity.last is None else max(identity.last, time)
        if len(identity.examples) < self._kept:
            identity.examples.append((connection.connection_id, connection.connection, login.exchange, time))

    def _transport(self, connection: Connection) -> Transport:
        seen = connection.tls
        if seen is None:
            return Transport(tls=False)
        certificate, note = None, None
        if seen.certificate is not None:
            certificate = self._certificate(seen.certificate, seen.server_name, connection.time_ns)
            note = None if certificate is not None else "not readable"
        elif seen.version is not None and seen.version >= 0x0304:
            note = "not visible in TLS 1.3"
        elif seen.resumed:
            note = "none: a session is resumed"
        own = None
        if seen.client_certificate is not None:
            own = self._certificate(seen.client_certificate, None, connection.time_ns)
        known = None if seen.suite is None else suite(seen.suite)
        cipher = known.name if known else None if seen.suite is None else f"0x{seen.suite:04x}"
        return Transport(
            tls=True,
            decrypted=connection.protocol == "Kafka over TLS",
            version=None if seen.version is None else version_name(seen.version),
            cipher=cipher,
            server_name=seen.server_name,
            certificate=certificate,
            certificate_note=note,
            without_client_certificate=seen.lacks_certificate,
            client_certificate=own,
        )

    def _certificate(self, data: bytes, name: str | None, time: int | None) -> ShownCertificate | None:
        key = data, name
        if key not in self._certificates:
            if len(self._certificates) >= MAX_CERTIFICATES:
                self._certificates.clear()
            try:
                self._certificates[key] = shown_certificate(data, name, time)
            except ImportError:
                self.unread = True
                return None
        return self._certificates[key]


def _authentication(connection: Connection, login: Login, transport: Transport) -> Authentication:
    if login.outcome != "none":
        return login.outcome
    if transport.tls and not transport.decrypted:
        return "hidden"
    if not connection.syn_seen:
        # SASL may have been before the capture.
        return "unknown"
    return "none" if login.served else "unserved"
