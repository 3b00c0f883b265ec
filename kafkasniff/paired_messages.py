"""Messages of connections in step: their bodies, with what the kernel has read of them.

The results are those of `decode_request` and `decode_response`, which are asked where there is more to tell than a
body.
"""

from __future__ import annotations

from typing import Any, Final

from kafkasniff.in_step import HEADER
from kafkasniff.kafka.memory import ConnectionMemory
from kafkasniff.kafka.message import Decoded, decode_body, decode_request, decode_response
from kafkasniff.kafka.message_plan import Plan
from kafkasniff.model import Body, Direction, ErrorCode, Message, RenderedBody
from kafkasniff.paired import Open, Paired, PairedEntry
from kafkasniff.streams import PACKET_NUMBER
from kafkasniff.versions import Version, client_id_text

__all__ = ["read_request", "read_response", "tell_request", "tell_response"]

# Messages are made by position, which takes half of the time: the order is that of `model.Message`.


def tell_request(entry: PairedEntry, number: int, capture: str | None) -> tuple[Message, object]:
    """The request of an exchange that gets this number, and what its response is read by. Hot."""
    _, _, _, connection, paired, _, _, start, size, length, correlation_id, _, time_ns, version = entry[:14]
    first_packet, last_packet, own = entry[16:19]
    assert version is not None
    data, context, position = paired.buffer, paired.context, start + HEADER
    client_id: str | bytes | None = None
    if length >= 0:
        client_id = client_id_text(data[position : position + length])
        position += length
    made = _NOTHING
    if client_id.__class__ is not bytes and context.options.bodies:
        context.base = start
        made = _made(paired, version, version.request, own, position + version.flexible, start + size)
    body, rendered, errors = made
    first_packet &= PACKET_NUMBER
    last_packet &= PACKET_NUMBER
    if body is None:
        options, memory = context.options, connection.kafka.memory
        if options.bodies:
            # There is more to report, so `read_request` would not get a body either.
            decoded = decode_request(data, start, start + size, options, memory=memory, rendered=rendered)
        else:
            decoded = read_request(paired, version, start, size, length, correlation_id, memory)
        client, broker = connection.client, connection.broker
        place = number, connection.number, capture, time_ns, client, broker, first_packet, last_packet
        return _message("request", size, decoded, decoded.client_id, place), decoded.carry
    header: Body = {
        "request_api_key": version.key,
        "request_api_version": version.version,
        "correlation_id": correlation_id,
        "client_id": client_id,
    }
    message = Message(
        "request",
        size,
        correlation_id,
        version.key,
        version.api,
        version.version,
        client_id,
        header,
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
    data, context, flexible = paired.buffer, paired.context, version.flexible_response
    made = _NOTHING
    if context.options.bodies and not (flexible and (size < 5 or data[start + 4])):
        context.base = start
        made = _made(paired, version, version.response, own, start + 4 + flexible, start + size)
    body, rendered, errors = made
    first_packet &= PACKET_NUMBER
    last_packet &= PACKET_NUMBER
    if body is None:
        options, memory, key = context.options, connection.kafka.memory, version.key
        if options.bodies:
            decoded = decode_response(
                data,
                start,
                start + size,
                key,
                version.version,
                options,
                memory=memory,
                request=carry,
                rendered=rendered,
            )
        else:
            decoded = read_response(paired, version, start, size, correlation_id, memory, carry)
        client, broker = connection.client, connection.broker
        place = number, connection.number, capture, time_ns, client, broker, first_packet, last_packet
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


_Made = tuple[Body | None, RenderedBody | None, tuple[ErrorCode, ...]]
"""A body; one that is JSON already and in which something is odd; error codes of one that is JSON."""
_NOTHING: Final[_Made] = (None, None, ())


def _made(  # noqa: PLR0917 - once for each message
    paired: Paired, version: Version, plan: Plan, index: int, position: int, end: int
) -> _Made:
    """The body of the message at this index; none where there is more to report than a body. Hot."""
    made = None if paired.ahead is None else paired.ahead.take(index)
    if made.__class__ is RenderedBody:
        if made.odd is None:
            return made, None, made.errors  # type: ignore[return-value]  # see `RenderedBody`
        return None, made, ()
    if made is not None:
        return made, None, ()  # type: ignore[return-value]  # as above
    if paired.repeats is None:
        return decode_body(plan, paired.buffer, position, end, paired.context), None, ()
    return paired.repeats.body(version, plan, paired.buffer, position, end, paired.context), None, ()


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
