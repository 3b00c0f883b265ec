"""Captures of TLS through the inspector, for comparison with the clear dialogue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafkasniff.tls.keylog import KeyLog
from tests.craft.outcome import Line, Outcome, packets_outcome
from tests.craft.packet import Packet
from tests.tls.endpoints import Flight, packets_of

CONTENT = ("type", "api", "api_version", "correlation_id", "client_id", "body", "size", "problems", "errors")


def keys(data: bytes, *, grows: bool = False) -> KeyLog:
    """A key log that holds `data`."""
    parts = [data]
    return KeyLog(lambda: parts.pop() if parts else b"", grows=grows)


def decrypted(packets: Sequence[Packet], key_log: bytes, **options: Any) -> Outcome:
    return packets_outcome(packets, keys=keys(key_log), **options)


def contents(outcome: Outcome) -> list[Line]:
    """Messages without their place, in order."""
    return [
        {name: line.get(name) for name in CONTENT} for line in outcome.lines if line["type"] in ("request", "response")
    ]


def clear_contents(clear: Sequence[Flight]) -> list[Line]:
    """The result of the same dialogue without TLS."""
    return contents(packets_outcome(packets_of(clear)))


def kinds(outcome: Outcome) -> list[str]:
    return [line["kind"] for line in outcome.problems]
