"""What a report shows, gathered from rows: the same from a capture and from its export."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec
import pyarrow as pa

from kafkasniff.analysis.accumulator import Accumulator, TableReaders, TableReading, united
from kafkasniff.analysis.columns import for_readers
from kafkasniff.analysis.detectors import Detectors, Finding
from kafkasniff.analysis.export import Export
from kafkasniff.analysis.overview import Overview, OverviewAnswer
from kafkasniff.analysis.security import ClientIdentity, SecurityView
from kafkasniff.engine.roles import WantedBodies
from kafkasniff.report.ladder import Ladder, Shown, Talk
from kafkasniff.report.traffic import ErrorsOverTime, LatenciesOverTime, TrafficOverTime
from kafkasniff.tables.rows.resolve import LearnedNames

MAX_ROWS: Final = 200
"""Maximum number of rows of each table."""
MAX_FINDINGS: Final = 100
"""Maximum number of findings, the worst ones."""
MAX_SHOWN: Final = 24
"""Maximum number of connections whose exchanges are shown …"""
MAX_FOR_FINDINGS: Final = 16
"""… of which this many because a finding is about them; the others have the most traffic and trouble."""
MAX_HISTOGRAMS: Final = 8
"""Maximum number of APIs whose latencies are shown, the most frequent."""


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """All contents of a page. Times are nanoseconds since 1970, latencies microseconds, sizes bytes."""

    answer: OverviewAnswer
    """As in `stats`, with lists cut at `MAX_ROWS`."""
    findings: list[Finding]
    """Worst first."""
    more_findings: int
    """Number of findings that are not shown."""
    width: int
    """Width of a time span in nanoseconds."""
    traffic: list[dict[str, Any]]
    """By span and API: start, api, exchanges, unanswered, request_bytes, response_bytes."""
    errors: list[dict[str, Any]]
    """By span and code: start, code, errors."""
    latencies: list[dict[str, Any]]
    """By span and API: start, api, count, low, high, p50, p90, p99."""
    histograms: dict[str, list[int]]
    """By API, the number of latencies between `traffic.EDGES`."""
    generations: list[dict[str, Any]]
    """Rows of the question `rebalances`, except for `time_us`: microseconds since 1970."""
    more_generations: int
    shown: list[Shown]
    witnesses: dict[int, Talk]
    """Connections that findings name, by id, whether they are shown or not."""
    connections: int
    """Number of connections with exchanges."""
    identities: list[ClientIdentity]
    """Who connects as whom."""
    notes: list[str]


class Gathering:
    """Takes rows of the tables, from exports or staged (`exports.staging`), and returns `Contents`.

    The result depends on the rows alone, not on their order or batches, or on how partial answers were merged.
    `detectors`: all by default.
    """

    def __init__(self, detectors: Detectors | None = None) -> None:
        self.detectors = Detectors() if detectors is None else detectors
        self.overview = Overview(self.detectors)
        self._traffic, self._errors, self._latencies = TrafficOverTime(), ErrorsOverTime(), LatenciesOverTime()
        self._ladder = Ladder()
        self._security = SecurityView()
        counts = (self._traffic, self._errors, self._latencies)
        self._own: tuple[Accumulator[Any], ...] = (*counts, self._ladder, self._security)
        self._readers = TableReaders(self._own)

    def reads(self) -> dict[str, TableReading]:
        """The tables with their needed columns."""
        return united(self._reads(), self.detectors.reads())

    def _reads(self) -> dict[str, TableReading]:
        return united(self.overview.reads(), self._readers.reads)

    @property
    def bodies(self) -> WantedBodies:
        """The bodies that are needed as JSON."""
        return self.overview.bodies | self.detectors.bodies

    def has(self, table: str) -> None:
        """Note that a table exists, though it may have no rows."""
        self.overview.has(table)

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        """Take rows of a table, with the columns that detectors need as well."""
        rows = for_readers(batch)
        self._take(rows, table)
        self.detectors.update(rows, table)

    def _take(self, batch: pa.RecordBatch, table: str) -> None:
        self.overview.update(batch, table)
        self._readers.update(batch, table)

    def read(self, export: Export) -> None:
        """Take the rows of an export. Raises CaptureError and UsageError like `Export.batches`."""
        for table, reading in self._reads().items():
            # Missing keys have no sizes, and hashes have wrong ones.
            if table in export.tables and (table != "records" or export.has_payload):
                self.has(table)
                for batch in export.batches(table, reading):
                    self._take(batch, table)
        self.detectors.read(export)

    def merge(self, other: Gathering) -> None:
        """Merge another's rows."""
        self.overview.merge(other.overview)
        self.detectors.merge(other.detectors)
        for mine, theirs in zip(self._own, other._own, strict=True):
            mine.merge(theirs)

    def contents(self, names: LearnedNames | None = None) -> Contents:
        """The contents so far. `names`: names learned from captures among the sources."""
        for part in self._own:
            part.names = names
        answer = self.overview.answer(MAX_ROWS, names)
        found = self.detectors.findings(names)
        findings = found[:MAX_FINDINGS]
        generations = self.overview.rebalances()
        talks = {talk.connection_id: talk for talk in self._ladder.talks()}
        chosen = _chosen(findings, talks)
        rungs = self._ladder.rungs(set(chosen))
        busiest = [
            api_stats.api for api_stats in answer.apis if api_stats.api is not None and api_stats.latency is not None
        ]
        return Contents(
            answer=answer,
            findings=findings,
            more_findings=len(found) - len(findings),
            width=self._traffic.width,
            traffic=self._traffic.result().to_pylist(),
            errors=self._errors.result().to_pylist(),
            latencies=self._latencies.result().to_pylist(),
            histograms=self._latencies.histograms(busiest[:MAX_HISTOGRAMS]),
            generations=_timed(generations.slice(0, MAX_ROWS)).to_pylist(),
            more_generations=max(generations.num_rows - MAX_ROWS, 0),
            witnesses={one: talks[one] for one in _named(findings) if one in talks},
            shown=[Shown(talks[one], rungs.get(one, [])) for one in chosen],
            connections=len(talks),
            identities=self._security.identities(),
            notes=[*answer.notes, *self._notes()],
        )

    def _notes(self) -> list[str]:
        named = [(part.name.removeprefix("report-"), note) for part in self._own for note in part.notes()]
        return [*(f"{name}: {note}" for name, note in named), *self.detectors.notes()]


def _timed(table: pa.Table) -> pa.Table:
    """Rows with `time_us` instead of `time`."""
    place = table.schema.get_field_index("time")
    return table.set_column(place, "time_us", table.column("time").cast(pa.int64()))


def _named(findings: Iterable[Finding]) -> list[int]:
    """Connections that findings name: the first exchange of each before the second of any, worst findings first."""
    by_place = sorted(
        (
            (index, number, evidence)
            for number, finding in enumerate(findings)
            for index, evidence in enumerate(finding.evidence)
        ),
        key=lambda each: each[:2],
    )
    return list(dict.fromkeys(evidence.connection_id for _, _, evidence in by_place))


def _chosen(findings: Iterable[Finding], talks: dict[int, Talk]) -> list[int]:
    """Connections to show: those that findings are about, the worst first, then those with the highest weight."""
    found = dict.fromkeys([one for one in _named(findings) if one in talks][:MAX_FOR_FINDINGS])
    for connection_id in talks:
        if len(found) < MAX_SHOWN:
            found[connection_id] = None
    return list(found)
