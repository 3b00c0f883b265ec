"""From a row of the view to what it stands for: the tables of some exchanges, connections and groups.

A path of steps, such as an API and then a client, selects from a snapshot. Connections, waiting requests and lag are
those of the snapshot; everything else is counted again, from the latest exchanges that it has (`MAX_EXCHANGES`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Final

import msgspec

from kafkasniff.kafka.connection.waits import long_poll_apis
from kafkasniff.live.counts import (
    SLOT_NS,
    TREND_SLOTS,
    WINDOW_SLOTS,
    Counts,
    Load,
    latency_bucket,
    latency_quantiles,
)
from kafkasniff.live.snapshot import (
    QUANTILES,
    ErrorRow,
    Findings,
    LagRow,
    LiveRow,
    Recent,
    Snapshot,
    Step,
    Waiting,
    live_row,
    trend_of,
)
from kafkasniff.live.traffic import PRODUCED

__all__ = ["drilled", "sample_seconds"]

_EXCHANGES: Final[dict[str, Callable[[Recent, Any], bool]]] = {
    "API": lambda one, api: one.api == api,
    "error": lambda one, named: one.api == named[0] and named[1] in one.errors,
    "client": lambda one, client: (one.client_id, _address(one.client)) == client,
    "broker": lambda one, broker: one.broker == broker,
    "topic": lambda one, topic: any(traffic.topic == topic for traffic in one.topics),
    "group": lambda one, group: one.group == group,
    "connection": lambda one, number: one.connection == number,
    "finding": lambda one, numbers: one.connection in numbers,
    "problem": lambda one, numbers: one.connection in numbers,
}
"""Whether an exchange belongs to a step, by the kind of the step."""
_CONNECTIONS: Final[dict[str, Callable[[LiveRow, Any], bool]]] = {
    "client": lambda row, client: (row.name, _address(row.client)) == client,
    "broker": lambda row, broker: row.broker == broker,
    "finding": lambda row, numbers: row.connection in numbers,
    "problem": lambda row, numbers: row.connection in numbers,
}
"""The same for a connection; for other kinds, those with a selected exchange."""
_WAITING: Final[dict[str, Callable[[Waiting, Any], bool]]] = {
    "API": lambda one, api: one.api == api,
    "client": lambda one, client: (one.client_id, _address(one.client)) == client,
    "broker": lambda one, broker: one.broker == broker,
    "finding": lambda one, numbers: one.connection in numbers,
    "problem": lambda one, numbers: one.connection in numbers,
}
_ROWS: Final[dict[str, Callable[[Snapshot], Iterable[LiveRow]]]] = {
    "API": lambda snapshot: snapshot.apis,
    "client": lambda snapshot: snapshot.clients,
    "broker": lambda snapshot: snapshot.brokers,
    "topic": lambda snapshot: snapshot.topics,
}
"""Tables whose rows have a trend of their own, which is longer than the exchanges of a busy network."""


def _address(endpoint: str) -> str:
    """The address in `address:port`."""
    return endpoint.rpartition(":")[0].strip("[]")


def drilled(snapshot: Snapshot, path: tuple[Step, ...]) -> Snapshot:
    """The same moment, with only what belongs to all steps of a path."""
    chosen = [one for one in snapshot.exchanges if all(_EXCHANGES[step.kind](one, step.value) for step in path)]
    numbers: set[int | None] = {one.connection for one in chosen}
    groups = {one.group for one in chosen}
    connections = tuple(
        row
        for row in snapshot.connections_seen
        if row.connection is not None
        and all(
            _CONNECTIONS[step.kind](row, step.value) if step.kind in _CONNECTIONS else row.connection in numbers
            for step in path
        )
    )
    numbers |= {row.connection for row in connections}
    found = snapshot.findings
    now_ns = snapshot.now_ns or 0
    seconds = sample_seconds(snapshot)
    tally = _Tally(now_ns - int(seconds * 1e9), seconds)
    for one in chosen:
        tally.add(one, {step.value for step in path if step.kind == "topic"})
    whole = tally.row("all", "")
    rows = _ROWS[path[0].kind](snapshot) if len(path) == 1 and path[0].kind in _ROWS else ()
    trend = next((row.trend for row in rows if _is(row, path[0])), None) or trend_of(_loads(chosen, now_ns))
    return msgspec.structs.replace(
        snapshot,
        all=msgspec.structs.replace(whole, trend=trend),
        apis=tally.rows("API"),
        errors=tally.errors(),
        clients=tally.rows("client"),
        topics=tally.rows("topic"),
        brokers=tally.rows("broker"),
        connections_seen=connections,
        waiting=tuple(
            one
            for one in snapshot.waiting
            if all(step.kind in _WAITING and _WAITING[step.kind](one, step.value) for step in path)
        ),
        lags=tuple(row for row in snapshot.lags if all(_lags(row, step, groups) for step in path)),
        exchanges=tuple(chosen),
        findings=Findings(
            {} if found is None else found.counts,
            () if found is None else tuple(row for row in found.rows if numbers.intersection(row.connections)),
        ),
    )


def sample_seconds(snapshot: Snapshot) -> float:
    """The time that rates of selected exchanges cover: the window, or less if the exchanges are younger."""
    first = next((one.time_ns for one in snapshot.exchanges if one.time_ns is not None), None)
    if first is None or snapshot.now_ns is None:
        return 1.0
    return min(max((snapshot.now_ns - first) / 1e9, 1.0), WINDOW_SLOTS * SLOT_NS / 1e9)


def _is(row: LiveRow, step: Step) -> bool:
    return bool(((row.name, row.client) if step.kind == "client" else row.name) == step.value)


def _lags(row: LagRow, step: Step, groups: set[str]) -> bool:
    if step.kind in {"group", "topic"}:
        return bool(getattr(row, step.kind) == step.value)
    return row.group in groups


def _loads(chosen: list[Recent], now_ns: int) -> Iterator[tuple[int, Load]]:
    first = now_ns // SLOT_NS - TREND_SLOTS + 1
    for one in chosen:
        at = -1 if one.time_ns is None else one.time_ns // SLOT_NS - first
        if 0 <= at < TREND_SLOTS:
            latency = _latency(one)
            yield at, (1, bool(one.errors), latency is not None, latency or 0)


def _latency(one: Recent) -> int | None:
    """In microseconds; None if it is unknown or a wait for data or members."""
    return None if one.latency_ns is None or one.api.rpartition(" ")[2] in long_poll_apis() else one.latency_ns // 1000


class _Tally:
    """Counts of exchanges by what they have in common: all, and those since a time, for rates."""

    def __init__(self, since_ns: int, seconds: float) -> None:
        self._since = since_ns
        self._seconds = seconds
        self._counts: dict[tuple[str, Hashable], tuple[Counts, Counts]] = {}
        self._errors: dict[tuple[str, str], int] = {}

    def add(self, one: Recent, topics: set[object]) -> None:
        """Count an exchange; `topics`: the only ones that count, if there are any."""
        latency = _latency(one)
        carried = [traffic for traffic in one.topics if not topics or traffic.topic in topics]
        produced = sum(traffic.records for traffic in carried if traffic.flow == PRODUCED)
        fetched = sum(traffic.records for traffic in carried if traffic.flow != PRODUCED)
        client = (one.client_id, _address(one.client))
        for key in (("all", ""), ("API", one.api), ("client", client), ("broker", one.broker)):
            for counts in self._at(key, one.time_ns):
                counts.requests += 1
                counts.errors += bool(one.errors)
                counts.responses += one.received > 0
                counts.sent += one.sent
                counts.received += one.received
                counts.produced += produced
                counts.fetched += fetched
                if latency is not None:
                    counts.measured += 1
                    counts.latency_sum += latency
                    counts.latency_max = max(counts.latency_max, latency)
                    bucket = latency_bucket(latency)
                    counts.latency[bucket] = counts.latency.get(bucket, 0) + 1
                elif one.latency_ns is not None:
                    counts.polls += 1
                    counts.poll_sum += one.latency_ns // 1000
        for traffic in carried:
            for counts in self._at(("topic", traffic.topic), one.time_ns):
                counts.requests += 1
                counts.errors += traffic.errors
                if traffic.flow == PRODUCED:
                    counts.produced += traffic.records
                    counts.sent += traffic.bytes
                else:
                    counts.fetched += traffic.records
                    counts.received += traffic.bytes
        for error in one.errors:
            self._errors[one.api, error] = self._errors.get((one.api, error), 0) + 1

    def _at(self, key: tuple[str, Hashable], time_ns: int | None) -> Iterable[Counts]:
        pair = self._counts.get(key)
        if pair is None:
            pair = self._counts[key] = Counts(), Counts()
        return pair if time_ns is not None and time_ns >= self._since else pair[1:]

    def row(self, kind: str, value: Any) -> LiveRow:
        """The row of one subject."""
        now, total = self._counts.get((kind, value)) or (Counts(), Counts())
        name, client = value if kind == "client" else (value, "")
        (quantiles,) = latency_quantiles([now.latency], QUANTILES)
        return live_row(name, now, total, self._seconds, quantiles, client=client)

    def rows(self, kind: str) -> tuple[LiveRow, ...]:
        """The rows of all subjects of a kind."""
        return tuple(self.row(kind, value) for of, value in self._counts if of == kind)

    def errors(self) -> tuple[ErrorRow, ...]:
        """Errors by API."""
        return tuple(
            ErrorRow(api, error, count, count / max(self._counts["API", api][1].responses, 1))
            for (api, error), count in self._errors.items()
        )
