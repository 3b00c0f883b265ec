"""Trace ids in record headers, as tracing libraries write them.

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

__all__ = ["MAX_TRACE_IDS", "TRACE_HEADERS", "TRACE_KINDS", "add_trace_id", "span_context", "trace_id"]

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
    found = form.pattern.fullmatch(value)
    if found is None:
        return None
    text = (found["id"] or found["id2"]).decode("ascii").lower()
    if form is _DATADOG:
        return text if int(text) < 1 << 64 else None
    if form is _X_RAY:
        return text
    if form is _JAEGER:
        text = text.rjust(16 if len(text) <= 16 else 32, "0")
    spans = [found[name] for name in ("span", "span2") if name in form.pattern.groupindex and found[name] is not None]
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
