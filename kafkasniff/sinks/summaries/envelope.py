"""The summary of a message with a nested one, which a broker forwards."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from kafkasniff.model import Body, Message
from kafkasniff.sinks.names import nested_field
from kafkasniff.sinks.summaries.phrases import amount, error_phrase
from kafkasniff.text.printable import Paint, word


def envelope(message: Message, paint: Paint, summary: Callable[[Message, Paint], str]) -> str:
    """The `summary` of the message in an Envelope, preceded by its API, and in a request by its sender."""
    body = message.body or {}
    outer = [error for error in message.errors if not error.path.startswith("_response.")]
    errors = error_phrase(msgspec.structs.replace(message, errors=tuple(outer)), paint) if outer else ""
    request = message.type == "request"
    inside = body.get("_request" if request else "_response")
    if isinstance(inside, dict) and inside.get("api_key") is not None:
        text = _inside(message, inside, paint, summary)
        return f"{errors}; {text}" if errors else text
    value = body.get(nested_field(message) or "")
    if isinstance(value, dict) and "redacted" in value:
        return errors or f"{amount(value['redacted'])}, redacted"
    return errors or (amount(len(value)) if isinstance(value, bytes) else "")


def _inside(message: Message, inside: Body, paint: Paint, summary: Callable[[Message, Paint], str]) -> str:
    api = inside.get("api")
    name = f"API {inside.get('api_key')}" if api is None else word(api)
    head = f"{paint.api}{name} v{inside.get('api_version')}{paint.reset}"
    below = "_response.body."
    inner = Message(
        message.type,
        0,
        api_key=inside.get("api_key"),
        api=api,
        api_version=inside.get("api_version"),
        body=inside.get("body"),
        body_version=inside.get("body_version"),
        errors=tuple(
            msgspec.structs.replace(error, path=error.path.removeprefix(below))
            for error in message.errors
            if error.path.startswith(below)
        ),
    )
    if message.type == "request":
        head += f" corr {inside.get('correlation_id')} of {_sender(message.body or {}, inside)}"
    text = summary(inner, paint)
    return f"{head}: {text}" if text else head


def _sender(body: Body, inside: Body) -> str:
    """The client id, and the principal and address that sent the request."""
    parts = []
    principal = body.get("_request_principal")
    if isinstance(principal, dict):
        value = principal["value"]
        parts.append(f"{word(value.get('type'))}:{word(value.get('name'))}")
    address = body.get("_client_host_address")
    if address is not None:
        parts.append(f"at {word(address)}")
    client = word(inside.get("client_id"))
    return f"{client} ({' '.join(parts)})" if parts else client
