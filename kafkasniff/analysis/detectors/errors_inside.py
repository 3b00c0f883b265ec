"""Errors inside responses whose own error code reports success."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.between_brokers import is_broker
from kafkasniff.analysis.columns import ORDER, column, only
from kafkasniff.analysis.detectors.denied import DENIED
from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.analysis.detectors.finding import Evidence, Finding, Severity
from kafkasniff.analysis.detectors.tally import (
    CLIENT,
    CLIENT_COLUMNS,
    CLUSTER,
    CLUSTER_COLUMNS,
    Tally,
    clients,
    clusters,
)
from kafkasniff.analysis.detectors.wording import client, in_cluster, plural, quoted, shortened, some, subject
from kafkasniff.analysis.error_causes import Cause, carries_messages, causes
from kafkasniff.analysis.partials import Shape
from kafkasniff.kafka.schema.errors import error_by_code, error_meaning
from kafkasniff.text.printable import word

__all__ = ["HiddenErrors"]

_DATA_APIS: Final = frozenset({"Produce", "Fetch", "ShareFetch", "OffsetCommit", "TxnOffsetCommit", "ShareAcknowledge"})
"""APIs that move data or positions: what they permanently refuse is lost, or done twice."""
_RIGHTS: Final = frozenset({54})
"""SECURITY_DISABLED."""
_ELSEWHERE: Final = DENIED | {6, 10, 18, 22, 25, 27, 45, 46, 47, 59, 74, 75, 82, 90, 110, 113}
"""Codes that other detectors report: of denials, leaders, sizes, group members, sequences and fenced producers."""
MAX_NAMED: Final = 1 << 16
"""Maximum number of topics, groups and messages of errors that are kept; the rarest are dropped first."""
MAX_NAMES: Final = 20
"""Maximum number of topics, names and messages in the values of a finding."""
_CAUSE: Final = (*CLIENT, *CLUSTER, ("api", pa.string()), ("error_code", pa.int64()))
"""One cause: the same error for one client, whichever topics it concerns."""
_SAYS: Final = (*_CAUSE, ("kind", pa.string()), ("text", pa.string()))
_KINDS: Final = {
    "group_id": "group",
    "transactional_id": "transactional id",
    "resource_name": "resource",
    "user": "user",
    "member_id": "member",
    "log_dir": "log directory",
    "feature": "feature",
}
"""Names of the fields beside an error code; FindCoordinator's keys are groups or transactional ids."""
_TOPIC: Final = "topic"
_MESSAGE: Final = "message"


class _Top(msgspec.Struct):
    """A response's own error code."""

    error_code: int | None = None


_TOP: Final = msgspec.json.Decoder(_Top)


class HiddenErrorThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `HiddenErrors`."""

    many: Annotated[int, Meta(ge=1, description="A note becomes a warning from this many exchanges of a client.")] = 20
    at_least: Annotated[int, Meta(ge=1, description="Ignore fewer retriable errors than this, except for data.")] = 3


class HiddenErrors(Detector[HiddenErrorThresholds]):
    """Error codes of partitions, groups and resources in responses whose own error code is 0 or missing.

    Clients often hide these. A permanent error is an error if data or offsets were refused, a warning if permissions
    are missing, otherwise a note until it becomes frequent. Codes that other detectors report are skipped. One finding
    covers an error of an API for a client, and quotes the broker's message.

    Caveats: the client may expect the error: TOPIC_ALREADY_EXISTS after making sure that a topic exists, or
    OFFSET_OUT_OF_RANGE when it starts over.
    """

    name: ClassVar[str] = "hidden-errors"
    summary: ClassVar[str] = "Errors of single partitions or resources in responses whose own error code is 0."
    parameters_type = HiddenErrorThresholds
    error_bodies = True
    parts_clusters = True

    _errors = Tally("errors", _CAUSE, sums=("errors", "partitions"))

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", "api_key", *CLIENT_COLUMNS, *CLUSTER_COLUMNS, "group_id", "transactional_id")
        more = ("error_code", "error_count", "partitions", "response_body")
        return {"exchanges": TableReading((*ORDER, *own, *more))}

    def shapes(self) -> Mapping[str, Shape]:
        count: Any = (("count", pa.int64(), "sum"),)
        first: Any = (("first", pa.int64(), "min"),)
        shared: dict[str, Any] = {"measures": (*count, *first), "weight": "count", "bound": MAX_NAMED}
        topics = (*_CAUSE, ("topic", pa.string()))
        return {
            **self._errors.shapes(),
            "topics": Shape(keys=topics, **shared),
            "says": Shape(keys=_SAYS, **shared),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        batch = only(batch, pc.greater(column(batch, "error_count"), 0))
        # Errors are rare, so they are handled one by one.
        found = list(_hidden(batch))
        rows = batch.take(pa.array([row for row, _, _ in found], pa.int64()))
        keys = {
            **clients(rows),
            **clusters(rows),
            "api": column(rows, "api"),
            "error_code": pa.array([code for _, code, _ in found], pa.int64()),
        }
        notes = [_note(some_causes) for _, _, some_causes in found]
        partitions = [sum(one.partition for one in some_causes) for _, _, some_causes in found]
        errors = [len(some_causes) for _, _, some_causes in found]
        self._errors.add(
            self,
            rows,
            keys,
            pa.array(notes, pa.string()),
            errors=pa.array(errors, pa.int64()),
            partitions=pa.array(partitions, pa.int64()),
        )
        groups, transactions = (column(rows, name).to_pylist() for name in ("group_id", "transactional_id"))
        topics: list[tuple[int, str]] = []
        says: list[tuple[int, str, str]] = []
        for place, (_, _, some_causes) in enumerate(found):
            for one in dict.fromkeys(some_causes):
                if one.topic is not None:
                    topics.append((place, one.topic))
                if one.field is not None and one.name:
                    says.append((place, _kind(one, groups[place], transactions[place]), one.name))
                if one.message:
                    says.append((place, _MESSAGE, shortened(one.message)))
        self._add_details("topics", rows, keys, topics, ("topic",))
        self._add_details("says", rows, keys, says, ("kind", "text"))

    def _add_details(
        self,
        part: str,
        rows: pa.RecordBatch,
        keys: dict[str, Any],
        found: Sequence[tuple[Any, ...]],
        names: Sequence[str],
    ) -> None:
        places = pa.array([one[0] for one in found], pa.int64())
        columns = {name: pa.array([one[place] for one in found], pa.string()) for place, name in enumerate(names, 1)}
        self.parts[part].add(
            {
                **{name: values.take(places) for name, values in keys.items()},
                **columns,
                "count": pa.array([1] * len(found), pa.int64()),
                "first": column(rows, "time_ns").take(places),
            }
        )

    def findings(self) -> Iterator[Finding]:
        topics = self._by_cause("topics")
        says = self._by_cause("says")
        for row, evidence in self._errors.rows(self):
            _, retriable = _name_of(row["error_code"])
            if not retriable or row["api"] in _DATA_APIS or row["count"] >= self.thresholds.at_least:
                place = tuple(row[key] for key, _ in _CAUSE)
                words = says.get(place, [])
                about = [(_TOPIC, one["topic"]) for one in topics.get(place, [])]
                about += [(one["kind"], one["text"]) for one in words if one["kind"] != _MESSAGE]
                messages = [one["text"] for one in words if one["kind"] == _MESSAGE]
                yield self._finding(row, evidence, about, messages)

    def _by_cause(self, part: str) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
        """Rows by cause, the most frequent first, then the earliest."""
        found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        rows = self.resolved(part).to_pylist()
        for row in sorted(
            rows, key=lambda row: (-row["count"], row["first"] or 0, row.get("topic") or row.get("text"))
        ):
            found.setdefault(tuple(row[key] for key, _ in _CAUSE), []).append(row)
        return found

    def _finding(
        self,
        row: dict[str, Any],
        evidence: tuple[Evidence, ...],
        about: list[tuple[str, str]],
        messages: list[str],
    ) -> Finding:
        name, retriable = _name_of(row["error_code"])
        severity: Severity = "warning" if row["count"] >= self.thresholds.many else "note"
        if retriable:
            after = "Clients retry by themselves, but make no progress while it lasts."
            advice = "If it lasts, find out why the brokers cannot serve this topic or resource."
        else:
            # Brokers and controllers resolve refusals among themselves.
            if row["api"] in _DATA_APIS and not is_broker(row["client_id"], ()):
                severity = "error"
            elif row["error_code"] in _RIGHTS:
                severity = "warning"
            after = "Retrying does not help."
            advice = "Fix the request, the permissions or the topic; the response shows which part was refused."
        level = "partition-level error" if row["partitions"] == row["errors"] else "error"
        responses = plural(row["count"], f"{word(row['api'])} response")
        times = "" if row["errors"] == row["count"] else f" ({row['errors']:,} in all)"
        where = in_cluster(self.clusters, row["cluster"])
        said = f": {quoted(messages[0])}" if messages else ""
        meaning = error_meaning(row["error_code"])
        known = "The meaning of this code is unknown." if meaning is None else f"{name}: {meaning}."
        topics = [one for kind, one in about if kind == _TOPIC]
        values = {"exchanges": row["count"], "errors": row["errors"], "retriable": retriable}
        return self.finding(
            severity,
            f"{responses} to {client(row)}{where} with {level} {name}{_about(about)}{times}{said}",
            meaning=f"{known} The response's own error code does not show it. {after}",
            advice=advice,
            subject={
                **subject(row, "client_id", "client_ip", "api"),
                "topic": topics[0] if len(topics) == 1 else None,
                "error_code": row["error_code"],
            },
            count=row["count"],
            first=row["first"],
            last=row["last"],
            evidence=evidence,
            values={
                **values,
                "topics": topics[:MAX_NAMES],
                "names": [one for kind, one in about if kind != _TOPIC][:MAX_NAMES],
                "messages": messages[:MAX_NAMES],
            },
        )


def _name_of(code: int) -> tuple[str, bool]:
    """The name of an error code, and whether retrying may help."""
    error = error_by_code(code)
    return (f"code {code}", False) if error is None else (error.name, error.retriable)


def _about(about: list[tuple[str, str]]) -> str:
    """` for topics a and b`, ` for group g`."""
    by_kind: dict[str, list[str]] = {}
    for kind, name in about:
        by_kind.setdefault(kind, []).append(name)
    phrases = [f"{kind if len(names) == 1 else f'{kind}s'} {some(names)}" for kind, names in by_kind.items()]
    return f" for {', '.join(phrases)}" if phrases else ""


def _kind(cause: Cause, group: str | None, transaction: str | None) -> str:
    """The kind of thing that a cause names; for the key of FindCoordinator, what its request asked for."""
    if cause.name == group:
        return _KINDS["group_id"]
    if cause.name == transaction:
        return _KINDS["transactional_id"]
    return _KINDS.get(cause.field or "", "key")


def _note(some_causes: Sequence[Cause]) -> str:
    """What an exchange shows: the broker's message, otherwise what was refused."""
    message = next((one.message for one in some_causes if one.message), None)
    if message is not None:
        return quoted(message)
    # Topics may be known only by id by now.
    return some(list(dict.fromkeys(one.name for one in some_causes if one.name)))


def _hidden(batch: pa.RecordBatch) -> Iterator[tuple[int, int, list[Cause]]]:
    """Rows, codes and their causes, for the codes inside responses whose own code is 0."""
    names = ("api_key", "error_code", "error_count", "partitions", "response_body")
    rows = zip(*(column(batch, name).to_pylist() for name in names), strict=True)
    for row, (api_key, first, count, partitions, body) in enumerate(rows):
        if body is not None:
            try:
                if _TOP.decode(body).error_code:
                    continue
            except msgspec.DecodeError:
                continue
        elif not any(one["error_code"] for one in partitions or ()):
            # Without the body, the place of the code is unknown.
            continue
        by_code: dict[int, list[Cause]] = {}
        for one in _causes(api_key, first, count, partitions or [], body):
            if one.code not in _ELSEWHERE:
                by_code.setdefault(one.code, []).append(one)
        for code, some_causes in by_code.items():
            yield row, code, some_causes


def _causes(
    api_key: int | None, first: int | None, count: int, partitions: list[dict[str, Any]], body: str | None
) -> list[Cause]:
    """The errors of a response: only those of its partitions if these are all and have no details."""
    found = [
        Cause(one["error_code"], one["topic"] or one["topic_id"], partition=True)
        for one in partitions
        if one["error_code"]
    ]
    if api_key is None or body is None or (len(found) >= count and not carries_messages(api_key)):
        return found
    inside = list(causes(api_key, msgspec.json.decode(body)))
    if len(inside) >= count:
        return inside
    # The body was truncated, or has more errors than are examined.
    return max(found, inside, key=len) or ([Cause(first)] if first else [])
