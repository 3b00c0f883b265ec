"""What the connections are that `--connection` selects and that have no messages to show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kafkasniff.cli.environment import Environment
from kafkasniff.inspector import Inspector
from kafkasniff.model import Connection
from kafkasniff.sinks.printable import printable
from kafkasniff.sinks.summaries.phrases import amount, count

__all__ = ["connection_notes"]

MAX_TOLD: Final = 10
"""Connections that are described."""


def connection_notes(
    environment: Environment, numbers: Iterable[int], captures: tuple[str, ...], options: Mapping[str, Any]
) -> list[str]:
    """A sentence for each number, from another reading of the captures.

    `options`: those of the `Inspector` that say which bytes are messages. Raises CaptureError, Interrupted.
    """
    from kafkasniff.capture import open_captures

    wanted = list(dict.fromkeys(numbers))[:MAX_TOLD]
    found: dict[int, Connection] = {}

    def take(events: Iterable[object]) -> None:
        for event in events:
            if type(event) is Connection and event.connection in wanted:
                found[event.connection] = event

    inspector = Inspector(exchanges=False, connections=True, headers=True, records="skip", **options)
    with open_captures(captures, stdin=environment.stdin) as source:
        for batch in source:
            for events in inspector.feed_slices(batch):
                take(events)
    for events in inspector.close_slices():
        take(events)
    return [_told(number, found.get(number), inspector.summary.connections) for number in wanted]


def _told(number: int, connection: Connection | None, last: int) -> str:
    if connection is None:
        if 1 <= number <= last:
            return f"conn {number} carried no data"
        return f"there is no conn {number}: the captures have {count(last, 'connection')}"
    place = f"conn {number}, {printable(str(connection.client))} to {printable(str(connection.broker))},"
    size = f"{amount(connection.client_bytes)} from the client, {amount(connection.broker_bytes)} from the broker"
    if connection.verdict == "kafka":
        return f"{place} is Kafka: {count(connection.requests, 'request')}, {count(connection.responses, 'response')}"
    if connection.verdict == "undecided":
        return f"{place} carried too little to judge: {size}"
    why = f" ({printable(connection.verdict_detail)})" if connection.verdict_detail else ""
    return f"{place} is not Kafka{why}: {size}"
