"""The places of all fields of a message: header, body, record batches and their records.

Batches are located and records decoded as for bodies (`record_sets`, `record_list`). Each span is made when it is asked
for, since a message may have millions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from struct import unpack_from
from typing import Any, Final, NamedTuple

from kafkasniff.kafka.apis import dissectors
from kafkasniff.kafka.records.batches import (
    BATCH_FIELDS,
    HEADER_SIZE,
    MAX_NESTING,
    MESSAGE_FIELDS,
    Batch,
    batch_payload,
)
from kafkasniff.kafka.records.compression import CODECS, codec_name, decompress
from kafkasniff.kafka.records.record_list import FlawError, RecordCursor
from kafkasniff.kafka.records.record_sets import find_batches
from kafkasniff.kafka.schema.context import MAX_DECOMPRESSED, DecodeContext, DecodeOptions
from kafkasniff.kafka.schema.definition import FORMATS
from kafkasniff.kafka.schema.schema import Schema, data_schema
from kafkasniff.kafka.schema.walker import Span, value_at
from kafkasniff.model import Message

COMPRESSED: Final = "compressed"
"""Type of the span of compressed records; its value is the codec's name."""
MALFORMED: Final = "malformed"
"""Type of a span that cannot be decoded."""
_ATTRIBUTES_AT: Final = 21
_OLD_ATTRIBUTES_AT: Final = 17
_CODEC: Final = 7


class Inside(NamedTuple):
    """The decompressed bytes of the span before it."""

    path: str
    codec: str
    data: bytes
    spans: Iterator[Piece]
    """Their places: offsets in `data`."""


Piece = Span | Inside


def record_spans(  # noqa: PLR0917 - where the field is, and what is known of it
    data: bytes, start: int, end: int, path: str, field: dict[str, Any] | None, opens: Callable[[int, int], bool]
) -> Iterator[Piece]:
    """All places in the `records` field `data[start:end]`, in order and without gaps.

    `field`: the decoded field with its records; `opens`: whether the compressed bytes of a range may be decompressed,
    which is done only where the decoder did, too.
    """
    first = start + (0 if field is None else field.get("leading_bytes", 0))
    if first > start:
        yield Span(start, first, f"{path}.leading_bytes", "bytes", None)
    places, left = find_batches(data, first, end, DecodeContext(DecodeOptions(records="skip")))
    batches = [] if field is None else field["batches"]
    for index, (position, stop, magic) in enumerate(places):
        batch = batches[index] if len(batches) == len(places) else {}
        name = f"{path}.batches[{index}]"
        if magic == 2:
            yield from _batch(data, position, stop, name, batch, opens)
        else:
            may_open = batch.get("record_count") is not None
            yield from _message(data, position, stop, name, opens if may_open else lambda *_: False, 0)
    if left:
        yield Span(end - left, end, f"{path}.truncated_bytes", "bytes", None)


def _batch(  # noqa: PLR0917 - a batch, and what is known of it
    data: bytes, position: int, end: int, path: str, batch: dict[str, Any], opens: Callable[[int, int], bool]
) -> Iterator[Piece]:
    """The batch of magic 2 in `data[position:end]`."""
    yield from _numbers(data, position, path, BATCH_FIELDS)
    start = position + HEADER_SIZE
    codec = data[position + _ATTRIBUTES_AT + 1] & _CODEC
    if codec == 0:
        yield from _records(data, start, end, path)
        return
    if start == end:
        return
    yield Span(start, end, f"{path}.records", COMPRESSED, codec_name(codec))
    size = batch.uncompressed if isinstance(batch, Batch) else None
    if size is None or not opens(start, end):
        return
    context = DecodeContext(DecodeOptions(max_decompressed=size))
    payload = batch_payload(data, position, end, codec=codec, record_count=batch["record_count"], context=context)
    if payload is not None:
        inside, first, last = payload
        yield Inside(f"{path}.records", codec_name(codec), inside, _records(inside, first, last, path))


def _records(data: bytes, position: int, end: int, path: str) -> Iterator[Piece]:
    """The records in `data[position:end]`."""
    index = 0
    while position < end:
        name = f"{path}.records[{index}]"
        try:
            for span in _record(data, position, end, name):
                position = span.end
                yield span
        except FlawError:
            if position < end:
                yield Span(position, end, name, MALFORMED, None)
            return
        index += 1


def _record(data: bytes, start: int, end: int, path: str) -> Iterator[Span]:
    """The fields of the record at `start`. Raises FlawError after the last that is right."""
    cursor = RecordCursor(data, start, end)

    def span(name: str, kind: str, value: Any) -> Span:
        nonlocal start
        found = Span(start, cursor.position, f"{path}.{name}", kind, value)
        start = cursor.position
        return found

    length = cursor.number("its length", 5)
    if not 0 < length <= end - cursor.position:
        raise FlawError(start, f"its length is {length}")
    cursor.stop = cursor.position + length
    yield span("length", "varint", length)
    yield span("attributes", "int8", cursor.take("attributes", 1)[0])
    yield span("timestamp_delta", "varint", cursor.number("the timestamp delta", 10))
    yield span("offset_delta", "varint", cursor.number("the offset delta", 5))
    yield span("key", "varint bytes", cursor.field("the key"))
    yield span("value", "varint bytes", cursor.field("the value"))
    count = cursor.number("the number of headers", 5)
    yield span("headers", "count of []", count)
    for index in range(count):
        yield span(f"headers[{index}].key", "varint string", cursor.header_key("a header's key"))
        yield span(f"headers[{index}].value", "varint bytes", cursor.field("a header's value"))
    if cursor.position != cursor.stop:
        raise FlawError(cursor.position, "surplus bytes after its fields")


def _message(  # noqa: PLR0917 - as `_batch`
    data: bytes, position: int, end: int, path: str, opens: Callable[[int, int], bool], depth: int
) -> Iterator[Piece]:
    """The message of magic 0 or 1 in `data[position:end]`; `depth`: in how many compressed ones it is."""
    codec = data[position + _OLD_ATTRIBUTES_AT] & _CODEC
    magic = data[position + _OLD_ATTRIBUTES_AT - 1]
    fields = MESSAGE_FIELDS if magic == 0 else (*MESSAGE_FIELDS, ("timestamp", "int64"))
    for span in _numbers(data, position, path, fields):
        position = span.end
        yield span
    for name in ("key", "value"):
        begin = position + 4
        length = int.from_bytes(data[position:begin], "big", signed=True) if begin <= end else -2
        if not -1 <= length <= end - begin:
            break
        stop = begin + max(length, 0)
        if name == "key" or not codec or length < 0:
            yield Span(position, stop, f"{path}.{name}", "bytes", None if length < 0 else data[begin:stop])
        else:
            yield Span(position, stop, f"{path}.{name}", COMPRESSED, codec_name(codec))
            if codec < len(CODECS) and depth < MAX_NESTING and opens(begin, stop):
                decompressed = decompress(codec, data[begin:stop], MAX_DECOMPRESSED, magic=magic)
                if decompressed.failure is None:
                    spans = _messages(decompressed.data, f"{path}.messages", depth + 1)
                    yield Inside(f"{path}.value", codec_name(codec), decompressed.data, spans)
        position = stop
    if position < end:
        yield Span(position, end, path, MALFORMED, None)


def _messages(data: bytes, path: str, depth: int) -> Iterator[Piece]:
    """The messages of a decompressed set."""
    places, left = find_batches(data, 0, len(data), DecodeContext(DecodeOptions(records="skip")))
    for index, (position, stop, magic) in enumerate(places):
        if magic == 2:
            left = len(data) - position
            break
        yield from _message(data, position, stop, f"{path}[{index}]", lambda *_: True, depth)
    if left:
        yield Span(len(data) - left, len(data), path, MALFORMED, None)


def _numbers(data: bytes, position: int, path: str, fields: Iterable[tuple[str, str]]) -> Iterator[Span]:
    for name, kind in fields:
        form, size = FORMATS[kind]
        (value,) = unpack_from(f">{form}", data, position)
        yield Span(position, position + size, f"{path}.{name}", kind, value)
        position += size


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
    schemas: list[Schema | None] = [data_schema("RequestHeader" if request else "ResponseHeader", header)]
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
