"""Errors that stand deep in a response whose top says that all went well."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, Reading
from kafkasniff.analysis.between_brokers import is_broker
from kafkasniff.analysis.columns import ORDER, column, only
from kafkasniff.analysis.partials import Shape
from kafkasniff.analysis.questions.errors import error_codes
from kafkasniff.detectors.detector import Detector
from kafkasniff.detectors.finding import Evidence, Finding, Severity
from kafkasniff.detectors.tally import CLIENT, CLIENT_COLUMNS, Tally, clients
from kafkasniff.detectors.wording import client, plural, subject
from kafkasniff.kafka.errors import error_by_code, error_meaning
from kafkasniff.sinks.printable import word

__all__ = ["HiddenErrors"]

_DATA_APIS: Final = frozenset({"Produce", "Fetch", "ShareFetch", "OffsetCommit", "TxnOffsetCommit", "ShareAcknowledge"})
"""APIs that move data or positions: what they refuse for good is lost, or done twice."""
_RIGHTS: Final = frozenset({29, 30, 31, 53, 54, 65})
"""TOPIC_, GROUP_, CLUSTER_, TRANSACTIONAL_ID_ and DELEGATION_TOKEN_AUTHORIZATION_FAILED, SECURITY_DISABLED."""
_ELSEWHERE: Final = frozenset({6, 10, 18, 22, 25, 27, 45, 46, 47, 59, 74, 75, 82, 90, 110, 113})
"""Codes that a detector of their own tells: of leaders, sizes, group members, sequences and fenced producers."""


class _Top(msgspec.Struct):
    """What the top of a response says."""

    error_code: int | None = None


_TOP: Final = msgspec.json.Decoder(_Top)


class HiddenErrorThresholds(Parameters, frozen=True, kw_only=True):
    """Of `HiddenErrors`."""

    many: Annotated[
        int, Meta(ge=1, description="An error that would be a note is a warning on so many exchanges of a client.")
    ] = 20
    at_least: Annotated[
        int, Meta(ge=1, description="Retriable errors are told from so many exchanges on; those of data always.")
    ] = 3


class HiddenErrors(Detector[HiddenErrorThresholds]):
    """Error codes of partitions, groups, resources … in responses whose own error code is 0, or that have none.

    One that does not go away by itself is an error where a client's data or offsets were refused, and a warning where
    rights are missing. All others are notes until they come often: administration goes wrong now and then, and its
    tools say so. Codes that other detectors tell are left to them.
    """

    name: ClassVar[str] = "hidden-errors"
    summary: ClassVar[str] = "Errors of single partitions or resources in responses that look fine at the top."
    parameters_type = HiddenErrorThresholds
    error_bodies = True

    _errors = Tally(
        "errors",
        (*CLIENT, ("api", pa.string()), ("topic", pa.string()), ("error_code", pa.int64())),
        sums=("errors",),
    )

    def reads(self) -> Mapping[str, Reading]:
        own = ("api", "api_key", *CLIENT_COLUMNS, "error_code", "error_count", "partitions", "response_body")
        return {"exchanges": Reading((*ORDER, *own))}

    def shapes(self) -> Mapping[str, Shape]:
        return self._errors.shapes()

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        batch = only(batch, pc.greater(column(batch, "error_count"), 0))
        # Errors are few: one by one.
        found = list(_hidden(batch))
        batch = batch.take(pa.array([row for row, *_ in found], pa.int64()))
        keys = {
            **clients(batch),
            "api": column(batch, "api"),
            "topic": pa.array([topic for _, _, topic, _ in found], pa.string()),
            "error_code": pa.array([code for _, code, _, _ in found], pa.int64()),
        }
        self._errors.add(self, batch, keys, errors=pa.array([times for *_, times in found], pa.int64()))

    def findings(self) -> list[Finding]:
        found = []
        for row, evidence in self._errors.rows(self):
            error = error_by_code(row["error_code"])
            retriable = error is not None and error.retriable
            if not retriable or row["api"] in _DATA_APIS or row["count"] >= self.thresholds.at_least:
                name = f"error code {row['error_code']}" if error is None else error.name
                found.append(self._finding(row, evidence, name, retriable))
        return found

    def _finding(self, row: dict[str, Any], evidence: tuple[Evidence, ...], name: str, retriable: bool) -> Finding:
        severity: Severity = "warning" if row["count"] >= self.thresholds.many else "note"
        if retriable:
            after = "Clients try again by themselves; where it goes on, they get nowhere."
            advice = "If it goes on: see what keeps the brokers from serving this topic or resource."
        else:
            # Brokers and controllers settle between themselves what is refused.
            if row["api"] in _DATA_APIS and not is_broker(row["client_id"], ()):
                severity = "error"
            elif row["error_code"] in _RIGHTS:
                severity = "warning"
            after = "Trying again does not help."
            advice = (
                "Look at the response to see which part was refused, and mend the request, its rights or the topic."
            )
        topic = "" if row["topic"] is None else f" for topic {word(row['topic'])}"
        told = plural(row["count"], f"{word(row['api'])} response")
        times = "" if row["errors"] == row["count"] else f", {plural(row['errors'], 'time')} in all"
        meaning = error_meaning(row["error_code"])
        said = "It has no known meaning." if meaning is None else f"{name}: {meaning}."
        return self.finding(
            severity,
            f"{told} to {client(row)} with {name} below the top{topic}{times}",
            meaning=f"{said} The top of the response says nothing of it, so that it may be overlooked. {after}",
            advice=advice,
            subject=subject(row, "client_id", "client_ip", "api", "topic", "error_code"),
            count=row["count"],
            first=row["first"],
            last=row["last"],
            evidence=evidence,
            values={"exchanges": row["count"], "errors": row["errors"], "retriable": retriable},
        )


def _hidden(batch: pa.RecordBatch) -> Iterator[tuple[int, int, str | None, int]]:
    """Row, code, topic and how often, for the codes below the top of responses whose top has none."""
    names = ("api_key", "error_code", "error_count", "partitions", "response_body")
    told = zip(*(column(batch, name).to_pylist() for name in names), strict=True)
    for row, (api_key, first, count, partitions, body) in enumerate(told):
        if body is not None:
            try:
                if _TOP.decode(body).error_code:
                    continue
            except msgspec.DecodeError:
                continue
        elif not any(one["error_code"] for one in partitions or ()):
            # Without its body nobody knows where the code stands.
            continue
        for (code, topic), times in error_codes(api_key, first, count, partitions or [], body).items():
            if code is not None and code not in _ELSEWHERE:
                yield row, code, topic, times
