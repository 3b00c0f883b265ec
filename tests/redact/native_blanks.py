"""Regular messages as the kernel blanks them, and as Python does."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kafkasniff.kafka.connection.events import MAX_FRAME
from kafkasniff.kafka.messages.message import decode_request, decode_response
from kafkasniff.kafka.messages.message_plan import request_plan, response_plan
from kafkasniff.native import kernel
from kafkasniff.native.feed import KEYS, MESSAGE, REQUEST, VERSIONS
from kafkasniff.redact.message import Blanker
from kafkasniff.redact.stream_reading import StreamReading


@functools.cache
def reading(*, secrets: bool, payload: bool, own_topics: Sequence[str] = ()) -> tuple[Blanker, StreamReading]:
    """What blanks messages, in Python and in the kernel."""
    native = kernel()
    blanker = Blanker(secrets=secrets, payload=payload)
    return blanker, StreamReading(native, blanker, own_topics=own_topics, ports=frozenset(), max_frame=MAX_FRAME)


class Case(NamedTuple):
    """A regular message."""

    data: bytes
    key: int
    version: int
    is_request: bool
    body: int


def case_of(data: bytes, key: int, version: int, *, is_request: bool) -> Case | None:
    """The message, if the engine may find it regular."""
    if not (0 <= key < KEYS and 0 <= version < VERSIONS):
        return None
    if not is_request:
        tagged = response_plan(key, version).header > 0
        return None if tagged and data[4:5] != b"\0" else Case(data, key, version, is_request, 5 if tagged else 4)
    header = request_plan(key, version).header
    if not 0 < header < 3 or len(data) < 10:
        return None
    length = int.from_bytes(data[8:10], "big", signed=True)
    end = 10 + max(length, 0)
    if not -1 <= length <= len(data) - 10:
        return None
    if header == 2 and data[end : end + 1] != b"\0":
        return None
    return Case(data, key, version, is_request, end + (header == 2))


def by_kernel(blanks: StreamReading, cases: list[Case]) -> list[bytes | None]:
    """The messages as the kernel blanks them; None for those that it leaves to Python."""
    rows, starts = np.zeros(len(cases), MESSAGE), np.zeros(len(cases), np.uint64)
    buffer, size = bytearray(), 0
    for index, case in enumerate(cases):
        row, starts[index] = rows[index], size
        row["start"], row["size"], row["body"] = len(buffer), len(case.data), case.body
        row["code"], row["flags"] = case.key * VERSIONS + case.version, REQUEST * case.is_request
        row["client_id"] = int.from_bytes(case.data[8:10], "big", signed=True) if case.is_request else -1
        buffer += case.data
        size += 4 + len(case.data)
    output = bytearray(size)
    done = blanks._blanks.run(rows, bytes(buffer), b"", starts, output)
    ends = [*starts[1:].tolist(), size]
    found = [bytes(output[start:end]) for start, end in zip(starts.tolist(), ends, strict=True)]
    return [one if taken else None for one, taken in zip(found, done.tolist(), strict=True)]


def by_python(blanker: Blanker, case: Case) -> bytes:
    data, end = case.data, len(case.data)
    if case.is_request:
        decoded = decode_request(data, 0, end, blanker.options)
    else:
        decoded = decode_response(data, 0, end, case.key, case.version, blanker.options)
    shown = blanker.message(data, 0, end, decoded, request=case.is_request, cut=False)
    return end.to_bytes(4, "big") + bytes(shown)
