"""Connections that look alike: from the same address, as the same principal, over the same transport."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec
import pyarrow as pa

from kafkasniff.analysis.accumulator import Accumulator, TableReading
from kafkasniff.analysis.columns import broker_endpoint, column, only
from kafkasniff.analysis.partials import Partials, Shape
from kafkasniff.tables.rows.schemas import CONNECTIONS
from kafkasniff.tls.descriptions import ShownCertificate, shown_certificate

MAX_IDENTITIES: Final = 1 << 14
"""Maximum number of different identities that are listed; connections of others are only counted."""
MAX_LOGINS: Final = 1 << 18
"""Maximum number of connections that are examined, the earliest."""
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
    examples: list[tuple[int, int | None, int | None]] = []
    """The first connections: connection_id, the exchange that decided, and time; in JSON `connection`, `exchange` (both
    numbered as in `decode`) and `time`.
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

    def add(self, row: dict[str, Any]) -> None:
        """Take a row of `logins_shape`."""
        transport = self._transport(row)
        # If TLS is not decrypted, only its application protocol shows that it is not Kafka.
        if row["verdict"] != "kafka" and (not transport.tls or row["protocol"] == "TLS with ALPN"):
            return
        made = ClientIdentity(
            row["client_ip"],
            tuple(row["client_ids"]),
            row["software_name"],
            row["software_version"],
            row["broker"],
            transport,
            row["sasl_mechanism"],
            row["principal"],
            row["by_token"],
            row["credentials"],
            row["authentication"],
            row["authentication_error"],
        )
        key = msgspec.structs.astuple(made)[:12]
        identity = self.found.get(key)
        if identity is None:
            if len(self.found) >= MAX_IDENTITIES:
                self.beyond += 1
                return
            identity = self.found[key] = made
        identity.connections += 1
        time = row["time_ns"]
        if time is not None:
            identity.first = time if identity.first is None else min(identity.first, time)
            identity.last = time if identity.last is None else max(identity.last, time)
        if len(identity.examples) < self._kept:
            identity.examples.append((row["connection_id"], row["authentication_exchange"], time))

    def _transport(self, row: dict[str, Any]) -> Transport:
        if not row["tls"]:
            return Transport(tls=False)
        version, found = row["tls_version"], row["tls_certificate"]
        certificate, note = None, None
        if found is not None:
            certificate = self._certificate(found, row["tls_server_name"], row["time_ns"])
            note = None if certificate is not None else "not readable"
        elif version == "TLS 1.3":
            note = "not visible in TLS 1.3"
        elif row["tls_resumed"]:
            note = "none: a session is resumed"
        own = None
        if row["tls_client_certificate"] is not None:
            own = self._certificate(row["tls_client_certificate"], None, row["time_ns"])
        return Transport(
            tls=True,
            decrypted=row["protocol"] == "Kafka over TLS",
            version=version,
            cipher=row["tls_cipher"],
            server_name=row["tls_server_name"],
            certificate=certificate,
            certificate_note=note,
            without_client_certificate=row["tls_lacks_client_certificate"],
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


_COLUMNS: Final = (
    *("connection_id", "time_ns", "client_ip", "client_ids", "software_name", "software_version", "verdict"),
    *("protocol", "sasl_mechanism", "authentication", "authentication_error", "authentication_exchange", "principal"),
    *("by_token", "credentials", "tls", "tls_version", "tls_cipher", "tls_server_name", "tls_resumed"),
    *("tls_certificate", "tls_client_certificate", "tls_lacks_client_certificate"),
)
LOGINS: Final = TableReading((*_COLUMNS, "broker_ip", "broker_port"))
"""What they need of the table `connections`."""


def logins_shape() -> Shape:
    """For `shapes`: a row for each connection."""
    kept = tuple((name, CONNECTIONS.field(name).type, "first") for name in _COLUMNS)
    return Shape(
        keys=(),
        measures=(*kept, ("broker", pa.string(), "first")),  # type: ignore[arg-type]
        order=("time_ns", "connection_id"),
        keep="earliest",
        bound=MAX_LOGINS,
    )


def add_logins(reader: Accumulator[Any], batch: pa.RecordBatch, mask: pa.Array | None = None) -> None:
    """Add rows of the table `connections`, or those that `mask` selects, to the partial answer `logins`."""
    batch = batch if mask is None else only(batch, mask)
    columns = {name: column(batch, name) for name in _COLUMNS}
    reader.parts["logins"].add({**columns, "broker": broker_endpoint(batch)})


def identities_of(part: Partials, kept: int) -> Identities:
    """The identities in a partial answer of `logins_shape`."""
    found = Identities(kept)
    for row in part.table().sort_by([("time_ns", "ascending"), ("connection_id", "ascending")]).to_pylist():
        found.add(row)
    return found
