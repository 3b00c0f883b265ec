"""Rows of chosen fields, one per exchange: tab-separated text, CSV with a header, or JSON lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import orjson

from kafkasniff.filters.fields import FIELDS, FilterField, values_of
from kafkasniff.filters.record_paths import Candidate
from kafkasniff.kafka.apis.dissectors import api_names
from kafkasniff.kafka.apis.entities import text
from kafkasniff.kafka.schema.codes import error_name
from kafkasniff.model import Exchange, Message, Problem, SaslToken
from kafkasniff.redact.payload import stand_in_text
from kafkasniff.sinks.csv import CsvSink, csv_cell
from kafkasniff.sinks.formats import Format, SinkSettings
from kafkasniff.sinks.jsonl import plain
from kafkasniff.sinks.lines import ByteOutput
from kafkasniff.text.printable import printable
from kafkasniff.text.times import rfc3339

SEPARATOR: Final = ","
"""Between several values in a cell, as in tshark."""


def fields_format(fields: Sequence[FilterField], form: str) -> Format:
    """The format of rows with these fields: `form` is "text", "csv" or "json"."""

    def opened(stream: ByteOutput, settings: SinkSettings) -> _FieldsSink:
        return _FieldsSink(stream, settings, fields, form)

    return Format(f"fields as {form}", opened)


class _FieldsSink(CsvSink):
    """Writes a row for each exchange once it has ended; other events have none."""

    def __init__(self, stream: ByteOutput, settings: SinkSettings, fields: Sequence[FilterField], form: str) -> None:
        names = [field.name for field in fields]
        super().__init__(stream, header=",".join(map(csv_cell, names)) if form == "csv" else None)
        self._columns = {field.name: _values(field) for field in fields}
        self._many = frozenset(field.name for field in fields if field.many)
        self._row: Callable[[dict[str, list[Any]]], str] = {"csv": _csv, "json": self._json, "text": _text}[form]
        self._settings = settings

    def write(self, event: Message | SaslToken | Exchange | Problem) -> None:
        """Write the row of an exchange."""
        if not isinstance(event, Exchange):
            return
        request, response = event.request, event.response
        payload = self._settings.payload
        if payload.hides:
            request = None if request is None else payload.hide(request)
            response = None if response is None else payload.hide(response)
            event = msgspec.structs.replace(event, request=request, response=response)
        candidate = Candidate(request=request, response=response, ended=event)
        self._lines.add(self._row({name: values(candidate) for name, values in self._columns.items()}))

    def _json(self, row: dict[str, list[Any]]) -> str:
        shown = {
            name: plain(values if name in self._many else values[0] if values else None, self._settings.bytes_form)
            for name, values in row.items()
        }
        return orjson.dumps(shown).decode()


def _values(field: FilterField) -> Callable[[Candidate], list[Any]]:
    """The values of a field, with names and units as in the JSON lines."""
    name, own = field.name, field.name in FIELDS
    values = values_of(name)[1]
    if not own:
        return lambda candidate: list(values(candidate))
    if field.kind == "struct":
        return lambda candidate: [next(iter(values(candidate)), None) is not None]
    if name in ("client", "broker", "host"):
        # Filters match the address alone, too.
        return lambda candidate: list(values(candidate))[1::2]
    match name:
        case "api":
            return lambda candidate: [api_names().get(key, str(key)) for key in values(candidate)]
        case "error":
            return lambda candidate: [error_name(code) or str(code) for code in dict.fromkeys(values(candidate))]
        case "time":
            return lambda candidate: [rfc3339(moment) for moment in values(candidate)]
    if field.kind == "duration" and field.unit_ns == 1:
        return lambda candidate: [duration / 1e6 for duration in values(candidate)]
    # They may come from a set.
    return lambda candidate: sorted(values(candidate)) if field.many and name != "size" else list(values(candidate))


def _csv(row: dict[str, list[Any]]) -> str:
    return ",".join(csv_cell(SEPARATOR.join(map(_word, values))) for values in row.values())


def _text(row: dict[str, list[Any]]) -> str:
    return "\t".join(printable(SEPARATOR.join(map(_word, values))) for values in row.values())


def _word(value: Any) -> str:
    """A value in a cell."""
    if value is None or isinstance(value, bool):
        return {None: "", True: "true", False: "false"}[value]
    found = text(value)
    if found is None and isinstance(value, dict):
        found = stand_in_text(value)
    if found is None:
        return orjson.dumps(plain(value)).decode() if isinstance(value, dict | list) else str(value)
    return found
