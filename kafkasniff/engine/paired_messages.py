"""Messages of connections in step: their bodies, with the values that the kernel has read from them.

The results are those of `decode_request` and `decode_response`, which are called if there is more to report than a
body.
"""

from __future__ import annotations

from typing import Any

from kafkasniff.engine.paired import Open, Paired, PairedEntry
from kafkasniff.engine.regular_messages import HEADER
from kafkasniff.engine.versions import ApiVersion, client_id_text
from kafkasniff.kafka.apis.weight import likely_bytes
from kafkasniff.kafka.messages.message import Decoded, decode_body, decode_request, decode_response
from kafkasniff.kafka.schema.body_forms import BodyWithErrors, RenderedBody
from kafkasniff.model import Body, Direction, ErrorCode, Message, Problem

__all__ = ["decoded_message", "request_message", "response_message"]

# Messages are constructed by position, which takes half the time: the order is that of `model.Message`.


def request_message(entry: PairedEntry, number: int, capture: str | None) -> tuple[Message, object]:
    """The request of an exchange with this number, and the context for decoding its response. Hot."""
    _, _, _, connection, paired, _, _, start, size, length, correlation_id, _, time_ns, version = entry[:14]
    first_packet, last_packet, own = entry[16:19]
    assert version is not None
    data, position = paired.buffer, start + HEADER
    client_id: str | bytes | None = None
    if length >= 0:
        client_id = client_id_text(data[position : position + length])
        position += length
    body: Any = None
    errors: tuple[ErrorCode, ...] | None = None
    if paired.bodies and client_id.__class__ is not bytes:
        body, errors = _body(paired, version, "request", own, start, position + version.flexible, size)
    if errors is None:
        options, memory, key = paired.context.options, connection.message_memory, version.key
        decoded = decode_request(data, start, start + size, options, memory=memory)
        client, broker = connection.client, connection.broker
        place = number, connection.number, capture, time_ns, client, broker, first_packet, last_packet
        _count(paired, key, "request", size, decoded.body)
        return decoded_message("request", size, decoded, decoded.client_id, decoded.problems, place), decoded.carry
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


def response_message(entry: PairedEntry, opened: Open, capture: str | None) -> Message:
    """The response to a request that `opened` describes. Hot."""
    _, _, _, connection, paired, _, _, start, size, _, correlation_id, _, time_ns = entry[:13]
    latency, duration, first_packet, last_packet, own = entry[14:19]
    number, version, client_id, carry, _ = opened
    data, flexible = paired.buffer, version.flexible_response
    body: Any = None
    errors: tuple[ErrorCode, ...] | None = None
    if paired.bodies and not (flexible and (size < 5 or data[start + 4])):
        body, errors = _body(paired, version, "response", own, start, start + 4 + flexible, size)
    if errors is None:
        options, memory, key = paired.context.options, connection.message_memory, version.key
        decoded = decode_response(
            data, start, start + size, key, version.version, options, memory=memory, request=carry
        )
        client, broker = connection.client, connection.broker
        place = number, connection.number, capture, time_ns, client, broker, first_packet, last_packet
        _count(paired, key, "response", size, decoded.body)
        return decoded_message("response", size, decoded, client_id, decoded.problems, (*place, latency, duration))
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


def _body(  # noqa: PLR0917 - where the body is
    paired: Paired, version: ApiVersion, direction: Direction, index: int, start: int, position: int, size: int
) -> tuple[Any, tuple[ErrorCode, ...] | None]:
    """The body of the message at this index, which begins at `start`, and its error codes. Hot.

    None instead of the codes if there is more to report than both.
    """
    body: Any = None if paired.ahead is None else paired.ahead.take(index)
    if body.__class__ is RenderedBody:
        return body, body.errors
    if body.__class__ is BodyWithErrors:
        return body
    if body is None:
        context, plan = paired.context, version.request if direction == "request" else version.response
        context.base = start
        body = decode_body(plan, paired.buffer, position, start + size, context)
        if body is None:
            return None, None
        _count(paired, version.key, direction, size, body)
    return body, ()


def _count(paired: Paired, key: int, direction: Direction, size: int, body: Body | None) -> None:
    """Add the memory of a body that was not decoded ahead to that of the others."""
    if paired.ahead is not None:
        paired.ahead.memory += likely_bytes(key, direction, size, body)


def decoded_message(  # noqa: PLR0917 - called in the hot path
    kind: Direction,
    size: int,
    decoded: Decoded,
    client_id: str | bytes | None,
    problems: tuple[Problem, ...],
    place: tuple[Any, ...],
) -> Message:
    """The message of a decoded frame; `place`: its last fields, from `exchange` on. Hot."""
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
        problems,
        *place,
    )
