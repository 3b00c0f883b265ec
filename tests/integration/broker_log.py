"""The requests in a broker's own log (`kafka.request.logger` at debug).

The broker logs one line per request when it starts to send the response. The line is JSON (Kafka's
RequestConvertToJson) with the header, the connection and the time spent in each part of the broker.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from captures.record.broker import LOGGER

REQUEST_LOG = f"{LOGGER}.log.kafka.request.logger=debug"
"""Options for the broker's command line."""

_MARK = "Completed request:"


@dataclass(frozen=True, slots=True)
class Handled:
    """A request that the broker has finished."""

    listener: str
    client_port: int
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str
    held_ms: float
    """Time from reading the whole request until the broker began to send the response."""


def handled(log: Path) -> Iterator[Handled]:
    """All finished requests, in the order in which the broker finished them."""
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        _, found, reported = line.partition(_MARK)
        if not found:
            continue
        entry = json.loads(reported)
        header = entry["requestHeader"]
        # BROKER_ADDRESS:PORT-CLIENT_ADDRESS:PORT-NUMBERS; all addresses are IPv4 here.
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
