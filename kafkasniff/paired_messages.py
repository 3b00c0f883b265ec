"""Messages of connections in step: their bodies, with what the kernel has read of them.

The results are those of `decode_request` and `decode_response`, which are asked where there is more to tell than a
body.
"""

from __future__ import annotations

from typing import Any

from kafkasniff.in_step import HEADER
from kafkasniff.kafka.memory import ConnectionMemory
from kafkasniff.kafka.message import Decoded, decode_body, decode_request, decode_response
from kafkasniff.kafka.weight import likely_bytes
from kafkasniff.model import Body, Direction, ErrorCode, Message, RenderedBody
from kafkasniff.paired import Open, Paired, PairedEntry
from kafkasniff.versions import Version, client_id_text

__all__ = ["read_request", "read_response", "tell_request", "tell_response"]

# Messages are made by position, which takes half of the time: the order is that of `model.Message`.


def tell_request(entry: PairedEntry, number: int, capture: str | None) -> tuple[Message, object]:
    """The request of an exchange that gets this number, and what its response is read by. Hot."""
    _, _, _, connection, paired, _, _, start, size, length, correlation_id, _, time_ns, version = entry[:14]
    first_packet, last_packet, own = entry[16:19]
    assert version is not None
    data, position = paired.buffer, start + HEADER
    client_id: str | bytes | None = None
    if length >= 0:
        client_id = client_id_text(data[position : position + length])
        position += length
    body: Any = None
    if paired.bodies and client_id.__class__ is not bytes:
        body = None if paired.ahead is None else paired.ahead.take(own)
        if body is None:
            body = _read(paired, version, "request", start, position + version.flexible, start + size)
    errors: tuple[ErrorCode, ...] = ()
    if body.__class__ is RenderedBody:
        errors = body.errors
    if body is None or (body.__class__ is RenderedBody and body.odd is not None):
        memory, key = connection.kafka.memory, version.key
        if paired.bodies:
            # There is more to report, so `read_request` would not get a body either.
            options = paired.context.options
            decoded = decode_request(data, start, start + size, options, memory=memory, rendered=body)
        else:
            decoded = read_request(paired, version, start, size, length, correlation_id, memory)
        client, broker = connection.client, connection.broker
        place = number, connection.number, capture, time_ns, client, broker, first_packet, last_packet
        _count(paired, key, "request", size, decoded.body)
        return _message("request", size, decoded, decoded.client_id, place), decoded.carry
    message = Message(
        "request",
        size,
        correlation_id,
        version.key,
        version.api,
        version.version,
        client_id,
        {
            "request_api_key": version.key,
            "request_api_version": version.version,
            "correlation_id": correlation_id,
            "client_id": client_id,
        },
        (),
        body,
        None,
        None,
        None,
        errors,
        (),
        number,
        connection.number,
        capture,
        time_ns,
        connection.client,
        connection.broker,
        first_packet,
        last_packet,
    )
    return message, None


def tell_response(entry: PairedEntry, opened: Open, capture: str | None) -> Message:
    """The response to a request that left this. Hot."""
    _, _, _, connection, paired, _, _, start, size, _, correlation_id, _, time_ns = entry[:13]
    latency, duration, first_packet, last_packet, own = entry[14:19]
    number, version, client_id, carry, _ = opened
    data, flexible = paired.buffer, version.flexible_response
    body: Any = None
    if paired.bodies and not (flexible and (size < 5 or data[start + 4])):
        body = None if paired.ahead is None else paired.ahead.take(own)
        if body is None:
            body = _read(paired, version, "response", start, start + 4 + flexible, start + size)
    errors: tuple[ErrorCode, ...] = ()
    if body.__class__ is RenderedBody:
        errors = body.errors
    if body is None or (body.__class__ is RenderedBody and body.odd is not None):
        memory, key = connection.kafka.memory, version.key
        if paired.bodies:
            decoded = decode_response(
                data,
                start,
                start + size,
                key,
                version.version,
                paired.context.options,
                memory=memory,
                request=carry,
                rendered=body,
            )
        else:
            decoded = read_response(paired, version, start, size, correlation_id, memory, carry)
        client, broker = connection.client, connection.broker
        place = number, connection.number, capture, time_ns, client, broker, first_packet, last_packet
        _count(paired, key, "response", size, decoded.body)
        return _message("response", size, decoded, client_id, (*place, latency, duration))
    return Message(
        "response",
        size,
        correlation_id,
        version.key,
        version.api,
        version.version,
        client_id,
        {"correlation_id": correlation_id},
        (),
        body,
        None,
        None,
        None,
        errors,
        (),
        number,
        connection.number,
        capture,
        time_ns,
        connection.client,
        connection.broker,
        first_packet,
        last_packet,
        latency,
        duration,
    )


def _read(  # noqa: PLR0917 - where the body is
    paired: Paired, version: Version, direction: Direction, start: int, position: int, end: int
) -> Body | None:
    """A body that was not made ahead, of the message that begins at `start`; None where there is more to report."""
    context, plan = paired.context, version.request if direction == "request" else version.response
    context.base = start
    body = decode_body(plan, paired.buffer, position, end, context)
    if body is not None:
        _count(paired, version.key, direction, end - start, body)
    return body


def _count(paired: Paired, key: int, direction: Direction, size: int, body: Body | None) -> None:
    """Count the memory of a body that was not made ahead with that of those that were."""
    if paired.ahead is not None:
        paired.ahead.memory += likely_bytes(key, direction, size, body)


def _message(
    kind: Direction, size: int, decoded: Decoded, client_id: str | bytes | None, place: tuple[Any, ...]
) -> Message:
    """A message of which there is more to tell; `place`: its last fields, from `exchange` on."""
    return Message(
        kind,
        size,
        decoded.correlation_id,
        decoded.api_key,
        decoded.api,
        decoded.api_version,
        client_id,
        decoded.header,
        decoded.header_tags,
        decoded.body,
        decoded.body_version,
        decoded.raw,
        decoded.raw_redacted,
        decoded.errors,
        decoded.problems,
        *place,
    )


def read_request(  # noqa: PLR0917 - what an entry has, in its order
    paired: Paired, version: Version, start: int, size: int, length: int, correlation_id: int, memory: ConnectionMemory
) -> Decoded:
    """A request; arguments as in `PairedEntry`. Hot."""
    data, context = paired.buffer, paired.context
    client_id: str | bytes | None = None
    position = start + HEADER
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
    paired: Paired,
    version: Version,
    start: int,
    size: int,
    correlation_id: int,
    memory: ConnectionMemory,
    carry: object,
) -> Decoded:
    """A response; `carry` is its request's. Hot."""
    data, context, plan = paired.buffer, paired.context, version.response
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
