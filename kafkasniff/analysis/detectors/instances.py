"""Programs with the same name in a group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import ORDER, column, in_any, only
from kafkasniff.analysis.detectors.detector import Effect, united
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence, Finding
from kafkasniff.analysis.detectors.rebalances import (
    FENCED_INSTANCE_ID,
    GroupDetector,
    GroupKey,
    Row,
    client_names,
    group_subject,
)
from kafkasniff.analysis.detectors.tally import (
    CLIENT,
    CLIENT_COLUMNS,
    CLUSTER,
    CLUSTER_COLUMNS,
    Tally,
    clients,
    clusters,
)
from kafkasniff.analysis.detectors.wording import plural, some
from kafkasniff.analysis.group_history import GROUP_APIS
from kafkasniff.analysis.partials import Shape
from kafkasniff.kafka.schema.codes import error_name
from kafkasniff.text.printable import word

UNRELEASED_INSTANCE_ID: Final = 111
_INSTANCE_CODES: Final = (FENCED_INSTANCE_ID, UNRELEASED_INSTANCE_ID)
_MEMBER: Final = (("group_id", pa.string()), ("member_id", pa.string()))
_OF_MEMBERS: Final = (*GROUP_APIS, "OffsetCommit", "TxnOffsetCommit")


class SharedInstanceThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `SharedInstances`."""

    at_least: Annotated[int, Meta(ge=1, description="Report a group from this many refusals.")] = 1


class SharedInstances(GroupDetector):
    """Programs that use the same `group.instance.id` in a group at the same time (KIP-345).

    In the classic protocol, the newer member fences the older one (FENCED_INSTANCE_ID). In the newer one, it is refused
    (UNRELEASED_INSTANCE_ID) until the older one has left: this is a note if the older one was not seen since.

    Caveats: a replaced instance that stops a moment later than its successor starts looks the same.
    """

    name: ClassVar[str] = "shared-instances"
    summary: ClassVar[str] = "Programs that share a group.instance.id and shut each other out of their group."
    parameters_type = SharedInstanceThresholds

    _refused = Tally("refused", (*CLIENT, *CLUSTER, *_MEMBER, ("error_code", pa.int64())))

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", "group_id", "member_id", "error_code", "status", *CLIENT_COLUMNS, *CLUSTER_COLUMNS)
        return united(super().reads(), {"exchanges": TableReading((*ORDER, *own), _OF_MEMBERS)})

    def shapes(self) -> Mapping[str, Shape]:
        alive: Any = (("last", pa.int64(), "max"),)
        return {**super().shapes(), "alive": Shape(keys=(*CLUSTER, *_MEMBER), measures=alive, bound=1 << 17)}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        super().update(batch, table)
        named = pc.and_(pc.is_valid(column(batch, "group_id")), pc.is_valid(column(batch, "member_id")))
        batch = only(batch, pc.and_(in_any(batch, "api", _OF_MEMBERS), named))
        code = column(batch, "error_code")
        fine = only(batch, pc.equal(code, 0))
        self.parts["alive"].add({**_member(fine), "last": column(fine, "time_ns")})
        refused = only(batch, pc.is_in(code, value_set=pa.array(_INSTANCE_CODES, code.type)))
        codes = column(refused, "error_code").cast(pa.int64())
        keys = {**clients(refused), **_member(refused), "error_code": codes}
        self._refused.add(self, refused, keys, column(refused, "api"))

    def findings(self) -> Iterator[Finding]:
        refusals = list(self._refused.rows(self))
        if not refusals:
            return
        alive = {(row["cluster"], row["group_id"], row["member_id"]): row["last"] for row in self._rows("alive")}
        events = self._events()
        found: dict[tuple[GroupKey, str | None], list[tuple[Row, tuple[Evidence, ...]]]] = {}
        for row, evidence in refusals:
            group = (row["cluster"], row["group_id"])
            instances = _instances(events.get(group, ()))
            found.setdefault((group, instances.get(row["member_id"])), []).append((row, evidence))
        for (group, instance), rows in found.items():
            if sum(row["count"] for row, _ in rows) < self.thresholds.at_least:
                continue
            known = _instances(events.get(group, ()))
            members = [one for one, name in known.items() if name == instance and instance is not None]
            since = min((row["first"] for row, _ in rows if row["first"] is not None), default=0)
            refused = {row["member_id"] for row, _ in rows}
            fenced = any(row["error_code"] == FENCED_INSTANCE_ID for row, _ in rows)
            # A member that is fenced still runs; one that holds the name of a refused one may be dead.
            both = fenced or any((alive.get((*group, one)) or 0) > since for one in members if one not in refused)
            names = client_names(events.get(group, ()))
            yield self._finding(group, instance, members, rows, names, both=both, fenced=fenced)

    def _rows(self, part: str) -> list[Row]:
        found: list[Row] = self.resolved(part).to_pylist()
        return found

    def _finding(
        self,
        group: GroupKey,
        instance: str | None,
        members: list[str],
        rows: list[tuple[Row, tuple[Evidence, ...]]],
        names: dict[str, str],
        *,
        both: bool,
        fenced: bool,
    ) -> Finding:
        count = sum(row["count"] for row, _ in rows)
        known = [row for row, _ in rows]
        first = min((row["first"] for row in known if row["first"] is not None), default=None)
        last = max((row["last"] for row in known if row["last"] is not None), default=None)
        codes = list(dict.fromkeys(error_name(row["error_code"]) for row in known))
        who = some(list(dict.fromkeys(names.get(one, one) for one in members or [row["member_id"] for row in known])))
        what = "" if instance is None else f" {word(instance)}"
        turns = f" ({len(members):,} members in turn)" if len(members) > 1 else ""
        title = (
            f"{who} share group.instance.id{what} in {self._named(group)}{turns}"
            if both
            else f"group.instance.id{what} of {who} in {self._named(group)} is not released by its last member"
        )
        evidence = sorted((one for _, some in rows for one in some), key=lambda one: one.time_ns or 0)
        return self.finding(
            "error" if both else "note",
            f"{title}: {plural(count, 'request')} refused with {' and '.join(str(one) for one in codes)}",
            meaning=(
                "Two programs that run at the same time have the same name. The coordinator knows only one of them: "
                "the other one is shut out, and stops with a fatal error. "
                + (
                    "If it is started again, it shuts out the first, and each reads records again that the other has "
                    "not committed."
                    if fenced
                    else "It gets no partitions as long as the first one runs."
                )
                if both
                else "The last member of this name ended without leaving; the group waits until its session times out."
            ),
            advice=(
                "Give each program its own group.instance.id, for example the name of its host or pod. If one "
                "instance replaced another, stop the old one before the new one starts."
                if both
                else "Let the program close its consumer when it ends, or shorten the session timeout."
            ),
            subject={**group_subject(group), "instance": instance},
            count=count,
            first=first,
            last=last,
            evidence=tuple(evidence[:MAX_EVIDENCE]),
            values={"members": len(members), "refused": count},
        )

    def effects(self, finding: Finding) -> Iterator[Effect]:
        for code in _INSTANCE_CODES:
            group = {"group_id": finding.subject["group_id"], "cluster": finding.subject.get("cluster")}
            yield "refused-commits", {**group, "error_code": code}


def _member(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    return {**clusters(batch), **{name: column(batch, name) for name, _ in _MEMBER}}


def _instances(events: Sequence[Row]) -> dict[str, str]:
    """Instance ids by member id, in the order of their members."""
    return {event["member_id"]: event["instance"] for event in events if event["member_id"] and event["instance"]}
