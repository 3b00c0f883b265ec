"""Who connects as whom: transport, authentication and authorization, from rows of the table `connections`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

import pyarrow as pa

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading
from kafkasniff.analysis.detectors.connections import (
    LOGINS,
    ClientIdentity,
    Identities,
    add_logins,
    identities_of,
    logins_shape,
)
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Finding
from kafkasniff.analysis.detectors.registry import SECURITY
from kafkasniff.analysis.export import Export
from kafkasniff.analysis.partials import Shape
from kafkasniff.engine.roles import NO_BODY, WantedBodies
from kafkasniff.errors import UsageError

__all__ = ["ClientIdentity", "SecurityView", "security_findings"]


class SecurityView(Accumulator[Parameters]):
    """Clients, principals, transport and certificates of connections."""

    name: ClassVar[str] = "security"
    bodies: ClassVar[WantedBodies] = NO_BODY

    def reads(self) -> Mapping[str, TableReading]:
        """The table `connections`."""
        return {"connections": LOGINS}

    def shapes(self) -> Mapping[str, Shape]:
        """The connections, and their number."""
        count = (("all", pa.int64()),), (("count", pa.int64(), "sum"),)
        return {"logins": logins_shape(), "count": Shape(*count)}  # type: ignore[arg-type]

    def has(self, table: str) -> None:
        """It does not matter which tables there are."""

    def update(self, batch: pa.RecordBatch, table: str = "connections") -> None:
        """Take rows; those of other tables are ignored."""
        if table == "connections":
            add_logins(self, batch)
            self.parts["count"].add({"all": [0], "count": [batch.num_rows]})

    def read(self, export: Export) -> None:
        """Take the rows of an export, if it has such a table with these columns. Raises CaptureError."""
        if "connections" in export.tables:
            try:
                left_out = export.missing(self)
            except UsageError:
                return
            if "connections" not in left_out:
                for batch in export.batches("connections", LOGINS):
                    self.update(batch, "connections")

    def result(self) -> pa.Table:
        """Addresses of clients and listeners."""
        return pa.Table.from_pylist(
            [{"client_ip": identity.client_ip, "broker": identity.broker} for identity in self.identities()]
        )

    @property
    def connections(self) -> int:
        """Number of connections, whatever they carry; with a filter, only those with selected exchanges."""
        return sum(self.parts["count"].table().column("count").to_pylist())

    def _known(self) -> Identities:
        return identities_of(self.parts["logins"], MAX_EVIDENCE)

    def identities(self) -> list[ClientIdentity]:
        """Who connected, by listener, client and principal."""
        return sorted(
            self._known().found.values(),
            key=lambda client_identity: (
                client_identity.broker,
                client_identity.client_ip,
                client_identity.client_ids,
                client_identity.principal or "",
                client_identity.first or 0,
            ),
        )

    def notes(self) -> list[str]:
        """What the answer lacks."""
        known, notes = self._known(), super().notes()
        if known.beyond:
            notes.append(f"{known.beyond:,} connections are not listed: there are too many different clients")
        if known.unread:
            notes.append("certificates were not read: pip install 'kafkasniff[tls]'")
        return notes


def security_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Those findings that `security` shows."""
    return [finding for finding in findings if finding.detector in SECURITY]
