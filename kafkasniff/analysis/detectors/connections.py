"""Facts about connections by their id, for rows of other tables: ends, logins, problems, gaps, and whose they are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import Accumulator, TableReading
from kafkasniff.analysis.columns import broker_endpoint, column, first_of_each, in_any, only
from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence
from kafkasniff.analysis.partials import Partials, Shape
from kafkasniff.tables.rows import schemas
from kafkasniff.text.printable import cut, printable
from kafkasniff.tls.descriptions import ShownCertificate, shown_certificate

MAX_CONNECTIONS: Final = 1 << 18
"""Maximum number of connections that are remembered, the earliest."""

_KEYS: Final = (
    ("connection_id", pa.int64()),
    ("time_ns", pa.int64()),
    ("client_id", pa.string()),
    ("client_ip", pa.string()),
    ("client", pa.string()),
    ("broker", pa.string()),
    ("verdict", pa.string()),
    ("sasl_mechanism", pa.string()),
    ("principal", pa.string()),
    ("authentication", pa.string()),
    ("authentication_error", pa.string()),
    ("by_token", pa.bool_()),
    ("ended", pa.string()),
    ("end_time_ns", pa.int64()),
    ("captured", pa.string()),
    ("broker_bytes", pa.int64()),
    ("syn_seen", pa.bool_()),
    ("requests", pa.int64()),
    ("responses", pa.int64()),
    ("bytes_lost", pa.int64()),
)
CONNECTIONS: Final = TableReading(
    (
        *(name for name, _ in _KEYS if name not in ("client_id", "client", "broker")),
        *("client_ids", "client_port", "broker_ip", "broker_port"),
    ),
    optional=True,
)


def connections_shape() -> Shape:
    """For `Detector.shapes`: a row for each connection."""
    return Shape(keys=_KEYS, order=("time_ns", "connection_id"), keep="earliest", bound=MAX_CONNECTIONS)


def add_connections(detector: Accumulator[Any], name: str, batch: pa.RecordBatch) -> None:
    """Add rows of the table `connections` to the partial answer of that name."""
    columns = {key: column(batch, key) for key, _ in _KEYS if key in batch.column_names}
    client = pa.RecordBatch.from_arrays(
        [column(batch, "client_ip"), column(batch, "client_port")], names=["broker_ip", "broker_port"]
    )
    detector.parts[name].add(
        {
            **columns,
            "client_id": first_of_each(column(batch, "client_ids")),
            "client": broker_endpoint(client),
            "broker": broker_endpoint(batch),
        }
    )


def connections_by_id(detector: Accumulator[Any], name: str) -> dict[int, dict[str, Any]]:
    """The connections of a partial answer."""
    return {row["connection_id"]: row for row in detector.parts[name].table().to_pylist()}


MAX_PROBLEMS: Final = 100_000
"""Maximum number of problems that are examined, the earliest."""
MAX_DETAIL: Final = 600
"""Maximum number of characters of a problem's detail. No text of kafkasniff is longer, so no cause is cut off."""
MAX_NOTE: Final = 120
REJECTED: Final = "connection-rejected"

PROBLEMS: Final = TableReading(("connection_id", "time_ns", "kind", "detail"))
_PROBLEM_KEYS: Final = (
    ("time_ns", pa.int64()),
    ("connection_id", pa.int64()),
    ("kind", pa.string()),
    ("detail", pa.string()),
    ("ends", pa.string()),
)
_PROBLEM_ORDER: Final = ("time_ns", "connection_id", "kind", "detail")
_BETWEEN: Final = re.compile(r"^the connection between \S+ and \S+?( is not Kafka)?: ")
"""How problems of connections begin; findings name the two ends in another way."""


def problems_shape() -> Shape:
    """For `Detector.shapes`: a row for each problem of a connection."""
    return Shape(keys=_PROBLEM_KEYS, order=_PROBLEM_ORDER, keep="earliest", bound=MAX_PROBLEMS)


def add_problems(detector: Accumulator[Any], batch: pa.RecordBatch, kinds: Sequence[str]) -> None:
    """Add rows of the table `problems` of these kinds to the partial answer `problems`."""
    batch = only(batch, pc.and_(in_any(batch, "kind", tuple(kinds)), pc.is_valid(column(batch, "connection_id"))))
    ends = pa.nulls(batch.num_rows, pa.string())
    if "_endpoints" in batch.column_names:
        ends = column(batch, "_endpoints")
    columns = {name: column(batch, name) for name, _ in _PROBLEM_KEYS if name not in ("ends", "detail")}
    detail = pc.utf8_slice_codeunits(column(batch, "detail"), 0, 2 * MAX_DETAIL)
    detector.parts["problems"].add({**columns, "detail": detail, "ends": ends})


def problems_by_time(detector: Accumulator[Any]) -> list[dict[str, Any]]:
    """The problems that were kept, the earliest first."""
    order = [(name, "ascending") for name in _PROBLEM_ORDER]
    rows: list[dict[str, Any]] = detector.parts["problems"].table().sort_by(order).to_pylist()
    return rows


def cause_of(problem: dict[str, Any]) -> str:
    """A problem's detail without the ends of its connection, safe to print."""
    return cut(printable(_BETWEEN.sub("", problem["detail"])), MAX_DETAIL)


def problem_evidence(rows: Sequence[dict[str, Any]]) -> tuple[Evidence, ...]:
    """The connections of problems; the note adds what the first one, which the title names, lacks."""
    said = cause_of(rows[0])
    notes = ["" if (cause := cause_of(row)) == said else cut(cause, MAX_NOTE) for row in rows[:MAX_EVIDENCE]]
    return tuple(
        Evidence(row["connection_id"], None, row["time_ns"], note)
        for row, note in zip(rows[:MAX_EVIDENCE], notes, strict=True)
    )


def problem_times(rows: Sequence[dict[str, Any]]) -> dict[str, int | None]:
    """`first` and `last` for `Detector.finding`."""
    times = [row["time_ns"] for row in rows if row["time_ns"] is not None]
    return {"first": min(times, default=None), "last": max(times, default=None)}


MAX_GAPS: Final = 1 << 16
"""Maximum number of gaps that are remembered, the earliest."""
_GAP: Final = "tcp-gap"
_RESYNC: Final = "stream-resync"
"""Also where the capture of a connection begins, after which it is complete."""


def gap_shapes() -> Mapping[str, Shape]:
    """For `Detector.shapes`."""
    keys = (("connection_id", pa.int64()), ("time_ns", pa.int64()), ("kind", pa.string()))
    return {"gaps": Shape(keys=keys, order=("time_ns",), keep="earliest", bound=MAX_GAPS)}


def add_gaps(detector: Detector[Any], batch: pa.RecordBatch) -> None:
    """Add rows of the table `problems`."""
    batch = only(batch, in_any(batch, "kind", [_GAP, _RESYNC]))
    detector.parts["gaps"].add({name: column(batch, name) for name in ("connection_id", "time_ns", "kind")})


def gaps_of(detector: Detector[Any], *, resynced: bool = False) -> dict[int, list[int]]:
    """Times of gaps by connection, ns since the epoch; `resynced`: those at which messages are known again instead."""
    found: dict[int, list[int]] = {}
    for row in detector.parts["gaps"].table().to_pylist():
        if row["time_ns"] is not None and (row["kind"] == _RESYNC) == resynced:
            found.setdefault(row["connection_id"], []).append(row["time_ns"])
    return found


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


_LOGIN_COLUMNS: Final = (
    *("connection_id", "time_ns", "client_ip", "client_ids", "software_name", "software_version", "verdict"),
    *("protocol", "sasl_mechanism", "authentication", "authentication_error", "authentication_exchange", "principal"),
    *("by_token", "credentials", "tls", "tls_version", "tls_cipher", "tls_server_name", "tls_resumed"),
    *("tls_certificate", "tls_client_certificate", "tls_lacks_client_certificate"),
)
LOGINS: Final = TableReading((*_LOGIN_COLUMNS, "broker_ip", "broker_port"))
"""What they need of the table `connections`."""


def logins_shape() -> Shape:
    """For `shapes`: a row for each connection."""
    kept = tuple((name, schemas.CONNECTIONS.field(name).type, "first") for name in _LOGIN_COLUMNS)
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
    columns = {name: column(batch, name) for name in _LOGIN_COLUMNS}
    reader.parts["logins"].add({**columns, "broker": broker_endpoint(batch)})


def identities_of(part: Partials, kept: int) -> Identities:
    """The identities in a partial answer of `logins_shape`."""
    identities = Identities(kept)
    for row in part.table().sort_by([("time_ns", "ascending"), ("connection_id", "ascending")]).to_pylist():
        identities.add(row)
    return identities
