"""A message as a hexdump with one field per row: type, name and value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kafkasniff.kafka.apis import dissectors
from kafkasniff.kafka.apis.cluster_metadata import metadata_test
from kafkasniff.kafka.schema import data_schemas
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.kafka.schema.errors import error_name
from kafkasniff.kafka.schema.schema import Schema
from kafkasniff.kafka.schema.walker import Span
from kafkasniff.model import Message
from kafkasniff.sinks.names import enum_name, field_at, layout_of
from kafkasniff.sinks.summaries.phrases import records_phrase
from kafkasniff.sinks.tree import scalar_text
from kafkasniff.text.paint import Paint
from kafkasniff.text.printable import cut, printable

__all__ = ["ROW", "SHOWN_ROWS", "dump_lines", "spans_of"]

ROW: Final = 8
"""Bytes per row."""
SHOWN_ROWS: Final = 8
"""Rows shown per field; for the rest only the size is shown."""
VALUE_WIDTH: Final = 80


def spans_of(message: Message, data: bytes, show_secrets: bool) -> list[Span]:
    """The decoded fields of header and body with their places in `data`, without gaps.

    Bytes that belong to no field (a body of an unknown version, trailing bytes) become a span of their own.
    """
    spans: list[Span] = []
    context = DecodeContext(DecodeOptions(records="batches", show_secrets=show_secrets))
    known = dissectors.api(message.api_key) if message.api_key is not None else None
    version = message.api_version or 0
    request = message.type == "request"
    if known is None:
        header = 1 if request else 0
    else:
        header = known.request_header(version) if request else known.response_header(version)
    position = 0
    schemas: list[Schema | None] = [data_schemas.data_schema("RequestHeader" if request else "ResponseHeader", header)]
    body_version = version if message.body_version is None else message.body_version
    if known is not None and body_version in known.versions:
        schemas.append(known.request(body_version) if request else known.response(body_version))
    for schema in schemas:
        if schema is None:
            break
        read, found = schema.spans(data, position, len(data), context)
        spans += found
        position = read.position
        if not read.complete:
            break
    if not show_secrets and _holds_metadata(message):
        for span in spans:
            if span.type.endswith("records"):
                span.value = {"redacted": span.end - span.start}
    end = spans[-1].end if spans else 0
    if end < len(data):
        what = "left over" if message.raw is None and message.raw_redacted is None else "not decoded"
        hidden = message.raw_redacted is not None
        spans.append(Span(end, len(data), what, "bytes", {"redacted": len(data) - end} if hidden else None))
    return spans


def _holds_metadata(message: Message) -> bool:
    """Whether its records are those of KRaft's metadata log, which contain secrets."""
    test = metadata_test(message.api_key, message.type) if message.api_key is not None else None
    return test is not None and message.body is not None and test(message.body)


def dump_lines(message: Message, spans: Iterable[Span], data: bytes, paint: Paint) -> Iterator[str]:
    """Lines of the hexdump: offset, bytes, type, field, value. Secrets are shown as dots."""
    digits = max(4, len(f"{len(data):x}"))
    for span in spans:
        raw = data[span.start : span.end]
        secret = isinstance(span.value, dict) and "redacted" in span.value
        rows = [raw[at : at + ROW] for at in range(0, min(len(raw), ROW * SHOWN_ROWS), ROW)] or [b""]
        for index, row in enumerate(rows):
            shown = " ".join([".."] * len(row)) if secret else row.hex(" ")
            line = f"{paint.dim}{span.start + index * ROW:0{digits}x}{paint.reset}  {shown:<{ROW * 3 - 1}}"
            if index == 0:
                # Tags and counts in the path are ours; a path never contains wire text.
                line += f"  {paint.dim}{span.type:<22}{paint.reset}  {paint.name}{printable(span.path)}{paint.reset}"
                line += _value(message, span, paint)
            yield line.rstrip()
        if len(raw) > ROW * SHOWN_ROWS:
            yield f"{' ' * digits}  … +{len(raw) - ROW * SHOWN_ROWS} bytes"


def _value(message: Message, span: Span, paint: Paint) -> str:
    value = span.value
    if span.type.startswith("count of"):
        return f": {value}" if value is not None else ": null"
    if span.type.startswith("tag and size"):
        return f": tag {value}"
    if value is None and span.type == "bytes" and span.path in {"left over", "not decoded"}:
        return f": {span.end - span.start} bytes"
    if isinstance(value, dict) and "batches" in value:
        return f": {records_phrase(value)}"
    text = cut(scalar_text(value), VALUE_WIDTH)
    note = _note(message, span)
    return f": {text} {paint.note}({note}){paint.reset}" if note else f": {text}"


def _note(message: Message, span: Span) -> str | None:
    """The name of an enum's value, from its definition."""
    if span.path == "request_api_key":
        return message.api
    field = field_at(layout_of(message), span.path)
    if field is None:
        return None
    if field.type == "error" and isinstance(span.value, int):
        return error_name(span.value)
    return enum_name(field.enum, span.value) if field.enum is not None else None
