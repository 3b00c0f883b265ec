"""Facts of records beside their fields: schema ids of a registry's serializers, and trace ids in headers.

The framing (Confluent's wire format) is a zero byte and an int32 schema id, big-endian, before the serialized bytes.
Newer serializers can write the id into the record headers `__key_schema_id` and `__value_schema_id` instead: a zero
byte and an int32 id, or a one byte and a GUID of 16 bytes. Protobuf's serializers continue both forms with the indexes
of the message in its file (`message_indexes`).

Nothing on the wire says that a key or value is framed, and numbers begin with zero bytes too. So keys and values of one
partition of one message are judged as a whole, separately: all that are not null have to begin like a framing with a
schema id of `MIN_ID` to `MAX_ID`, with at most `MAX_SCHEMAS` different ids among them, and not all may be as long as a
number or a UUID (`_NUMBER_SIZES`), as big-endian integers, pairs of them, and timestamps are. If the first and the last
record of every batch have none, no other record is examined. Headers are judged separately. Topics whose names begin
with two underscores are Kafka's own, with their own formats.

Trace ids in record headers, as tracing libraries write them.

| header | written by, or specified in |
| `traceparent`, `elastic-apm-traceparent`, `googclient_traceparent` | W3C Trace Context, 3.2 |
| `b3`, `X-B3-TraceId` | B3 of Zipkin, single and multi (openzipkin/b3-propagation) |
| `uber-trace-id` | Jaeger (propagation format of its clients) |
| `x-datadog-trace-id` | Datadog: 64 bits in decimal |
| `X-Amzn-Trace-Id` | AWS X-Ray: `Root=1-…` |
| `X-Cloud-Trace-Context` | Google Cloud |

Names are matched as written here, or in lower case. A value that does not match its format exactly is ignored: it is
shown with the header anyway.
"""

from __future__ import annotations

import functools
import re
from typing import Any, Final

from kafkasniff.model import Body

MIN_ID: Final = 1
MAX_ID: Final = 0xFFFFFF
"""Registries count ids up from 1 (Confluent's cloud: from 100,001): a larger number is a coincidence."""
MAX_SCHEMAS: Final = 4
"""Maximum number of schemas of one partition in one message: versions of one subject, or few subjects."""

ID_SIZE: Final = 5
"""The zero byte and the schema id."""
_NUMBER_SIZES: Final = frozenset({8, 16})
"""int64, two of them or a UUID."""
GUID_SIZE: Final = 17
"""The one byte and the GUID."""
MAX_INDEXES: Final = 32
"""Levels of nested messages of Protobuf."""
_INDEX_BITS: Final = 21
HEADERS: Final = {"__key_schema_id": "_key", "__value_schema_id": "_value"}
"""Record headers with a schema's id, and the field that it belongs to."""
_FIELDS: Final = (("key", "_key"), ("value", "_value"))


def add_schema_ids(records: Body, topic: str | bytes | None = None) -> None:
    """Add `_key` and `_value` to the records of a `records` value: `{"format": "schema-registry", "schema_id": 17}`.

    `topic` is the topic's name, None if unknown. Hot: nearly always two records decide.
    """
    batches = records["batches"]
    for field, target in _FIELDS:
        for batch in batches:
            found = batch.get("records")
            if found:
                data = found[0][field]
                if data is None:
                    data = found[-1][field]
                if data is not None:
                    # A value with secrets is no longer bytes.
                    if data.__class__ is bytes and data[:1] == b"\0" and not _is_internal(topic):
                        _add(batches, field, target)
                    break


def _is_internal(topic: str | bytes | None) -> bool:
    return isinstance(topic, str) and topic.startswith("__")


def _add(batches: list[dict[str, Any]], field: str, target: str) -> None:
    """Add the schema ids, if all values of a field are framed."""
    found = (record for batch in batches if not batch.get("control") for record in batch.get("records") or ())
    present = [record for record in found if record[field] is not None]
    ids: list[int] = []
    sizes: set[int] = set()
    for record in present:
        data = record[field]
        if not isinstance(data, bytes) or len(data) <= ID_SIZE or data[0]:
            return
        number = int.from_bytes(data[1:ID_SIZE], "big")
        if not MIN_ID <= number <= MAX_ID:
            return
        ids.append(number)
        sizes.add(len(data))
    if len(set(ids)) > MAX_SCHEMAS or sizes <= _NUMBER_SIZES:
        return
    for record, number in zip(present, ids, strict=True):
        # A header takes precedence, as in the deserializers.
        record.setdefault(target, {"format": "schema-registry", "schema_id": number})


def add_from_header(record: dict[str, Any], header: dict[str, Any]) -> None:
    """Add the id of a header in `HEADERS`; among several of one name the last counts, as in the deserializers."""
    target, data = HEADERS[header["key"]], header["value"]
    if data is None:
        return
    if len(data) >= GUID_SIZE and data[0] == 1 and _ends_with_indexes(data, GUID_SIZE):
        record[target] = {"format": "schema-registry", "schema_guid": guid_text(data[1:GUID_SIZE])}
    elif len(data) >= ID_SIZE and data[0] == 0 and _ends_with_indexes(data, ID_SIZE):
        record[target] = {"format": "schema-registry", "schema_id": int.from_bytes(data[1:ID_SIZE], "big")}


def _ends_with_indexes(data: bytes, at: int) -> bool:
    if len(data) == at:
        return True
    found = message_indexes(data, at)
    return found is not None and found[1] == len(data)


def message_indexes(data: bytes, at: int) -> tuple[tuple[int, ...], int] | None:
    """The indexes of a Protobuf message in its file and in its outer messages, and the position after them.

    They are zigzag varints: the number of indexes, 0 for the first message, and each of them. None if there are none.
    """
    found: list[int] = []
    left = -1
    while left:
        number = shift = 0
        while True:
            if at >= len(data) or shift > _INDEX_BITS:
                return None
            number |= (data[at] & 0x7F) << shift
            shift += 7
            at += 1
            if data[at - 1] < 0x80:
                break
        if number & 1:
            return None
        if left < 0:
            left = number >> 1
            if not left:
                return (0,), at
            if left > MAX_INDEXES:
                return None
        else:
            found.append(number >> 1)
            left -= 1
    return tuple(found), at


def guid_text(data: bytes) -> str:
    """In the notation of registries (RFC 9562, section 4)."""
    text = data.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


MAX_TRACE_IDS: Final = 8
"""Maximum number of ids per record: links to several traces are rare, and there may be any number of headers."""
MAX_VALUE: Final = 1_024
"""Maximum size of a value; X-Ray's may have further fields."""

_HEX: Final = rb"[0-9a-f]"


class _Form:
    """Format of a value; compiled on first use, since most captures have none."""

    def __init__(self, expression: bytes, flags: int = 0) -> None:
        self._expression = expression
        self._flags = flags

    @functools.cached_property
    def pattern(self) -> re.Pattern[bytes]:
        return re.compile(self._expression, self._flags)


_W3C: Final = _Form(
    rb"(?!ff)(?:00-(?P<id>%b{32})-(?P<span>%b{16})-%b{2}|(?!00)%b{2}-(?P<id2>%b{32})-(?P<span2>%b{16})-%b{2}(?:-.*)?)"
    % ((_HEX,) * 7),
    re.DOTALL,
)
_B3: Final = _Form(rb"(?P<id>(?:%b{16}){1,2})-(?P<parent>%b{16})(?:-[01d](?:-%b{16})?)?" % ((_HEX,) * 3), re.IGNORECASE)
_B3_ID: Final = _Form(rb"(?P<id>(?:%b{16}){1,2})" % _HEX, re.IGNORECASE)
_JAEGER: Final = _Form(
    rb"(?P<id>%b{1,32})(?::|%%3A)(?P<parent>%b{1,16})(?::|%%3A)%b{1,16}(?::|%%3A)%b{1,2}" % ((_HEX,) * 4), re.IGNORECASE
)
_DATADOG: Final = _Form(rb"(?P<id>[1-9][0-9]{0,19})")
_X_RAY: Final = _Form(rb"(?:[^;]*;){0,8}?\s*Root=(?P<id>1-%b{8}-%b{24})(?:;.*)?" % ((_HEX,) * 2), re.DOTALL)
_GOOGLE: Final = _Form(rb"(?P<id>%b{32})(?:/[0-9]{1,20}(?:;o=[0-3])?)?" % _HEX, re.IGNORECASE)

_FORMS: Final = (
    (_W3C, ("traceparent", "elastic-apm-traceparent", "googclient_traceparent")),
    (_B3, ("b3",)),
    (_B3_ID, ("X-B3-TraceId",)),
    (_JAEGER, ("uber-trace-id",)),
    (_DATADOG, ("x-datadog-trace-id",)),
    (_X_RAY, ("X-Amzn-Trace-Id",)),
    (_GOOGLE, ("X-Cloud-Trace-Context",)),
)
TRACE_HEADERS: Final = {spelling: form for form, names in _FORMS for name in names for spelling in (name, name.lower())}
"""The format of a header's value, by its key."""
TRACE_KINDS: Final = {
    spelling.encode(): kind
    for kind, (_, names) in enumerate(_FORMS, 1)
    for name in names
    for spelling in (name, name.lower())
}
"""The number of the format for the native kernel (`kernel/call.zig`, `HeaderKind`), by the key."""


def trace_id(key: str, value: bytes | None) -> str | None:
    """The trace id in a header of `TRACE_HEADERS`: hex in lower case, Datadog's in decimal; None if there is none.

    Jaeger omits leading zeros: they are restored, to 16 or 32 digits.
    """
    if value is None or len(value) > MAX_VALUE:
        return None
    form = TRACE_HEADERS[key]
    match = form.pattern.fullmatch(value)
    if match is None:
        return None
    text = (match["id"] or match["id2"]).decode("ascii").lower()
    if form is _DATADOG:
        return text if int(text) < 1 << 64 else None
    if form is _X_RAY:
        return text
    if form is _JAEGER:
        text = text.rjust(16 if len(text) <= 16 else 32, "0")
    spans = [match[name] for name in ("span", "span2") if name in form.pattern.groupindex and match[name] is not None]
    # All zeros are not an id, by the specifications.
    return text if text.strip("0") and all(span.strip(b"0") for span in spans) else None


def span_context(key: str, value: bytes | None) -> tuple[int, int] | None:
    """(trace id, span id) in a header of `TRACE_HEADERS` whose format has both in hexadecimal digits, or None."""
    found = trace_id(key, value)
    if found is None or value is None:
        return None
    groups = TRACE_HEADERS[key].pattern.fullmatch(value)
    spans = {} if groups is None else groups.groupdict()
    span = int(spans.get("span") or spans.get("span2") or spans.get("parent") or b"0", 16)
    return (int(found, 16), span) if span and int(found, 16) else None


def add_trace_id(record: dict[str, Any], header: dict[str, Any]) -> None:
    """Add the id of a header of `TRACE_HEADERS` to `_trace_ids` of its record, each id once."""
    found = trace_id(header["key"], header["value"])
    if found is None:
        return
    trace_ids: list[str] = record.setdefault("_trace_ids", [])
    if found not in trace_ids and len(trace_ids) < MAX_TRACE_IDS:
        trace_ids.append(found)
