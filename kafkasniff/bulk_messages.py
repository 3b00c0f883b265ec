"""Messages that were taken in bulk: their bodies, with all that was read of them before.

The results are those of `decode_request` and `decode_response`, which are asked where there is more to tell than a
body.
"""

from __future__ import annotations

from typing import Final

from kafkasniff.bulk import Bulk, Version, client_id_text
from kafkasniff.kafka.memory import ConnectionMemory
from kafkasniff.kafka.message import Decoded, decode_body, decode_request, decode_response
from kafkasniff.model import Body

__all__ = ["read_request", "read_response"]

REQUEST_HEADER: Final = 10
"""Bytes of a request's header in front of its client id, whose length is the last two."""


def read_request(  # noqa: PLR0917 - what an entry has, in its order
    bulk: Bulk, version: Version, start: int, size: int, length: int, correlation_id: int, memory: ConnectionMemory
) -> Decoded:
    """A request; arguments as in `BulkEntry`. Hot."""
    data, context = bulk.buffer, bulk.context
    client_id: str | bytes | None = None
    position = start + REQUEST_HEADER
    if length >= 0:
        client_id = client_id_text(data[position : position + length])
        position += length
    body: Body | None = None
    if client_id.__class__ is not bytes:
        options = context.options
        if options.bodies:
            context.base = start
            body = decode_body(version.request, data, position + version.flexible, start + size, context)
        if body is not None or options.headers:
            key, number = version.key, version.version
            header: Body = {
                "request_api_key": key,
                "request_api_version": number,
                "correlation_id": correlation_id,
                "client_id": client_id,
            }
            return Decoded(key, version.request.api, number, correlation_id, client_id, header, (), body)
    return decode_request(data, start, start + size, context.options, memory=memory)


def read_response(  # noqa: PLR0917 - as above
    bulk: Bulk, version: Version, start: int, size: int, correlation_id: int, memory: ConnectionMemory, carry: object
) -> Decoded:
    """A response; `carry` is its request's. Hot."""
    data, context, plan = bulk.buffer, bulk.context, version.response
    flexible = plan.header > 0
    if not flexible or (size > 4 and data[start + 4] == 0):
        options = context.options
        body: Body | None = None
        if options.bodies:
            context.base = start
            body = decode_body(plan, data, start + 4 + flexible, start + size, context)
        if body is not None or options.headers:
            header: Body = {"correlation_id": correlation_id}
            return Decoded(version.key, plan.api, version.version, correlation_id, None, header, (), body)
    return decode_response(
        data, start, start + size, version.key, version.version, context.options, memory=memory, request=carry
    )
