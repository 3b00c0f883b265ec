"""The latencies of `kafkasniff live` between two bounds that others measured, and the connections that clients tell.

A request's latency on the wire is no longer than the time that its client waited for the answer, and no shorter than
the time for which the broker had the request: each of them measures around it, or within. Each function yields a
sentence per difference.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from tests.evidence.compare import Line
from tests.integration.broker_log import Handled
from tests.integration.client_logs import LOGS, Key, connections, round_trips
from tests.integration.run import Account

CLOCKS_MS = 1.0
"""What a clock that is being set right (packets have the wall clock's time) may differ from one that is not."""


def client_port(line: Line) -> int:
    """Of a message's connection."""
    return int(line["client"].rpartition(":")[2])


def longer_than_told(account: Account, client: str) -> Iterator[str]:
    """Every answer that the log of this kind of client (of `LOGS`) gives a time for came within that time."""
    log = LOGS[client]
    told = round_trips(client, account.stderr.splitlines())
    if not told:
        yield "the client's log names no times"
    ours: dict[Key, list[float]] = defaultdict(list)
    for line in account.lines:
        if line["type"] == "response":
            if line["latency_ms"] is None or not 0 <= line["latency_ms"] <= line["duration_ms"]:
                yield f"{line['api']} of exchange {line['exchange']}: {line['latency_ms']} of {line['duration_ms']} ms"
                continue
            facts = {**line, "client_port": client_port(line)}
            ours[tuple(facts[name] for name in log.names)].append(line["latency_ms"])
    for key, times in told.items():
        latencies = sorted(ours[key])
        if len(latencies) < len(times):
            yield f"{dict(zip(log.names, key, strict=True))}: told {times}, decoded {latencies}"
        # One that is about to close a connection does not log the last answers: the longer ones may be those.
        for time, latency in zip(times, latencies, strict=False):
            if latency > time + log.early_ms + CLOCKS_MS:
                yield f"{dict(zip(log.names, key, strict=True))}: told {time} ms, decoded {latency}"


def broker_differs(lines: Iterable[Line], handled: Iterable[Handled], listeners: set[str]) -> Iterator[str]:
    """Every answered request is one that the broker had, as long as it says, and the other way round.

    A request whose client hung up may be told or not.
    """
    told = {_told(one): one.held_ms for one in handled if one.listener in listeners}
    requests = {line["exchange"]: line for line in lines if line["type"] == "request"}
    answers = {line["exchange"]: line for line in lines if line["type"] == "response"}
    seen = Counter(_decoded(line) for line in requests.values())
    for key in told:
        if seen[key] != 1:
            yield f"told by the broker, but decoded {seen[key]} times: {key}"
    for exchange, answer in answers.items():
        if exchange not in requests:
            yield f"an answer to no request: {answer['api']} of exchange {exchange}"
            continue
        key = _decoded(requests[exchange])
        if key not in told:
            yield f"answered, but not told by the broker: {key}"
        elif answer["latency_ms"] < told[key] - CLOCKS_MS:
            yield f"the broker had it for {told[key]} ms, decoded {answer['latency_ms']}: {key}"


def _told(one: Handled) -> Key:
    return one.client_port, one.api_key, one.api_version, one.correlation_id, one.client_id


def _decoded(line: Line) -> Key:
    return client_port(line), line["api_key"], line["api_version"], line["correlation_id"], line["client_id"]


def connections_differ(account: Account, client: str) -> Iterator[str]:
    """As many connections of each client id, or of each port, as the log of this kind of client tells."""
    by_port = "client_port" in LOGS[client].names
    made = Counter(connections(client, account.stderr.splitlines()))
    found = {
        (line["connection"], str(client_port(line)) if by_port else line["client_id"])
        for line in account.lines
        if line["type"] == "request"
    }
    ours = Counter(name for _, name in found)
    for name in sorted(made.keys() | ours.keys()):
        if made[name] != ours[name]:
            yield f"connections of {name}: told {made[name]}, decoded {ours[name]}"
