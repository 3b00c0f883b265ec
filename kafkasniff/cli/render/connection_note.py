"""Explains why connections selected by `--connection` have no messages to show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kafkasniff.cli.environment import Environment
from kafkasniff.cli.render.captured_numbers import read_again
from kafkasniff.model import Connection
from kafkasniff.sinks.summaries.phrases import amount, count
from kafkasniff.text.printable import printable

__all__ = ["connection_notes"]

MAX_SHOWN: Final = 10
"""Maximum number of connections explained."""


def connection_notes(
    environment: Environment,
    numbers: Iterable[int],
    captures: tuple[str, ...],
    options: Mapping[str, Any],
    connections: int,
) -> list[str]:
    """A sentence for each number, from reading the captures again; they have `connections` connections.

    `options`: those of the `Inspector` that decide which bytes are messages. Raises CaptureError, Interrupted.
    """
    wanted = list(dict.fromkeys(numbers))[:MAX_SHOWN]
    found: dict[int, Connection] = {}
    if any(1 <= number <= connections for number in wanted):
        for events in read_again(environment, captures, options, exchanges=False):
            found.update(
                (one.connection, one) for one in events if type(one) is Connection and one.connection in wanted
            )
    return [_sentence(number, found.get(number), connections) for number in wanted]


def _sentence(number: int, connection: Connection | None, last: int) -> str:
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
