"""The figures of `benchmarks.growth` as a section of RESULTS.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from benchmarks.generate import FORMS
from benchmarks.growth_runs import Endless, Step, exponent
from benchmarks.measures import FLAT_TARGET
from benchmarks.tables import table

MB: Final = 1e6
SHARES: Final = (0.1, 0.25, 0.5, 0.75, 1.0)

TIMES: Final = """
`decode` to text on beginnings of the same capture, one process; the first is next to empty and is taken off as what
starting up takes. An exponent of 1 is growth in proportion to the packets.
"""

MEMORY: Final = f"""
`decode -` to text, while traffic is made and written to its stdin: nothing is on disk. Memory is the resident set,
sampled five times per second: the peak until this share of the traffic was written. A run is *flat* if the peak of its
second half is at most {FLAT_TARGET:.0%} above that of its second quarter.

- Short connections open and close, each with a handshake, one exchange and an end.
- The one connection produces and fetches batches of half a megabyte.
- Idle connections have had one exchange; then one other continues for most of an hour of capture time.
- Requests without an answer come on two connections; a broker acknowledges their bytes and says nothing.
"""


def section(steps: Sequence[Step], endless: Sequence[Endless], machine: Sequence[str], made_by: str) -> str:
    """Markdown; `machine` and `made_by` say where and how the figures were taken."""
    parts = ["## Growth", "\n".join(f"- {line}" for line in (*machine, f"Made by `{made_by}`"))]
    if steps:
        parts += ["### Time over packets", TIMES.strip()]
        for form in dict.fromkeys(step.form for step in steps):
            mine = [step for step in steps if step.form == form]
            power = exponent(mine)
            reported = "too few sizes for an exponent" if power is None else f"exponent **{power:.2f}**"
            parts += [f"`{form}`, {FORMS[form]}: {reported}", _times(mine)]
    if endless:
        parts += ["### Memory over time", MEMORY.strip(), _memory(endless)]
    return "\n\n".join(parts)


def _times(steps: Sequence[Step]) -> str:
    start, rows = steps[0].cpu_s, []
    for step in steps:
        each = max(0.0, step.cpu_s - start) / step.packets * 1e6
        cells = (f"{step.bytes / MB:.3g}", f"{step.packets:,}", f"{step.cpu_s:.2f}")
        rows.append([*cells, "" if step is steps[0] else f"{each:.2f}", f"{step.resident / MB:.0f}"])
    return table(["MB", "packets", "CPU s", "µs a packet", "peak MB"], rows)


def _memory(endless: Sequence[Endless]) -> str:
    rows: list[list[object]] = []
    for one in endless:
        at = [one.resident_at(share) for share in SHARES]
        growth = one.growth()
        rows.append(
            [
                *(one.name, f"{one.bytes / 1e9:.2f}", f"{one.packets:,}", f"{one.connections:,}", f"{one.requests:,}"),
                *(f"{one.wall_s:.0f}", f"{one.cpu_s:.0f}"),
                *("" if resident is None else f"{resident / MB:,.0f}" for resident in at),
                f"{one.peak / MB:,.0f}",
                *(("", "too short to judge") if growth is None else (f"{growth:+.0%}", _verdict(growth))),
            ]
        )
    head = ["traffic", "GB", "packets", "connections", "requests", "wall s", "CPU s"]
    return table([*head, *(f"MB at {share:.0%}" for share in SHARES), "peak MB", "growth", "flat"], rows)


def _verdict(growth: float) -> str:
    return "yes" if growth <= FLAT_TARGET else "**no**"
