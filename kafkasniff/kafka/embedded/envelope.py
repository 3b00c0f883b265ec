"""Messages in others, which definitions mark with `nests`, and the principal that comes with Kafka's (KIP-590).

With an Envelope a broker forwards a client's request to the controller, whole. The message inside has header and body
as any other, so the same functions decode it. Its bytes stay redacted, since it may hold a secret; its own secrets are
hidden field by field.
"""

from __future__ import annotations

from base64 import b64encode
from ipaddress import ip_address
from typing import Any, Final, NamedTuple

import msgspec

from kafkasniff.kafka.context import DecodeContext
from kafkasniff.kafka.dissectors import data_schema
from kafkasniff.kafka.message import Decoded, decode_request, decode_response
from kafkasniff.kafka.plausibility import has_request_form
from kafkasniff.model import Body, Problem

__all__ = ["MAX_DEPTH", "open_request", "open_response", "principal"]

MAX_DEPTH: Final = 3
"""Envelopes in each other that are opened. Brokers refuse any (`RequestChannel.Request`, `ApiKeys.forwardable`)."""

_PRINCIPAL: Final = "DefaultPrincipalData"


class _Inner(NamedTuple):
    """What the response needs to know of the request inside."""

    api_key: int
    api_version: int
    carry: object


def open_request(field: str, body: Body, _version: int, context: DecodeContext) -> None:
    """Add `_request`, the request that a field holds."""
    data = context.revealed(body.get(field))
    if data is not None and _may_open(context, "_request"):
        # No memory: the request is one of another connection, the client's with the broker that forwards it.
        inner = decode_request(data, 0, len(data), context.options, depth=context.depth + 1)
        if (
            inner.api is None
            and not context.options.show_secrets
            and not has_request_form(data, 0, len(data), len(data))
        ):
            # What looks like a key, an id and a name may be a secret: nothing of it is shown.
            problem = Problem("header-truncated", f"not a header: {len(data)} bytes that are no request")
            inner = Decoded(problems=(problem,))
        body["_request"] = _message(inner, request=True)
        _tell(inner, "_request", context)
        if inner.api_key is not None and inner.api_version is not None:
            context.carry = _Inner(inner.api_key, inner.api_version, inner.carry)


def principal(body: Body, _version: int, context: DecodeContext) -> None:
    """Add `_request_principal` and `_client_host_address`, whose the request in an Envelope is."""
    data = context.revealed(body.get("request_principal"))
    if data is not None:
        told = _principal(data, context)
        if told is not None:
            body["_request_principal"] = told
    address = body.get("client_host_address")
    if isinstance(address, bytes) and len(address) in {4, 16}:
        body["_client_host_address"] = str(ip_address(address))


def open_response(field: str, body: Body, _version: int, context: DecodeContext) -> None:
    """Add `_response`, the message that a field holds, read as the answer to the one that was inside of the request."""
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
    _tell(inner, "_response", context)


def _may_open(context: DecodeContext, path: str) -> bool:
    if context.depth < MAX_DEPTH:
        return True
    context.problem("envelope-nesting", f"{path}: more than {MAX_DEPTH} envelopes in each other")
    return False


def _message(inner: Decoded, *, request: bool) -> dict[str, Any]:
    """A message inside by the names of a JSON line."""
    told: dict[str, Any] = {
        "api_key": inner.api_key,
        "api": inner.api,
        "api_version": inner.api_version,
        "correlation_id": inner.correlation_id,
    }
    if request:
        told["client_id"] = inner.client_id
    if inner.header_tags:
        told["header_tags"] = [
            {"tag": tag, "base64": b64encode(value).decode("ascii")} for tag, value in inner.header_tags
        ]
    if inner.body_version is not None:
        told["body_version"] = inner.body_version
    told["body"] = inner.body
    return told


def _tell(inner: Decoded, path: str, context: DecodeContext) -> None:
    """Hand on what the message inside has of error codes and problems; paths lead to where they are."""
    for error in inner.errors:
        context.errors.append(msgspec.structs.replace(error, path=f"{path}.body.{error.path}"))
    for problem in inner.problems:
        # The offset is one within the message inside, so it goes to the detail.
        place = "" if problem.offset is None else f" (at byte {problem.offset} of the message inside)"
        context.problem(problem.kind, f"{path}: {problem.detail}{place}", size=problem.bytes)


def _principal(data: bytes, context: DecodeContext) -> dict[str, Any] | None:
    """The client's principal in the form of Kafka's own serializer; None where it was another one's.

    `DefaultKafkaPrincipalBuilder.serialize`: int16 version, body. A cluster may have its own builder with its own form.
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
