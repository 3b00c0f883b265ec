"""The options of an export, the same for every run into one folder."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from kafkasniff.kafka.connection.events import MAX_FRAME
from kafkasniff.redact.payload import SHOWN, Payload
from kafkasniff.tables.rows import TABLE_NAMES


class ExportOptions(msgspec.Struct, frozen=True):
    """Options in the manifest; a run with other options cannot continue an export."""

    tables: tuple[str, ...] = TABLE_NAMES
    bodies: bool = True
    """Fill the columns `request_body` and `response_body`."""
    headers: bool = False
    """Only columns from headers: those from bodies are null."""
    records: bool = False
    """Bodies include their records."""
    ports: tuple[int, ...] = ()
    max_frame: int = MAX_FRAME
    show_secrets: bool = False
    payload: Payload = SHOWN
    filters: tuple[tuple[str, Any], ...] = ()
    """The filter options as they were given, for comparing."""

    @property
    def public(self) -> ExportOptions:
        """The options that may be written down and are compared between runs: all except the salt of hashes."""
        return msgspec.structs.replace(self, payload=self.payload.public)

    @property
    def reads_headers(self) -> bool:
        """Whether bodies need not be read."""
        return self.headers and "records" not in self.tables and not self.filters

    @property
    def needs_python(self) -> bool:
        """Whether Python has to decode bodies: it hides payload, and bodies with records are large."""
        return not self.reads_headers and (self.payload.hides or self.decode_records == "full")

    @property
    def decode_records(self) -> Literal["full", "columns", "metadata"]:
        """How far records have to be decoded; the metadata log's always are, since names are learnt from them."""
        if self.bodies and self.records and "exchanges" in self.tables:
            return "full"
        return "columns" if "records" in self.tables else "metadata"
