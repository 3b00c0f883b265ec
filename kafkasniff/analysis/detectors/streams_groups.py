"""Streams groups (KIP-1071) whose coordinator reports that they cannot process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import ORDER, column, in_any, only
from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.analysis.detectors.finding import Evidence, Finding, Severity
from kafkasniff.analysis.detectors.tally import CLUSTER, CLUSTER_COLUMNS, Tally, clusters
from kafkasniff.analysis.detectors.wording import in_cluster, quoted
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.partials import Shape
from kafkasniff.engine.roles import Bodies
from kafkasniff.text.printable import word

_API: Final = "StreamsGroupHeartbeat"
_GROUP: Final = (*CLUSTER, ("group_id", pa.string()))
_LEAVES: Final = r'"member_epoch":-'
MAX_STATUSES: Final = 1 << 12
"""Maximum number of different statuses and lists of them that are kept."""


class _Trouble(msgspec.Struct, frozen=True):
    """What a status means."""

    title: str
    meaning: str
    advice: str
    passes: bool = False
    """It is usual for a short time: while a group starts, or a new version is rolled out."""


_TROUBLES: Final[Mapping[int, _Trouble]] = {
    0: _Trouble(
        "runs members with an older topology (STALE_TOPOLOGY)",
        "Members with an older topology than the group's get no new tasks.",
        "Restart the instances that still run the older version of the program.",
        passes=True,
    ),
    1: _Trouble(
        "lacks source topics (MISSING_SOURCE_TOPICS)",
        "The topology reads topics that do not exist, so no member gets tasks. Clients stop with an exception.",
        "Create the topics, or correct their names in the program; then start the instances again.",
    ),
    2: _Trouble(
        "reads topics whose numbers of partitions do not fit (INCORRECTLY_PARTITIONED_TOPICS)",
        "Topics that the topology joins need the same number of partitions, and internal topics the number that the "
        "topology derives. No member gets tasks, and clients stop with an exception.",
        "Give the topics the same number of partitions, or repartition one of them in the topology. Reset the "
        "application (kafka-streams-application-reset) if its internal topics have the wrong number.",
    ),
    3: _Trouble(
        "lacks its internal topics (MISSING_INTERNAL_TOPICS)",
        "Repartition or changelog topics do not exist, and the brokers have not created them. No member gets tasks.",
        "Find out why they cannot be created: the detail, rights to create topics, replication.factor of the "
        "application, or the coordinator's log.",
        passes=True,
    ),
    4: _Trouble(
        "is shut down by one of its members (SHUTDOWN_APPLICATION)",
        "The exception handler of an instance asked all instances to stop.",
        "Look for the exception in the log of the first instance that stopped, and solve its cause before a restart.",
    ),
}
"""ASSIGNMENT_DELAYED (5) is the usual wait for further members, MISSING_CLIENT_TAGS (6) concerns standby tasks only."""


class _Status(msgspec.Struct):
    status_code: int
    status_detail: Any = None


class _Body(msgspec.Struct):
    status: list[_Status] | None = None


_BODY: Final = msgspec.json.Decoder(_Body)


class BlockedStreamsGroupThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `BlockedStreamsGroups`."""

    lasting: Annotated[
        Duration, Meta(ge=0, description="STALE_TOPOLOGY and MISSING_INTERNAL_TOPICS are a note up to this duration.")
    ] = 15_000_000_000


class BlockedStreamsGroups(Detector[BlockedStreamsGroupThresholds]):
    """Streams groups (KIP-1071) that cannot process: reported as statuses in heartbeats, without an error code.

    A group that lacks topics, or whose topics do not fit together, gets no tasks. It is a warning if a later heartbeat
    has the status no longer, otherwise an error.

    Caveats: a group that starts, or a new version that is rolled out, has some of these statuses for a short time.
    """

    name: ClassVar[str] = "blocked-streams-groups"
    summary: ClassVar[str] = (
        "Streams groups that cannot process: missing topics, partitions that do not fit, shutdowns."
    )
    parameters_type = BlockedStreamsGroupThresholds
    bodies: ClassVar[Bodies] = {("response", _API): None}
    parts_clusters = True

    _statuses = Tally("statuses", (*_GROUP, ("code", pa.int64()), ("detail", pa.string())), bound=MAX_STATUSES)

    def reads(self) -> Mapping[str, TableReading]:
        return {"exchanges": TableReading((*ORDER, "api", "group_id", *CLUSTER_COLUMNS, "response_body"), (_API,))}

    def shapes(self) -> Mapping[str, Shape]:
        keys = (*_GROUP, ("codes", pa.string()))
        last: Any = ("last", pa.int64(), "max")
        return {**super().shapes(), "lists": Shape(keys=keys, measures=(last,), bound=MAX_STATUSES)}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        batch = only(batch, pc.and_(in_any(batch, "api", [_API]), pc.is_valid(column(batch, "group_id"))))
        # Members that leave get an empty list.
        batch = only(batch, pc.invert(pc.match_substring_regex(column(batch, "response_body"), _LEAVES)))
        decoded = [_statuses(body) for body in column(batch, "response_body").to_pylist()]
        lists = [one for one in decoded if one is not None]
        batch = only(batch, pa.array([one is not None for one in decoded], pa.bool_()))
        self.parts["lists"].add(
            {
                **clusters(batch),
                "group_id": column(batch, "group_id"),
                "codes": pa.array([_codes(one) for one in lists], pa.string()),
                "last": column(batch, "time_ns"),
            }
        )
        found = [(row, one) for row, some in enumerate(lists) for one in some if one.status_code in _TROUBLES]
        batch = batch.select([*ORDER, "group_id", *CLUSTER_COLUMNS]).take(
            pa.array([row for row, _ in found], pa.int64())
        )
        keys = {
            **clusters(batch),
            "group_id": column(batch, "group_id"),
            "code": pa.array([one.status_code for _, one in found], pa.int64()),
            "detail": pa.array([_detail(one) for _, one in found], pa.string()),
        }
        self._statuses.add(self, batch, keys)

    def findings(self) -> Iterator[Finding]:
        lists = self.resolved("lists").to_pylist()
        cases: dict[tuple[Any, ...], list[tuple[dict[str, Any], tuple[Evidence, ...]]]] = {}
        for row, evidence in self._statuses.rows(self):
            cases.setdefault((row["cluster"], row["group_id"], row["code"]), []).append((row, evidence))
        for (*group, code), rows in cases.items():
            without = (
                one["last"] or 0
                for one in lists
                if [one["cluster"], one["group_id"]] == group and str(code) not in one["codes"].split()
            )
            yield self._finding(rows, solved_at=max(without, default=0))

    def _finding(self, rows: list[tuple[dict[str, Any], tuple[Evidence, ...]]], solved_at: int) -> Finding:
        """`rows`: of one status of a group, by details; `solved_at`: when a list was last without it."""
        row, evidence = max(rows, key=lambda one: (one[0]["last"] or 0, one[0]["detail"]))
        trouble = _TROUBLES[row["code"]]
        first = min((one["first"] for one, _ in rows if one["first"] is not None), default=None)
        last = max((one["last"] for one, _ in rows if one["last"] is not None), default=None)
        solved = solved_at > (last or 0)
        lasted = (last or 0) - (first or 0)
        severity: Severity = "warning" if solved else "error"
        if trouble.passes and lasted < self.thresholds.lasting:
            severity = "note"
        until = ", but not at the end" if solved else ""
        return self.finding(
            severity,
            f"Streams group {word(row['group_id'])}{in_cluster(self.clusters, row['cluster'])} {trouble.title}{until}"
            + (f": {quoted(row['detail'])}" if row["detail"] else ""),
            meaning=trouble.meaning,
            advice=trouble.advice,
            subject={"group_id": row["group_id"], "status": row["code"]},
            count=sum(one["count"] for one, _ in rows),
            first=first,
            last=last,
            evidence=evidence,
            values={"solved": solved, "lasted_ms": lasted / 1_000_000},
        )


def _statuses(body: str) -> list[_Status] | None:
    """None if the body is cut off."""
    try:
        return _BODY.decode(body).status or []
    except msgspec.DecodeError:
        return None


def _codes(statuses: list[_Status]) -> str:
    return " ".join(str(code) for code in sorted({one.status_code for one in statuses}))


def _detail(status: _Status) -> str:
    return status.status_detail if isinstance(status.status_detail, str) else ""
