"""What a broker's own log tells of the requests that it handled (`kafka.request.logger` at debug).

A line for each request once its response is on its way, as JSON (Kafka's RequestConvertToJson): its header, the
connection, and how long it stayed in each place of the broker.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from captures.record.broker import LOGGER

REQUEST_LOG = f"{LOGGER}.log.kafka.request.logger=debug"
"""For the broker's command line."""

_MARK = "Completed request:"


@dataclass(frozen=True, slots=True)
class Handled:
    """A request that the broker was through with."""

    listener: str
    client_port: int
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str
    held_ms: float
    """From the moment when the broker had read the whole request until it began to send the response."""


def handled(log: Path) -> Iterator[Handled]:
    """All of them, in the order in which the broker was through with them."""
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        _, found, told = line.partition(_MARK)
        if not found:
            continue
        entry = json.loads(told)
        header = entry["requestHeader"]
        # BROKER_ADDRESS:PORT-CLIENT_ADDRESS:PORT-NUMBERS, all of them IPv4 here.
        client = entry["connection"].split("-")[1]
        yield Handled(
            entry["listener"],
            int(client.rpartition(":")[2]),
            header["requestApiKey"],
            header["requestApiVersion"],
            header["correlationId"],
            header["clientId"],
            entry["totalTimeMs"] - entry["sendTimeMs"],
        )
