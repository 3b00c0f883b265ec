"""The figures of `benchmarks.compare` as a section of RESULTS.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from benchmarks.comparisons import FLAT, PCAPNG, SHARED, Comparison
from benchmarks.generate import FORMS
from benchmarks.measures import (
    BESIDE,
    FLAT_TARGET,
    JOBS_TARGET,
    LEAST_TSHARK_S,
    PCAPNG_TARGET,
    PEAK_TARGET,
    RATE_TARGETS,
    START_TARGETS,
    TARGETS,
    TITLES,
    Measure,
)
from benchmarks.tables import against, table
from benchmarks.timing import Run, median, ratio

MB: Final = 1e6

READING: Final = """
Medians of whole processes that ran in turn; ours in one process unless noted. Ratios are ours divided by
tshark's: below 1 kafkasniff takes less. Peaks are the highest resident set of all runs, as the kernel accounts it.
Targets are for the forms whose versions tshark 4.0 decodes. It decodes hardly anything of the newest ones (*-new*): it
reports *malformed* and continues, so its times there measure other work.
"""

REQUESTS: Final = """
*Requests* is the number that kafkasniff and tshark see, *malformed* the packets that tshark cannot decode. With its
defaults, tshark loses messages if segments are out of order (*Bx*).
"""

ALL_TARGETS: Final = """
Every target, including those that were not measured here. The tables below explain them. Targets of live captures
are those of `benchmarks.live_load` and `benchmarks.live_targets`.
"""

NEWEST: Final = """
In the newest versions, librdkafka's mock cluster appends a superfluous byte to its Metadata responses
(`trailing-bytes`). This is a flaw of the cluster.
"""


def line(found: Comparison) -> str:
    """The summary that is printed at the end."""
    figures = ", ".join(
        f"{name} {median(runs, 'cpu'):.2f} s of CPU, {median(runs, 'wall'):.2f} s, {_peak(runs) / MB:.0f} MB"
        for name, runs in found.runs.items()
    )
    return f"{found.group}, {found.form}, {found.bytes / MB:.0f} MB: {figures}"


def section(comparisons: Sequence[Comparison], machine: Sequence[str], made_by: str, missing: Sequence[str]) -> str:
    """Markdown; `machine` and `made_by` say where and how the figures were taken, `missing` which forms lacked."""
    by_group: dict[str, list[Comparison]] = {}
    for one in comparisons:
        by_group.setdefault(one.group, []).append(one)
    notes = [f"Made by `{made_by}`"]
    if missing:
        notes.append(f"Not measured, because not made: {', '.join(missing)}")
    parts = ["## Beside tshark", "\n".join(f"- {reported}" for reported in (*machine, *notes)), READING.strip()]
    if misses := _misses(comparisons):
        parts += ["Targets that are not met: " + "; ".join(misses) + "."]
    elif comparisons:
        parts += ["All targets of what was measured are met."]
    if comparisons:
        parts += ["### Targets", ALL_TARGETS.strip(), _targets(comparisons)]
    parts.append("\n".join(f"- `{form}`: {FORMS[form]}" for form in dict.fromkeys(one.form for one in comparisons)))
    if counted := [one for one in comparisons if one.requests is not None]:
        parts += ["### What both see", REQUESTS.strip(), _requests(counted)]
        if any(one.form.endswith("-new") for one in counted):
            parts.append(NEWEST.strip())
    for group, names in BESIDE.items():
        for name in names:
            if found := by_group.get(group):
                parts += [f"### {TITLES[name]}", *_beside(found, name)]
    if found := by_group.get("tables"):
        parts += ["### Everything as Parquet: `export`", _tables(found)]
    if found := by_group.get("pcapng"):
        parts += ["### pcap and pcapng, text", _formats(found)]
    if found := by_group.get("memory"):
        flat = f"Target: at most {PEAK_TARGET / MB:.0f} MB, and the same within {FLAT_TARGET:.0%} on half of a capture."
        parts += ["### Memory on half a capture and on all of it", flat, _memory(found)]
    if found := by_group.get("jobs"):
        parts += ["### Two processes: `decode --format json --jobs 2`", _jobs(found)]
    if found := by_group.get("start"):
        parts += ["### Start-up", _start(found)]
    return "\n\n".join(parts)


def _misses(comparisons: Sequence[Comparison]) -> list[str]:
    """The sentence about figures above their targets."""
    missed = []
    for one in comparisons:
        for name, value, target in _judged(one):
            if value > target:
                missed.append(f"{name} on {one.form} {value:.2f} (≤ {target:g})")
        if one.same is False:
            missed.append(f"output of --jobs 2 on {one.form} is another")
    return missed


def _targets(comparisons: Sequence[Comparison]) -> str:
    """Every target, and whether it is met."""
    rows: list[list[object]] = []
    for name, form, target in _wanted():
        # Growth and peaks exist for several measures: the worst counts.
        values = [
            value
            for one in comparisons
            if one.form == form
            for reported, value, _ in _judged(one)
            if reported.partition(",")[0] == name or reported == name
        ]
        rows.append([name, form, f"{max(values):.2f}" if values else "not measured"])
        rows[-1] += [f"≤ {target:g}", ""] if not values else against(max(values), target)
    return table(["figure", "capture", "measured", "target", "met"], rows)


def _wanted() -> Iterator[tuple[str, str, float]]:
    """All targets: the names that `_judged` gives figures, captures, and the most that they may be."""
    for name, forms in TARGETS.items():
        yield from ((name, form, target) for form, target in forms.items())
    yield from (("CPU s per GB, tables", form, 1000 / rate) for form, rate in RATE_TARGETS.items())
    yield from (("wall time of --jobs 2", form, JOBS_TARGET) for form in SHARED)
    for form in FLAT:
        yield from (("growth of memory", form, FLAT_TARGET), ("peak MB", form, PEAK_TARGET / MB))
    yield from (("pcapng", form, PCAPNG_TARGET) for form in PCAPNG)
    yield from ((f"start-up s, {name}", "start", target) for name, target in START_TARGETS.items())


def _judged(one: Comparison) -> list[tuple[str, float, float]]:
    """Every figure of a comparison that has a target: its name, itself and the target, which is the most it may be."""
    if one.group in BESIDE:
        names: list[Measure] = [name for measures in BESIDE.values() for name in measures if name in one.runs]
        return [
            (name, ratio(one.runs[name], one.runs["tshark"], "cpu"), TARGETS[name][one.form])
            for name in names
            if one.form in TARGETS[name]
        ]
    if one.group == "tables":
        return [("CPU s per GB, tables", 1000 / _rate(one), 1000 / RATE_TARGETS[one.form])]
    if one.group == "pcapng":
        return [("pcapng", ratio(one.runs["pcapng"], one.runs["pcap"], "cpu"), PCAPNG_TARGET)]
    if one.group == "memory":
        flat = [(f"growth of memory, {name}", growth, FLAT_TARGET) for name, _, _, growth in _growths(one)]
        return flat + [(f"peak MB, {name}", peak / MB, PEAK_TARGET / MB) for name, _, peak, _ in _growths(one)]
    if one.group == "jobs":
        return [("wall time of --jobs 2", ratio(one.runs["--jobs 2"], one.runs["--jobs 1"], "wall"), JOBS_TARGET)]
    return [(f"start-up s, {name}", median(one.runs[name], "cpu"), target) for name, target in START_TARGETS.items()]


def _peak(runs: Sequence[Run]) -> int:
    return max(run.resident for run in runs)


def _mb(size: float) -> str:
    return f"{size / MB:,.1f}" if size < 10 * MB else f"{size / MB:,.0f}"


def _requests(found: Sequence[Comparison]) -> str:
    rows: list[list[object]] = []
    seen = set()
    for one in found:
        assert one.requests is not None
        # The same capture, asked again for another comparison.
        if (key := (one.form, one.bytes)) not in seen:
            seen.add(key)
            ours, theirs, malformed = one.requests
            rows.append([one.form, _mb(one.bytes), f"{one.packets:,}", f"{ours:,}", f"{theirs:,}", f"{malformed:,}"])
    return table(["capture", "MB", "packets", "requests", "tshark's", "malformed"], rows)


def _beside(found: Sequence[Comparison], name: Measure) -> list[str]:
    rows: list[list[object]] = []
    for one in found:
        ours, theirs = one.runs[name], one.runs["tshark"]
        cpu = ratio(ours, theirs, "cpu")
        rows.append(
            [
                *(one.form, _mb(one.bytes), len(ours)),
                f"{median(ours, 'cpu'):.2f} ({median(theirs, 'cpu'):.2f})",
                f"{cpu:.2f}",
                *against(cpu, TARGETS[name].get(one.form)),
                f"{median(ours, 'wall'):.2f} ({median(theirs, 'wall'):.2f})",
                f"{ratio(ours, theirs, 'wall'):.2f}",
                f"{_peak(ours) / MB:.0f} ({_peak(theirs) / MB:.0f})",
                f"{_mb(median(ours, 'written'))} ({_mb(median(theirs, 'written'))})",
            ]
        )
    head = ["capture", "MB", "runs", "CPU s (tshark)", "ratio", "target", "met", "wall s (tshark)", "ratio"]
    parts = [table([*head, "peak MB (tshark)", "written MB (tshark)"], rows)]
    if not all(one.whole for one in found):
        parts.append("Only the first packets of the captures: tshark would take minutes per run for everything.")
    if name == "text":
        short = [one for one in found if median(one.runs["tshark"], "cpu") < LEAST_TSHARK_S]
        if short:
            reported = ", ".join(f"{one.form} {median(one.runs['tshark'], 'cpu'):.1f} s" for one in short)
            parts.append(
                f"Too small: tshark should be at work for {LEAST_TSHARK_S:g} s or more, so that starting up does not "
                f"count. It took for {reported}."
            )
    return parts


def _formats(found: Sequence[Comparison]) -> str:
    rows = []
    for one in found:
        value = ratio(one.runs["pcapng"], one.runs["pcap"], "cpu")
        times = (f"{median(one.runs[name], 'cpu'):.2f}" for name in ("pcap", "pcapng"))
        rows.append([one.form, _mb(one.bytes), *times, f"{value:.2f}", *against(value, PCAPNG_TARGET)])
    return table(["capture", "MB", "CPU s, pcap", "CPU s, pcapng", "ratio", "target", "met"], rows)


def _rate(one: Comparison) -> float:
    """MB of capture for each second of CPU."""
    return one.bytes / MB / median(one.runs["tables"], "cpu")


def _tables(found: Sequence[Comparison]) -> str:
    rows: list[list[object]] = []
    for one in found:
        runs, rate, target = one.runs["tables"], _rate(one), RATE_TARGETS[one.form]
        times = (f"{median(runs, 'cpu'):.2f}", f"{median(runs, 'wall'):.2f}", f"{rate:.0f}")
        met = "yes" if rate >= target else "**no**"
        sizes = (f"{_peak(runs) / MB:.0f}", _mb(median(runs, "written")))
        rows.append([one.form, _mb(one.bytes), len(runs), *times, f"≥ {target:g}", met, *sizes])
    head = ["capture", "MB", "runs", "CPU s", "wall s", "MB per CPU s", "target", "met", "peak MB", "written MB"]
    return table(head, rows)


def _growths(one: Comparison) -> list[tuple[str, int, int, float]]:
    """For each measure, the peak on half and on all of a capture, and the relative difference."""
    found: list[tuple[str, int, int, float]] = []
    for name in (name for measures in BESIDE.values() for name in measures if name in one.runs):
        half, whole = _peak(one.runs[f"{name}, half"]), _peak(one.runs[name])
        found.append((name, half, whole, whole / half - 1))
    return found


def _memory(found: Sequence[Comparison]) -> str:
    rows: list[list[object]] = []
    for one in found:
        for name, half, whole, growth in _growths(one):
            met = growth <= FLAT_TARGET and whole <= PEAK_TARGET
            rows.append(
                [
                    *(one.form, _mb(one.bytes), name, f"{half / MB:.0f}", f"{whole / MB:.0f}"),
                    *(f"{growth:+.0%}", "yes" if met else "**no**"),
                ]
            )
    return table(["capture", "MB", "measure", "peak MB, half", "peak MB, all", "growth", "met"], rows)


def _jobs(found: Sequence[Comparison]) -> str:
    rows: list[list[object]] = []
    for one in found:
        single, double = one.runs["--jobs 1"], one.runs["--jobs 2"]
        wall = ratio(double, single, "wall")
        rows.append(
            [
                *(one.form, _mb(one.bytes), len(single)),
                *(f"{median(single, 'wall'):.2f}", f"{median(double, 'wall'):.2f}", f"{wall:.2f}"),
                *against(wall, JOBS_TARGET),
                f"{ratio(double, single, 'cpu'):.2f}",
                *(f"{one.peaks[name] / MB:.0f}" for name in ("--jobs 1", "--jobs 2")),
                "yes" if one.same else "**no**",
            ]
        )
    head = ["capture", "MB", "runs", "wall s, one", "wall s, two", "ratio", "target", "met", "CPU ratio"]
    return table([*head, "peak MB, one", "peak MB, two together", "same output"], rows)


def _start(found: Sequence[Comparison]) -> str:
    rows: list[list[object]] = []
    for one in found:
        for name, runs in one.runs.items():
            cpu = median(runs, "cpu")
            cells = against(cpu, START_TARGETS.get(name))
            rows.append([name, len(runs), f"{cpu:.3f}", *cells, f"{median(runs, 'wall'):.3f}", _mb(_peak(runs))])
    return table(["command", "runs", "CPU s", "target", "met", "wall s", "peak MB"], rows)
