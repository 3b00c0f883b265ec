"""The detectors by name, several of them together, and runs over captures and exports without a command line.

The module of a detector is imported only when one of its detectors is needed.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from kafkasniff.analysis.accumulator import ALONE, Accumulator, TableReaders, TableReading
from kafkasniff.analysis.clusters import Clusters
from kafkasniff.analysis.detectors.causes import combined, with_causes, without_effects
from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.analysis.detectors.finding import Finding, Numbers, worst_first
from kafkasniff.analysis.detectors.undecoded import UndecodedTraffic
from kafkasniff.analysis.export import Export
from kafkasniff.analysis.parameters import make_parameters
from kafkasniff.analysis.questions import question_names
from kafkasniff.analysis.visibility import Visibility, VisibleTraffic
from kafkasniff.engine.roles import WantedBodies
from kafkasniff.errors import UsageError
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.staging import CountedRows
from kafkasniff.tables.rows import TABLE_NAMES
from kafkasniff.tables.rows.resolve import LearnedNames
from kafkasniff.text.printable import closest, suggestion

if TYPE_CHECKING:
    from kafkasniff.tls.keylog import KeyLog

DETECTORS: Final[tuple[tuple[str, str], ...]] = (
    ("undecoded-traffic", "kafkasniff.analysis.detectors.undecoded"),
    ("broker-gone", "kafkasniff.analysis.detectors.broker_gone"),
    ("lagging-replicas", "kafkasniff.analysis.detectors.broker_history"),
    ("unanswered-requests", "kafkasniff.analysis.detectors.unanswered"),
    ("late-answers", "kafkasniff.analysis.detectors.unanswered"),
    ("hidden-errors", "kafkasniff.analysis.detectors.errors_inside"),
    ("not-leader", "kafkasniff.analysis.detectors.leaders"),
    ("metadata-storms", "kafkasniff.analysis.detectors.frequent_requests"),
    ("all-topics", "kafkasniff.analysis.detectors.frequent_requests"),
    ("rebalance-storms", "kafkasniff.analysis.detectors.rebalances"),
    ("still-members", "kafkasniff.analysis.detectors.groups"),
    ("lost-members", "kafkasniff.analysis.detectors.rebalances"),
    ("idle-members", "kafkasniff.analysis.detectors.rebalances"),
    ("shared-instances", "kafkasniff.analysis.detectors.rebalances"),
    ("repeated-starts", "kafkasniff.analysis.detectors.progress"),
    ("growing-lag", "kafkasniff.analysis.detectors.progress"),
    ("repeated-deliveries", "kafkasniff.analysis.detectors.groups"),
    ("blocked-streams-groups", "kafkasniff.analysis.detectors.groups"),
    ("offsets-out-of-range", "kafkasniff.analysis.detectors.offsets"),
    ("missing-topics", "kafkasniff.analysis.detectors.topics"),
    ("expired-sessions", "kafkasniff.analysis.detectors.authentication"),
    ("frequent-commits", "kafkasniff.analysis.detectors.offsets"),
    ("refused-commits", "kafkasniff.analysis.detectors.offsets"),
    ("oversized-messages", "kafkasniff.analysis.detectors.batches"),
    ("small-batches", "kafkasniff.analysis.detectors.batches"),
    ("uncompressed-batches", "kafkasniff.analysis.detectors.batches"),
    ("repeated-sequences", "kafkasniff.analysis.detectors.producers"),
    ("acks-zero", "kafkasniff.analysis.detectors.producers"),
    ("malformed-messages", "kafkasniff.analysis.detectors.records"),
    ("damaged-records", "kafkasniff.analysis.detectors.records"),
    ("lost-records", "kafkasniff.analysis.detectors.records"),
    ("overwritten-records", "kafkasniff.analysis.detectors.records"),
    ("hanging-transactions", "kafkasniff.analysis.detectors.transactions"),
    ("stuck-stable-offsets", "kafkasniff.analysis.detectors.transactions"),
    ("fenced-producers", "kafkasniff.analysis.detectors.transactions"),
    ("throttled-clients", "kafkasniff.analysis.detectors.load"),
    ("empty-fetches", "kafkasniff.analysis.detectors.frequent_requests"),
    ("unreached-listeners", "kafkasniff.analysis.detectors.listeners"),
    ("clients-at-controllers", "kafkasniff.analysis.detectors.listeners"),
    ("other-clusters", "kafkasniff.analysis.detectors.listeners"),
    ("mixed-broker-versions", "kafkasniff.analysis.detectors.wrong_protocol"),
    ("connection-churn", "kafkasniff.analysis.detectors.frequent_requests"),
    ("sasl-failures", "kafkasniff.analysis.detectors.authentication"),
    ("wrong-protocol", "kafkasniff.analysis.detectors.wrong_protocol"),
    ("tls-failures", "kafkasniff.analysis.detectors.tls"),
    ("encrypted-trouble", "kafkasniff.analysis.detectors.tls"),
    ("slow-broker", "kafkasniff.analysis.detectors.load"),
    ("transport-trouble", "kafkasniff.analysis.detectors.transport_trouble"),
    ("forgotten-connections", "kafkasniff.analysis.detectors.paths"),
    ("cut-connections", "kafkasniff.analysis.detectors.paths"),
    ("denied", "kafkasniff.analysis.detectors.denied"),
    ("plaintext-credentials", "kafkasniff.analysis.detectors.insecure"),
    ("plaintext-scram", "kafkasniff.analysis.detectors.insecure"),
    ("old-tls", "kafkasniff.analysis.detectors.insecure"),
    ("weak-cipher", "kafkasniff.analysis.detectors.insecure"),
    ("bad-certificate", "kafkasniff.analysis.detectors.insecure"),
    ("expiring-certificate", "kafkasniff.analysis.detectors.insecure"),
    ("without-authentication", "kafkasniff.analysis.detectors.insecure"),
    ("skewed-partitions", "kafkasniff.analysis.detectors.load"),
)
"""Name and module, in the order of listings."""
SECURITY: Final = (
    *("denied", "plaintext-credentials", "plaintext-scram", "old-tls", "weak-cipher", "bad-certificate"),
    *("expiring-certificate", "without-authentication", "sasl-failures", "tls-failures"),
)
"""Those that `security` shows."""


def detector_names() -> tuple[str, ...]:
    """All names."""
    return tuple(name for name, _ in DETECTORS)


@functools.cache
def find_detector(name: str) -> type[Detector[Any]]:
    """The detector of a name. Raises UsageError, with a suggestion, if there is none."""
    wanted = name.strip().replace("_", "-").lower()
    module = dict(DETECTORS).get(wanted)
    if module is None:
        question = closest(wanted, question_names())
        of_question = f"did you mean `kafkasniff analyze {question}`?"
        hint = suggestion(wanted, detector_names(), of_question if question else "`kafkasniff check --list` lists them")
        raise UsageError(f"no detector is called {name!r}{hint}")
    for value in vars(import_module(module)).values():
        if isinstance(value, type) and issubclass(value, Detector) and getattr(value, "name", None) == wanted:
            return value
    raise LookupError(f"{module} has no detector {wanted}")


MAX_THRESHOLD: Final = 1 << 56
"""Largest value of a threshold: two years in nanoseconds. Twice that still fits where it is compared."""
MAX_FINDINGS: Final = 100
"""Maximum number of findings of one detector, since thousands of clients may do the same thing."""


class Detectors:
    """Takes rows of the tables, from exports or staged (`exports.staging`), and returns findings.

    `only` and `skip` name detectors, by default all are used; `settings` are thresholds, each as
    `DETECTOR.FIELD=VALUE`. Raises UsageError for invalid names and values.
    """

    def __init__(self, only: Iterable[str] = (), skip: Iterable[str] = (), settings: Iterable[str] = ()) -> None:
        given = _settings(settings)
        wanted = [find_detector(name).name for name in only] or list(detector_names())
        left_out = {find_detector(name).name for name in skip}
        chosen = [name for name in detector_names() if name in wanted and name not in left_out]
        unused = [name for name in given if name not in chosen]
        if unused:
            raise UsageError(f"--set {unused[0]}: this detector is not selected")
        self.detectors: tuple[Detector[Any], ...] = tuple(_made(name, given.get(name, {})) for name in chosen)
        # How much was decoded is known whichever detectors are selected.
        named = any(isinstance(detector, UndecodedTraffic) for detector in self.detectors)
        self._beside = () if named else (UndecodedTraffic(),)
        self.clusters = Clusters() if any(detector.parts_clusters for detector in self.detectors) else None
        """The brokers by cluster, if a detector needs to know."""
        self._readers = TableReaders([*self._all, *([self.clusters] if self.clusters else [])])
        self.bodies = WantedBodies(Clusters.bodies() if self.clusters else None)
        """The bodies that are needed as JSON."""
        for one in self.detectors:
            self.bodies |= WantedBodies(one.bodies, errors=one.error_bodies)
        self._notes: dict[str, None] = {}

    @property
    def _all(self) -> tuple[Detector[Any], ...]:
        return (*self.detectors, *self._beside)

    @property
    def _undecoded(self) -> UndecodedTraffic:
        return next(one for one in self._all if isinstance(one, UndecodedTraffic))

    @property
    def visibility(self) -> Visibility:
        """The account of what was decoded."""
        return self._undecoded.visibility

    def visible(self) -> VisibleTraffic:
        """How much of the traffic could be decoded, by the rows so far."""
        return self.visibility.visible()

    def reads(self) -> dict[str, TableReading]:
        """Tables with their needed columns."""
        return self._readers.reads

    def has(self, table: str) -> None:
        """Note that a table exists, though it may have no rows; detectors need not know."""

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        """Take rows of a table."""
        self._readers.update(batch, table)

    def read(self, export: Export, since_ns: int | None = None, until_ns: int | None = None) -> None:
        """Take the rows of an export. Detectors whose tables it lacks do without, as reported in `notes`.

        Raises CaptureError if a file cannot be read, UsageError if another version wrote it.
        """
        wanted: dict[str, list[Accumulator[Any]]] = {}
        unread = [detector.name for detector in self.detectors if detector.bodies and not export.has_json]
        if unread:
            self._notes[f"skipped: {', '.join(unread)}: {export.name} was exported without bodies"] = None
        if not export.has_bodies:
            self._notes[f"{export.name} has only headers (--no-bodies), which hide most other problems"] = None
        lacking: dict[str, list[str]] = {}
        if "connections" not in export.tables:
            self._notes[f"{export.name} has no table connections: how much of the traffic was decoded is unknown"] = (
                None
            )
        for detector in self._all:
            if detector.name in unread:
                continue
            needed = [table for table, reading in detector.reads().items() if not reading.optional]
            absent = [table for table in needed if table not in export.tables]
            if absent and detector in self._beside:
                continue
            if absent:
                lacking.setdefault(absent[0], []).append(detector.name)
                continue
            try:
                left_out = export.missing(detector)
            except UsageError as error:
                self._notes[str(error)] = None
                continue
            for table in detector.reads():
                if table not in left_out:
                    wanted.setdefault(table, []).append(detector)
        for one in self.detectors:
            if one.by_packets and one.name not in unread and "transport" not in export.tables:
                self._notes[f"{one.name}: {export.name} has no table transport: {one.by_packets}"] = None
        for table, names in lacking.items():
            self._notes[f"skipped: {', '.join(names)}: {export.name} has no table {table}"] = None
        if self.clusters is not None and not export.has_json:
            self._notes[
                f"{export.name} was exported without bodies: its brokers are assumed to belong to one cluster"
            ] = None
        elif self.clusters is not None:
            for table in self.clusters.reads():
                wanted.setdefault(table, []).append(self.clusters)
        for table, accumulators in wanted.items():
            readers = TableReaders(accumulators)
            for batch in export.batches(table, readers.reads[table], since_ns, until_ns):
                readers.update(batch, table)

    def merge(self, other: Detectors) -> None:
        """Merge another's rows. Raises ValueError if it has other detectors or thresholds."""
        if [type(detector) for detector in self.detectors] != [type(detector) for detector in other.detectors]:
            raise ValueError("only the same detectors can be merged")
        for mine, theirs in zip(self._all, other._all, strict=True):
            mine.merge(theirs)
        if self.clusters is not None and other.clusters is not None:
            self.clusters.merge(other.clusters)
        self._notes |= other._notes

    def findings(self, names: LearnedNames | None = None) -> list[Finding]:
        """The findings in the rows so far, worst first, causes before their effects.

        `names`: names learned from captures among the sources.
        """
        found: list[Finding] = []
        ended: set[int] = set()
        clusters = ALONE if self.clusters is None else self.clusters.known()
        losses = self._undecoded.losses()
        by_detector: list[tuple[Detector[Any], list[Finding]]] = []
        for detector in self.detectors:
            detector.names, detector.clusters = names, clusters
            weighed = [
                losses.weighed(finding, detector.absent(finding), gaps=not detector.by_closing)
                for finding in combined(detector.findings())
            ]
            by_detector.append((detector, worst_first(weighed)))
        for detector, some in without_effects(by_detector):
            if len(some) > MAX_FINDINGS:
                self._notes[f"{detector.name}: {len(some) - MAX_FINDINGS:,} more findings are not shown"] = None
            found += some[:MAX_FINDINGS]
            if detector.ends_connections:
                ended |= {
                    each.connection_id
                    for finding in some
                    for each in finding.evidence
                    if each.connection_id is not None
                }
        by_name = {detector.name: detector for detector in self.detectors}
        return with_causes([finding for finding in found if not by_name[finding.detector].explained(finding, ended)])

    def notes(self) -> list[str]:
        """Caveats for the reader of the findings: what is unknown, and what memory bounds have dropped."""
        return [
            *self._notes,
            *(f"{detector.name}: {note}" for detector in self.detectors for note in detector.notes()),
        ]


def _settings(settings: Iterable[str]) -> dict[str, dict[str, str]]:
    """Values by detector and field."""
    found: dict[str, dict[str, str]] = {}
    for setting in settings:
        place, equals, value = setting.partition("=")
        name, dot, field = place.partition(".")
        if not equals or not dot:
            raise UsageError(f"--set {setting!r}: give DETECTOR.FIELD=VALUE")
        found.setdefault(find_detector(name).name, {})[field.strip().replace("-", "_")] = value.strip()
    return found


def _made(name: str, given: dict[str, str]) -> Detector[Any]:
    detector = find_detector(name)
    if not given:
        return detector()
    thresholds = make_parameters(detector, given)
    for field, text in given.items():
        value = getattr(thresholds, field)
        # Written this way so that NaN is refused, too.
        if isinstance(value, int | float) and not abs(value) <= MAX_THRESHOLD:
            raise UsageError(f"--set {name}.{field}: {text!r} is too large")
    return detector(thresholds)


class Checked(msgspec.Struct, frozen=True):
    """Results of detectors for some captures and exports."""

    findings: list[Finding]
    """Worst first."""
    notes: list[str]
    """Caveats for the reader: what is unknown, and what memory bounds have dropped."""
    broken: bool
    """A capture was structurally broken or truncated; the readable part was read."""
    visible: VisibleTraffic
    """How much of the traffic could be decoded."""


def tables_for(detectors: Detectors) -> tuple[str, ...]:
    """The tables whose rows they need from captures."""
    return tuple(table for table in TABLE_NAMES if table == "exchanges" or table in detectors.reads())


def run(
    sources: Sequence[str],
    *,
    only: Iterable[str] = (),
    skip: Iterable[str] = (),
    settings: Iterable[str] = (),
    ports: Iterable[int] = (),
    keys: KeyLog | None = None,
) -> Checked:
    """Run detectors over captures and exports (folders) together.

    `only`, `skip` and `settings` as for `Detectors`; `ports` and `keys` as for `Inspector`. Raises UsageError for
    invalid arguments, CaptureError if an input cannot be read.
    """
    # Exports need none of the capture-reading code.
    from kafkasniff.capture import open_captures  # noqa: PLC0415
    from kafkasniff.capture.timeline.locations import divided  # noqa: PLC0415

    detectors, numbers = Detectors(only, skip, settings), Numbers()
    captures, exports = divided(sources)
    for folder in exports:
        detectors.read(Export.open(folder))
    names, broken = None, False
    if captures:
        rows = CountedRows(
            ExportOptions(tables=tables_for(detectors), ports=tuple(sorted(set(ports)))),
            detectors.update,
            bodies=detectors.bodies,
            columns=detectors.reads()["exchanges"].columns,
            keys=keys,
            events=numbers.feed,
        )
        with open_captures(captures) as source:
            for batch in source:
                rows.feed(batch)
            broken = source.broken
        names = rows.end()
    findings = numbers.numbered(detectors.findings(names))
    return Checked(findings, detectors.notes(), broken, detectors.visible())
