"""The places of all fields of a message: header, body, record batches and their records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from kafkasniff.kafka.apis import dissectors
from kafkasniff.kafka.records.record_spans import Piece, record_spans
from kafkasniff.kafka.schema import data_schemas
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.kafka.schema.schema import Schema
from kafkasniff.kafka.schema.spans import Span, value_at
from kafkasniff.model import Message

__all__ = ["LEFT_OVER", "MAX_SPANS", "NOT_DECODED", "NOT_LISTED", "message_spans", "with_records"]

MAX_SPANS: Final = 250_000
"""Fields of a body that are listed: each takes some 250 bytes until its message is shown."""
LEFT_OVER: Final = "left over"
NOT_DECODED: Final = "not decoded"
NOT_LISTED: Final = "not listed"
"""Paths of bytes without a field: after the body, from where it cannot be read, and after `MAX_SPANS` fields."""


def message_spans(message: Message, data: bytes, *, show_secrets: bool) -> list[Span]:
    """The fields of header and body with their places in `data`, without gaps; `records` fields are one each.

    Bytes that belong to no field become a span of their own. Secret values are replaced unless `show_secrets`.
    """
    spans: list[Span] = []
    context = DecodeContext(DecodeOptions(records="skip", show_secrets=show_secrets, inside=False))
    known = dissectors.api(message.api_key) if message.api_key is not None else None
    version = message.api_version or 0
    request = message.type == "request"
    if known is None:
        header = 1 if request else 0
    else:
        header = known.request_header(version) if request else known.response_header(version)
    schemas: list[Schema | None] = [data_schemas.data_schema("RequestHeader" if request else "ResponseHeader", header)]
    body_version = version if message.body_version is None else message.body_version
    if known is not None and body_version in known.versions:
        schemas.append(known.request(body_version) if request else known.response(body_version))
    position = 0
    for schema in schemas:
        if schema is None:
            break
        read, found = schema.spans(data, position, len(data), context, most=MAX_SPANS)
        spans += found
        position = read.position
        if not read.complete:
            break
    end = spans[-1].end if spans else 0
    if end < len(data):
        whole = message.body is not None and message.raw is None and message.raw_redacted is None
        what = NOT_LISTED if len(spans) >= MAX_SPANS else LEFT_OVER if whole else NOT_DECODED
        spans.append(Span(end, len(data), what, "bytes", None))
    return spans


def with_records(
    message: Message, data: bytes, spans: Iterable[Span], opens: Callable[[int, int], bool]
) -> Iterator[Piece]:
    """The same spans, but each `records` field as its length and its contents (`record_spans`).

    The message's body has its records. `opens`: whether the compressed bytes of a range may be decompressed.
    """
    for span in spans:
        if span.field is None or span.field.type != "records":
            yield span
            continue
        begin, value = span.content(data), None if message.body is None else value_at(message.body, span.path)
        yield Span(span.start, begin, span.path, span.type, value)
        yield from record_spans(data, begin, span.end, span.path, value, opens)
