"""Reads captures and exports for detectors, without a command line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from kafkasniff.analysis.export import Export
from kafkasniff.analysis.visibility import VisibleTraffic
from kafkasniff.detectors.finding import Finding
from kafkasniff.detectors.numbers import Numbers
from kafkasniff.detectors.together import Detectors
from kafkasniff.exports.counted import CountedRows
from kafkasniff.exports.options import ExportOptions
from kafkasniff.exports.transport import TABLE as TRANSPORT_TABLE

if TYPE_CHECKING:
    from kafkasniff.tls.keylog import KeyLog

__all__ = ["Checked", "run", "tables_for"]


class Checked(msgspec.Struct, frozen=True):
    """What detectors say of some captures and exports."""

    findings: list[Finding]
    """Worst first."""
    notes: list[str]
    """What a reader must know: what is not known, and what bounds have cost."""
    broken: bool
    """A capture was structurally broken or cut; what could be read was."""
    visible: VisibleTraffic
    """How much of the traffic could be decoded."""


def tables_for(detectors: Detectors) -> tuple[str, ...]:
    """The tables whose rows they need of captures."""
    return ("exchanges", *(table for table in ("records", "connections", "problems") if table in detectors.reads()))


def run(
    sources: Sequence[str],
    *,
    only: Iterable[str] = (),
    skip: Iterable[str] = (),
    settings: Iterable[str] = (),
    ports: Iterable[int] = (),
    keys: KeyLog | None = None,
) -> Checked:
    """What detectors say of captures and exports (folders), all of them together.

    `only`, `skip` and `settings` as for `Detectors`; `ports` and `keys` as for `Inspector`. Raises UsageError for those
    that make no sense, CaptureError where something cannot be read.
    """
    # Exports need none of what reads captures.
    from kafkasniff.capture import open_captures  # noqa: PLC0415
    from kafkasniff.capture.folders import divided  # noqa: PLC0415

    detectors, numbers = Detectors(only, skip, settings), Numbers()
    captures, exports = divided(sources)
    for folder in exports:
        detectors.read(Export.open(folder))
    names, broken = None, False
    if captures:
        rows = CountedRows(
            ExportOptions(tables=tables_for(detectors), ports=tuple(sorted(set(ports)))),
            detectors.update,
            wants_body=detectors.wants_body,
            keys=keys,
            events=numbers.feed,
            transport=TRANSPORT_TABLE in detectors.reads(),
        )
        with open_captures(captures) as source:
            for batch in source:
                rows.feed(batch)
            broken = source.broken
        names = rows.end()
    found = numbers.numbered(detectors.findings(names))
    return Checked(found, detectors.notes(), broken, detectors.visible())
