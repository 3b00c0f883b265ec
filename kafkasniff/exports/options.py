"""What an export is made with: the same for every run into one folder."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from kafkasniff.kafka.framing import MAX_FRAME
from kafkasniff.payload import SHOWN, Payload
from kafkasniff.rows import TABLE_NAMES

__all__ = ["ExportOptions"]


class ExportOptions(msgspec.Struct, frozen=True):
    """Stands in the manifest; a run with other options is no continuation."""

    tables: tuple[str, ...] = TABLE_NAMES
    bodies: bool = True
    """Fill the columns `request_body` and `response_body`."""
    headers: bool = False
    """Header columns alone: what comes of bodies is null."""
    records: bool = False
    """Bodies have their records, too."""
    ports: tuple[int, ...] = ()
    max_frame: int = MAX_FRAME
    show_secrets: bool = False
    payload: Payload = SHOWN
    filters: tuple[tuple[str, Any], ...] = ()
    """The filter options as they were given, for comparing."""

    @property
    def public(self) -> ExportOptions:
        """What may be written down, and what two runs are compared by: all but the salt of hashes."""
        return msgspec.structs.replace(self, payload=self.payload.public)

    @property
    def reads_headers(self) -> bool:
        """Whether bodies need not be read."""
        return self.headers and "records" not in self.tables and not self.filters

    @property
    def decode_records(self) -> Literal["full", "columns", "metadata"]:
        """How far records have to be decoded; the metadata log's always are, since they tell names."""
        if self.bodies and self.records and "exchanges" in self.tables:
            return "full"
        return "columns" if "records" in self.tables else "metadata"
