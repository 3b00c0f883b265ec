"""Rows, for spreadsheets and shell tools.

CSV (RFC 4180) has one row per message, SASL token or problem, without bodies. Chosen fields have one row per exchange:
tab-separated text, CSV with a header, or JSON lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import orjson

from kafkasniff.filters.fields import FIELDS, FilterField, values_of
from kafkasniff.filters.record_paths import Candidate
from kafkasniff.kafka.apis.dissectors import api_names
from kafkasniff.kafka.apis.entities import text
from kafkasniff.kafka.schema import codes
from kafkasniff.kafka.schema.codes import error_name
from kafkasniff.model import Endpoint, Exchange, Lines, Message, Problem, SaslToken
from kafkasniff.redact.payload import Payload, stand_in_text
from kafkasniff.sinks.jsonl import BytesForm, plain
from kafkasniff.sinks.lines import ByteOutput, TextWriter
from kafkasniff.sinks.native_lines import LineShape
from kafkasniff.sinks.tree import error_label
from kafkasniff.text.printable import printable
from kafkasniff.text.times import rfc3339

COLUMNS: Final = (
    *("type", "time", "capture", "connection", "exchange", "client", "broker", "api_key", "api", "api_version"),
    *("correlation_id", "client_id", "size", "first_packet", "last_packet", "latency_ms", "duration_ms"),
    *("errors", "problems"),
)
"""Columns in order; new ones are added at the end. Names and units are those of the JSON lines."""

FORMULA: Final = ("=", "+", "-", "@")
"""Spreadsheets evaluate cells that begin like this (OWASP, "CSV Injection")."""

_Cell = str | int | float | None


class CsvSink:
    """Writes events as rows to `stream`, after a header. Lines end in LF, as shell tools expect; text is UTF-8."""

    def __init__(self, stream: ByteOutput, header: str | None = ",".join(COLUMNS)) -> None:
        self._lines = TextWriter(stream)
        if header is not None:
            self._lines.add(header)

    def write(self, event: Message | SaslToken | Exchange | Problem) -> None:
        """Write the row of one event, if it has one: the messages of an exchange have rows, its end has none. Hot."""
        if isinstance(event, Message):
            self._lines.add(",".join(map(csv_cell, _message(event))))
        elif isinstance(event, SaslToken):
            self._lines.add(",".join(map(csv_cell, _token(event))))
        elif isinstance(event, Problem):
            self._lines.add(",".join(map(csv_cell, _problem(event))))

    @property
    def stream(self) -> ByteOutput:
        """Where rows go. May be replaced before the first one."""
        return self._lines.stream

    @stream.setter
    def stream(self, stream: ByteOutput) -> None:
        self._lines.stream = stream

    def write_lines(self, lines: Lines) -> None:
        """Write finished rows."""
        self._lines.add_encoded(bytes(lines.data))

    def flush(self) -> None:
        """Flush all rows so far."""
        self._lines.flush()

    def close(self) -> None:
        """Flush the last rows; the stream stays open."""
        self._lines.flush()


def csv_cell(value: _Cell) -> str:
    """A field. Control characters are escaped, so that a row is a line, and text that begins a formula is marked."""
    if value is None:
        return ""
    if not isinstance(value, str):
        return str(value)
    text = printable(value)
    if text.startswith(FORMULA):
        text = f"'{text}"
    if "," in text or '"' in text:
        return '"' + text.replace('"', '""') + '"'
    return text


def _text(value: str | bytes | None) -> str | None:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def _ends(client: Endpoint | None, broker: Endpoint | None) -> tuple[_Cell, _Cell]:
    return None if client is None else str(client), None if broker is None else str(broker)


def _milliseconds(value: int | None) -> float | None:
    return None if value is None else value / 1e6


def _message(message: Message) -> tuple[_Cell, ...]:
    return (
        message.type,
        rfc3339(message.time_ns),
        message.capture,
        message.connection,
        message.exchange,
        *_ends(message.client, message.broker),
        message.api_key,
        message.api,
        message.api_version,
        message.correlation_id,
        _text(message.client_id),
        message.size,
        message.first_packet,
        message.last_packet,
        _milliseconds(message.latency_ns),
        _milliseconds(message.duration_ns),
        "; ".join(f"{error_label(error)} at {error.path}" for error in message.errors),
        _problems(message.problems),
    )


def _problems(problems: tuple[Problem, ...]) -> str:
    return "; ".join(f"{problem.kind}: {problem.detail}" for problem in problems)


def _token(token: SaslToken) -> tuple[_Cell, ...]:
    return (
        "sasl",
        rfc3339(token.time_ns),
        token.capture,
        token.connection,
        None,
        *_ends(token.client, token.broker),
        *(None,) * 5,
        token.size,
        token.packet,
        token.packet,
        *(None,) * 4,
    )


def _problem(problem: Problem) -> tuple[_Cell, ...]:
    return (
        "problem",
        rfc3339(problem.time_ns),
        problem.capture,
        problem.connection,
        problem.exchange,
        *(None,) * 7,
        problem.bytes,
        problem.packet,
        problem.packet,
        *(None,) * 3,
        f"{problem.kind}: {problem.detail}",
    )


def _cells(*values: _Cell) -> bytes:
    return ",".join(map(csv_cell, values)).encode()


CSV: Final = LineShape(
    rows=True,
    ends=lambda client, broker: _cells(*_ends(client, broker)),
    version=_cells,
    problems=lambda problems: printable(_problems(problems)).encode(),
    error=lambda code: (codes.error_name(code) or f"error {code}").encode(),
    capture=_cells,
)
"""Rows that the kernel writes. It quotes the cell of problems itself."""


# -- rows of chosen fields ---------------------------------------------------------------------------------------------


SEPARATOR: Final = ","
"""Between several values in a cell, as in tshark."""


class FieldsSink(CsvSink):
    """Writes a row for each exchange once it has ended; other events have none."""

    def __init__(
        self, stream: ByteOutput, fields: Sequence[FilterField], form: str, payload: Payload, bytes_form: BytesForm
    ) -> None:
        names = [field.name for field in fields]
        super().__init__(stream, header=",".join(map(csv_cell, names)) if form == "csv" else None)
        self._columns = {field.name: _values(field) for field in fields}
        self._many = frozenset(field.name for field in fields if field.many)
        self._row: Callable[[dict[str, list[Any]]], str] = {"csv": _csv, "json": self._json, "text": _text_row}[form]
        self._payload = payload
        self._bytes_form: BytesForm = bytes_form

    def write(self, event: Message | SaslToken | Exchange | Problem) -> None:
        """Write the row of an exchange."""
        if not isinstance(event, Exchange):
            return
        request, response = event.request, event.response
        payload = self._payload
        if payload.hides:
            request = None if request is None else payload.hide(request)
            response = None if response is None else payload.hide(response)
            event = msgspec.structs.replace(event, request=request, response=response)
        candidate = Candidate(request=request, response=response, ended=event)
        self._lines.add(self._row({name: values(candidate) for name, values in self._columns.items()}))

    def _json(self, row: dict[str, list[Any]]) -> str:
        shown = {
            name: plain(values if name in self._many else values[0] if values else None, self._bytes_form)
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


def _text_row(row: dict[str, list[Any]]) -> str:
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
