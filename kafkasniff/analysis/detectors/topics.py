"""Topics that clients use although they do not exist, or no longer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Annotated, Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.between_brokers import is_broker
from kafkasniff.analysis.columns import (
    ORDER,
    column,
    encoded,
    exploded,
    first_of_each,
    in_any,
    looked_up,
    named,
    only,
    partition_errors,
    repeated,
)
from kafkasniff.analysis.detectors.detector import Detector, Effect
from kafkasniff.analysis.detectors.finding import Evidence, Finding, Severity
from kafkasniff.analysis.detectors.tally import (
    CLIENT,
    CLIENT_COLUMNS,
    CLUSTER,
    CLUSTER_COLUMNS,
    Tally,
    clients,
    clusters,
    in_all,
)
from kafkasniff.analysis.detectors.wording import client, in_cluster, plural, span
from kafkasniff.analysis.error_causes import causes_of
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.partials import Shape
from kafkasniff.kafka.embedded.internal_topics import INTERNAL_TOPICS
from kafkasniff.text.printable import word

_APIS: Final = ("Metadata", "Produce", "Fetch", "ListOffsets", "ShareFetch")
"""APIs whose errors show what programs read and write. Tools that look for topics use others, too."""
UNKNOWN_TOPIC_OR_PARTITION: Final = 3
UNKNOWN_TOPIC_ID: Final = 100
_CODES: Final = (UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID)
_TOPIC: Final = (*CLUSTER, ("topic", pa.string()))
_PLACES: Final = [*ORDER, "api", *CLIENT_COLUMNS, *CLUSTER_COLUMNS]
"""Columns of exchanges without bodies and lists, which would be copied for each of their topics."""
MAX_TOPICS: Final = 1 << 17
"""Maximum number of topics that are known to exist, and of those that were deleted."""

_NAMED: Final = 100
"""Maximum number of clients whose further errors a finding explains."""


class MissingTopicThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `MissingTopics`."""

    at_least: Annotated[
        int,
        Meta(ge=1, description="This many refused requests of a client for a topic are a warning; fewer are a note …"),
    ] = 3
    lasting: Annotated[
        Duration,
        Meta(ge=0, description="… and so are those that began this shortly before the end: it may be created soon."),
    ] = 2_000_000_000
    long: Annotated[
        Duration,
        Meta(
            ge=0,
            description="An error if they began this long before the end, if the client ended after them, or if the "
            "topic was deleted.",
        ),
    ] = 5_000_000_000


class MissingTopics(Detector[MissingTopicThresholds]):
    """Topics that clients read or write and that do not exist, from the first request on or after a deletion.

    Brokers create their own topics when they are first needed: those are notes.

    Some clients wait for the topic, others give up: those that ended without it failed, however soon.

    A topic that appears later in the capture is not reported, except if its id shows that it was deleted and created
    again meanwhile: a warning.

    Caveats: programs that wait for a topic to be created look the same until it is. If all requests that found the
    topic are missing from the capture, a deleted topic looks as if it had never existed.
    """

    name: ClassVar[str] = "missing-topics"
    summary: ClassVar[str] = "Clients that use a topic that does not exist or was deleted."
    parameters_type = MissingTopicThresholds
    error_bodies = True
    parts_clusters = True

    _refused = Tally("refused", (*CLIENT, *_TOPIC), sums=("reads", "writes"))

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", "api_key", "error_code", "error_count", "topics", "partitions", "response_body")
        apis = (*_APIS, "DeleteTopics")
        return {
            "exchanges": TableReading((*ORDER, *own, *CLIENT_COLUMNS, *CLUSTER_COLUMNS), apis),
            "connections": TableReading(("client_ids", "client_ip", "ended"), optional=True),
        }

    def shapes(self) -> Mapping[str, Shape]:
        last: Any = (("last", pa.int64(), "max"),)
        ids: Any = (("first", pa.int64(), "min"),)
        deleted: Any = tuple((name, kind, "last") for name, kind in (*((one, pa.int64()) for one in ORDER), *CLIENT))
        return {
            **super().shapes(),
            "there": Shape(keys=_TOPIC, measures=last, bound=MAX_TOPICS),
            "end": Shape(keys=(("one", pa.int8()),), measures=(("end_ns", pa.int64(), "max"),)),
            "deleted": Shape(keys=_TOPIC, measures=deleted, order=ORDER, bound=MAX_TOPICS),
            "ids": Shape(keys=(*_TOPIC, ("topic_id", pa.string())), measures=ids, bound=MAX_TOPICS),
            "left": Shape(keys=CLIENT, measures=(("open", pa.int64(), "sum"),), bound=MAX_TOPICS),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        if table == "connections":
            closed = in_any(batch, "ended", ("fin", "rst"))
            who = {"client_id": first_of_each(column(batch, "client_ids")), "client_ip": column(batch, "client_ip")}
            self.parts["left"].add({**who, "open": pc.invert(closed).cast(pa.int64())})
            return
        self.parts["end"].add({"one": [0], "end_ns": [pc.max(column(batch, "time_ns")).as_py()]})
        self._deletions(only(batch, in_any(batch, "api", ["DeleteTopics"])))
        batch = only(batch, in_any(batch, "api", _APIS))
        rows = named(exploded(batch, ["time_ns", *CLUSTER_COLUMNS]))
        code = column(rows, "error_code")
        there = pc.invert(pc.is_in(code, value_set=pa.array(_CODES, code.type)))
        rows = only(rows, pc.and_(there, pc.and_(pc.is_valid(code), pc.is_valid(column(rows, "time_ns")))))
        self.parts["there"].add({**clusters(rows), "topic": encoded(rows, "topic"), "last": column(rows, "time_ns")})
        rows = only(rows, pc.and_(pc.equal(column(rows, "error_code"), 0), pc.is_valid(column(rows, "topic_id"))))
        ids = {name: column(rows, name) for name in ("topic", "topic_id")}
        self.parts["ids"].add({**clusters(rows), **ids, "first": column(rows, "time_ns")})
        self._refusals(only(batch, pc.greater(column(batch, "error_count"), 0)))

    def _deletions(self, batch: pa.RecordBatch) -> None:
        batch = only(batch, pc.equal(column(batch, "error_count"), 0))
        lists = column(batch, "topics")
        rows = batch.select(_PLACES).take(pc.list_parent_indices(lists))
        topics = pc.list_flatten(lists).cast(pa.string())
        places = {name: column(rows, name) for name in (*ORDER, *CLIENT_COLUMNS)}
        self.parts["deleted"].add({**clusters(rows), "topic": topics, **places})

    def _refusals(self, batch: pa.RecordBatch) -> None:
        brokers = looked_up(batch, "client_id", lambda name: is_broker(name, ()), pa.bool_())
        batch = only(batch, pc.invert(pc.fill_null(brokers, False)))
        parts, others = partition_errors(batch)
        missing = pc.is_in(column(parts, "error_code"), value_set=pa.array(_CODES, pa.int32()))
        wanted = others > 0
        wanted[column(parts, "row").filter(missing).to_numpy()] = True
        batch = only(batch, pa.array(wanted))
        causes, number = causes_of(batch)
        topics = [
            [topic for topic in dict.fromkeys(cause.topic for cause in some if cause.code in _CODES) if topic]
            for some in causes
        ]
        at, places = repeated(topics, number)
        rows = batch.select(_PLACES).take(pa.array(at))
        names = pa.array([topic for some in topics for topic in some], pa.string())
        api = column(rows, "api")
        keys = {**clients(rows), **clusters(rows), "topic": names.take(pa.array(places))}
        sums = {
            name: in_any(rows, "api", apis).to_numpy(zero_copy_only=False).astype(np.int64)
            for name, apis in (("reads", ("Fetch", "ShareFetch", "ListOffsets")), ("writes", ("Produce",)))
        }
        self._refused.add(self, rows, keys, api, **sums)

    def findings(self) -> Iterator[Finding]:
        there = {_key(row): row["last"] for row in self.resolved("there").to_pylist()}
        deleted = {_key(row): row for row in self.resolved("deleted").to_pylist()}
        ids: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for row in self.resolved("ids").to_pylist():
            ids.setdefault(_key(row), []).append(row)
        found: dict[tuple[Any, ...], list[tuple[dict[str, Any], tuple[Evidence, ...]]]] = {}
        again: dict[tuple[Any, ...], list[tuple[dict[str, Any], tuple[Evidence, ...]]]] = {}
        for row, evidence in self._refused.rows(self):
            known = there.get(_key(row))
            if known is None or row["last"] is None or known < row["last"]:
                found.setdefault(_key(row), []).append((row, evidence))
            elif len(ids.get(_key(row), ())) > 1:
                again.setdefault(_key(row), []).append((row, evidence))
        left = {_client(row) for row in self.parts["left"].table().to_pylist() if not row["open"]} if found else set()
        for key, rows in found.items():
            rows.sort(key=lambda one: (-one[0]["count"], client(one[0])))
            yield self._finding(key, rows, known=key in there, deletion=deleted.get(key), left=left)
        for key in again.keys() - found.keys():
            rows = sorted(again[key], key=lambda one: (-one[0]["count"], client(one[0])))
            yield self._created_again(key, rows, ids[key], deleted.get(key))

    def _created_again(
        self,
        key: tuple[Any, ...],
        rows: list[tuple[dict[str, Any], tuple[Evidence, ...]]],
        ids: list[dict[str, Any]],
        deletion: dict[str, Any] | None,
    ) -> Finding:
        cluster, topic = key
        ids.sort(key=lambda one: (one["first"], one["topic_id"]))
        who = [client(row) for row, _ in rows]
        users = f"{who[0]} and {plural(len(who) - 1, 'other client')}" if who[1:] else who[0]
        by = "" if deletion is None else f" by {client(deletion)}"
        times = [id_["first"] for id_ in ids[1:]]
        return self.finding(
            "warning",
            f"topic {word(topic)}{in_cluster(self.clusters, cluster)} was deleted{by} and created again while "
            f"{users} used it: its id changed from {ids[0]['topic_id']} to {ids[-1]['topic_id']}",
            meaning=(
                "The new topic of the same name is empty. All earlier records are gone, offsets start at 0, and "
                "committed offsets of groups belong to the old topic: consumers skip the first records of the new one, "
                "or start over."
            ),
            advice=(
                "If this was not intended, find out who deletes the topic; if auto.create.topics.enable is on, any "
                "client that still uses a deleted topic creates it again. Reset the offsets of its groups."
            ),
            subject={"topic": topic, **({} if cluster is None else {"cluster": cluster})},
            **in_all(rows) | {"count": len(times), "first": min(times), "last": max(times)},
            values={
                "deleted": True,
                "clients": len(rows),
                "used": [],
                "names": [[row["client_id"], row["client_ip"]] for row, _ in rows[:_NAMED]],
            },
        )

    def _finding(
        self,
        key: tuple[Any, ...],
        rows: list[tuple[dict[str, Any], tuple[Evidence, ...]]],
        *,
        known: bool,
        deletion: dict[str, Any] | None,
        left: Set[tuple[Any, ...]],
    ) -> Finding:
        """`left`: clients whose connections have all ended."""
        cluster, topic = key
        found = in_all(rows)
        end = pc.max(self.parts["end"].table().column("end_ns")).as_py()
        waits = [
            self.thresholds.long if None in (row["first"], end) or _client(row) in left else end - row["first"]
            for row, _ in rows
            if row["count"] >= self.thresholds.at_least and topic not in INTERNAL_TOPICS
        ]
        longest = max(waits, default=-1)
        who = [client(row) for row, _ in rows]
        gone = known or deletion is not None
        lasts = longest >= self.thresholds.lasting
        severity: Severity = "note" if not lasts else "error" if gone or longest >= self.thresholds.long else "warning"
        by = "" if deletion is None else f" by {client(deletion)}"
        state = f"was deleted{by}" if gone else "does not exist"
        verbs = [verb for name, verb in (("writes", "written"), ("reads", "read")) if any(row[name] for row, _ in rows)]
        users = f"{who[0]} and {plural(len(who) - 1, 'other client')}" if who[1:] else who[0]
        return self.finding(
            severity,
            f"topic {word(topic)}{in_cluster(self.clusters, cluster)} {state}, but is used by {users}: "
            f"{plural(found['count'], 'request')} refused{span(found['first'], found['last'])}",
            meaning=(
                "The topic existed earlier in the capture. Producers keep its records in memory until their delivery "
                "times out; consumers get nothing more, usually without an error."
                if gone
                else (
                    "No broker knows this topic, and it was not created meanwhile. Producers wait, and give up their "
                    "records after max.block.ms or delivery.timeout.ms; consumers wait, usually without an error."
                )
            ),
            advice=(
                "Stop the programs that still use it, or create the topic again; its records are gone."
                if gone
                else (
                    "Compare the name with the list of topics (kafka-topics.sh --list), and the program's "
                    "bootstrap.servers with the cluster that has it. Otherwise create it: auto.create.topics.enable "
                    "is off, or the brokers are fewer than default.replication.factor."
                )
            ),
            subject={"topic": topic, **({} if cluster is None else {"cluster": cluster})},
            **found,
            values={
                "deleted": gone,
                "clients": len(rows),
                "used": verbs,
                "names": [[row["client_id"], row["client_ip"]] for row, _ in rows[:_NAMED]],
            },
        )

    def effects(self, finding: Finding) -> Iterator[Effect]:
        for client_id, client_ip in finding.values["names"]:
            yield "metadata-storms", {"client_id": client_id, "client_ip": client_ip}


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["cluster"], row["topic"]


def _client(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["client_id"], row["client_ip"]
