"""The base of all detectors: an accumulator of rows that ends in findings.

    class Slow(Detector[SlowThresholds]):
        name = "slow"
        summary = "One sentence."
        parameters_type = SlowThresholds
        bodies = {("request", "Fetch"): None}

        def reads(self): …            # tables and columns
        def shapes(self): …           # partial answers: `Shape`s, evidence among them
        def update(self, batch, table="exchanges"): …
        def findings(self): …

As with questions, the rows alone decide the result: the order and batches in which they arrive and the way in which
partial answers are merged have no effect. Rows come from exports or are staged from captures (`exports.staging`).
Staged rows may lack `broker_id`, software and the topics of fetch sessions, and may know topics only by id. So subjects
are endpoints and client ids, and topics are `coalesce(topic, topic_id)` in a key column `topic`, which `resolved`
replaces with names. If two clusters may use the same name, add a key column `cluster`: it holds the broker's endpoint,
which `resolved` replaces with the cluster. `questions()` returns questions of `analysis.questions` whose counts are
needed; their partial answers travel with the detector's own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Set
from typing import Any, ClassVar, Final, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading, united
from kafkasniff.analysis.columns import ORDER, column
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence, Finding, Severity, worst_first
from kafkasniff.analysis.detectors.wording import subject as subject_of
from kafkasniff.analysis.partials import Shape
from kafkasniff.engine.roles import Bodies

MAX_WITNESSES: Final = 1 << 17
"""Maximum number of exchanges that a detector keeps as evidence for all its subjects, the earliest."""

Effect = tuple[str, Mapping[str, Any]]
"""A detector's name, and values of the subject (and `severity`): its findings with these only repeat their cause."""

P = TypeVar("P", bound=Parameters)
_EVIDENCE: Final[Any] = (*((name, pa.int64()) for name in ORDER), ("note", pa.string()))


class Detector(Accumulator[P]):
    """Looks for one kind of trouble."""

    bodies: ClassVar[Bodies] = {}
    """The bodies that it needs; others are null in the rows of captures."""
    error_bodies: ClassVar[bool] = False
    """Bodies of responses with error codes are needed, too."""
    by_packets: ClassVar[str] = ""
    """What it lacks without the table `transport`, as the end of a sentence; empty: nothing to speak of."""
    ends_connections: ClassVar[bool] = False
    """Its findings explain why the connections that they name ended."""
    by_absence: ClassVar[bool] = False
    """Each of the messages that a finding counts may be explained by one that the capture lost (`undecoded.Losses`)."""
    by_closing: ClassVar[bool] = False
    """Likewise by a packet without data (FIN), whose loss leaves no gap."""
    parts_clusters: ClassVar[bool] = False
    """It needs to know which brokers are of one cluster."""
    tallies: ClassVar[tuple[Any, ...]] = ()
    """The `Tally`s among the attributes of its class."""

    def __init__(self, parameters: P | None = None) -> None:
        """Raises UsageError for thresholds that are invalid."""
        super().__init__(parameters)
        self.asked = dict(self.questions())
        """The questions whose counts it needs."""
        for name, question in self.asked.items():
            self.parts |= {f"{name}.{part}": partials for part, partials in question.parts.items()}

    @property
    def thresholds(self) -> P:
        """Thresholds above which something is a finding."""
        return self.parameters

    def questions(self) -> Mapping[str, Accumulator[Any]]:
        """Questions to ask, by name; `update` has to give them their rows."""
        return {}

    def reads(self) -> Mapping[str, TableReading]:
        """Tables with their needed columns; by default those of its questions."""
        return united(*(question.reads() for question in self.asked.values()))

    def shapes(self) -> Mapping[str, Shape]:
        """The detector's own partial answers by name: those of its tallies, unless it says more."""
        return {name: shape for tally in self.tallies for name, shape in tally.shapes().items()}

    @abstractmethod
    def findings(self) -> Iterable[Finding]:
        """What the rows so far show, in any order."""

    def explained(self, finding: Finding, connections: Set[int]) -> bool:
        """Whether one of its findings only repeats that these connections ended, for reasons that others name."""
        return False

    def absent(self, finding: Finding) -> int:
        """Number of messages whose absence one of its findings rests on."""
        return finding.count if self.by_absence or self.by_closing else 0

    def effects(self, finding: Finding) -> Iterable[Effect]:
        """What else the cause that one of its findings names leads to. Such findings are not reported beside it."""
        return ()

    def result(self) -> pa.Table:
        """The findings as a table, worst first; the column `finding` has each in full as JSON."""
        findings = worst_first(self.findings())
        return pa.table(
            {
                "severity": pa.array([finding.severity for finding in findings], pa.string()),
                "title": pa.array([finding.title for finding in findings], pa.string()),
                "count": pa.array([finding.count for finding in findings], pa.int64()),
                "finding": pa.array([msgspec.json.encode(finding).decode() for finding in findings], pa.string()),
            }
        )

    def resolved(self, name: str) -> pa.Table:
        """Rows of a partial answer with topics replaced by the names known so far, and equal rows combined.

        Brokers in a column `cluster` become clusters if there are several; null: unknown, or there is only one.
        """
        return self.clusters.folded(self.parts[name], self.names)

    def evidence(self, name: str) -> dict[tuple[Any, ...], tuple[Evidence, ...]]:
        """The contents of a partial answer of `evidence_shape`, by its keys, the earliest first."""
        table = self.resolved(name)
        if not table.num_rows:
            return {}
        keys = [field for field, _ in self.parts[name].shape.keys if field not in (*ORDER, "note")]
        order = [(field, "ascending") for field in (*ORDER, "note")]
        table = table.take(pc.sort_indices(table, sort_keys=order))
        subjects = zip(*(table.column(key).to_pylist() for key in keys), strict=True)
        shown = zip(
            *(table.column(name).to_pylist() for name in ("connection_id", "exchange_id", "time_ns", "note")),
            strict=True,
        )
        found: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
        for subject, one in zip(subjects, shown, strict=True):
            found.setdefault(subject, []).append(one)
        return {subject: tuple(Evidence(*row) for row in rows[:MAX_EVIDENCE]) for subject, rows in found.items()}

    def finding(
        self,
        severity: Severity,
        title: str,
        *,
        meaning: str,
        advice: str,
        subject: dict[str, Any],
        count: int,
        first: int | None,
        last: int | None,
        evidence: tuple[Evidence, ...] = (),
        values: dict[str, Any] | None = None,
    ) -> Finding:
        """A finding of this detector."""
        return Finding(
            detector=self.name,
            severity=severity,
            title=title,
            meaning=meaning,
            advice=advice,
            subject=subject,
            count=count,
            first=first,
            last=last,
            evidence=evidence,
            values=values or {},
        )

    def row_finding(
        self,
        row: Mapping[str, Any],
        evidence: tuple[Evidence, ...],
        severity: Severity,
        title: str,
        *,
        subject: tuple[str, ...],
        **details: Any,
    ) -> Finding:
        """A finding about one row of a `Tally`; `subject`: the columns that identify it; `details`: as in `finding`."""
        times = {name: row[name] for name in ("count", "first", "last")}
        return self.finding(severity, title, subject=subject_of(row, *subject), evidence=evidence, **times, **details)


def evidence_shape(keys: tuple[tuple[str, pa.DataType], ...]) -> Shape:
    """A partial answer that keeps the first exchanges of each subject; `keys` identify a subject."""
    return Shape(
        keys=(*keys, *_EVIDENCE),
        order=(*ORDER, "note"),
        keep="earliest",
        group=tuple(name for name, _ in keys),
        each=MAX_EVIDENCE,
        bound=MAX_WITNESSES,
    )


def evidence_columns(batch: pa.RecordBatch, keys: Mapping[str, Any], note: str | pa.Array = "") -> dict[str, Any]:
    """Rows for it: each row of `batch`, which needs the columns of `ORDER`, shows the subject in `keys`.

    A row of the table `connections` stands for the whole connection. `note` must be safe to print.
    """
    notes = pa.array([note]).take(pa.array(np.zeros(batch.num_rows, np.int64))) if isinstance(note, str) else note
    whole = "exchange_id" not in batch.column_names
    places = {name: column(batch, name) for name in ORDER if not (whole and name == "exchange_id")}
    if whole:
        places["exchange_id"] = pa.nulls(batch.num_rows, pa.int64())
    return {**keys, **places, "note": notes}
