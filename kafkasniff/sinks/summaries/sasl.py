"""Summaries of authentication: mechanisms, and which message of one it is; never what is in it but names."""

from __future__ import annotations

from typing import Final

from kafkasniff.model import Body
from kafkasniff.sinks.printable import word
from kafkasniff.sinks.summaries.phrases import Summarise, amount, first_words, lists

__all__ = ["REQUESTS", "RESPONSES", "message_phrase"]


def message_phrase(told: object) -> str:
    """`SCRAM-SHA-256 client-first, user alice` for what is known of a message; "" for nothing."""
    if not isinstance(told, dict):
        return ""
    head = " ".join(word(told[name]) for name in ("mechanism", "message") if told.get(name) is not None)
    parts = [head]
    if "username" in told:
        parts.append(f"{'delegation token' if told.get('token_auth') else 'user'} {word(told['username'])}")
    if told.get("authzid") not in (None, told.get("username")):
        parts.append(f"acting as {word(told['authzid'])}")
    if "iterations" in told:
        parts.append(f"{told['iterations']} iterations")
    if "extensions" in told:
        parts.append(f"extensions {first_words(lists(told['extensions']))}")
    if "error" in told:
        error = told["error"]
        parts.append(f"error {word(error.get('status') if isinstance(error, dict) else error)}")
    return ", ".join(parts)


def _handshake_request(body: Body) -> str:
    return word(body.get("mechanism"))


def _handshake_response(body: Body) -> str:
    return f"mechanisms {first_words(lists(body.get('mechanisms')), 8)}"


def _token(body: Body) -> list[str]:
    value = body.get("auth_bytes")
    told = message_phrase(body.get("_auth_bytes"))
    parts = [told] if told else []
    if isinstance(value, dict) and "redacted" in value:
        return [*parts, f"token {amount(value['redacted'])}, redacted"]
    return [*parts, f"token {amount(len(value))}"] if isinstance(value, bytes) else parts


def _authenticate_request(body: Body) -> str:
    return ", ".join(_token(body))


def _authenticate_response(body: Body) -> str:
    if body.get("error_code"):
        return ""
    lifetime = body.get("session_lifetime_ms")
    return ", ".join([*_token(body), *([f"session lasts {lifetime} ms"] if lifetime else [])])


REQUESTS: Final[dict[int, Summarise]] = {17: _handshake_request, 36: _authenticate_request}
"""By API key."""

RESPONSES: Final[dict[int, Summarise]] = {17: _handshake_response, 36: _authenticate_response}
