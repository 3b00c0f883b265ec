"""The latencies of `kafkasniff live` between two bounds that others measured, and the connections that clients tell.

A request's latency on the wire is no longer than the time that its client waited for the answer, and no shorter than
the time for which the broker had the request: each of them measures around it, or within. Each function yields a
sentence per difference.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator

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

    A request whose client hung up may be told or not. A client's port may come back within the run, and with it numbers
    of requests: these are told apart by their connection, which the broker does not name.
    """
    told: dict[Key, list[float]] = defaultdict(list)
    for one in handled:
        if one.listener in listeners:
            told[_told(one)].append(one.held_ms)
    requests = {line["exchange"]: line for line in lines if line["type"] == "request"}
    answers = {line["exchange"]: line for line in lines if line["type"] == "response"}
    asked: dict[Key, Counter[int]] = defaultdict(Counter)
    for request in requests.values():
        asked[_decoded(request)][request["connection"]] += 1
    for key in told.keys() | asked.keys():
        if any(count != 1 for count in asked[key].values()) or len(told[key]) > len(asked[key]):
            yield f"told by the broker {len(told[key])} times, but decoded {sum(asked[key].values())} times: {key}"
    latencies: dict[Key, list[float]] = defaultdict(list)
    for exchange, answer in answers.items():
        if exchange not in requests:
            yield f"an answer to no request: {answer['api']} of exchange {exchange}"
            continue
        latencies[_decoded(requests[exchange])].append(answer["latency_ms"])
    for key, ours in latencies.items():
        for _ in range(len(ours) - len(told[key])):
            yield f"answered, but not told by the broker: {key}"
        # Of one whose client hung up a time may be told, but no answer is there: the shortest have to fit in any case.
        for held, latency in zip(sorted(told[key])[: len(ours)], sorted(ours), strict=False):
            if latency < held - CLOCKS_MS:
                yield f"the broker had it for {held} ms, decoded {latency}: {key}"


def _told(one: Handled) -> Key:
    return one.client_port, one.api_key, one.api_version, one.correlation_id, one.client_id


def _decoded(line: Line) -> Key:
    return client_port(line), line["api_key"], line["api_version"], line["correlation_id"], line["client_id"]


def connections_differ(account: Account, client: str, silent: Collection[int] = ()) -> Iterator[str]:
    """As many connections of each client id, or of each port, as the log of this kind of client tells.

    `silent` are the clients' ports of connections that there were on the wire, but without a byte from the client: it
    may tell of them, and there is no message of theirs.
    """
    by_port = "client_port" in LOGS[client].names
    made = Counter(connections(client, account.stderr.splitlines()))
    found = {
        (line["connection"], str(client_port(line)) if by_port else line["client_id"])
        for line in account.lines
        if line["type"] == "request"
    }
    ours = Counter(name for _, name in found)
    spare = Counter(str(port) if by_port else "" for port in silent)
    for name in sorted(made.keys() | ours.keys()):
        of = name if by_port else ""
        untold = made[name] - ours[name]
        if untold < 0 or untold > spare[of]:
            yield f"connections of {name}: told {made[name]}, decoded {ours[name]}, silent {spare[of]}"
        spare[of] -= untold
