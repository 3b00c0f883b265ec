"""What detectors say of a run that goes on (docs/check.md): exchanges to rows, rows to detectors, findings to the view.

A stretch is what detectors look at without a gap. Behind packets that nobody looked at they begin anew, as with a new
capture: else a transaction whose end was in the gap would be open for ever. What was found before stays.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from kafkasniff.detectors.finding import SEVERITIES, Finding, worst_first
from kafkasniff.detectors.running import tables_for
from kafkasniff.detectors.together import Detectors
from kafkasniff.enrich import Catalog, Enricher
from kafkasniff.enrich.tellings import Tellings
from kafkasniff.exports.options import ExportOptions
from kafkasniff.exports.stager import Stager
from kafkasniff.model import Connection, Exchange, Message, Problem, SaslToken
from kafkasniff.rows.resolve import Names
from kafkasniff.watch.snapshot import FindingRow, Findings

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BEHIND", "COSTLY", "NOT_LIVE", "LiveFindings", "live_detectors"]

NOT_LIVE: Final = ("undecoded-traffic", "unreached-listeners")
"""Detectors that need the account of a connection while it is open: it is told when the connection is over."""
BEHIND: Final = "behind"
COSTLY: Final = "too much to look at"
"""Why nothing is looked at."""

HELD_SECONDS: Final = 1.0
HELD_BYTES: Final = 8 << 20
HELD_EVENTS: Final = 8192
"""Time, bytes of messages, and events that wait to be made rows of together: a few at a time cost several times as
much."""
FINDINGS_SECONDS: Final = 3.0
"""Between two looks at what was found, at least."""
FINDINGS_REST: Final = 20
"""And so many times as long as the last look took."""
MAX_LOOK_SECONDS: Final = 1.0
"""A look that took longer is the last of its stretch: detectors begin anew with nothing, since packets wait meanwhile
and what they keep only grows."""
SHARE_SECONDS: Final = 5.0
"""How often it is asked what part of the time rows take."""
MAX_SHARE: Final = 1 / 3
RESUME_SHARE: Final = 1 / 4
"""Parts of the time: rows that take more than the one are made no more, until they would take less than the other."""
CALM_SECONDS: Final = 5.0
"""So long nothing must have been behind before detectors go on."""
MAX_KEPT: Final = 1000
"""Findings that are kept, the worst; a detector alone gives a hundred."""
MAX_SHOWN: Final = 64
"""Findings that are shown, the worst."""
MAX_NUMBERED: Final = 1 << 16
"""Connections whose number is kept, the latest."""
MAX_ABOUT: Final = 512
"""Characters that tell two findings of a detector apart."""


def live_detectors() -> Detectors:
    """All that can be told of a run that goes on."""
    return Detectors(skip=NOT_LIVE)


class LiveFindings:
    """Takes the events of a run; `look` when there is time, and then `shown` says what was found.

    - `behind`: whether less than everything is decoded now; then nothing is looked at
    - `catalog`: what the run knows of topics
    - `selects`: events are selected, so only connections with exchanges among them count
    """

    def __init__(
        self,
        behind: Callable[[], bool],
        *,
        catalog: Catalog | None = None,
        selects: bool = False,
        detectors: Callable[[], Detectors] = live_detectors,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._behind = behind
        self._catalog = Catalog() if catalog is None else catalog
        self._selected: set[int] | None = set() if selects else None
        self._make = detectors
        self._clock = clock
        self._numbers: dict[int, int] = {}
        """Connection by its id in rows."""
        self._named: tuple[int, Names] | None = None
        self._kept: list[Finding] = []
        """Of the stretches before."""
        self._found: list[Finding] = []
        self._together: list[Finding] = []
        """Of this stretch and of those before."""
        self._left_out = 0
        self._remarks: tuple[str, ...] = ()
        self._paused = ""
        self._anew = 0
        self._held: list[Exchange | Problem | Connection] = []
        self._held_bytes = 0
        self._cost = 0.0
        """Seconds that the rows of an exchange took when they became too much."""
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
        """That detectors were given and no look has told of yet."""
        options = ExportOptions(tables=tables_for(self._detectors))
        # Names are looked up in the catalog of the run; this one only takes what nobody reads here.
        enricher = Enricher(Catalog(tellings=Tellings()))
        self._stager = Stager(options, enricher, self, wants_body=self._detectors.wants_body)

    # -- taking -----------------------------------------------------------------------------------------------------

    def take(self, event: Message | SaslToken | Exchange | Problem | Connection) -> None:
        """Take one event. Hot: messages are looked at in their exchange, when that is over."""
        kind = type(event)
        if kind is Message or kind is SaslToken:
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
        if self._paused or not isinstance(event, Exchange | Problem | Connection):
            return
        self._held.append(event)
        if self._held_bytes >= HELD_BYTES or len(self._held) >= HELD_EVENTS:
            self._stage()

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
        """There are no more; nothing is held here."""

    def _stage(self, *, flush: bool = False) -> None:
        """Rows of what is held; to the detectors with all of them if `flush`."""
        started = self._clock()
        held, self._held, self._held_bytes = self._held, [], 0
        if held:
            self._stager.take(held)
        if flush:
            self._stager.flush()
        ended = self._clock()
        self._spent += ended - started
        self._stage_at = ended + HELD_SECONDS

    # -- how much is looked at --------------------------------------------------------------------------------------

    def look(self) -> None:
        """Between two batches: see how it goes, and what there is to tell."""
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
        """Behind a gap: what came before it is told to its end, and what comes is a stretch of its own."""
        self._paused = ""
        self._find(last=True)
        self._measure(self._clock())

    # -- what was found ---------------------------------------------------------------------------------------------

    def _find(self, *, last: bool = False) -> None:
        self._stage(flush=True)
        started = self._clock()
        if self._rows:
            self._rows = 0
            self._found = self._detectors.findings(self._names())
            self._remarks = tuple(self._detectors.notes())
        ended = self._clock()
        self._together = _together(self._found, self._kept)
        if last or ended - started > MAX_LOOK_SECONDS:
            self._left_out += max(len(self._together) - MAX_KEPT, 0)
            del self._together[MAX_KEPT:]
            self._kept, self._found = self._together, []
            self._anew += 1
            self._begin()
        self._find_at = ended + max(FINDINGS_SECONDS, FINDINGS_REST * (ended - started))

    def _names(self) -> Names:
        """Names of topics; as long as no more are told, the same."""
        told = self._catalog.topics_told
        if self._named is None or self._named[0] != told:
            self._named = told, Names(Tellings(), {**self._catalog.given, **self._catalog.learnt})
        return self._named[1]

    def shown(self) -> Findings:
        """What there is to show."""
        found = self._together
        remarks = self._remarks
        if self._left_out:
            remarks = (*remarks, f"{self._left_out:,} more findings are left out")
        return Findings(
            {severity: sum(one.severity == severity for one in found) for severity in SEVERITIES},
            tuple(self._row(one) for one in found[:MAX_SHOWN]),
            remarks,
            self._paused,
            self._anew,
        )

    def _row(self, finding: Finding) -> FindingRow:
        known = (self._numbers.get(one.connection_id) for one in finding.evidence)
        return FindingRow(
            finding.severity,
            finding.title,
            finding.meaning,
            finding.advice,
            finding.detector,
            _about(finding),
            finding.count,
            next((number for number in known if number is not None), None),
        )


def _about(finding: Finding) -> str:
    return repr(finding.subject)[:MAX_ABOUT]


def _together(*groups: Iterable[Finding]) -> list[Finding]:
    """Worst first; of several about the same the worst one."""
    found: dict[tuple[str, str], Finding] = {}
    for one in worst_first([one for group in groups for one in group]):
        found.setdefault((one.detector, _about(one)), one)
    return list(found.values())
