"""Findings of detectors during a run (docs/check.md): exchanges to rows, rows to detectors, findings to the view.

A stretch is what detectors examine without a gap. After packets that nobody examined they start over, as with a new
capture; otherwise a transaction that ended in the gap would stay open forever. Earlier findings remain.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from kafkasniff.analysis.detectors.finding import SEVERITIES, Finding, worst_first
from kafkasniff.analysis.detectors.registry import Detectors, tables_for
from kafkasniff.engine.inspector import Inspector
from kafkasniff.enrich import Catalog, Enricher
from kafkasniff.enrich.catalog import LearnedFacts
from kafkasniff.live.snapshot import FindingRow, Findings
from kafkasniff.model import Connection, Exchange, Message, Problem, SaslToken
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.staging import Stager
from kafkasniff.tables.rows.resolve import LearnedNames
from kafkasniff.tables.rows.transport import transport_rows

if TYPE_CHECKING:
    import pyarrow as pa

NOT_LIVE: Final = ("undecoded-traffic", "unreached-listeners")
"""Detectors that need the account of an open connection, which is emitted only when the connection is over."""
BEHIND: Final = "cannot keep up"
COSTLY: Final = "too much to examine"
"""Why nothing is examined."""

HELD_SECONDS: Final = 1.0
HELD_BYTES: Final = 8 << 20
HELD_EVENTS: Final = 8192
"""Maximum time, message bytes, and number of events that wait to become rows together: small groups cost several times
as much.
"""
FINDINGS_SECONDS: Final = 3.0
"""Minimum time between two looks for findings …"""
FINDINGS_REST: Final = 20
"""… and at least this multiple of the duration of the last look."""
MAX_LOOK_SECONDS: Final = 1.0
"""A look that took longer is the last of its stretch: detectors start over with nothing, since packets wait meanwhile
and their state only grows.
"""
SHARE_SECONDS: Final = 5.0
"""How often the share of time that rows take is checked."""
MAX_SHARE: Final = 1 / 3
RESUME_SHARE: Final = 1 / 4
"""Shares of time: rows that take more than the first are no longer made, until they would take less than the second."""
CALM_SECONDS: Final = 5.0
"""The backlog must have been empty for this long before detectors resume."""
MAX_KEPT: Final = 1000
"""Maximum number of findings that are kept, the worst; a single detector may return a hundred."""
MAX_SHOWN: Final = 64
"""Maximum number of findings that are shown, the worst."""
MAX_NUMBERED: Final = 1 << 16
"""Maximum number of connections whose number is kept, the latest."""
MAX_ABOUT: Final = 512
"""Characters that distinguish two findings of a detector."""


def live_detectors() -> Detectors:
    """All detectors that work during a run."""
    return Detectors(skip=NOT_LIVE)


class LiveFindings:
    """Takes the events of a run; call `look` when there is time, and `shown` then has the findings.

    - `inspector`: the source of the events, which follows the network of connections
    - `behind`: whether less than everything is decoded now; then nothing is examined
    - `catalog`: the topics known to the run
    - `selects`: events are filtered, so only connections with exchanges among them count
    """

    def __init__(
        self,
        inspector: Inspector,
        behind: Callable[[], bool],
        *,
        catalog: Catalog | None = None,
        selects: bool = False,
        detectors: Callable[[], Detectors] = live_detectors,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inspector = inspector
        self._behind = behind
        self._catalog = Catalog() if catalog is None else catalog
        self._selected: set[int] | None = set() if selects else None
        self._make = detectors
        self._clock = clock
        self._numbers: dict[int, int] = {}
        """Connection by its id in rows."""
        self._named: tuple[int, LearnedNames] | None = None
        self._kept: list[Finding] = []
        """From earlier stretches."""
        self._found: list[Finding] = []
        self._together: list[Finding] = []
        """From this stretch and earlier ones."""
        self._dropped = 0
        self._remarks: tuple[str, ...] = ()
        self._paused = ""
        self._restarts = 0
        self._held: list[Exchange | Problem | Connection | SaslToken] = []
        self._held_bytes = 0
        self._cost = 0.0
        """Time in seconds for the rows of an exchange when they became too expensive."""
        now = clock()
        self._stage_at = now + HELD_SECONDS
        self._find_at = now + FINDINGS_SECONDS
        self._calm_at = now
        self._measure(now)
        self._begin()

    def _begin(self) -> None:
        """A stretch."""
        self._detectors = self._make()
        self._rows = 0
        """Given to detectors since the last look."""
        options = ExportOptions(tables=tables_for(self._detectors))
        # Names are looked up in the catalog of the run; this one only absorbs values that are not used here.
        enricher = Enricher(Catalog(learned_facts=LearnedFacts()))
        self._stager = Stager(options, enricher, self, bodies=self._detectors.bodies)

    # -- input ------------------------------------------------------------------------------------------------------

    def take(self, event: Message | SaslToken | Exchange | Problem | Connection) -> None:
        """Take one event. Hot: messages are examined in their exchange, when that is over."""
        kind = type(event)
        if kind is Message:
            return
        if isinstance(event, Exchange):
            if self._selected is not None:
                self._selected.add(event.connection)
            self._seen += 1
            if self._paused:
                return
            for message in (event.request, event.response):
                if message is not None:
                    self._held_bytes += message.size
            self._number(event.connection_id, event.connection)
        elif isinstance(event, Connection):
            if self._selected is not None:
                if event.connection not in self._selected:
                    return
                self._selected.discard(event.connection)
            self._number(event.connection_id, event.connection)
        if self._paused or not isinstance(event, Exchange | Problem | Connection | SaslToken):
            return
        self._held.append(event)
        if self._held_bytes >= HELD_BYTES or len(self._held) >= HELD_EVENTS:
            self._stage()

    def taken(self, packets: int) -> None:
        """The inspector has taken this number of packets."""
        links = self._inspector.take_links()
        if not self._paused:
            self._stager.take_links(links)
            self._rows += packets

    def _number(self, connection_id: int, connection: int) -> None:
        if connection_id not in self._numbers:
            if len(self._numbers) >= MAX_NUMBERED:
                del self._numbers[next(iter(self._numbers))]
            self._numbers[connection_id] = connection

    def write(self, table: str, batch: pa.RecordBatch) -> None:
        """Rows that the stager has."""
        if len(batch):
            self._rows += len(batch)
            self._detectors.update(batch, table)

    def close(self) -> None:
        """There are no more events; nothing is held here."""

    def _stage(self, *, flush: bool = False) -> None:
        """Make rows of held events; pass all of them to the detectors if `flush`."""
        started = self._clock()
        held, self._held, self._held_bytes = self._held, [], 0
        if held:
            self._stager.take(held)
        if flush:
            self._stager.flush()
        ended = self._clock()
        self._spent += ended - started
        self._stage_at = ended + HELD_SECONDS

    # -- how much is examined ----------------------------------------------------------------------------------------

    def look(self) -> None:
        """Called between two batches: check the load, and look for findings."""
        now = self._clock()
        if self._behind():
            self._paused = BEHIND
            self._calm_at = now + CALM_SECONDS
            self._measure(now)
            return
        if self._paused == BEHIND:
            if now >= self._calm_at:
                self._go_on()
            return
        if now - self._since >= SHARE_SECONDS:
            elapsed = now - self._since
            if self._paused:
                if self._seen * self._cost <= RESUME_SHARE * elapsed:
                    self._go_on()
            elif self._spent > MAX_SHARE * elapsed:
                self._paused, self._cost = COSTLY, self._spent / max(self._seen, 1)
            self._measure(self._clock())
        if self._paused:
            return
        if now >= self._find_at:
            self._find()
        elif now >= self._stage_at:
            self._stage()

    def _measure(self, now: float) -> None:
        """From here on."""
        self._since, self._spent, self._seen = now, 0.0, 0

    def _go_on(self) -> None:
        """After a gap: the stretch before it is finished, and a new one begins."""
        self._paused = ""
        self._find(last=True)
        self._measure(self._clock())

    # -- findings ----------------------------------------------------------------------------------------------------

    def _find(self, *, last: bool = False) -> None:
        self._stage(flush=True)
        started = self._clock()
        if self._rows:
            self._rows = 0
            detectors = self._with_open()
            self._found = detectors.findings(self._names())
            self._remarks = tuple(detectors.notes())
        ended = self._clock()
        self._together = _together(self._found, self._kept)
        if last or ended - started > MAX_LOOK_SECONDS:
            self._dropped += max(len(self._together) - MAX_KEPT, 0)
            del self._together[MAX_KEPT:]
            self._kept, self._found = self._together, []
            self._restarts += 1
            self._begin()
        self._find_at = ended + max(FINDINGS_SECONDS, FINDINGS_REST * (ended - started))

    def _with_open(self) -> Detectors:
        """The detectors with rows of `transport` for the connections that are open now, which change with each look."""
        links = self._inspector.open_links()
        if not len(links):
            return self._detectors
        detectors = self._make()
        detectors.merge(self._detectors)
        detectors.update(transport_rows(links), "transport")
        return detectors

    def _names(self) -> LearnedNames:
        """Names of topics; the same object until new ones are learned."""
        version = self._catalog.topics_learned
        if self._named is None or self._named[0] != version:
            self._named = version, LearnedNames(LearnedFacts(), {**self._catalog.given, **self._catalog.learnt})
        return self._named[1]

    def shown(self) -> Findings:
        """The findings to show."""
        findings = self._together
        remarks = self._remarks
        if self._dropped:
            remarks = (*remarks, f"{self._dropped:,} more findings are not shown")
        return Findings(
            {severity: sum(finding.severity == severity for finding in findings) for severity in SEVERITIES},
            tuple(self._row(finding) for finding in findings[:MAX_SHOWN]),
            remarks,
            self._paused,
            self._restarts,
        )

    def _row(self, finding: Finding) -> FindingRow:
        known = dict.fromkeys(self._numbers.get(evidence.connection_id) for evidence in finding.evidence)
        return FindingRow(
            finding.severity,
            finding.title,
            finding.meaning,
            finding.advice,
            finding.detector,
            _about(finding),
            finding.count,
            tuple(number for number in known if number is not None),
        )


def _about(finding: Finding) -> str:
    return repr(finding.subject)[:MAX_ABOUT]


def _together(*groups: Iterable[Finding]) -> list[Finding]:
    """Worst first; of several about the same subject the worst one."""
    findings: dict[tuple[str, str], Finding] = {}
    for finding in worst_first([finding for group in groups for finding in group]):
        findings.setdefault((finding.detector, _about(finding)), finding)
    return list(findings.values())
