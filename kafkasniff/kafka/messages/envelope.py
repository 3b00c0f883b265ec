"""Nested messages, which definitions mark with `nests`, and the principal that Kafka's Envelope carries (KIP-590).

With an Envelope a broker forwards a client's whole request to the controller. The nested message has a header and body
like any other, so the same functions decode it. Its bytes stay redacted, since it may hold a secret; its own secrets
are hidden field by field.
"""

from __future__ import annotations

from base64 import b64encode
from ipaddress import ip_address
from typing import Any, Final, NamedTuple

import msgspec

from kafkasniff.kafka.messages.message import Decoded, decode_request, decode_response
from kafkasniff.kafka.messages.plausibility import has_request_form
from kafkasniff.kafka.schema.context import DecodeContext
from kafkasniff.kafka.schema.schema import data_schema
from kafkasniff.model import Body, Problem

MAX_DEPTH: Final = 3
"""Maximum nesting of envelopes. Brokers refuse any (`RequestChannel.Request`, `ApiKeys.forwardable`)."""

_PRINCIPAL: Final = "DefaultPrincipalData"


class _Inner(NamedTuple):
    """Facts about the nested request that the response needs."""

    api_key: int
    api_version: int
    carry: object


def open_request(field: str, body: Body, _version: int, context: DecodeContext) -> None:
    """Add `_request`, the request in a field."""
    data = context.revealed(body.get(field))
    if data is not None and _may_open(context, "_request"):
        # No memory: the request belongs to another connection, the client's with the forwarding broker.
        inner = decode_request(data, 0, len(data), context.options, depth=context.depth + 1)
        if inner.api is None and not context.options.show_secrets and not has_request_form(data, len(data)):
            # Bytes that look like a key, an id and a name may be a secret: show none of them.
            problem = Problem("header-truncated", f"not a header: {len(data)} bytes that are not a request")
            inner = Decoded(problems=(problem,))
        body["_request"] = _message(inner, request=True)
        _report(inner, "_request", context)
        if inner.api_key is not None and inner.api_version is not None:
            context.carry = _Inner(inner.api_key, inner.api_version, inner.carry)


def principal(body: Body, _version: int, context: DecodeContext) -> None:
    """Add `_request_principal` and `_client_host_address`, the sender of the request in an Envelope."""
    data = context.revealed(body.get("request_principal"))
    if data is not None:
        decoded = _principal(data, context)
        if decoded is not None:
            body["_request_principal"] = decoded
    address = body.get("client_host_address")
    if isinstance(address, bytes) and len(address) in {4, 16}:
        body["_client_host_address"] = str(ip_address(address))


def open_response(field: str, body: Body, _version: int, context: DecodeContext) -> None:
    """Add `_response`, the message in a field, decoded as the answer to the request nested in the request."""
    data = context.revealed(body.get(field))
    request = context.request
    if data is None or not isinstance(request, _Inner) or not _may_open(context, "_response"):
        return
    inner = decode_response(
        data,
        0,
        len(data),
        request.api_key,
        request.api_version,
        context.options,
        request=request.carry,
        depth=context.depth + 1,
    )
    body["_response"] = _message(inner, request=False)
    _report(inner, "_response", context)


def _may_open(context: DecodeContext, path: str) -> bool:
    if context.depth < MAX_DEPTH:
        return True
    context.problem("envelope-nesting", f"{path}: more than {MAX_DEPTH} nested envelopes")
    return False


def _message(inner: Decoded, *, request: bool) -> dict[str, Any]:
    """A nested message with the names of a JSON line."""
    shown: dict[str, Any] = {
        "api_key": inner.api_key,
        "api": inner.api,
        "api_version": inner.api_version,
        "correlation_id": inner.correlation_id,
    }
    if request:
        shown["client_id"] = inner.client_id
    if inner.header_tags:
        shown["header_tags"] = [
            {"tag": tag, "base64": b64encode(value).decode("ascii")} for tag, value in inner.header_tags
        ]
    if inner.body_version is not None:
        shown["body_version"] = inner.body_version
    shown["body"] = inner.body
    return shown


def _report(inner: Decoded, path: str, context: DecodeContext) -> None:
    """Report error codes and problems of the nested message; paths lead to their places."""
    for error in inner.errors:
        context.errors.append(msgspec.structs.replace(error, path=f"{path}.body.{error.path}"))
    for problem in inner.problems:
        # The offset is one within the nested message, so it becomes part of the detail.
        place = "" if problem.offset is None else f" (at byte {problem.offset} of the nested message)"
        context.problem(problem.kind, f"{path}: {problem.detail}{place}", size=problem.bytes)


def _principal(data: bytes, context: DecodeContext) -> dict[str, Any] | None:
    """The client's principal in the form of Kafka's own serializer; None if another one wrote it.

    `DefaultKafkaPrincipalBuilder.serialize`: int16 version, body. A cluster may have a builder with its own format.
    """
    version = int.from_bytes(data[:2], "big", signed=True)
    schema = data_schema(_PRINCIPAL, version) if len(data) >= 2 else None
    if schema is None:
        return None
    inside = DecodeContext(context.options)
    read = schema.read(data, 2, len(data), inside)
    if not read.complete or read.position != len(data) or inside.problems:
        return None
    return {"type": _PRINCIPAL, "version": version, "value": read.body}
