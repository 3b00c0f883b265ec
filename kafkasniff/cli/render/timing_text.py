"""The aggregate result of `kafkasniff timing`: groups, the slowest exchanges, and where captures were made."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from kafkasniff.analysis.detectors.finding import Numbers
from kafkasniff.analysis.overview.answer import EncryptedStats
from kafkasniff.analysis.overview.counts import Encrypted
from kafkasniff.analysis.timing import MEASURES, TROUBLE, Timing, timed_rows
from kafkasniff.analysis.visibility import TLS
from kafkasniff.cli.render.tables import screen_text
from kafkasniff.cli.render.waterfall import exchange_object, largest, who
from kafkasniff.enrich import Catalog
from kafkasniff.model import BROKER_TIMES, BrokerTimes, Connection, Endpoint
from kafkasniff.native.streams import UNKNOWN
from kafkasniff.packets import Note
from kafkasniff.report.answer_tables import ENCRYPTED, ENCRYPTED_TITLE, AnswerTable, Cell, ReportColumn
from kafkasniff.tables.exports.staged import together
from kafkasniff.text.printable import cut, printable, word
from kafkasniff.text.times import duration
from kafkasniff.timing import PARTS, UNLIMITED, Timed, TimedColumns
from kafkasniff.timing.exchanges import DurationRange, Vantages

if TYPE_CHECKING:
    from kafkasniff.enrich.hosts import Hosts

ROWS: Final = 1 << 14
"""Exchanges that are counted together."""
CONNECTIONS: Final = 1 << 10
"""Connections that are counted together."""


class Measure(msgspec.Struct, frozen=True):
    """One part of the time, over the exchanges in which it took any."""

    count: int
    total_us: int
    p50_us: int
    p90_us: int
    p99_us: int
    max_us: int


class ExchangeGroup(msgspec.Struct, frozen=True):
    """The exchanges of one API, client, or other dimension."""

    keys: dict[str, Any]
    exchanges: int
    timed: int
    """Exchanges with both messages and their times."""
    duration: Measure
    latency: Measure
    parts: dict[str, Measure]
    """Parts by name, without those that took no time."""
    trouble: dict[str, int]
    """Transport trouble by whose packets and kind, without zero counts."""


class TimingAnswer:
    """Collects exchanges of captures; rows of exports go to `timing` directly."""

    def __init__(self, timing: Timing, *, slowest: int) -> None:
        self.timing = timing
        self.no_bodies = 0
        """Some exports have no bodies, so the waits that requests asked for are unknown."""
        self.exports = 0
        self.captured = False
        """Captures were read."""
        self.vantages = Vantages()
        self.loss = ""
        """What did not fit into the memory budget first."""
        self.encrypted = Encrypted()
        """TLS without keys, whose times can only be estimated."""
        self.logged: dict[str, list[int]] = {}
        """`BrokerTimes.apis` of all request logs."""
        self.joined = False
        """The request logs are of the same traffic as the captures."""
        self._numbers = Numbers()
        self._slowest = slowest
        self._slow: list[Timed] = []
        """The slowest exchanges, slowest first."""
        self._batches: list[pa.RecordBatch] = []
        self._sealed: list[Connection] = []
        """Connections for `encrypted`."""
        self._catalog: Catalog | None = None

    @property
    def by_topic(self) -> bool:
        """Whether topic names are needed."""
        return "topic" in self.timing.parameters.by

    def take(self, timed: TimedColumns) -> None:
        """Add exchanges of captures."""
        self._batches.append(timed_rows(timed))
        self.vantages.take(timed)
        if "connection" in self.timing.parameters.by:
            ids = timed.subjects.column("connection_id").to_numpy()
            _, firsts = np.unique(timed.connections, return_index=True)
            for row in firsts.tolist():
                self._numbers.note(int(ids[row]), int(timed.connections[row]))
        self._note_slow(timed)
        if sum(map(len, self._batches)) >= ROWS:
            self._count()

    def take_connections(self, connections: Iterable[Connection]) -> None:
        """Add connections of captures that are over."""
        self._sealed += (connection for connection in connections if connection.protocol == TLS)
        if len(self._sealed) >= CONNECTIONS:
            self._count_sealed()

    def _count_sealed(self) -> None:
        self.encrypted.take(self._sealed)
        self._sealed = []

    def take_notes(self, notes: Iterable[Note]) -> None:
        """Add what request logs say of times."""
        for times in (note.value for note in notes if isinstance(note.value, BrokerTimes)):
            for api, sums in times.apis.items():
                before = self.logged.setdefault(api, [0] * len(sums))
                before[:] = map(operator.add, before, sums)

    def broker_times(self) -> list[dict[str, Any]]:
        """The broker's own times by API, in request logs: sums, those with the most time first."""
        fields = ("exchanges", *(f"{name}_us" for name in BROKER_TIMES))
        rows = [{"api": api, **dict(zip(fields, sums, strict=True))} for api, sums in self.logged.items()]
        if self.joined:
            seen = {group.keys["api"]: group for group in self.groups() if list(group.keys) == ["api"]}
            for row in rows:
                group = seen.get(row["api"])
                timed = 0 if group is None else group.timed
                row |= {"captured": timed, "captured_us": group.latency.total_us if group and timed else None}
        return sorted(rows, key=lambda row: (-row["total_us"], row["api"]))

    def _note_slow(self, timed: TimedColumns) -> None:
        """Keep the slowest exchanges (`Timed.slowness`)."""
        slow = timed.marks.duration - timed.parts.wait
        rows = np.flatnonzero(timed.parts.broker != UNKNOWN)
        if len(self._slow) == self._slowest:
            rows = rows[slow[rows] >= (self._slow[-1].slowness if self._slow else UNLIMITED)]
        # Among equally slow ones the first wins.
        rows = rows[np.lexsort((timed.numbers[rows], -slow[rows]))][: self._slowest]
        self._slow += map(timed.one, rows.tolist())
        self._slow.sort(key=lambda one: (-one.slowness, one.exchange.exchange))
        del self._slow[self._slowest :]

    def _count(self) -> None:
        if self._batches:
            self.timing.update(together(self._batches), "timed")
            self._batches = []

    def close(self, catalog: Catalog) -> None:
        """End of captures; `catalog`: names learned from them."""
        self._count()
        self._count_sealed()
        self.captured = True
        self._catalog = catalog

    @property
    def slowest(self) -> list[Timed]:
        """The slowest exchanges, slowest first."""
        return [self._named(timed) for timed in self._slow]

    def _named(self, timed: Timed) -> Timed:
        """The same with the number of the broker, which may be known since."""
        exchange = timed.exchange
        broker = None if exchange.request is None else exchange.request.broker
        if self._catalog is None or broker is None:
            return timed
        number = self._catalog.broker_id(broker)
        return msgspec.structs.replace(timed, exchange=msgspec.structs.replace(exchange, broker_id=number))

    def groups(self) -> list[ExchangeGroup]:
        """Groups, those with the most time first."""
        return [self._group(row) for row in self.timing.result().to_pylist()]

    def _group(self, row: dict[str, Any]) -> ExchangeGroup:
        measures = {name: self._measure(row, name) for name in MEASURES}
        keys = {name: row[name] for name, _ in self.timing.dimensions.fields}
        if keys.get("broker") is not None and keys["broker_id"] is None:
            keys["broker_id"] = self._broker_id(keys["broker"])
        if "connection_id" in keys:
            keys["connection"] = self._numbers.connection(keys["connection_id"])
        parts = {name: measures[name] for name in ("transfer", *PARTS, "throttled", "may_wait") if measures[name].count}
        trouble = {"retransmits": row["retransmits"]}
        trouble |= {name: row[name] for name in (one.replace("_ns", "_us") for one in TROUBLE)}
        return ExchangeGroup(
            keys,
            row["exchanges"],
            row["timed"],
            measures["duration"],
            measures["latency"],
            parts,
            {name: value for name, value in trouble.items() if value},
        )

    @staticmethod
    def _measure(row: dict[str, Any], name: str) -> Measure:
        durations = (row[f"{name}_{one}_us"] for one in ("total", "p50", "p90", "p99", "max"))
        return Measure(row[f"{name}_count"], *durations)

    def _broker_id(self, broker: str) -> int | None:
        address, _, port = broker.rpartition(":")
        if self._catalog is None:
            return None
        return self._catalog.broker_id(Endpoint(address.strip("[]"), int(port)))

    def notes(self) -> list[str]:
        """Caveats that a reader of the result must know."""
        found = self.timing.notes()
        if self.exports:
            found.append(
                "exports have no times of packets, so think times and network times are unknown (captures have them)"
            )
        if self.no_bodies:
            found.append("exports without bodies: requested waits count as broker time")
        if self.loss:
            found.append(self.loss)
        return found

    def json(self) -> dict[str, Any]:
        """The result as JSON (docs/timing.md)."""
        vantages = self.vantages
        seen = None
        if self.captured:
            near: dict[str, int] = {**vantages.counts, "unknown": vantages.unknown}  # type: ignore[dict-item]
            seen = {
                "connections": vantages.connections,
                "near": near,
                "broker_round_trip": _span_object(vantages.to_broker),
                "client_round_trip": _span_object(vantages.to_client),
            }
        return {
            "captured": seen,
            "broker_times": self.broker_times(),
            "encrypted": self.encrypted.result().to_pylist(),
            "groups": [msgspec.to_builtins(group) for group in self.groups()],
            "slowest": [exchange_object(timed) for timed in self.slowest],
        }


def _span_object(span: DurationRange | None) -> dict[str, int] | None:
    return None if span is None else {"min_us": span.low // 1000, "max_us": span.high // 1000}


MAX_ROWS: Final = 60
"""Groups shown; JSON has all."""
MAX_NAME: Final = 60
"""Maximum width of a group's name."""

_HEADINGS: Final = {
    "transfer": "transfer",
    "request": "request",
    "resent": "lost",
    "behind": "queued",
    "muted": "muted",
    "held": "held",
    "network": "network",
    "wait": "requested",
    "broker": "broker",
    "may_wait": "maybe wait",
    "response": "response",
}
"""Parts between the first byte of a request and the last byte of its response; `may_wait` is a part of `broker`."""
_TITLES: Final = {"api": "API", "api_version": "version", "client_id": "client", "client_ip": "address"}
_NEAR: Final = {
    "client": "near the client",
    "broker": "near the broker",
    "between": "between the two",
    "anywhere": "with both ends nearby",
}


def timing_text(answer: TimingAnswer, sources: str, *, width: int, coloured: bool, hosts: Hosts | None = None) -> str:
    """The screen, `width` columns wide, with ANSI codes if `coloured`.

    `sources`: its first line; `hosts`: names of addresses.
    """
    groups = answer.groups()
    shares = "Shares of the time from the first byte of requests to the last byte of responses"
    slowest = "Slowest exchanges, not counting requested waits (--exchange N)"
    shown, more = groups[:MAX_ROWS], len(groups) - MAX_ROWS
    logged = answer.broker_times()
    times = "The broker's own times, by its request log"
    sealed = [EncryptedStats(**row) for row in answer.encrypted.result().to_pylist()]
    beyond = len(sealed) - MAX_ROWS
    tables = [
        AnswerTable("groups", shares, shown, _columns(shown), more, "--format json", hosts),
        AnswerTable("encrypted", ENCRYPTED_TITLE, sealed[:MAX_ROWS], ENCRYPTED, beyond, "--format json", hosts),
        AnswerTable("broker_times", times, logged[:MAX_ROWS], _LOGGED, len(logged) - MAX_ROWS, "--format json"),
        AnswerTable("slowest", slowest, answer.slowest, _SLOWEST),
    ]
    return screen_text(_heading(answer, groups, sources), tables, width=width, coloured=coloured)


def _heading(answer: TimingAnswer, groups: Sequence[ExchangeGroup], sources: str) -> list[str]:
    lines = [sources]
    timed = sum(group.timed for group in groups)
    whole = sum(group.duration.total_us for group in groups)
    exchanges = sum(group.exchanges for group in groups)
    counted = "" if not answer.by_topic else " (an exchange with several topics counts for each)"
    lines.append(f"{exchanges:,} exchanges{counted}, {timed:,} of them timed: {duration(whole * 1000)} in total")
    vantages = answer.vantages
    if vantages.connections:
        places = [f"{vantages.counts[name]:,} {_NEAR[name]}" for name in _NEAR if name in vantages.counts]
        if vantages.unknown:
            places.append(f"{vantages.unknown:,} without a handshake")
        lines.append(f"captured: {vantages.connections:,} connections, {', '.join(places)}")
        if vantages.to_broker is not None and vantages.to_client is not None:
            lines.append(
                f"round trips from there, by handshakes: to brokers {_range(vantages.to_broker)}, "
                f"to clients {_range(vantages.to_client)}"
            )
    return lines


def _range(span: DurationRange) -> str:
    low, high = duration(span.low), duration(span.high)
    return low if low == high else f"{low} to {high}"


def _columns(groups: Sequence[ExchangeGroup]) -> list[ReportColumn]:
    # The parts that take the most time are the last to be hidden.
    parts = [name for name in _HEADINGS if any(_percent(group, name) >= 1 for group in groups)]
    by_share = sorted(parts, key=lambda name: -max(_percent(group, name) for group in groups))
    columns = [ReportColumn(name, _name(name)) for group in groups[:1] for name in _names(group)]
    columns.append(ReportColumn("count", lambda group: f"{group.exchanges:,}", number=True))
    columns += [
        ReportColumn(name, _of_duration(f"{name}_us"), number=True, level=level)
        for level, name in enumerate(("p50", "p99", "max"))
    ]
    columns += [
        ReportColumn(_HEADINGS[name], _share(name), number=True, level=3 + by_share.index(name)) for name in parts
    ]
    if any("think" in group.parts for group in groups):
        columns.append(ReportColumn("client p50", _think, number=True, level=3 + len(parts)))
    return columns


def _name(name: str) -> Cell:
    return lambda group: cut(_names(group)[name], MAX_NAME)


def _of_duration(field: str) -> Cell:
    return lambda group: duration(getattr(group.duration, field) * 1000) if group.duration.count else ""


def _share(name: str) -> Cell:
    def cell(group: ExchangeGroup) -> str:
        percent = _percent(group, name)
        return f"{percent:.0f}%" if percent >= 1 else "<1%" if percent else ""

    return cell


def _think(group: ExchangeGroup) -> str:
    think = group.parts.get("think")
    return "" if think is None else duration(think.p50_us * 1000)


def _percent(group: ExchangeGroup, name: str) -> float:
    """Percentage of a part in the group's time."""
    part = group.parts.get(name)
    return 0.0 if part is None or not group.duration.total_us else 100 * part.total_us / group.duration.total_us


def _names(group: ExchangeGroup) -> dict[str, str]:
    """The columns that identify the group, escaped."""
    keys = dict(group.keys)
    number = keys.pop("broker_id", None)
    if number is not None and "broker" in keys:
        keys["broker"] = f"{number} ({keys['broker']})"
    id_ = keys.pop("connection_id", None)
    if "api" in keys and keys["api"] is None:
        keys["api"] = "(request not seen)"
    shown = {name: "" if value is None else word(value) for name, value in keys.items()}
    if keys.get("broker") is not None:
        shown["broker"] = printable(keys["broker"])
    if id_ is not None:
        # Rows of an export only have the key of its tables.
        shown["connection"] = f"connection_id {id_}" if keys["connection"] is None else f"conn {keys['connection']}"
    return {_TITLES.get(name, name): value for name, value in shown.items()}


def _logged_share(name: str) -> Cell:
    def cell(row: dict[str, Any]) -> str:
        percent = 100 * row[f"{name}_us"] / max(row["total_us"], 1)
        return f"{percent:.0f}%" if percent >= 1 else "<1%" if percent else ""

    return cell


def _captured_mean(row: dict[str, Any]) -> str:
    total = row.get("captured_us")
    return "" if total is None else duration(1000 * total // row["captured"])


_LOGGED: Final = [
    ReportColumn("API", lambda row: row["api"]),
    ReportColumn("count", lambda row: f"{row['exchanges']:,}", number=True),
    ReportColumn("mean", lambda row: duration(1000 * row["total_us"] // row["exchanges"]), number=True),
    ReportColumn("captured mean", _captured_mean, number=True),
    *(ReportColumn(name.replace("_", " "), _logged_share(name), number=True) for name in BROKER_TIMES[1:]),
]
_SLOWEST: Final = [
    ReportColumn("exchange", lambda timed: f"#{timed.exchange.exchange}", number=True),
    ReportColumn("what", who),
    ReportColumn("time", lambda timed: duration(timed.slowness), number=True),
    ReportColumn("most of it", largest),
]
