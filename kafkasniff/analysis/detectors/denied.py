"""Access that brokers deny, by principal, API and resource."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import ORDER, column, only
from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence, Finding
from kafkasniff.analysis.detectors.tally import CLIENT, CLIENT_COLUMNS, Tally, clients
from kafkasniff.analysis.error_causes import Cause, causes
from kafkasniff.analysis.partials import Shape
from kafkasniff.kafka.schema.errors import error_by_name
from kafkasniff.text.printable import printable

__all__ = ["DENIED", "Denied"]

MAX_PRINCIPALS: Final = 1 << 18
"""Maximum number of connections whose principal is kept, the earliest."""
_KINDS: Final = {
    "TOPIC_AUTHORIZATION_FAILED": "topic",
    "GROUP_AUTHORIZATION_FAILED": "group",
    "CLUSTER_AUTHORIZATION_FAILED": "cluster",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "transactional id",
    "DELEGATION_TOKEN_AUTHORIZATION_FAILED": "delegation token",
}
"""Kinds of resources by error."""
_ERRORS: Final = {found.code: name for name in _KINDS if (found := error_by_name(name)) is not None}
DENIED: Final = frozenset(_ERRORS)
"""Codes of denials."""
_FIELDS: Final = {"group": ("group_id", "key"), "transactional id": ("transactional_id", "key")}
"""Fields of a response that name a resource of a kind."""
_DENIAL: Final = (
    *CLIENT,
    ("connection", pa.int64()),
    ("api", pa.string()),
    ("error_code", pa.int64()),
    ("topic", pa.string()),
    ("resource", pa.string()),
)


class DeniedThresholds(Parameters, frozen=True, kw_only=True):
    """No thresholds."""


class Denied(Detector[DeniedThresholds]):
    """Requests that a broker denies for lack of rights, by principal, API and resource.

    Caveats: requests by topic id get UNKNOWN_TOPIC_ID instead for topics that the principal may not describe. The
    principal is unknown if its authentication is not in the capture, or is not SASL.
    """

    name: ClassVar[str] = "denied"
    summary: ClassVar[str] = "Access that ACLs deny."
    parameters_type = DeniedThresholds
    error_bodies = True

    _denials = Tally("denials", _DENIAL)

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", "api_key", *CLIENT_COLUMNS, "group_id", "transactional_id", "topics")
        more = ("error_code", "error_count", "partitions", "response_body")
        return {
            "exchanges": TableReading((*ORDER, *own, *more)),
            "connections": TableReading(("connection_id", "time_ns", "principal"), optional=True),
        }

    def shapes(self) -> Mapping[str, Shape]:
        keys = (("connection_id", pa.int64()), ("time_ns", pa.int64()), ("principal", pa.string()))
        order = ("time_ns", "connection_id")
        return {
            **self._denials.shapes(),
            "principals": Shape(keys=keys, order=order, keep="earliest", bound=MAX_PRINCIPALS),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        if table == "connections":
            batch = only(batch, pc.is_valid(column(batch, "principal")))
            self.parts["principals"].add(
                {name: column(batch, name) for name in self.parts["principals"].shape.schema.names}
            )
            return
        batch = only(batch, pc.greater(column(batch, "error_count"), 0))
        # Errors are rare, so they are handled one by one.
        found = list(_denials(batch))
        rows = batch.take(pa.array([row for row, _, _, _ in found], pa.int64()))
        keys = {
            **clients(rows),
            "connection": column(rows, "connection_id"),
            "api": column(rows, "api"),
            "error_code": pa.array([code for _, code, _, _ in found], pa.int64()),
            "topic": pa.array([topic for _, _, topic, _ in found], pa.string()),
            "resource": pa.array([name for _, _, _, name in found], pa.string()),
        }
        self._denials.add(self, rows, keys)

    def findings(self) -> Iterator[Finding]:
        principals = {row["connection_id"]: row["principal"] for row in self.parts["principals"].table().to_pylist()}
        together: dict[tuple[Any, ...], tuple[list[dict[str, Any]], list[Evidence]]] = {}
        for row, evidence in self._denials.rows(self):
            resource = row["topic"] if row["resource"] is None else row["resource"]
            who = principals.get(row["connection"]), row["client_ip"], row["client_id"]
            rows, shown = together.setdefault((row["error_code"], resource, row["api"], *who), ([], []))
            rows.append(row)
            shown.extend(evidence)
        for key, (rows, shown) in together.items():
            yield self._finding(key, rows, shown)

    def _finding(self, key: tuple[Any, ...], rows: list[dict[str, Any]], shown: list[Evidence]) -> Finding:
        code, resource, api, principal, client_ip, client_id = key
        error = _ERRORS[code]
        kind = _KINDS[error]
        who = f"a client at {client_ip or 'an unknown address'}" if principal is None else printable(principal)
        what = "the cluster" if kind == "cluster" else f"a {kind}"
        if resource is not None:
            what = f"{kind} {printable(resource)}"
        count = sum(row["count"] for row in rows)
        times = "once" if count == 1 else f"{count:,} times"
        begin = [row["first"] for row in rows if row["first"] is not None]
        end = [row["last"] for row in rows if row["last"] is not None]
        shown.sort(key=lambda one: (one.time_ns or 0, one.connection_id, one.exchange_id or 0))
        return self.finding(
            "warning",
            f"{who} may not use {what}: {error} for {api or 'a request'}, {times}",
            meaning="An ACL is missing, or the client should not try. Requests by topic id get UNKNOWN_TOPIC_ID "
            "instead for topics that the principal may not describe.",
            advice="Grant the operation with kafka-acls.sh, or fix the client's configuration.",
            subject={
                "principal": principal,
                "client_ip": client_ip,
                "client_id": client_id,
                "resource_type": kind,
                "resource": resource,
                "api": api,
                "error": error,
            },
            count=count,
            first=min(begin, default=None),
            last=max(end, default=None),
            evidence=tuple(shown[:MAX_EVIDENCE]),
        )


def _denials(batch: pa.RecordBatch) -> Iterator[tuple[int, int, str | None, str | None]]:
    """Row, code, and the topic or the name of another resource that was denied, each once per row."""
    names = ("api_key", "error_code", "partitions", "response_body", "topics", "group_id", "transactional_id")
    rows = zip(*(column(batch, name).to_pylist() for name in names), strict=True)
    for row, (api_key, first, partitions, body, topics, group, transaction) in enumerate(rows):
        found = [
            Cause(one["error_code"], one["topic"] or one["topic_id"], partition=True)
            for one in partitions or ()
            if one["error_code"] in DENIED
        ]
        if body is not None and api_key is not None:
            found += [one for one in causes(api_key, msgspec.json.decode(body)) if one.code in DENIED]
        elif not found and first in DENIED:
            found = [Cause(first)]
        asked = {
            "topic": topics[0] if topics is not None and len(topics) == 1 else None,
            "group": group,
            "transactional id": transaction,
        }
        seen: dict[tuple[int, str | None, str | None], None] = {}
        for one in found:
            kind = _KINDS[_ERRORS[one.code]]
            if kind == "topic":
                seen[one.code, one.topic or asked["topic"], None] = None
            else:
                own = one.name if one.field in _FIELDS.get(kind, ()) and one.name else None
                seen[one.code, None, own or asked.get(kind)] = None
        for code, topic, name in seen:
            yield row, code, topic, name
