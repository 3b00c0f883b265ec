"""Phrases for authentication: mechanism and kind of message; of its content only names."""

from __future__ import annotations

from kafkasniff.sinks.summaries.phrases import first_words, lists
from kafkasniff.text.printable import word


def message_phrase(described: object) -> str:
    """`SCRAM-SHA-256 client-first, user alice` for a described message; "" if nothing is known."""
    if not isinstance(described, dict):
        return ""
    head = " ".join(word(described[name]) for name in ("mechanism", "message") if described.get(name) is not None)
    parts = [head]
    if "username" in described:
        parts.append(f"{'delegation token' if described.get('token_auth') else 'user'} {word(described['username'])}")
    if described.get("authzid") not in (None, described.get("username")):
        parts.append(f"acting as {word(described['authzid'])}")
    if "iterations" in described:
        parts.append(f"{described['iterations']} iterations")
    if "extensions" in described:
        parts.append(f"extensions {first_words(lists(described['extensions']))}")
    if "error" in described:
        error = described["error"]
        parts.append(f"error {word(error.get('status') if isinstance(error, dict) else error)}")
    return ", ".join(parts)
