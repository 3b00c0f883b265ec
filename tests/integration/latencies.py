"""Compare the latencies of `kafkasniff live` with two measured bounds, and its connections with those in client logs.

A request's latency on the wire is at most the time that its client waited for the response, and at least the time that
the broker had the request. Each function yields a sentence per difference.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from tests.evidence.compare import Line
from tests.integration.broker_log import Handled
from tests.integration.client_logs import LOGS, Key, connections, round_trips
from tests.integration.run import Account

CLOCKS_MS = 1.0
"""Packets have the wall clock's time; this is how much it may be adjusted relative to a monotonic clock."""


def client_port(line: Line) -> int:
    """The client's port on a message's connection."""
    return int(line["client"].rpartition(":")[2])


def longer_than_logged(account: Account, client: str) -> Iterator[str]:
    """Every response with a time in the log of this kind of client (of `LOGS`) arrived within that time."""
    log = LOGS[client]
    logged = round_trips(client, account.stderr.splitlines())
    if not logged:
        yield "the client's log has no times"
    ours: dict[Key, list[float]] = defaultdict(list)
    for line in account.lines:
        if line["type"] == "response":
            if line["latency_ms"] is None or not 0 <= line["latency_ms"] <= line["duration_ms"]:
                yield f"{line['api']} of exchange {line['exchange']}: {line['latency_ms']} of {line['duration_ms']} ms"
                continue
            facts = {**line, "client_port": client_port(line)}
            ours[tuple(facts[name] for name in log.names)].append(line["latency_ms"])
    for key, times in logged.items():
        latencies = sorted(ours[key])
        if len(latencies) < len(times):
            yield f"{dict(zip(log.names, key, strict=True))}: logged {times}, decoded {latencies}"
        # A client that is about to close a connection does not log the last responses, which may be the longer ones.
        for time, latency in zip(times, latencies, strict=False):
            if latency > time + log.early_ms + CLOCKS_MS:
                yield f"{dict(zip(log.names, key, strict=True))}: logged {time} ms, decoded {latency}"


def broker_differs(lines: Iterable[Line], handled: Iterable[Handled], listeners: set[str]) -> Iterator[str]:
    """Every answered request was at the broker for as long as the broker logged, and vice versa.

    A request whose client hung up may or may not be logged. A client's port and its correlation ids may be reused
    within the run. Such requests differ in their connection, which the broker does not log.
    """
    logged: dict[Key, list[float]] = defaultdict(list)
    for one in handled:
        if one.listener in listeners:
            logged[_logged(one)].append(one.held_ms)
    requests = {line["exchange"]: line for line in lines if line["type"] == "request"}
    answers = {line["exchange"]: line for line in lines if line["type"] == "response"}
    asked: dict[Key, Counter[int]] = defaultdict(Counter)
    for request in requests.values():
        asked[_decoded(request)][request["connection"]] += 1
    for key in logged.keys() | asked.keys():
        if any(count != 1 for count in asked[key].values()) or len(logged[key]) > len(asked[key]):
            yield f"logged by the broker {len(logged[key])} times, but decoded {sum(asked[key].values())} times: {key}"
    latencies: dict[Key, list[float]] = defaultdict(list)
    for exchange, answer in answers.items():
        if exchange not in requests:
            yield f"a response without a request: {answer['api']} of exchange {exchange}"
            continue
        latencies[_decoded(requests[exchange])].append(answer["latency_ms"])
    for key, ours in latencies.items():
        for _ in range(len(ours) - len(logged[key])):
            yield f"answered, but not logged by the broker: {key}"
        # A request whose client hung up may have a logged time without a response; the shortest times must always fit.
        for held, latency in zip(sorted(logged[key])[: len(ours)], sorted(ours), strict=False):
            if latency < held - CLOCKS_MS:
                yield f"the broker had it for {held} ms, decoded {latency}: {key}"


def _logged(one: Handled) -> Key:
    return one.client_port, one.api_key, one.api_version, one.correlation_id, one.client_id


def _decoded(line: Line) -> Key:
    return client_port(line), line["api_key"], line["api_version"], line["correlation_id"], line["client_id"]


def connections_differ(account: Account, client: str) -> Iterator[str]:
    """The log of this kind of client has as many connections per client id, or per port, as were decoded."""
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
            yield f"connections of {name}: logged {made[name]}, decoded {ours[name]}"
