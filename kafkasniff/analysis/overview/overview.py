"""All sections of an overview together: rows in, one answer out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import Accumulator, Known, TableReaders, TableReading
from kafkasniff.analysis.clusters import Clusters
from kafkasniff.analysis.overview.answer import (
    ApiStats,
    BrokerStats,
    ClientStats,
    ConnectionTotals,
    EncryptedStats,
    ErrorStats,
    Exchanges,
    FailedConnectStats,
    GroupStats,
    LatencyStats,
    OverviewAnswer,
    ProblemStats,
    TopicStats,
    Traffic,
)
from kafkasniff.analysis.overview.counts import (
    CONNECTION_COUNTS,
    COUNTS,
    ApiLatencies,
    Apis,
    Brokers,
    Clients,
    Encrypted,
    FailedConnects,
    Problems,
)
from kafkasniff.analysis.overview.counts import Connections as ConnectionSums
from kafkasniff.analysis.overview.topics import FLOWS, GENERATION_APIS, Groups, Topics
from kafkasniff.analysis.questions.errors import ErrorParameters, Errors
from kafkasniff.analysis.questions.rebalances import Rebalances
from kafkasniff.analysis.visibility import Visibility
from kafkasniff.engine.roles import DIRECTIONS, Bodies, WantedBodies
from kafkasniff.kafka.schema.codes import error_by_code, error_meaning
from kafkasniff.model import Endpoint
from kafkasniff.tables.rows.resolve import LearnedNames

if TYPE_CHECKING:
    from kafkasniff.analysis.detectors import Detectors

MAX_ROWS: Final = 10_000
"""Maximum number of rows of one list of an answer."""

_LEFT_OUT: Final = {
    "records": "record sizes are unknown: there is no table records with keys and values",
    "connections": "connections and the account of their bytes are unknown: there is no table connections",
    "problems": "problems are unknown: there is no table problems",
}
"""The caveat for each missing table."""


class Overview:
    """Takes rows of the tables, from exports or staged (`exports.staging`), and returns an `OverviewAnswer`.

    The answer depends on the rows alone, not on their order or batches, or on how partial answers were merged.
    `beside`: detectors that take the same rows, and merge by themselves; what they count is not counted again.
    """

    def __init__(self, beside: Detectors | None = None) -> None:
        self._apis, self._brokers, self._clients = Apis(), Brokers(), Clients()
        self._topics, self._groups = Topics(), Groups()
        self._connections, self._failed, self._problems = ConnectionSums(), FailedConnects(), Problems()
        self._encrypted = Encrypted()
        self._latency, self._rebalances = ApiLatencies(), Rebalances()
        self._errors = Errors(ErrorParameters(by=("api", "client", "address")))
        counted = (None, None) if beside is None else (beside.clusters, beside.visibility)
        self._clusters, self._visibility = counted[0] or Clusters(), counted[1] or Visibility()
        sections = (self._apis, self._brokers, self._clients, self._topics, self._groups)
        rest = (self._connections, self._failed, self._encrypted, self._problems, self._latency, self._rebalances)
        self._parts: tuple[Accumulator[Any], ...] = (
            *(*sections, *rest, self._errors),
            *(one for one in (self._clusters, self._visibility) if one not in counted),
        )
        self._readers = TableReaders(self._parts)
        self._seen: set[str] = set()

    def reads(self) -> dict[str, TableReading]:
        """The tables with their needed columns; all but `exchanges` may be missing."""
        return self._readers.reads

    @property
    def bodies(self) -> WantedBodies:
        """The bodies that are needed as JSON: those with a generation, a cluster id or errors."""
        generations: Bodies = {(direction, api): None for direction in DIRECTIONS for api in GENERATION_APIS}
        return WantedBodies(generations, errors=True) | WantedBodies(Clusters.bodies())

    def has(self, table: str) -> None:
        """Note that a table exists, though it may have no rows."""
        self._seen.add(table)

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        """Take rows of a table."""
        self._seen.add(table)
        self._readers.update(batch, table)

    def merge(self, other: Overview) -> None:
        """Merge another's rows."""
        self._seen |= other._seen
        for mine, theirs in zip(self._parts, other._parts, strict=True):
            mine.merge(theirs)

    def answer(self, top: int = MAX_ROWS, names: LearnedNames | None = None) -> OverviewAnswer:
        """The answer so far. `top`: maximum rows of each list; `names`: learned from captures among the sources."""
        clusters = self._clusters.known()
        for part in self._parts:
            part.names, part.clusters = names, clusters
        top = min(top, MAX_ROWS)
        more: dict[str, int] = {}

        def cut(name: str, table: pa.Table) -> list[dict[str, Any]]:
            more[name] = max(table.num_rows - top, 0)
            rows: list[dict[str, Any]] = table.slice(0, top).to_pylist()
            return rows

        apis = self._apis.result()
        totals = Exchanges(**{name: pc.sum(apis.column(name)).as_py() or 0 for name in COUNTS})
        sums = self._connections.result()
        first, last = _span([apis, sums])
        seconds = (last - first) / 1e9 if first is not None and last is not None and last > first else None
        latencies = {row["api"]: row for row in self._latency.result().to_pylist()}
        errors = self._error_rows(names)
        more["errors"] = max(len(errors) - top, 0)
        has_problems = "problems" in self._seen
        problems = cut("problems", self._problems.result()) if has_problems else []
        return OverviewAnswer(
            first=first,
            last=last,
            duration_us=None if first is None or last is None else (last - first) // 1000,
            exchanges=totals,
            connections=_connections(sums) if "connections" in self._seen else None,
            visibility=self._visibility.visible(),
            failed_connects=[
                FailedConnectStats(address=row.pop("broker_ip"), port=row.pop("broker_port"), **row)
                for row in cut("failed_connects", self._failed.result())
            ],
            encrypted=[EncryptedStats(**row) for row in cut("encrypted", self._encrypted.result())],
            brokers=[
                _broker(row, clusters, counted="connections" in self._seen)
                for row in cut("brokers", self._brokers.result())
            ],
            clients=[
                ClientStats(
                    **_counts(row),
                    client_id=row["client_id"],
                    address=row["client_ip"],
                    software_name=row["software_name"],
                    software_version=row["software_version"],
                )
                for row in cut("clients", self._clients.result())
            ],
            apis=[
                ApiStats(
                    **_counts(row),
                    api=row["api"],
                    versions=row["versions"],
                    latency=_latency(latencies.get(row["api"])),
                )
                for row in cut("apis", apis)
            ],
            topics=[_topic(row, seconds) for row in cut("topics", self._topics.result())],
            groups=self._group_rows(cut("groups", self._groups.result())),
            errors=errors[:top],
            problems=[
                ProblemStats(row["kind"], row["problems"], row["bytes"], row["time_ns"], row["detail"], row["packet"])
                for row in problems
            ]
            if has_problems
            else None,
            more=more,
            notes=self._notes(),
        )

    def rebalances(self) -> pa.Table:
        """Generations of groups, as in the question `rebalances`, and their `cluster` as in `GroupStats`."""
        self._rebalances.clusters = self._clusters.known()
        found = [row["cluster"] for row in self._rebalances.generations()]
        return self._rebalances.result().append_column("cluster", pa.array(found, pa.string()))

    def _error_rows(self, names: LearnedNames | None) -> list[ErrorStats]:
        """Error codes, the most frequent first."""
        table = self._errors.parts["errors"].table()
        counts = [("errors", "sum"), ("api", "distinct"), ("first", "min")]
        codes = table.group_by("error_code", use_threads=False).aggregate(counts).combine_chunks()
        least = codes["first_min"].take(pc.index_in(table["error_code"], codes["error_code"].combine_chunks()))
        earliest = pc.or_(pc.is_null(least), pc.fill_null(pc.equal(table["first"], least), False))
        firsts: dict[int | None, tuple[str | None, ...]] = {}
        for row in table.filter(earliest).to_pylist():
            topic = row["topic"] if names is None else names.topic(row["topic"]) or row["topic"]
            place = (row["api"], row["client_id"], row["client_ip"], topic)
            firsts[row["error_code"]] = min(firsts.get(row["error_code"], place), place, key=_by_name)
        found = []
        for row in codes.to_pylist():
            code = row["error_code"]
            entry = None if code is None else error_by_code(code)
            api, client_id, address, topic = firsts[code]
            found.append(
                ErrorStats(
                    code=code,
                    name=None if entry is None else entry.name,
                    retriable=None if entry is None else entry.retriable,
                    meaning=None if code is None else error_meaning(code),
                    count=row["errors_sum"],
                    apis=sorted(api for api in row["api_distinct"] if api is not None),
                    first=row["first_min"],
                    first_api=api,
                    first_client_id=client_id,
                    first_client_address=address,
                    first_topic=topic,
                )
            )
        return sorted(found, key=lambda error: (-error.count, error.code is None, error.code or 0))

    def _group_rows(self, rows: list[dict[str, Any]]) -> list[GroupStats]:
        counts: Counter[tuple[str | None, str]] = Counter()
        members: dict[tuple[str | None, str], int | None] = {}
        for row in self._rebalances.generations():
            group = (row["cluster"], row["group_id"])
            counts[group] += 1
            members[group] = row.get("members")
        return [
            GroupStats(**row, rebalances=counts[group], members=members.get(group))
            for row in rows
            for group in [(row["cluster"], row["group_id"])]
        ]

    def _notes(self) -> list[str]:
        left_out = [entry for table, entry in _LEFT_OUT.items() if table not in self._seen]
        parts = dict.fromkeys((*self._parts, self._clusters))
        named = [(part.name.removeprefix("overview-"), note) for part in parts for note in part.notes()]
        return left_out + [f"{name}: {note}" for name, note in named]


def _span(tables: list[pa.Table]) -> tuple[int | None, int | None]:
    firsts = [one for table in tables if (one := pc.min(table.column("first")).as_py()) is not None]
    lasts = [one for table in tables if (one := pc.max(table.column("last")).as_py()) is not None]
    return min(firsts, default=None), max(lasts, default=None)


def _by_name(place: tuple[str | None, ...]) -> list[tuple[bool, str]]:
    """Among errors that are equally early, the first by name; no name sorts after all names."""
    return [(part is None, part or "") for part in place]


def _counts(row: Mapping[str, Any]) -> dict[str, int]:
    return {name: row[name] for name in COUNTS}


def _connections(table: pa.Table) -> ConnectionTotals:
    by_verdict = dict(zip(table.column("verdict").to_pylist(), table.column("connections").to_pylist(), strict=True))
    sums = {name: pc.sum(table.column(name)).as_py() or 0 for name in CONNECTION_COUNTS}
    return ConnectionTotals(**sums, **{name: by_verdict.get(name, 0) for name in ("kafka", "not_kafka", "undecided")})


def _broker(row: Mapping[str, Any], clusters: Known, *, counted: bool) -> BrokerStats:
    address = row["broker_ip"]
    return BrokerStats(
        **_counts(row),
        broker_id=row["broker_id"],
        address=address,
        port=row["broker_port"],
        cluster=clusters.group(None if address is None else str(Endpoint(address, row["broker_port"]))),
        connections=(row["connections"] or 0) if counted else None,
    )


def _latency(row: Mapping[str, Any] | None) -> LatencyStats | None:
    if row is None:
        return None
    return LatencyStats(row["count"], row["mean_us"], row["p50_us"], row["p90_us"], row["p99_us"], row["max_us"])


def _topic(row: dict[str, Any], seconds: float | None) -> TopicStats:
    flows: dict[str, Any] = {}
    for flow in FLOWS:
        records, batches, size = (row.pop(f"{flow}_{name}") for name in ("records", "batches", "bytes"))
        rates = (None, None) if seconds is None else (records / seconds, size / seconds)
        flows[flow] = Traffic(records, batches, size, *rates)
    del row["bytes"]
    return TopicStats(**row, **flows)
