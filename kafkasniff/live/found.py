"""Findings as lines of the screen. Sentences of findings are safe to print (`detectors.finding`)."""

from __future__ import annotations

import textwrap
from typing import Final

from rich.text import Text

from kafkasniff.live.lines import one_line
from kafkasniff.live.snapshot import FindingRow, Findings

__all__ = ["chosen_lines", "findings_line"]

_STYLES: Final = {"error": "bold red", "warning": "bold yellow"}


def findings_line(findings: Findings, width: int) -> Text:
    """`findings 2 errors, 1 warning`, whether detectors are active, and the worst one."""
    counts = [
        (f"{count:,} {severity}{'' if count == 1 else 's'}", _STYLES.get(severity, "bold"))
        for severity, count in findings.counts.items()
        if count
    ]
    line = Text.assemble(("findings ", "dim"))
    if findings.paused:
        line.append(f"paused: {findings.paused}", "bold yellow")
        line.append(", before that ", "dim")
    parts = counts or [("none", "bold")]
    for left, (count, style) in zip(range(len(parts) - 1, -1, -1), parts, strict=True):
        line.append(f"{count}, " if left else count, style)
    if findings.restarts:
        line.append(f"   started over {findings.restarts}×", "yellow")
    if findings.rows:
        line.append(f"   {findings.rows[0].title}", "dim")
    return one_line(line, width)


def chosen_lines(findings: Findings, row: FindingRow | None, width: int) -> list[Text]:
    """Caveats for all findings, and one finding in full."""
    lines = [line for remark in findings.remarks for line in _wrapped(remark, width, "yellow")]
    if row is not None:
        lines += _wrapped(row.title, width, _STYLES.get(row.severity, "bold"))
        lines += _wrapped(row.meaning, width)
        lines += _wrapped(f"Try: {row.advice}", width)
        lines += _wrapped(f"{row.detector}, {row.count:,}×", width, "dim")
    return lines


def _wrapped(text: str, width: int, style: str = "") -> list[Text]:
    return [one_line(Text(line, style), width) for line in textwrap.wrap(text, width)]
