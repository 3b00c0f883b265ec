"""Which requests have no response: Produce with acks 0, read where Kafka puts it, whatever the definition says.

Those of other APIs are decoded.
"""

from __future__ import annotations

from struct import Struct

from kafkasniff.kafka.apis.dissectors import PRODUCE
from kafkasniff.kafka.messages.message import decode_request, read_varint, request_header
from kafkasniff.kafka.messages.message_plan import request_plan

_int16 = Struct(">h").unpack_from


def is_silent(data: bytes, start: int, end: int) -> bool:
    """Whether the request `data[start:end]` expects no response."""
    header = request_header(data, start, end)
    if header is None:
        return False
    plan = request_plan(header.api_key, header.api_version)
    if plan.schema is None or not plan.silences:
        return False
    if header.api_key != PRODUCE:
        body = decode_request(data, start, end).body or {}
        return any(body.get(field.name) == 0 for field in plan.schema.root.fields if field.silences)
    return read_acks(data, start + header.length, end, header.api_version) == 0


def read_acks(data: bytes, position: int, end: int, version: int) -> int | None:
    """`acks` of the body of a Produce request, and nothing else of it; None if it cannot be decoded.

    It is preceded by the transactional id from version 3 on, a compact one from version 9 on.
    """
    if version >= 9:
        length = read_varint(data, position, end)
        if length is None:
            return None
        position = length[1] + max(length[0] - 1, 0)
    elif version >= 3:
        if position + 2 > end:
            return None
        (size,) = _int16(data, position)
        if size < -1:
            return None
        position += 2 + max(size, 0)
    return _int16(data, position)[0] if position + 2 <= end else None
