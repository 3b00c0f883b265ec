"""Runs detectors over captures and exports, without a command line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from kafkasniff.analysis.detectors.finding import Finding
from kafkasniff.analysis.detectors.numbers import Numbers
from kafkasniff.analysis.detectors.together import Detectors
from kafkasniff.analysis.export import Export
from kafkasniff.analysis.visibility import VisibleTraffic
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.staging import CountedRows
from kafkasniff.tables.rows import TABLE_NAMES

if TYPE_CHECKING:
    from kafkasniff.tls.keylog import KeyLog


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
            keys=keys,
            events=numbers.feed,
        )
        with open_captures(captures) as source:
            for batch in source:
                rows.feed(batch)
            broken = source.broken
        names = rows.end()
    found = numbers.numbered(detectors.findings(names))
    return Checked(found, detectors.notes(), broken, detectors.visible())
