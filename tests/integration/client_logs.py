"""Facts from clients' own logs besides the messages: when they connected, and how long they waited for responses."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

_JAVA_HEADER = r"clientId=(?P<client>[^,\]]*), correlationId=(?P<id>\d+)"
_JAVA = re.compile(rf"^(?P<ms>\d+) \[.*? (?P<verb>Sending|Received) (?P<api>\w+) re(?:quest|sponse) .*?{_JAVA_HEADER}")
_RDKAFKA = re.compile(
    r"\|(?P<client>[^|]*?)#(?:producer|consumer)-\d+\| .*?: Received \w+Response "
    r"\(v(?P<version>\d+), (?P<size>\d+) bytes, CorrId (?P<id>\d+), rtt (?P<ms>[\d.]+)ms\)"
)
_PYTHON = re.compile(r"host=\[\S+<-(?P<port>\d+)\].*?: Response (?P<id>\d+) \((?P<ms>[\d.e-]+) ms\): ")

Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class ClientLog:
    """How to read the log of one kind of client."""

    connected: re.Pattern[str]
    """A line about an established connection; its group is a client id or the client's port."""
    names: tuple[str, ...]
    """What identifies a message in the log's round trips: names of JSON fields, or `client_port`."""
    early_ms: float
    """How much shorter than the latency on the wire a round trip may be, since the client's clock starts later."""


LOGS = {
    # A whole number of milliseconds, measured from before the request is written.
    "java": ClientLog(
        re.compile(r"clientId=([^,\]]*).*\] Completed connection to node"), ("client_id", "correlation_id"), 1.0
    ),
    # Its clock starts when the request is sent, or later if the thread is preempted at that moment.
    "librdkafka": ClientLog(
        re.compile(r"\|CONNECTED\|(.*?)#(?:producer|consumer)-\d+\|"),
        ("client_id", "api_version", "correlation_id", "size"),
        250.0,
    ),
    "python": ClientLog(re.compile(r"<-(\d+)\].*: Connection made$"), ("client_port", "correlation_id"), 0.1),
}
"""Keyed by the name of the client program."""


def connections(name: str, log: Iterable[str]) -> list[str]:
    """Client ids or ports of the connections that the client made, one entry per connection."""
    return [found[1] for line in log if (found := LOGS[name].connected.search(line))]


def round_trips(name: str, log: Iterable[str]) -> dict[Key, list[float]]:
    """Milliseconds from request to response, shortest first, keyed by the `names` of messages.

    Messages with the same names share a key, which then has several times.
    """
    found: dict[Key, list[float]] = defaultdict(list)
    for key, milliseconds in _READERS[name](log):
        found[key].append(milliseconds)
    return {key: sorted(times) for key, times in found.items()}


def _java(log: Iterable[str]) -> Iterator[tuple[Key, float]]:
    sent: dict[Key, int] = {}
    for line in log:
        if found := _JAVA.search(line):
            key = found["client"], int(found["id"])
            if found["verb"] == "Sending":
                sent[key] = int(found["ms"])
            else:
                yield key, float(int(found["ms"]) - sent.pop(key))


def _rdkafka(log: Iterable[str]) -> Iterator[tuple[Key, float]]:
    for line in log:
        if found := _RDKAFKA.search(line):
            # The size does not include the header up to the correlation id.
            yield (found["client"], int(found["version"]), int(found["id"]), int(found["size"]) + 4), float(found["ms"])


def _python(log: Iterable[str]) -> Iterator[tuple[Key, float]]:
    for line in log:
        if found := _PYTHON.search(line):
            yield (int(found["port"]), int(found["id"])), float(found["ms"])


_READERS = {"java": _java, "librdkafka": _rdkafka, "python": _python}
