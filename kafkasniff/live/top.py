"""The model of the view: the present, according to a run's events. Pure and bounded; rates use the packet clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import msgspec

from kafkasniff.kafka.connection.waits import long_poll_apis, role_of
from kafkasniff.live.snapshot import (
    NO_TREND,
    PROBLEM,
    QUANTILES,
    ConnectionDetail,
    ErrorRow,
    FindingRow,
    Findings,
    LagRow,
    LiveRow,
    Recent,
    Snapshot,
    api_name,
    live_row,
    recent_row,
    trend_of,
    waiting_row,
)
from kafkasniff.live.traffic import (
    MAX_OUTSTANDING,
    PRODUCED,
    SLOT_NS,
    WINDOW_SLOTS,
    BoundedTable,
    ClientGroups,
    Counts,
    Entry,
    GroupLags,
    OpenRequests,
    TopicTraffic,
    latency_bucket,
    latency_quantiles,
    topic_traffic,
)
from kafkasniff.model import Connection, Exchange, Message, Problem, SaslToken
from kafkasniff.text.printable import printable
from kafkasniff.text.problem_kinds import PROBLEM_KINDS

MAX_APIS: Final = 128
"""Maximum number of APIs. Kafka has some hundred; unknown request keys come from the wire."""
MAX_BROKERS: Final = 256
MAX_CLIENTS: Final = 256
MAX_TOPICS: Final = 256
MAX_CONNECTIONS: Final = 512
"""More than a screen shows, but few enough to process twice a second."""
MAX_CONNECTION_APIS: Final = 24
"""Maximum number of APIs per connection; clients use a dozen."""
MAX_ERROR_NAMES: Final = 64
"""Maximum number of errors per API."""
MAX_RECENT: Final = 32
"""Number of exchanges of a connection that are kept for display …"""
MAX_EXCHANGES: Final = 4096
"""… and of all connections: the parts of a row are counted from these, in some 20 ms."""
MAX_PROBLEMS: Final = 64
"""Maximum number of kinds of problems."""
MAX_SHOWING: Final = 16
"""Number of connections that are kept for a kind of problem, the latest …"""
MAX_DETAILS: Final = 3
"""… and of its details."""
LAG_TREND: Final = 30
"""Number of seconds that the sparkline of a lag shows."""
MAX_WAITING: Final = 64
"""Maximum number of overdue requests shown."""
DEFAULT_THRESHOLD_NS: Final = 1_000_000_000
"""Above the default wait of a Fetch (`fetch.max.wait.ms` 500)."""

_WITHOUT: Final = frozenset({"unanswered", "open"})
"""Statuses of exchanges whose response should be in the capture."""
OTHER: Final = "other"


class _ApiEntry(Entry):
    """An API, with its errors by name."""

    __slots__ = ("names",)

    def __init__(self, slot: int) -> None:
        super().__init__(slot)
        self.names: dict[str, int] = {}


class _ConnectionEntry(Entry):
    """A connection, with its own details."""

    __slots__ = ("apis", "begun_ns", "broker", "client", "client_id", "last_ns", "open", "recent", "software")

    def __init__(self, slot: int) -> None:
        super().__init__(slot)
        self.client = ""
        self.broker = ""
        self.client_id: str | bytes | None = None
        self.software: str | None = None
        self.begun_ns: int | None = None
        self.last_ns: int | None = None
        self.open = True
        self.apis: dict[str, Counts] = {}
        self.recent: deque[Recent] = deque(maxlen=MAX_RECENT)


class _ProblemEntry:
    """A kind of problem."""

    def __init__(self) -> None:
        self.count = 0
        self.details: deque[str] = deque(maxlen=MAX_DETAILS)
        self.connections: deque[int] = deque(maxlen=MAX_SHOWING)


class TopModel:
    """Takes the events of a run and provides snapshots.

    `processes`: finds the processes at ends of a connection (`interface_socket.socket_processes`).
    """

    def __init__(
        self, source: str = "", processes: Callable[[Collection[str]], Mapping[str, str]] = lambda _: {}
    ) -> None:
        self._source = source
        self._find_processes = processes
        self._processes: tuple[int, tuple[str, str]] | None = None
        """Those of the connection that was opened last: they are looked for once."""
        self._apis: BoundedTable[str, _ApiEntry] = BoundedTable(MAX_APIS, _ApiEntry)
        self._clients: BoundedTable[tuple[str | bytes | None, str], Entry] = BoundedTable(MAX_CLIENTS, Entry)
        self._brokers: BoundedTable[str, Entry] = BoundedTable(MAX_BROKERS, Entry)
        self._lags = GroupLags()
        self._topics: BoundedTable[str | bytes, Entry] = BoundedTable(MAX_TOPICS, Entry)
        self._connections: BoundedTable[int, _ConnectionEntry] = BoundedTable(MAX_CONNECTIONS, _ConnectionEntry)
        self._outstanding = OpenRequests()
        self._start_ns: int | None = None
        self._now_ns = 0
        self._slot = 0
        self._problems: dict[str, _ProblemEntry] = {}
        self._latest: deque[Recent] = deque(maxlen=MAX_EXCHANGES)
        self._named: dict[int, tuple[str, tuple[TopicTraffic, ...]]] = {}
        """By exchange that is not over: name of its API, and the traffic of its topics."""
        self._groups = ClientGroups()
        self._lag_trends: dict[tuple[str, str, int], deque[tuple[int, int]]] = {}
        """(slot, lag) of partitions of groups, at most one per slot."""
        self._without_response = 0
        self._kafka_connections = 0
        self._ended = 0
        self._packets = 0
        self._drops = 0
        self._drops_in: deque[tuple[int, int]] = deque()
        """(slot, drops) of the window's slots with drops."""

    # -- input ------------------------------------------------------------------------------------------------------

    def take(self, event: Message | SaslToken | Exchange | Problem | Connection) -> None:
        """Count one event. Hot."""
        if type(event) is Message:
            self._message(event)
        elif type(event) is Exchange:
            self._exchange(event)
        elif type(event) is Problem:
            self._problem(event, event.connection)
        elif type(event) is Connection:
            self._connection(event)

    def advance(self, now_ns: int) -> None:
        """The packet clock is at least at this time. It never goes back."""
        if now_ns > self._now_ns:
            if self._start_ns is None:
                self._start_ns = now_ns
            self._now_ns = now_ns
            self._slot = now_ns // SLOT_NS

    def captured(self, packets: int, drops: int, kafka_connections: int) -> None:
        """Packets captured and dropped and Kafka connections since the start."""
        if drops > self._drops:
            self._drops_in.append((self._slot, drops - self._drops))
        while self._drops_in and self._drops_in[0][0] <= self._slot - WINDOW_SLOTS:
            self._drops_in.popleft()
        self._packets, self._drops, self._kafka_connections = packets, drops, kafka_connections

    def _message(self, message: Message) -> None:
        time_ns = message.time_ns
        if time_ns is not None and time_ns > self._now_ns:
            self.advance(time_ns)
        # A message that waited for its connection's verdict is older than the clock; it counts when it is emitted.
        slot = self._slot
        for problem in message.problems:
            self._problem(problem, message.connection)
        asked = self._outstanding.message(message)
        request = message if message.type == "request" else asked
        name = message.api or api_name(message)
        # Fetches of replicas and of the quorum are a different kind from those of clients.
        sender = None if request is None else role_of(request.api_key, request.body)
        if sender is not None and sender != "client":
            name = f"{sender} {name}"
        api = self._apis.at(name, slot)
        client = message.client
        parts = [api.at(slot)]
        if client is not None:
            parts.append(self._clients.at((message.client_id, client.address), slot).at(slot))
        if message.broker is not None:
            parts.append(self._brokers.at(str(message.broker), slot).at(slot))
        if message.connection is not None:
            entry = self._connections.at(message.connection, slot)
            if entry.begun_ns is None:
                self._begin(entry, message)
            entry.last_ns = time_ns
            parts.append(entry.at(slot))
            within = entry.apis.get(name)
            if within is None:
                within = self._within(entry, name)
            parts.append(within)
        size = message.size + 4
        if message.type == "request":
            for counts in parts:
                counts.requests += 1
                counts.sent += size
        else:
            self._response(message, size, parts)
            if message.errors:
                names = api.names
                for error in {error.name or f"error {error.code}" for error in message.errors}:
                    shown = error if error in names or len(names) < MAX_ERROR_NAMES else OTHER
                    names[shown] = names.get(shown, 0) + 1
        carried = topic_traffic(message)
        if message.exchange is not None:
            self._name(message.exchange, name, carried)
        for traffic in carried:
            counts = self._topics.at(traffic.topic, slot).at(slot)
            counts.errors += traffic.errors
            if message.type == "request" or traffic.flow != PRODUCED:
                counts.requests += 1
            if traffic.flow == PRODUCED:
                counts.produced += traffic.records
                counts.sent += traffic.bytes
            else:
                counts.fetched += traffic.records
                counts.received += traffic.bytes
            if traffic.records:
                for counts in parts:
                    if traffic.flow == PRODUCED:
                        counts.produced += traffic.records
                    else:
                        counts.fetched += traffic.records

    @staticmethod
    def _response(message: Message, size: int, parts: Iterable[Counts]) -> None:
        failed = 1 if message.errors else 0
        if message.latency_ns is None or message.api in long_poll_apis():
            for counts in parts:
                counts.responses += 1
                counts.received += size
                counts.errors += failed
                if message.latency_ns is not None:
                    counts.polls += 1
                    counts.poll_sum += message.latency_ns // 1000
            return
        latency = message.latency_ns // 1000
        bucket = latency_bucket(latency)
        for counts in parts:
            counts.responses += 1
            counts.received += size
            counts.errors += failed
            counts.measured += 1
            counts.latency_sum += latency
            counts.latency_max = max(counts.latency_max, latency)
            counts.latency[bucket] = counts.latency.get(bucket, 0) + 1

    def _begin(self, entry: _ConnectionEntry, message: Message) -> None:
        if entry is self._connections.other:
            return
        entry.begun_ns = message.time_ns
        entry.client, entry.broker = str(message.client or ""), str(message.broker or "")
        entry.client_id = message.client_id

    @staticmethod
    def _within(entry: _ConnectionEntry, name: str) -> Counts:
        if len(entry.apis) >= MAX_CONNECTION_APIS:
            name = OTHER
        return entry.apis.setdefault(name, Counts())

    def _exchange(self, exchange: Exchange) -> None:
        self._outstanding.exchange(exchange)
        self._lags.feed(exchange)
        if exchange.status in _WITHOUT:
            self._without_response += 1
        entry = self._connections.get(exchange.connection)
        known = exchange.request or exchange.response
        unnamed: tuple[str, tuple[TopicTraffic, ...]] = ("?" if known is None else api_name(known), ())
        name, topics = self._named.pop(exchange.exchange, unnamed)
        if entry is not None and entry.begun_ns is not None:
            ends = entry.client, entry.broker
        else:
            ends = ("", "") if known is None else (str(known.client or ""), str(known.broker or ""))
        recent = recent_row(exchange, name, ends, topics, self._groups.of(exchange.request))
        self._latest.append(recent)
        if entry is not None:
            entry.recent.append(recent)
            if exchange.software_name is not None:
                entry.software = f"{exchange.software_name} {exchange.software_version or ''}".rstrip()

    def _name(self, number: int, name: str, carried: list[TopicTraffic]) -> None:
        """Keep what the messages of an exchange name until it is over. Hot."""
        before = self._named.get(number)
        if before is not None:
            if carried:
                self._named[number] = before[0], (*before[1], *carried)
        elif len(self._named) < MAX_OUTSTANDING:
            self._named[number] = name, tuple(carried)

    def _problem(self, problem: Problem, connection: int | None) -> None:
        entry = self._problems.get(problem.kind)
        if entry is None:
            kind = problem.kind if len(self._problems) < MAX_PROBLEMS else OTHER
            entry = self._problems.setdefault(kind, _ProblemEntry())
        entry.count += 1
        if problem.detail not in entry.details:
            entry.details.append(problem.detail)
        if connection is not None and connection not in entry.connections:
            entry.connections.append(connection)

    def _connection(self, connection: Connection) -> None:
        if connection.verdict == "kafka":
            self._ended += 1
        entry = self._connections.get(connection.connection)
        if entry is not None:
            entry.open = False

    # -- output -----------------------------------------------------------------------------------------------------

    def snapshot(
        self,
        *,
        threshold_ns: int = DEFAULT_THRESHOLD_NS,
        focus: int | None = None,
        findings: Findings | None = None,
    ) -> Snapshot:
        """The snapshot; `focus`: the connection to show in detail; `findings` to include."""
        slot, start = self._slot, self._start_ns
        seconds = self._window_seconds()
        entries = list(self._apis)
        windows = [entry.window(slot, latency=True) for _, entry in entries]
        rest = self._apis.other
        all_now, all_time = Counts(), Counts()
        for counts in windows if rest is None else [*windows, rest.window(slot, latency=True)]:
            all_now.add(counts)
        for entry in [entry for _, entry in entries] if rest is None else [*(entry for _, entry in entries), rest]:
            all_time.add(entry.total())
        quantiles = latency_quantiles([all_now.latency, *(counts.latency for counts in windows)], QUANTILES)
        api_entries = [entry for _, entry in entries] if rest is None else [*(entry for _, entry in entries), rest]
        loads = trend_of(load for entry in api_entries for load in entry.loads(slot))
        whole = live_row("all", all_now, all_time, seconds, quantiles[0], trend=loads)
        apis = [
            live_row(name, now, entry.total(), seconds, quantile, trend=trend_of(entry.loads(slot)))
            for (name, entry), now, quantile in zip(entries, windows, quantiles[1:], strict=True)
        ]
        overdue = sorted(
            self._outstanding.overdue(self._now_ns - threshold_ns), key=lambda message: message.time_ns or 0
        )
        return Snapshot(
            self._source,
            0.0 if start is None else (self._now_ns - start) / 1e9,
            None if start is None else self._now_ns,
            whole,
            self._packets,
            drops=self._drops,
            drops_now=sum(count for at, count in self._drops_in if at > slot - WINDOW_SLOTS) / seconds,
            problems=sum(problem.count for problem in self._problems.values()),
            problem_rows=tuple(self._problem_row(kind, problem) for kind, problem in self._problems.items()),
            connections_open=max(self._kafka_connections - self._ended, 0),
            connections=self._kafka_connections,
            without_response=self._without_response,
            outstanding=len(self._outstanding),
            overdue=len(overdue),
            threshold_ns=threshold_ns,
            exchanges=tuple(self._latest),
            apis=(*apis, *self._rest(self._apis.other, seconds)),
            errors=self._errors(),
            clients=(
                *(self._row(key[0], entry, seconds, client=key[1], trend=True) for key, entry in self._clients),
                *self._rest(self._clients.other, seconds),
            ),
            topics=(
                *(self._row(name, entry, seconds, trend=True) for name, entry in self._topics),
                *self._rest(self._topics.other, seconds),
            ),
            connections_seen=(
                *(self._connection_row(number, entry, seconds) for number, entry in self._connections),
                *self._rest(self._connections.other, seconds),
            ),
            waiting=tuple(waiting_row(message, self._now_ns) for message in overdue[:MAX_WAITING]),
            detail=None if focus is None else self._detail(focus, seconds),
            findings=findings,
            brokers=(
                *(self._row(name, entry, seconds, trend=True) for name, entry in self._brokers),
                *self._rest(self._brokers.other, seconds),
            ),
            lags=self._lag_rows(),
        )

    def _lag_rows(self) -> tuple[LagRow, ...]:
        """The lag of groups, and what it was at earlier snapshots."""
        before, self._lag_trends = self._lag_trends, {}
        rows = []
        for row in self._lags.rows():
            key = row.group, row.topic, row.partition
            trend = self._lag_trends[key] = before.get(key) or deque(maxlen=LAG_TREND)
            if trend and trend[-1][0] == self._slot:
                trend.pop()
            trend.append((self._slot, row.lag))
            rows.append(LagRow(*row, row.lag, tuple(lag for _, lag in trend)))
        return tuple(rows)

    @staticmethod
    def _problem_row(kind: str, entry: _ProblemEntry) -> FindingRow:
        details = [printable(detail) for detail in reversed(entry.details)]
        meaning = next((kinds[kind] for kinds in PROBLEM_KINDS.values() if kind in kinds), "")
        about = "; ".join(details[1:])
        return FindingRow(
            PROBLEM, f"{kind}: {details[0]}", meaning, about, kind, "", entry.count, tuple(entry.connections)
        )

    def _errors(self) -> tuple[ErrorRow, ...]:
        error_rows = []
        for name, entry in self._apis:
            if entry.names:
                responses = max(entry.total().responses, 1)
                error_rows += [ErrorRow(name, error, count, count / responses) for error, count in entry.names.items()]
        return tuple(error_rows)

    def _window_seconds(self) -> float:
        """Length of the window: its last slot is incomplete, and it begins no earlier than the run."""
        first = (self._slot - WINDOW_SLOTS + 1) * SLOT_NS
        if self._start_ns is not None:
            first = max(first, self._start_ns)
        # A rate over less than a second would jump.
        return max((self._now_ns - first) / 1e9, 1.0)

    def _row(
        self,
        name: str | bytes | None,
        entry: Entry,
        seconds: float,
        quantiles: list[int] | None = None,
        *,
        client: str = "",
        trend: bool = False,
    ) -> LiveRow:
        now, total = entry.window(self._slot), entry.total()
        loads = trend_of(entry.loads(self._slot)) if trend else NO_TREND
        return live_row(name, now, total, seconds, quantiles, client=client, trend=loads)

    def _connection_row(
        self, number: int, entry: _ConnectionEntry, seconds: float, quantiles: list[int] | None = None
    ) -> LiveRow:
        row = self._row(entry.client_id, entry, seconds, quantiles, client=entry.client)
        return msgspec.structs.replace(
            row, broker=entry.broker, connection=number, software=entry.software, open=entry.open
        )

    def _rest(self, other: Entry | None, seconds: float) -> tuple[LiveRow, ...]:
        return () if other is None else (self._row(None, other, seconds),)

    def _detail(self, number: int, seconds: float) -> ConnectionDetail | None:
        entry = self._connections.get(number)
        if entry is None:
            return None
        groups = [entry.window(self._slot, latency=True).latency, *(counts.latency for counts in entry.apis.values())]
        quantiles = latency_quantiles(groups, QUANTILES)
        apis = tuple(
            # For a connection's APIs only sums since the start exist, so their rates cover its lifetime.
            live_row(name, counts, counts, self._life(entry), quantile)
            for (name, counts), quantile in zip(entry.apis.items(), quantiles[1:], strict=True)
        )
        waiting = [message for message in self._outstanding.since(self._now_ns) if message.connection == number]
        return ConnectionDetail(
            self._connection_row(number, entry, seconds, quantiles[0]),
            entry.begun_ns,
            entry.last_ns,
            apis,
            tuple(reversed(entry.recent)),
            tuple(waiting_row(message, self._now_ns) for message in waiting[:MAX_WAITING]),
            self._processes_of(number, entry),
        )

    def _processes_of(self, number: int, entry: _ConnectionEntry) -> tuple[str, str]:
        if self._processes is None or self._processes[0] != number:
            found = self._find_processes((entry.client, entry.broker))
            self._processes = number, (found.get(entry.client, ""), found.get(entry.broker, ""))
        return self._processes[1]

    def _life(self, entry: _ConnectionEntry) -> float:
        return 1.0 if entry.begun_ns is None else max((self._now_ns - entry.begun_ns) / 1e9, 1.0)
