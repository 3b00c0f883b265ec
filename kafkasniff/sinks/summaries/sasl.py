"""Phrases for authentication: mechanisms, and which message of one it is; never what is in it but names."""

from __future__ import annotations

from kafkasniff.sinks.printable import word
from kafkasniff.sinks.summaries.phrases import first_words, lists

__all__ = ["message_phrase"]


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
