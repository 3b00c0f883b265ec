"""The records of a batch of magic 2 as dicts, by the native kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from kafkasniff.kafka.record_facts.schema_registry import HEADERS as SCHEMA_HEADERS
from kafkasniff.kafka.record_facts.schema_registry import add_from_header
from kafkasniff.kafka.record_facts.trace_ids import TRACE_HEADERS, TRACE_KINDS, add_trace_id
from kafkasniff.kafka.schema.connect_configs import CONNECT_KEYS
from kafkasniff.native.caller import Caller
from kafkasniff.native.calls import PACK, Base
from kafkasniff.native.library import Kernel, kernel

__all__ = ["HEADED", "MAX_PACKED", "caller_of", "plain", "read_record_list", "with_header_facts"]

MAX_PACKED: Final = 64 << 20
"""Maximum size of the MessagePack of one body, or of one batch's records; larger ones are decoded by Python."""

HEADED: Final = 5
"""`kernel/pack.zig`, `Extension`: a record with headers that hold a schema or a trace id."""

plain: Final = msgspec.msgpack.Decoder()
"""For maps without extensions."""


def caller_of(kernel: Kernel, most_output: int = MAX_PACKED) -> Caller:
    """A caller for dicts; `most_output`: maximum bytes of MessagePack."""
    headers = [name.encode() for name in SCHEMA_HEADERS]
    return Caller(kernel, headers=headers, marks=CONNECT_KEYS, traces=TRACE_KINDS, most_output=most_output)


def with_header_facts(record: dict[str, Any]) -> dict[str, Any]:
    """The record, with the schema and trace ids of its headers."""
    for header in record["headers"]:
        if header["key"] in SCHEMA_HEADERS:
            add_from_header(record, header)
        elif header["key"] in TRACE_HEADERS:
            add_trace_id(record, header)
    return record


def _extension(kind: int, content: memoryview) -> dict[str, Any]:
    assert kind == HEADED
    return with_header_facts(plain.decode(content))


_decode: Final[Callable[[memoryview], list[dict[str, Any]]]] = msgspec.msgpack.Decoder(ext_hook=_extension).decode
_free: Final[list[Caller]] = []
"""Unused callers: threads decode at the same time."""


def read_record_list(
    data: bytes, start: int, end: int, base: Base, *, budget: int, most: int
) -> tuple[list[dict[str, Any]], int, bool] | None:
    """The records that fill `data[start:end]`; None if Python has to decode them.

    `budget`: maximum number of records, and of headers; `most`: bytes of MessagePack, at most `MAX_PACKED`. Returns the
    records, their number or that of their headers, whichever is larger, and whether interpreters may add something.
    """
    try:
        caller = _free.pop()
    except IndexError:
        caller = caller_of(kernel())
        caller.wants = PACK
    caller.most_records = budget
    caller.most_output = min(MAX_PACKED, most)
    packed = caller.record_list(data, start, end, base)
    result = None
    if packed is not None:
        _, _, count, _, looked_at = caller.results()
        result = _decode(packed), count, bool(looked_at)
        caller.shrink()
    _free.append(caller)
    return result
