"""Requests sent to a broker that does not lead the partition, and clients with stale metadata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.between_brokers import is_broker
from kafkasniff.analysis.columns import ORDER, column, exploded, floor_divided, in_any, named, only
from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence, Finding, Severity
from kafkasniff.analysis.detectors.leader_terms import Moves, add_terms, moves, terms_shapes
from kafkasniff.analysis.detectors.tally import (
    CLIENT,
    CLIENT_COLUMNS,
    CLUSTER,
    CLUSTER_COLUMNS,
    Tally,
    clients,
    clusters,
)
from kafkasniff.analysis.detectors.wording import client, elapsed, in_cluster, plural, some, span
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.partials import Shape
from kafkasniff.engine.roles import Bodies
from kafkasniff.kafka.schema.codes import error_name

_CODES: Final = (6, 74, 75)
"""NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH (KIP-320)."""
_SECOND: Final = 1_000_000_000
_ASKING: Final = ("AlterPartitionReassignments", "ElectLeaders")
"""APIs by which programs move leaders."""
_EACH: Final = 3
"""A client may be refused this often at each move."""
MAX_SPANS: Final = 1 << 18
"""Maximum number of seconds, over all clients, in which a client was refused or asked for metadata."""


class NotLeaderThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `NotLeader`."""

    at_least: Annotated[int, Meta(ge=1, description="Consecutive refusals of a client that count as a loop …")] = 5
    lasting: Annotated[Duration, Meta(ge=0, description="… if they last for this long: a warning.")] = 5_000_000_000
    stuck: Annotated[Duration, Meta(ge=0, description="A loop of this duration is an error.")] = 60_000_000_000
    moves: Annotated[int, Meta(ge=2, description="Report a partition whose leader moved this often …")] = 4
    apart: Annotated[Duration, Meta(ge=0, description="… at intervals of at most this on average: a warning.")] = (
        60_000_000_000
    )
    pause: Annotated[
        Duration, Meta(ge=1, description="Longest pause between refusals that belong together (whole seconds).")
    ] = 10_000_000_000


class NotLeader(Detector[NotLeaderThresholds]):
    """Partitions refused because another broker leads them, or an old leader epoch; leaders that move again and again.

    One refusal followed by a Metadata request is how clients learn about a new leader (a note). A client that is
    refused for several seconds has stale metadata. If leaders move again and again, one finding names the partitions,
    the brokers, and who asks for it; clients that are refused no more often are not reported.

    Caveats: a client whose partitions move one after the other looks the same, and so, briefly, does the election of a
    KRaft controller (`__cluster_metadata`). Without leader epochs (Metadata before version 7), several moves between
    two Metadata responses of a broker count as one.
    """

    name: ClassVar[str] = "not-leader"
    summary: ClassVar[str] = "Requests to brokers that do not lead the partition, and loops of stale metadata."
    parameters_type = NotLeaderThresholds
    bodies: ClassVar[Bodies] = {("response", "Metadata"): None}
    error_bodies = True
    parts_clusters = True

    _movers = Tally("movers", (*CLIENT, *CLUSTER), sums=_ASKING)
    _refused = Tally("refused", (*CLIENT, *CLUSTER), sums=tuple(f"code_{code}" for code in _CODES))

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", *CLIENT_COLUMNS, *CLUSTER_COLUMNS, "error_count", "partitions", "response_body")
        return {"exchanges": TableReading((*ORDER, *own))}

    def shapes(self) -> Mapping[str, Shape]:
        counted: Any = tuple((name, pa.int64(), "sum") for name in ("refused", "metadata"))
        return {
            **super().shapes(),
            **terms_shapes(),
            "topics": Shape(keys=(*CLIENT, *CLUSTER, ("topic", pa.string()))),
            # Seconds in which a client only asked for metadata have no weight and are dropped first.
            "seconds": Shape(
                keys=(("second", pa.int64()), *CLIENT, *CLUSTER), measures=counted, weight="refused", bound=MAX_SPANS
            ),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        add_terms(self, batch)
        moving = only(batch, in_any(batch, "api", _ASKING))
        asks = {api: in_any(moving, "api", [api]).cast(pa.int64()) for api in _ASKING}
        self._movers.add(self, moving, {**clients(moving), **clusters(moving)}, column(moving, "api"), **asks)
        asked = only(batch, in_any(batch, "api", ["Metadata"]))
        self._seconds(asked, "metadata")
        batch = only(batch, pc.greater(column(batch, "error_count"), 0))
        rows = batch.append_column("row", pa.array(np.arange(batch.num_rows)))
        parts = named(exploded(rows, ["row", *CLIENT_COLUMNS, *CLUSTER_COLUMNS]))
        parts = only(parts, pc.is_in(column(parts, "error_code"), value_set=pa.array(_CODES, pa.int32())))
        if not parts.num_rows:
            return
        self.parts["topics"].add({**clients(parts), **clusters(parts), "topic": column(parts, "topic")})
        places, firsts = np.unique(column(parts, "row").to_numpy(), return_index=True)
        refused = batch.take(pa.array(places))
        codes = column(parts, "error_code").take(pa.array(firsts))
        keys = {**clients(refused), **clusters(refused)}
        names = pa.array([error_name(code) for code in _CODES], pa.string())
        notes = names.take(pc.index_in(codes, value_set=pa.array(_CODES, codes.type)))
        counts = {f"code_{code}": pc.equal(codes, code).cast(pa.int64()) for code in _CODES}
        self._refused.add(self, refused, keys, notes, **counts)
        self._seconds(refused, "refused")

    def _seconds(self, batch: pa.RecordBatch, what: str) -> None:
        zeros, ones = np.zeros(batch.num_rows, np.int64), np.ones(batch.num_rows, np.int64)
        self.parts["seconds"].add(
            {
                "second": floor_divided(column(batch, "time_ns"), _SECOND),
                **clients(batch),
                **clusters(batch),
                **{"refused": zeros, "metadata": zeros, what: ones},
            }
        )

    def findings(self) -> Iterator[Finding]:
        topics: dict[tuple[Any, ...], list[str]] = {}
        for row in self.resolved("topics").to_pylist():
            topics.setdefault(_place(row), []).append(row["topic"] or "")
        seconds: dict[tuple[Any, ...], list[tuple[int, int, int]]] = {}
        for row in self.resolved("seconds").sort_by("second").to_pylist():
            if row["second"] is not None:
                seconds.setdefault(_place(row), []).append((row["second"], row["refused"], row["metadata"]))
        moving: dict[str | None, list[Moves]] = {}
        for one in moves(self.resolved("terms")):
            if one.count >= self.thresholds.moves and one.last - one.first <= one.count * self.thresholds.apart:
                moving.setdefault(one.cluster, []).append(one)
        explained: dict[str | None, list[tuple[dict[str, Any], tuple[Evidence, ...]]]] = {}
        rest = []
        for row, evidence in self._refused.rows(self):
            names_of = {*topics.get(_place(row), ())}
            mine = [one for one in moving.get(row["cluster"], ()) if one.topic in names_of]
            often = _EACH * sum(one.count for one in mine)
            if {one.topic for one in mine} == names_of and row["count"] <= often:
                explained.setdefault(row["cluster"], []).append((row, evidence))
            else:
                rest.append((row, evidence))
        for cluster, moved in moving.items():
            yield self._moving(cluster, moved, explained.get(cluster, []))
        for row, evidence in rest:
            place = _place(row)
            loop = max(_loops(seconds.get(place, ()), self.thresholds.pause // _SECOND), default=(0, 0, 0))
            names = sorted(topics.get(place, []))
            yield self._finding(row, evidence, names, loop)

    def _moving(
        self,
        cluster: str | None,
        moved: list[Moves],
        refused: list[tuple[dict[str, Any], tuple[Evidence, ...]]],
    ) -> Finding:
        moved = sorted(moved, key=lambda one: (-one.count, one.topic, one.partition))
        count = sum(one.count for one in moved)
        brokers = sorted({leader for one in moved for leader in one.leaders})
        first, last = min(one.first for one in moved), max(one.last for one in moved)
        partitions = [f"{one.topic}-{one.partition}" for one in moved]
        who = f"; {plural(len(refused), 'client')} refused {sum(row['count'] for row, _ in refused):,} times"
        asking = [
            (row, evidence)
            for row, evidence in self._movers.rows(self)
            if row["cluster"] == cluster and row["count"] >= self.thresholds.moves
        ]
        title = (
            f"leaders of {some(partitions)} moved {count:,} times{span(first, last)} between brokers {some(brokers)}"
            f"{in_cluster(self.clusters, cluster)}{who if refused else ''}"
        )
        advice = (
            "Find out why: brokers that lose their session with the controller (broker-gone, late-answers, "
            "broker.session.timeout.ms), or a tool that reassigns partitions or elects leaders."
        )
        if asking:
            apis = [f"{row[api]:,} {api}" for row, _ in asking[:1] for api in _ASKING if row[api]]
            asks = f"{client(asking[0][0])} asks for it ({' and '.join(apis)} requests)"
            title = f"{title}; {asks}"
            advice = (
                "Stop the program that asks for it, or make it slower: a balancer whose goals contradict each other."
            )
        shown = [one for _, evidence in (*asking, *refused) for one in evidence]
        return self.finding(
            "warning",
            title,
            meaning=(
                "At each move, clients are refused, ask for metadata and send their requests again; transactions and "
                "consumers wait. With acks=1, records that the new leader did not have are lost."
            ),
            advice=advice,
            subject={
                "client_id": None,
                "client_ip": None,
                "topic": moved[0].topic if len({one.topic for one in moved}) == 1 else None,
                **({"cluster": cluster} if cluster is not None else {}),
                "trouble": "moves",
            },
            count=count,
            first=first,
            last=last,
            evidence=tuple(sorted(shown, key=lambda one: one.time_ns or 0)[:MAX_EVIDENCE]),
            values={"moves": count, "partitions": partitions[:MAX_TOPICS], "brokers": brokers},
        )

    def _finding(self, row: dict[str, Any], evidence: Any, topics: list[str], loop: tuple[int, int, int]) -> Finding:
        lasted, refused, asked = loop
        lasts = lasted * _SECOND
        where = in_cluster(self.clusters, row["cluster"])
        what = f"{plural(row['count'], 'request')} of {client(row)}{where} for {some(topics)}"
        title = f"{what} refused with {_named(row)}"
        # Brokers and controllers learn leaders from each other, not from Metadata requests.
        inside = is_broker(row["client_id"], ())
        severity: Severity = "note"
        if refused >= self.thresholds.at_least and lasts >= self.thresholds.lasting:
            severity = "error" if lasts >= self.thresholds.stuck else "warning"
            how = (
                f"though it asked for metadata {plural(asked, 'time')}" if asked else "and it never asked for metadata"
            )
            title = f"{title}, {refused:,} of them in a row within {elapsed(lasts)}"
            if not inside:
                title = f"{title}, {how}"
            meaning = (
                "Brokers or controllers disagree about the leader, or none is elected. Until that is resolved, the "
                "follower gets no data."
                if inside
                else (
                    "The client keeps sending to the wrong broker: it does not refresh its metadata, or brokers name "
                    "a leader that does not know it is the leader. Its requests wait all that time."
                )
            )
            advice = (
                "Find out why the election takes so long: nodes that are down, slow, or cannot reach each other."
                if inside
                else (
                    "Compare the leader in the Metadata responses in between with the broker that refuses; the "
                    "metadata of a broker may lag behind the controller's. Otherwise check the client's "
                    "metadata.max.age.ms and its version."
                )
            )
        else:
            meaning = "A leader has moved or is not elected yet, and the client learned it from the refusal. " + (
                "It then finds the new one." if inside else "It then refreshes its metadata."
            )
            advice = "Nothing if leaders moved on purpose; otherwise find out why (broker restarts, lost sessions)."
        return self.row_finding(
            row,
            evidence,
            severity,
            title,
            meaning=meaning,
            advice=advice,
            subject=("client_id", "client_ip"),
            values={"topics": topics[:MAX_TOPICS], "lasted_s": lasted, "in_a_row": refused, "metadata_requests": asked},
        )


def _named(row: Mapping[str, Any]) -> str:
    """`NOT_LEADER_OR_FOLLOWER (3) and FENCED_LEADER_EPOCH (1)`; a single one without its count."""
    counts = {error_name(code): row[f"code_{code}"] for code in _CODES if row[f"code_{code}"]}
    if len(counts) == 1:
        return str(next(iter(counts)))
    return " and ".join(f"{name} ({count:,})" for name, count in counts.items())


def _place(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return (row["client_id"], row["client_ip"], row["cluster"])


MAX_TOPICS: Final = 20
"""Maximum number of topics in the values of a finding."""


def _loops(seconds: Sequence[tuple[int, int, int]], pause: int) -> Iterator[tuple[int, int, int]]:
    """Stretches of refusals without a longer pause: seconds, refusals, and Metadata requests in between."""
    start = last = None
    refused = asked = waiting = 0
    for second, more, metadata in seconds:
        if not more:
            waiting += metadata
            continue
        if last is None or start is None or second - last > pause:
            if start is not None and last is not None:
                yield last - start, refused, asked
            start, refused, asked, waiting = second, 0, 0, 0
        refused += more
        asked += waiting + metadata
        waiting, last = 0, second
    if start is not None and last is not None:
        yield last - start, refused, asked
