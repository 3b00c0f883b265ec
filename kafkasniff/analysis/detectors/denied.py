"""Access that brokers deny, by principal and resource."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.between_brokers import is_broker, is_work
from kafkasniff.analysis.columns import ORDER, column, encoded, first_of_each, in_any, matches, missing, only
from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.analysis.detectors.finding import Evidence, Finding
from kafkasniff.analysis.detectors.tally import CLIENT, CLIENT_COLUMNS, Row, Tally, clients, in_all
from kafkasniff.analysis.detectors.wording import client, plural, quoted, some
from kafkasniff.analysis.error_causes import CAUSE_COLUMNS, Cause, causes_of
from kafkasniff.analysis.partials import Shape
from kafkasniff.kafka.schema.codes import error_by_name

MAX_NAMES: Final = 20
"""Maximum number of names in a finding's values."""
SHOWN: Final = 3
"""Clients that a finding's meaning lists."""
MAX_RESOURCES: Final = 1 << 17
"""Maximum number of resources of connections that are kept, the most frequent."""
MAX_PRINCIPALS: Final = 1 << 18
"""Maximum number of connections whose principal is kept, the earliest."""
SETTLES_NS: Final = 1_000_000_000
"""Brokers do not learn of new ACLs at the same time, but within this time."""
_KINDS: Final = {
    "TOPIC_AUTHORIZATION_FAILED": "topic",
    "GROUP_AUTHORIZATION_FAILED": "group",
    "CLUSTER_AUTHORIZATION_FAILED": "cluster",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "transactional id",
    "DELEGATION_TOKEN_AUTHORIZATION_FAILED": "delegation token",
}
"""Kinds of resources by error."""
_ERRORS: Final = {found.code: found for name in _KINDS if (found := error_by_name(name)) is not None}
DENIED: Final = frozenset(_ERRORS)
"""Codes of denials."""
_NUMBERS: Final = rf":\s*(?:{'|'.join(map(str, sorted(DENIED)))})\b"
_FIELDS: Final = {"group": ("group_id", "key"), "transactional id": ("transactional_id", "key")}
"""Fields of a response that name a resource of a kind."""
_DENIAL: Final = (*CLIENT, ("connection", pa.int64()), ("api", pa.string()), ("error_code", pa.int64()))
_NAMED: Final = (*_DENIAL, ("resource", pa.string()))
_ALLOWED: Final = (*CLIENT, ("api", pa.string()), ("topic", pa.string()), ("group_id", pa.string()))
_USES: Final = (
    *("Produce", "Fetch", "ShareFetch", "OffsetCommit", "OffsetFetch", "Heartbeat", "ConsumerGroupHeartbeat"),
    *("ShareGroupHeartbeat", "StreamsGroupHeartbeat", "TxnOffsetCommit"),
)
"""APIs that programs use again and again: their successes show that the client had the right before or after."""


class DeniedThresholds(Parameters, frozen=True, kw_only=True):
    """No thresholds."""


class Denied(Detector[DeniedThresholds]):
    """Requests that a broker denies for lack of rights. Principals, or clients, denied the same things are one case.

    If the same client used a resource before, its rights were taken away; if it did so in between, they change again
    and again.

    Caveats: requests by topic id get UNKNOWN_TOPIC_ID instead for topics that the principal may not describe. The
    principal is unknown if its authentication is not in the capture, or is not SASL. A client that comes back as
    another user looks as if its rights had changed.
    """

    name: ClassVar[str] = "denied"
    summary: ClassVar[str] = "Access that ACLs deny."
    parameters_type = DeniedThresholds
    error_bodies = True

    _denials = Tally("denials", _DENIAL)

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", *CLIENT_COLUMNS, "group_id", "transactional_id", "topics")
        return {
            "exchanges": TableReading((*ORDER, *own, *CAUSE_COLUMNS)),
            "connections": TableReading(("connection_id", "time_ns", "principal"), optional=True),
        }

    def shapes(self) -> Mapping[str, Shape]:
        keys = (("connection_id", pa.int64()), ("time_ns", pa.int64()), ("principal", pa.string()))
        order = ("time_ns", "connection_id")
        return {
            **self._denials.shapes(),
            "resources": Shape(
                keys=_NAMED, measures=(("count", pa.int64(), "sum"),), weight="count", bound=MAX_RESOURCES
            ),
            "allowed": Shape(
                keys=_ALLOWED,
                measures=(("first", pa.int64(), "min"), ("last", pa.int64(), "max"), ("count", pa.int64(), "sum")),
                weight="count",
                bound=MAX_RESOURCES,
            ),
            "principals": Shape(keys=keys, order=order, keep="earliest", bound=MAX_PRINCIPALS),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        if table == "connections":
            batch = only(batch, pc.is_valid(column(batch, "principal")))
            self.parts["principals"].add(
                {name: column(batch, name) for name in self.parts["principals"].shape.schema.names}
            )
            return
        failed = pc.greater(column(batch, "error_count"), 0)
        self._add_allowed(only(batch, pc.and_(in_any(batch, "api", _USES), pc.invert(failed))))
        batch = only(batch, failed)
        # A body is read only if it has the number of a denial somewhere: other errors come by the hundred thousand.
        inside = pc.or_(matches(batch, "response_body", _NUMBERS), missing(batch, "response_body"))
        first = pc.is_in(column(batch, "error_code"), value_set=pa.array(sorted(DENIED), pa.int16()))
        batch = only(batch, pc.or_(inside, first))
        found = list(_denials(batch))
        # Without bodies and lists, which would be copied for each resource.
        narrow = batch.select([*ORDER, "api", *CLIENT_COLUMNS])
        rows = narrow.take(pa.array([row for row, _, _ in found], pa.int64()))
        codes = pa.array([cause.code for _, cause, _ in found], pa.int64())
        keys = {**clients(rows), "connection": column(rows, "connection_id"), "api": encoded(rows, "api")}
        keys["error_code"] = codes
        resources = pa.array([name for _, _, name in found], pa.string())
        self.parts["resources"].add({**keys, "resource": resources, "count": [1] * len(found)})
        # An exchange counts once for each of its codes.
        once = {(row, cause.code): place for place, (row, cause, _) in reversed(list(enumerate(found)))}
        places = pa.array(sorted(once.values()), pa.int64())
        notes = pa.array([quoted(cause.message) if cause.message else "" for _, cause, _ in found], pa.string()).take(
            places
        )
        keys = {name: values.take(places) for name, values in keys.items()}
        self._denials.add(self, rows.take(places), keys, notes)

    def _add_allowed(self, batch: pa.RecordBatch) -> None:
        time = column(batch, "time_ns")
        keys = {name: encoded(batch, name) for name in ("api", "group_id")}
        keys |= {**clients(batch), "topic": first_of_each(column(batch, "topics"))}
        self.parts["allowed"].add({**keys, "first": time, "last": time, "count": np.ones(batch.num_rows, np.int64)})

    def findings(self) -> Iterator[Finding]:
        principals = {row["connection_id"]: row["principal"] for row in self.parts["principals"].table().to_pylist()}
        tallies = [
            ({**row, "principal": principals.get(row["connection"])}, evidence)
            for row, evidence in self._denials.rows(self)
        ]
        resources: dict[tuple[Any, ...], Counter[tuple[str | None, str | None]]] = {}
        for row in self.resolved("resources").to_pylist():
            row["principal"] = principals.get(row["connection"])
            # A topic may be known by its id alone.
            name = row["resource"] if self.names is None else self.names.topic(row["resource"]) or row["resource"]
            resources.setdefault((row["error_code"], *_actor(row)), Counter())[name, row["api"]] += row["count"]
        allowed: dict[tuple[Any, ...], dict[str, tuple[int, int]]] = {}
        for row in self.resolved("allowed").to_pylist():
            topic = row["topic"] if self.names is None else self.names.topic(row["topic"]) or row["topic"]
            for name in {topic, row["group_id"]} - {None}:
                uses = allowed.setdefault((row["client_id"], row["client_ip"], row["api"]), {})
                first, last = uses.get(name, (row["first"], row["last"]))
                if None not in (first, last, row["first"], row["last"]):
                    uses[name] = min(first, row["first"]), max(last, row["last"])
        # Who is denied the same things is one case: an ACL for all of them is missing.
        together: dict[tuple[Any, ...], list[tuple[dict[str, Any], tuple[Evidence, ...]]]] = {}
        for row, evidence in tallies:
            names = resources.get((row["error_code"], *_actor(row)), Counter())
            key = row["error_code"], row["principal"] is None, frozenset(name for name, _ in names)
            together.setdefault(key, []).append((row, evidence))
        for cases in together.values():
            actors = {(row["error_code"], *_actor(row)) for row, _ in cases}
            denials = sum((resources.get(actor, Counter()) for actor in actors), Counter())
            history = _history([row for row, _ in cases], {name for name, _ in denials}, allowed)
            yield self._finding([row for row, _ in cases], denials, history, in_all(cases))

    def _finding(
        self,
        rows: list[dict[str, Any]],
        denials: Counter[tuple[str | None, str | None]],
        history: str | None,
        found: dict[str, Any],
    ) -> Finding:
        """`denials`: exchanges by resource and API; `history`: a key of `_CHANGED`."""
        rows.sort(key=lambda row: (-row["count"], row["first"] or 0, row["connection"]))
        code = rows[0]["error_code"]
        error, kind = _ERRORS[code], _KINDS[_ERRORS[code].name]
        who, apis, ips, ids = (
            list(dict.fromkeys(value for value in values if value is not None))
            for values in (
                (row["principal"] for row in rows),
                (row["api"] for row in rows),
                (row["client_ip"] for row in rows),
                (row["client_id"] for row in rows),
            )
        )
        names = sorted({name for name, _ in denials if name is not None})
        denied_clients = list(dict.fromkeys(map(client, rows)))
        subject = some(who) if who else denied_clients[0]
        if not who and len(denied_clients) > 1:
            subject = plural(len(denied_clients), "client")
        what = "the cluster" if kind == "cluster" else f"{kind}s that the response does not name"
        if names:
            what = f"{kind if len(names) == 1 else f'{kind}s'} {some(names)}"
        count = found["count"]
        message = next((one.note for one in found["evidence"] if one.note), None)
        said = f": {message}" if message else ""
        clients_denied = ""
        if len(denied_clients) > 1:
            shown = ", ".join(denied_clients[:SHOWN])
            more = f" and {len(denied_clients) - SHOWN:,} more" if len(denied_clients) > SHOWN else ""
            clients_denied = f" Clients: {shown}{more}."
        caveat = ""
        if kind == "topic":
            caveat = " Requests by topic id get UNKNOWN_TOPIC_ID instead for topics that it may not describe."
        changed, advice = ("Retrying does not help.", "") if history is None else _CHANGED[history]
        return self.finding(
            "error" if any(is_work(row["api"]) and not is_broker(row["client_id"], ()) for row in rows) else "warning",
            f"{subject} may not use {what}: {error.name} for {some(apis) if apis else 'requests'}, "
            f"{'once' if count == 1 else f'{count:,} times'}{said}",
            meaning=f"{error.name}: {error.meaning}.{clients_denied} {changed}{caveat}",
            advice=advice or f"{error.advice}.",
            subject={
                "principal": _only(who),
                "client_ip": _only(ips),
                "client_id": _only(ids),
                "resource_type": kind,
                "resource": _only(names),
                "api": _only(apis),
                "error": error.name,
            },
            **found,
            values={
                "principals": who[:MAX_NAMES],
                "clients": len(denied_clients),
                "worst_clients": denied_clients[:MAX_NAMES],
                **({} if history is None else {"changed": history}),
                "resources": names[:MAX_NAMES],
                "apis": apis[:MAX_NAMES],
                "denials": [
                    {"resource": name, "api": api, "exchanges": number}
                    for (name, api), number in sorted(denials.items(), key=lambda one: (-one[1], *map(str, one[0])))
                ][:MAX_NAMES],
            },
        )


_CHANGED: Final = {
    "revoked": (
        "The same client was allowed this before, so the right was taken away while it ran.",
        "Find out who removed the ACL or added one that denies (the broker's kafka-authorizer.log, `kafka-acls "
        "--list`), and give the right back, or stop the client.",
    ),
    "flapping": (
        "The same client was allowed this before and again after a denial, so the right comes and goes.",
        "Find out what changes the ACLs (the broker's kafka-authorizer.log): usually two tools that manage them, each "
        "of which removes what the other one adds, or one that deletes them all and creates them again.",
    ),
    "granted": (
        "The same client was allowed this later, so the right was given meanwhile.",
        "Create ACLs before the programs that need them start; many end at the first denial.",
    ),
}
"""How the rights of a client changed: what it means, and what to do."""


def _history(
    denials: Iterable[Row], names: Set[str | None], allowed: Mapping[tuple[Any, ...], Mapping[str, tuple[int, int]]]
) -> str | None:
    """A key of `_CHANGED`; `allowed`: by client and API, when it was allowed to use things, first and last."""
    denied: dict[tuple[Any, ...], int] = {}
    for row in denials:
        if row["first"] is not None:
            key = row["client_id"], row["client_ip"], row["api"]
            denied[key] = min(row["first"], denied.get(key, row["first"]))
    found = set()
    for key, time in denied.items():
        uses = allowed.get(key, {})
        for name in names if len(names) < len(uses) else uses:
            if name is not None and name in names and name in uses:
                first, last = uses[name]
                found.add((first < time, last > time + SETTLES_NS))
    found.discard((False, False))
    if (True, True) in found:
        return "flapping"
    return "revoked" if (True, False) in found else "granted" if found else None


def _actor(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Who is denied: the principal, else the client."""
    return (row["principal"],) if row["principal"] is not None else (row["client_ip"], row["client_id"])


def _only(values: list[str]) -> str | None:
    return values[0] if len(values) == 1 else None


def _denials(batch: pa.RecordBatch) -> Iterator[tuple[int, Cause, str | None]]:
    """Row, error, and the name of the resource that was denied, each once per row."""
    columns = (column(batch, name).to_pylist() for name in ("topics", "group_id", "transactional_id"))
    causes, number = causes_of(batch)
    for row, (own, topics, group, transaction) in enumerate(zip(number.tolist(), *columns, strict=True)):
        asked = {
            "topic": topics[0] if topics is not None and len(topics) == 1 else None,
            "group": group,
            "transactional id": transaction,
        }
        found: dict[tuple[int, str | None], Cause] = {}
        for cause in causes[own]:
            if cause.code in DENIED:
                kind = _KINDS[_ERRORS[cause.code].name]
                name = cause.topic if kind == "topic" else cause.name if cause.field in _FIELDS.get(kind, ()) else None
                found.setdefault((cause.code, name or asked.get(kind)), cause)
        for (_, resource), cause in found.items():
            yield row, cause, resource
