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
    Breadcrumb,
    ErrorRow,
    Findings,
    LagRow,
    LiveRow,
    Recent,
    Snapshot,
    Waiting,
    live_row,
    trend_of,
)
from kafkasniff.live.traffic import PRODUCED

_EXCHANGES: Final[dict[str, Callable[[Recent, Any], bool]]] = {
    "API": lambda recent, api: recent.api == api,
    "error": lambda recent, named: recent.api == named[0] and named[1] in recent.errors,
    "client": lambda recent, client: (recent.client_id, _address(recent.client)) == client,
    "broker": lambda recent, broker: recent.broker == broker,
    "topic": lambda recent, topic: any(traffic.topic == topic for traffic in recent.topics),
    "group": lambda recent, group: recent.group == group,
    "connection": lambda recent, number: recent.connection == number,
    "finding": lambda recent, numbers: recent.connection in numbers,
    "problem": lambda recent, numbers: recent.connection in numbers,
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
    "API": lambda waiting, api: waiting.api == api,
    "client": lambda waiting, client: (waiting.client_id, _address(waiting.client)) == client,
    "broker": lambda waiting, broker: waiting.broker == broker,
    "finding": lambda waiting, numbers: waiting.connection in numbers,
    "problem": lambda waiting, numbers: waiting.connection in numbers,
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


def drilled(snapshot: Snapshot, path: tuple[Breadcrumb, ...]) -> Snapshot:
    """The same moment, with only what belongs to all steps of a path."""
    chosen = [
        recent for recent in snapshot.exchanges if all(_EXCHANGES[step.kind](recent, step.value) for step in path)
    ]
    numbers: set[int | None] = {recent.connection for recent in chosen}
    groups = {recent.group for recent in chosen}
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
    findings = snapshot.findings
    now_ns = snapshot.now_ns or 0
    seconds = sample_seconds(snapshot)
    tally = _Tally(now_ns - int(seconds * 1e9), seconds)
    for recent in chosen:
        tally.add(recent, {step.value for step in path if step.kind == "topic"})
    (whole,) = tally.rows("all")
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
            waiting
            for waiting in snapshot.waiting
            if all(step.kind in _WAITING and _WAITING[step.kind](waiting, step.value) for step in path)
        ),
        lags=tuple(row for row in snapshot.lags if all(_lags(row, step, groups) for step in path)),
        exchanges=tuple(chosen),
        findings=Findings(
            {} if findings is None else findings.counts,
            () if findings is None else tuple(row for row in findings.rows if numbers.intersection(row.connections)),
        ),
    )


def sample_seconds(snapshot: Snapshot) -> float:
    """The time that rates of selected exchanges cover: the window, or less if the exchanges are younger."""
    first = next((recent.time_ns for recent in snapshot.exchanges if recent.time_ns is not None), None)
    if first is None or snapshot.now_ns is None:
        return 1.0
    return min(max((snapshot.now_ns - first) / 1e9, 1.0), WINDOW_SLOTS * SLOT_NS / 1e9)


def _is(row: LiveRow, step: Breadcrumb) -> bool:
    return bool(((row.name, row.client) if step.kind == "client" else row.name) == step.value)


def _lags(row: LagRow, step: Breadcrumb, groups: set[str]) -> bool:
    if step.kind in {"group", "topic"}:
        return bool(getattr(row, step.kind) == step.value)
    return row.group in groups


def _loads(chosen: list[Recent], now_ns: int) -> Iterator[tuple[int, Load]]:
    first = now_ns // SLOT_NS - TREND_SLOTS + 1
    for recent in chosen:
        at = -1 if recent.time_ns is None else recent.time_ns // SLOT_NS - first
        if 0 <= at < TREND_SLOTS:
            latency = _latency(recent)
            yield at, (1, bool(recent.errors), latency is not None, latency or 0)


def _latency(one: Recent) -> int | None:
    """In microseconds; None if it is unknown or a wait for data or members."""
    return None if one.latency_ns is None or one.api.rpartition(" ")[2] in long_poll_apis() else one.latency_ns // 1000


class _Tally:
    """Counts of exchanges by what they have in common: all, and those since a time, for rates.

    An exchange counts once, with those of the same API, client and broker; tables add up these groups.
    """

    def __init__(self, since_ns: int, seconds: float) -> None:
        self._since = since_ns
        self._seconds = seconds
        self._groups: dict[tuple[str, Hashable, str, bool], Counts] = {}
        """Counts by API, client, broker, and whether they are for rates."""
        self._topics: dict[tuple[Hashable, bool], Counts] = {}
        self._errors: dict[tuple[str, str], int] = {}

    def add(self, one: Recent, topics: set[object]) -> None:
        """Count an exchange; `topics`: the only ones that count, if there are any. Hot."""
        current = one.time_ns is not None and one.time_ns >= self._since
        key = one.api, (one.client_id, _address(one.client)), one.broker, current
        counts = self._groups.get(key)
        if counts is None:
            counts = self._groups[key] = Counts()
        counts.requests += 1
        counts.responses += one.received > 0
        counts.sent += one.sent
        counts.received += one.received
        latency = _latency(one)
        if latency is not None:
            counts.measured += 1
            counts.latency_sum += latency
            counts.latency_max = max(counts.latency_max, latency)
            bucket = latency_bucket(latency)
            counts.latency[bucket] = counts.latency.get(bucket, 0) + 1
        elif one.latency_ns is not None:
            counts.polls += 1
            counts.poll_sum += one.latency_ns // 1000
        if one.errors:
            counts.errors += 1
            for error in one.errors:
                self._errors[one.api, error] = self._errors.get((one.api, error), 0) + 1
        for traffic in one.topics:
            if not topics or traffic.topic in topics:
                counted = self._topics.setdefault((traffic.topic, current), Counts())
                counted.requests += 1
                counted.errors += traffic.errors
                if traffic.flow == PRODUCED:
                    counts.produced += traffic.records
                    counted.produced += traffic.records
                    counted.sent += traffic.bytes
                else:
                    counts.fetched += traffic.records
                    counted.fetched += traffic.records
                    counted.received += traffic.bytes

    def rows(self, kind: str) -> tuple[LiveRow, ...]:
        """The rows of a kind: "all" (one), "API", "client", "broker" or "topic"."""
        found: dict[Any, tuple[Counts, Counts]] = {"all": (Counts(), Counts())} if kind == "all" else {}
        parts: Iterable[tuple[Any, bool, Counts]]
        if kind == "topic":
            parts = ((topic, current, counts) for (topic, current), counts in self._topics.items())
        else:
            index = {"API": 0, "client": 1, "broker": 2}.get(kind)
            parts = (("all" if index is None else key[index], key[3], counts) for key, counts in self._groups.items())
        for subject, current, counts in parts:
            now, total = found.setdefault(subject, (Counts(), Counts()))
            total.add(counts)
            if current:
                now.add(counts)
        rows = []
        quantiles = latency_quantiles([now.latency for now, _ in found.values()], QUANTILES)
        for (subject, (now, total)), values in zip(found.items(), quantiles, strict=True):
            name, client = subject if kind == "client" else (subject, "")
            rows.append(live_row(name, now, total, self._seconds, values, client=client))
        return tuple(rows)

    def errors(self) -> tuple[ErrorRow, ...]:
        """Errors by API."""
        responses: dict[str, int] = {}
        for (api, *_), counts in self._groups.items():
            responses[api] = responses.get(api, 0) + counts.responses
        return tuple(
            ErrorRow(api, error, count, count / max(responses[api], 1)) for (api, error), count in self._errors.items()
        )
