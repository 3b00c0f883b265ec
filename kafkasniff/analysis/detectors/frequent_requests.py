"""Clients that ask more often than they need: for metadata, for records that are not there, for new connections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading, united
from kafkasniff.analysis.between_brokers import is_work
from kafkasniff.analysis.columns import ORDER, column, first_of_each, floor_divided, in_any, integers, only, with_client
from kafkasniff.analysis.detectors.authentication import SASL_REFUSED, taken_mechanisms
from kafkasniff.analysis.detectors.connections import (
    CONNECTIONS,
    PROBLEMS,
    REJECTED,
    add_connections,
    add_problems,
    cause_of,
    connections_by_id,
    connections_shape,
    problems_by_time,
    problems_shape,
)
from kafkasniff.analysis.detectors.detector import Detector, evidence_columns, evidence_shape
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence, Finding
from kafkasniff.analysis.detectors.tally import BROKER, CLIENT, CLIENT_COLUMNS, Tally, clients
from kafkasniff.analysis.detectors.wording import client, elapsed, plural, subject
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.partials import Shape
from kafkasniff.analysis.questions.outliers import Churn, ChurnParameters, MetadataStormParameters, MetadataStorms
from kafkasniff.engine.roles import Bodies
from kafkasniff.sinks.summaries.phrases import amount
from kafkasniff.text.printable import word

_RECORDS: Final = ("Produce", "Fetch", "ShareFetch")
MAX_ASKED: Final = 1 << 17
"""Maximum number of pairs of client and API, the most frequent."""


class StormThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `FrequentMetadata`."""

    every: Annotated[Duration, Meta(ge=1, description="Time span in which requests are counted.")] = 10_000_000_000
    at_least: Annotated[
        int, Meta(ge=1, description="This many Metadata requests of a client in a span are a storm.")
    ] = 30


class FrequentMetadata(Detector[StormThresholds]):
    """Periods in which a client sent many Metadata requests.

    Clients normally send one at the start, every five minutes, and when a leader has moved. It is a note if the client
    reads and writes no records and sends as many administrative requests, as user interfaces for clusters do.

    Caveats: short-lived programs with the same client id add up.
    """

    name: ClassVar[str] = "metadata-storms"
    summary: ClassVar[str] = "Clients that request metadata too often."
    parameters_type = StormThresholds

    def questions(self) -> Mapping[str, Accumulator[Any]]:
        return {
            "storms": MetadataStorms(
                MetadataStormParameters(every=self.thresholds.every, at_least=self.thresholds.at_least)
            )
        }

    def reads(self) -> Mapping[str, TableReading]:
        return united(super().reads(), {"exchanges": TableReading((*ORDER, "api", "problems"))})

    def shapes(self) -> Mapping[str, Shape]:
        count: Any = (("count", pa.int64(), "sum"),)
        asked = Shape(keys=(*CLIENT, ("api", pa.string())), measures=count, weight="count", bound=MAX_ASKED)
        return {"evidence": evidence_shape((("span", pa.int64()), *CLIENT)), "asked": asked}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        asked = {**clients(batch), "api": column(batch, "api")}
        self.parts["asked"].add({**asked, "count": np.ones(batch.num_rows, np.int64)})
        batch = with_client(only(batch, in_any(batch, "api", ["Metadata"])))
        self.asked["storms"].update(batch)
        span = floor_divided(column(batch, "time_ns"), self.thresholds.every)
        self.parts["evidence"].add(evidence_columns(batch, {"span": span, **clients(batch)}))

    def findings(self) -> Iterator[Finding]:
        evidence = self.evidence("evidence")
        by_client: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for row in self.parts["storms.spans"].table().to_pylist():
            if row["requests"] >= self.thresholds.at_least:
                by_client.setdefault((row["client_id"], row["client_ip"]), []).append(row)
        every = self.thresholds.every
        works, administers = self._uses() if by_client else (set(), {})
        for key, rows in by_client.items():
            worst = max(rows, key=lambda row: (row["requests"], -(row["span"] or 0)))
            tool = key not in works and administers.get(key, 0) >= sum(row["requests"] for row in rows)
            spans = [row["span"] for row in rows if row["span"] is not None]
            who = client(worst)
            yield self.finding(
                "note" if tool else "warning",
                f"{who} asked for metadata {plural(worst['requests'], 'time')} within {elapsed(every)}"
                + (
                    f", and at least {self.thresholds.at_least:,} times in {plural(len(rows) - 1, 'other such span')}"
                    if rows[1:]
                    else ""
                ),
                meaning=(
                    "Clients request metadata at start, every few minutes, and when a leader has moved. More "
                    "requests load the brokers, especially in clusters with many topics."
                ),
                advice=(
                    "Look at the responses: clients repeat requests for a topic that does not exist or has no "
                    "leader. Otherwise look for programs that create a client for each message."
                ),
                subject=subject(worst, "client_id", "client_ip"),
                count=sum(row["requests"] for row in rows),
                first=min(spans) * every if spans else None,
                last=(max(spans) + 1) * every if spans else None,
                evidence=evidence.get((worst["span"], *key), ()),
                values={
                    "requests": worst["requests"],
                    "spans": len(rows),
                    "errors": worst["errors"],
                    "response_bytes": worst["response_bytes"],
                },
            )

    def _uses(self) -> tuple[set[Any], dict[Any, int]]:
        """Clients that read or write records, and how many administrative requests each client sent."""
        works: set[Any] = set()
        administers: dict[Any, int] = {}
        for row in self.parts["asked"].table().to_pylist():
            who = row["client_id"], row["client_ip"]
            if row["api"] in _RECORDS:
                works.add(who)
            elif not is_work(row["api"]) or row["api"] == "ListOffsets":
                administers[who] = administers.get(who, 0) + row["count"]
        return works, administers


class AllTopicsThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `AllTopics`."""

    at_least: Annotated[int, Meta(ge=1, description="Report a client from this many requests for all topics.")] = 5
    size: Annotated[
        int, Meta(ge=1, description="They are a warning if the responses have this many bytes in total.")
    ] = 10_000_000


class AllTopics(Detector[AllTopicsThresholds]):
    """Metadata requests for all topics of the cluster: `topics` is null, or empty in version 0.

    Caveats: tools that need all topics (a UI, a mirror, a consumer with a pattern) are reported, too.
    """

    name: ClassVar[str] = "all-topics"
    summary: ClassVar[str] = "Clients that request the metadata of all topics."
    parameters_type = AllTopicsThresholds
    bodies: ClassVar[Bodies] = {("request", "Metadata"): None}

    _all = Tally("all", CLIENT, sums=("response_bytes",))

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", "api_version", *CLIENT_COLUMNS, "response_size", "request_body")
        return {"exchanges": TableReading((*ORDER, *own), ("Metadata",))}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        batch = only(batch, in_any(batch, "api", ["Metadata"]))
        # `topics` is the first field of the body, in every version.
        body = column(batch, "request_body")
        none = pc.and_(pc.starts_with(body, '{"topics":[]'), pc.equal(column(batch, "api_version"), 0))
        batch = only(batch, pc.or_(pc.starts_with(body, '{"topics":null'), none))
        self._all.add(self, batch, clients(batch), response_bytes=integers(column(batch, "response_size")))

    def findings(self) -> Iterator[Finding]:
        for row, evidence in self._all.rows(self, lambda row: row["count"] >= self.thresholds.at_least):
            size = row["response_bytes"]
            yield self.row_finding(
                row,
                evidence,
                "warning" if size >= self.thresholds.size else "note",
                f"{client(row)} asked for the metadata of all topics {plural(row['count'], 'time')}, "
                f"{amount(size)} of responses",
                meaning="Such responses grow with the cluster, and brokers build each of them from scratch.",
                advice=(
                    "Let the client ask only for its own topics: subscribe by name rather than by pattern, and "
                    "check its settings for full metadata (Sarama: Metadata.Full)."
                ),
                subject=("client_id", "client_ip"),
                values={"requests": row["count"], "response_bytes": size},
            )


_APIS = ("Fetch", "ShareFetch")


class EmptyFetchThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `EmptyFetches`."""

    every: Annotated[Duration, Meta(ge=1, description="Time span in which fetches are counted.")] = 10_000_000_000
    at_least: Annotated[
        int, Meta(ge=1, description="Report at least this many empty fetches of a client at a broker in a span …")
    ] = 200
    share: Annotated[float, Meta(ge=0, le=1, description="… that are at least this fraction of all its fetches …")] = (
        0.9
    )
    wait: Annotated[
        Duration, Meta(ge=0, description="… and were answered in less than this time on average: a loop.")
    ] = 100_000_000


class EmptyFetches(Detector[EmptyFetchThresholds]):
    """Runs of empty fetches that the broker answers at once.

    A consumer that has read everything normally waits at the broker for `fetch.max.wait.ms` (500 ms). Throttled fetches
    do not count.

    Caveats: a consumer that asks for no wait looks the same. Open transactions can make a read_committed fetch return
    early and empty.
    """

    name: ClassVar[str] = "empty-fetches"
    summary: ClassVar[str] = "Consumers that fetch in a loop and get nothing."
    parameters_type = EmptyFetchThresholds

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", "status", *CLIENT_COLUMNS, "broker_ip", "broker_port", "partitions", "error_count", "latency_us")
        return {"exchanges": TableReading((*ORDER, *own, "throttle_time_ms"), _APIS)}

    def shapes(self) -> Mapping[str, Shape]:
        keys = (("span", pa.int64()), *CLIENT, *BROKER)
        sums: Any = tuple((name, pa.int64(), "sum") for name in ("fetches", "empty", "waited_us"))
        return {
            "spans": Shape(keys=keys, measures=sums, weight="empty", bound=1 << 18),
            "evidence": evidence_shape(keys),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        mask = pc.and_(in_any(batch, "api", _APIS), in_any(batch, "status", ["answered"]))
        # Without an error count the response could not be read, and its contents are unknown.
        batch = only(batch, pc.and_(mask, pc.equal(column(batch, "error_count"), 0)))
        # A fetch beyond its quota is answered immediately, without data (KafkaApis.handleFetchRequest).
        batch = only(batch, pc.equal(pc.fill_null(column(batch, "throttle_time_ms"), 0), 0))
        lists = column(batch, "partitions")
        parents = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
        sizes = integers(pc.struct_field(pc.list_flatten(lists), "bytes"))
        empty = np.bincount(parents, weights=sizes, minlength=batch.num_rows)[: batch.num_rows] == 0
        keys = {
            "span": floor_divided(column(batch, "time_ns"), self.thresholds.every),
            **clients(batch, broker=True),
        }
        self.parts["spans"].add(
            {
                **keys,
                "fetches": np.ones(batch.num_rows, np.int64),
                "empty": empty.astype(np.int64),
                "waited_us": np.where(empty, integers(column(batch, "latency_us")), 0),
            }
        )
        shown = {name: values.filter(pa.array(empty)) for name, values in keys.items()}
        self.parts["evidence"].add(evidence_columns(only(batch, pa.array(empty)), shown))

    def findings(self) -> list[Finding]:
        evidence = self.evidence("evidence")
        loops: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        limits = self.thresholds
        for row in self.parts["spans"].table().to_pylist():
            empty = row["empty"]
            often = empty >= limits.at_least and empty >= limits.share * row["fetches"]
            if often and row["waited_us"] * 1000 < limits.wait * empty:
                loops.setdefault((row["client_id"], row["client_ip"], row["broker"]), []).append(row)
        return [self._finding(key, rows, evidence) for key, rows in loops.items()]

    def _finding(
        self, key: tuple[Any, ...], rows: list[dict[str, Any]], evidence: dict[tuple[Any, ...], tuple[Evidence, ...]]
    ) -> Finding:
        every = self.thresholds.every
        worst = max(rows, key=lambda row: (row["empty"], -(row["span"] or 0)))
        spans = [row["span"] for row in rows if row["span"] is not None]
        wait = worst["waited_us"] * 1000 // worst["empty"]
        return self.finding(
            "warning",
            f"{client(worst)} sent {worst['fetches']:,} fetches to {worst['broker']} within {elapsed(every)}; "
            f"{worst['empty']:,} returned nothing, after {elapsed(wait)} on average",
            meaning=(
                "The client repeatedly asks for data that does not exist yet, and the broker answers immediately: "
                "a busy loop."
            ),
            advice=(
                "Let the broker wait: set fetch.max.wait.ms to 500 and fetch.min.bytes to 1 or more. Fetch sessions "
                "that are evicted and recreated, and very short polls, look the same."
            ),
            subject=subject(worst, "client_id", "client_ip", "broker"),
            count=sum(row["empty"] for row in rows),
            first=min(spans) * every if spans else None,
            last=(max(spans) + 1) * every if spans else None,
            evidence=evidence.get((worst["span"], *key), ()),
            values={
                "fetches": worst["fetches"],
                "empty": worst["empty"],
                "mean_wait_ms": wait / 1e6,
                "spans": len(rows),
            },
        )


VALUES: Final = ("opened", "short", "reset", "without_requests", "requests")


class ChurnThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `ConnectionChurn`."""

    every: Annotated[Duration, Meta(ge=1, description="Time span in which connections are counted.")] = 60_000_000_000
    at_least: Annotated[int, Meta(ge=1, description="This many connections of a client in a span are churn …")] = 20
    crowd: Annotated[
        int, Meta(ge=1, description="… or this many of an address under different client ids, fewer each …")
    ] = 60
    short: Annotated[Duration, Meta(ge=0, description="A connection that ended within this time is short.")] = (
        5_000_000_000
    )
    share: Annotated[float, Meta(ge=0, le=1, description="… if at least this fraction of them was short.")] = 0.5


class ConnectionChurn(Detector[ChurnThresholds]):
    """Periods in which a client opened many connections, most of them short-lived.

    If the broker refused at least `share` of them, the finding names the refusal. Programs whose clients have a new id
    each time, as those of Kafka's Java libraries do (`producer-1`, `producer-2` …), are known by their address.

    Caveats: connections that are not decrypted do not count. Many programs that share an address (NAT) look like one.
    """

    name: ClassVar[str] = "connection-churn"
    summary: ClassVar[str] = "Clients that keep opening new connections."
    parameters_type = ChurnThresholds

    def questions(self) -> Mapping[str, Accumulator[Any]]:
        limits = self.thresholds
        return {"churn": Churn(ChurnParameters(every=limits.every, short=limits.short))}

    def reads(self) -> Mapping[str, TableReading]:
        problems = TableReading(PROBLEMS.columns, optional=True)
        return united(super().reads(), {"connections": CONNECTIONS, "problems": problems})

    def shapes(self) -> Mapping[str, Shape]:
        return {
            "evidence": evidence_shape((("span", pa.int64()), *CLIENT)),
            "known": connections_shape(),
            "problems": problems_shape(),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        if table == "problems":
            add_problems(self, batch, (SASL_REFUSED, REJECTED))
            return
        self.asked["churn"].update(batch, "connections")
        batch = only(batch, in_any(batch, "verdict", ["kafka"]))
        keys = {
            "span": floor_divided(column(batch, "time_ns"), self.thresholds.every),
            "client_id": first_of_each(column(batch, "client_ids")),
            "client_ip": column(batch, "client_ip"),
        }
        self.parts["evidence"].add(evidence_columns(batch, keys))
        add_connections(self, "known", batch)

    def findings(self) -> list[Finding]:
        limits, evidence = self.thresholds, self.evidence("evidence")
        by_client: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        crowds: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for row in self.parts["churn.connections"].table().to_pylist():
            if row["opened"] < limits.at_least:
                crowds.setdefault((row["span"], row["client_ip"]), []).append(row)
            elif row["short"] >= limits.share * row["opened"]:
                by_client.setdefault((row["client_id"], row["client_ip"]), []).append(
                    {**row, "ids": [row["client_id"]]}
                )
        for rows in crowds.values():
            if len(rows) > 1 and sum(row["opened"] for row in rows) >= limits.crowd:
                crowd = _together(rows)
                if crowd["short"] >= limits.share * crowd["opened"]:
                    by_client.setdefault((None, crowd["client_ip"]), []).append(crowd)
        refusals = self._refusals() if by_client else {}
        return [self._finding(rows, refusals, evidence) for rows in by_client.values()]

    def _refusals(self) -> dict[tuple[Any, ...], list[tuple[int | None, str]]]:
        """Time and cause of each refused connection, by client."""
        known = connections_by_id(self, "known")
        causes: dict[int, tuple[int | None, str]] = {}
        for problem in problems_by_time(self):
            connection = known.get(problem["connection_id"])
            if connection is None:
                continue
            cause, taken = cause_of(problem), taken_mechanisms(cause_of(problem))
            if taken is not None:
                asked = connection["sasl_mechanism"]
                what = "a SASL mechanism that it does not have" if asked is None else word(asked)
                cause = f"the client asks for {what}, the listener takes {taken}"
            causes.setdefault(problem["connection_id"], (connection["time_ns"], cause))
        found: dict[tuple[Any, ...], list[tuple[int | None, str]]] = {}
        for number, cause_at in causes.items():
            one = known[number]
            found.setdefault((one["client_id"], one["client_ip"]), []).append(cause_at)
        return found

    def _finding(
        self,
        rows: list[dict[str, Any]],
        refusals: Mapping[tuple[Any, ...], list[tuple[int | None, str]]],
        evidence: Mapping[tuple[Any, ...], tuple[Evidence, ...]],
    ) -> Finding:
        limits = self.thresholds
        worst = max(rows, key=lambda row: (row["opened"], -(row["span"] or 0)))
        keys = [(client_id, worst["client_ip"]) for client_id in worst["ids"]]
        who = client(worst) if not keys[1:] else f"{plural(len(keys), 'client')} at {word(worst['client_ip'])}"
        spans = [row["span"] for row in rows if row["span"] is not None]
        more = f", and likewise in {plural(len(rows) - 1, 'other such span')}" if rows[1:] else ""
        inside = [
            why
            for key in keys
            for time, why in refusals.get(key, ())
            if worst["span"] is None or (time or 0) // limits.every == worst["span"]
        ]
        refused = len(inside) >= limits.share * worst["opened"] and bool(inside)
        values: dict[str, Any] = {name: worst[name] for name in VALUES}
        if refused:
            # The most frequent cause; among equally frequent ones the first by name.
            cause = min(Counter(inside).items(), key=lambda one: (-one[1], one[0]))[0]
            what = f"the broker refused {len(inside):,} of them: {cause}"
            meaning = (
                "The client connects again because the broker refuses it. Each attempt costs the broker a connection, "
                "and with TLS a handshake."
            )
            advice = "Fix the cause of the refusals; see sasl-failures and wrong-protocol in this report."
            values |= {"refused": len(inside), "cause": cause}
        else:
            what = f"{worst['short']:,} of them for less than {elapsed(limits.short)}"
            meaning = (
                "Each connection costs a version exchange, authentication, metadata, and with TLS a handshake; members "
                "of groups also make their group rebalance. Brokers limit the number of connections per address. These "
                f"carried {plural(worst['requests'], 'request')} and lasted "
                f"{elapsed(1000 * worst['lived_us'] / worst['opened'])} on average."
            )
            advice = (
                "Keep one producer or consumer for as long as the program runs, instead of one for each message or "
                "web request. If connections are reset or carry no requests, look for clients that are refused "
                "(sasl-failures, wrong-protocol) and for health probes."
            )
        return self.finding(
            "warning",
            f"{who} opened {worst['opened']:,} connections within {elapsed(limits.every)}, {what}{more}",
            meaning=meaning,
            advice=advice,
            subject=subject(worst, "client_id", "client_ip"),
            count=sum(row["opened"] for row in rows),
            first=min(spans) * limits.every if spans else None,
            last=(max(spans) + 1) * limits.every if spans else None,
            evidence=tuple(each for key in keys for each in evidence.get((worst["span"], *key), ()))[:MAX_EVIDENCE],
            values={**values, "spans": len(rows)},
        )


def _together(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The same for all clients of an address, those with the most connections first."""
    rows = sorted(rows, key=lambda row: (-row["opened"], row["client_id"] or ""))
    sums = {name: sum(row[name] for row in rows) for name in (*VALUES, "lived_us")}
    return {**rows[0], **sums, "client_id": None, "ids": [row["client_id"] for row in rows]}
