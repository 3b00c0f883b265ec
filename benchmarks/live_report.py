"""The figures of `benchmarks.live_load` as a section of RESULTS.md."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from benchmarks.live_latency import Latency
from benchmarks.live_run import Result

MB: Final = 1e6
PROMPT_S: Final = 1.0
"""A program keeps up when it is at work no longer than this after the load: blocks of packets and pipes take a part."""

NAMES: Final = {
    "text": "kafkasniff, text",
    "json": "kafkasniff, JSON lines",
    "write": "kafkasniff -q --write",
    "export": "kafkasniff -q --export",
    "tshark": "tshark -l",
    "tshark-ek": "tshark -l -T ek",
}
FORMS: Final = {
    "C": "Replayed: many connections of small messages (form C), packets/s",
    "A": "Replayed: large segments (form A), MB/s",
    "small": "Clients of librdkafka: one record a request, records/s",
    "large": "Clients of librdkafka: large batches, records/s",
}

READING: Final = """
Every program sees the same loads, one program at a time, in turn; the senders run on the same cores. Rates are what
reached the interface, by the kernel's count.

- *Lost* is what the kernel reports that it could not deliver: to kafkasniff's rings (64 MiB by default), or to those of
  dumpcap (2 MiB), which writes all packets to a file that tshark reads. So packets that tshark cannot keep up with are
  not lost but late, and *spool* is the final size of that file.
- *Shown* is the share of sent requests that were shown. With `--write` it is packets in the file, of packets that
  reached the interface.
- *Lag* is how long after the end of the load the program was still at work; `>` if it was stopped then, with what it
  had shown so far.
- CPU is user and system time of the program and all that it started, from start to end; memory the highest sum of their
  proportional set sizes.

Figures are medians of all runs; the highest for *lost*, *lag*, memory and *spool*, the least for *shown*.
"""


COMPLETE: Final = f"""
The highest of the tried rates at which, as at all lower ones, no run lost a packet, every request was shown, nothing
was reported as skipped, and the program was at work at most {PROMPT_S:g} s after the load.
""".strip()

PROBLEMS: Final = """
Problems by kind: the number in the run with the most; for problems of the whole capture, the last detail.
""".strip()

DELAYS: Final = """
From the capture time in a line to its arrival at the other end of a pipe. The worst figures of several runs.
""".strip()


def section(
    runs: Sequence[Result], latencies: Sequence[Latency], machine: Sequence[str], notes: Sequence[str], made_by: str
) -> str:
    """Markdown; `machine` and `made_by` say where and how the figures were taken, `notes` what is special about it."""
    parts = [
        "## Live under load",
        "\n".join(f"- {line}" for line in (*machine, f"Made by `{made_by}`", *notes)),
        READING.strip(),
    ]
    for form in dict.fromkeys(run.form for run in runs):
        ours = [run for run in runs if run.form == form]
        parts += [f"### {FORMS[form]}", _loads(ours)]
    if runs:
        parts += ["### Up to where nothing is missing", COMPLETE, _complete(runs)]
        if problems := _problems(runs):
            parts += ["### Problems", PROBLEMS, problems]
    if latencies:
        parts += ["### From packet to line", DELAYS, _latencies(latencies)]
    return "\n\n".join(parts)


def is_complete(run: Result) -> bool:
    """Whether nothing of a load is missing in what a program shows, as far as that is known."""
    reported, offered = run.reported, run.offered
    if reported.lost or not run.caught_up or run.killed or run.behind_s > PROMPT_S:
        return False
    if any(kind.startswith("live-") for kind in reported.problems):
        return False
    return reported.requests is None or reported.requests >= offered.requests


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def _median(runs: Sequence[Result], figure: Callable[[Result], float]) -> float:
    return statistics.median(figure(run) for run in runs)


def _groups(runs: Sequence[Result]) -> dict[tuple[str, str], list[Result]]:
    """Runs of the same program under the same load, in the order in which they came."""
    found: dict[tuple[str, str], list[Result]] = {}
    for load in dict.fromkeys(run.load for run in runs):
        for run in runs:
            if run.load == load:
                found.setdefault((load, run.tool), []).append(run)
    return found


def _loads(runs: Sequence[Result]) -> str:
    head = ["asked for", "program", "runs", "packets/s", "MB/s", "messages/s", "lost", "shown", "lag s", "CPU s"]
    head += ["peak MB", "spool MB"]
    return _table(head, (_load_row(same) for same in _groups(runs).values()))


def _load_row(same: Sequence[Result]) -> list[object]:
    first = same[0]
    lost = [run.reported.lost for run in same]
    behind = max(run.behind_s for run in same)
    late = any(not run.caught_up or run.killed for run in same)
    return [
        "max" if first.rate is None else f"{first.rate:,g}",
        NAMES[first.tool],
        len(same),
        f"{_median(same, lambda run: run.offered.packets / run.offered.seconds):,.0f}",
        f"{_median(same, lambda run: run.offered.bytes / run.offered.seconds) / MB:,.1f}",
        f"{_median(same, lambda run: (run.offered.requests + run.offered.responses) / run.offered.seconds):,.0f}",
        # It may have lost some and not have come to say it.
        "?" if any(count is None for count in lost) else f"{max(count or 0 for count in lost):,}",
        min((_shown(run) for run in same), key=lambda one: one[0])[1],
        f"{'>' if late else ''}{behind:.1f}",
        f"{_median(same, lambda run: run.usage.cpu_s):.1f}",
        f"{max(run.usage.peak for run in same) / MB:,.0f}",
        f"{max(run.reported.spool for run in same) / MB:,.0f}" if any(run.reported.spool for run in same) else "",
    ]


def _shown(run: Result) -> tuple[float, str]:
    """What part of a load a program showed, as a number and in words."""
    if run.reported.kept is not None:
        shown, whole, exact = run.reported.kept, run.offered.packets, True
    elif run.reported.requests is not None:
        shown, whole, exact = run.reported.requests, run.offered.requests, run.offered.exact
    else:
        return 1.0, ""
    part = shown / whole if whole else 1.0
    if not exact:
        return part, f"{shown:,} of at least {whole:,}"
    # 100% is for all of it, not for nearly all.
    share = "100%" if shown == whole else f"{min(part, 0.9999) if part < 1 else part:.2%}"
    return part, f"{share} of {whole:,}"


def _complete(runs: Sequence[Result]) -> str:
    rows: list[list[object]] = []
    tools = list(dict.fromkeys(run.tool for run in runs))
    for form in dict.fromkeys(run.form for run in runs):
        row: list[object] = [FORMS[form]]
        for tool in tools:
            mine = [run for run in runs if (run.form, run.tool) == (form, tool)]
            row.append(_highest(mine))
        rows.append(row)
    return _table(["load", *(NAMES[tool] for tool in tools)], rows)


def _highest(runs: Sequence[Result]) -> str:
    """The highest rate below which all is complete; "max" where clients push as hard as they can."""
    best: float | None = None
    for rate in sorted({run.rate if run.rate is not None else float("inf") for run in runs}):
        same = [run for run in runs if (run.rate if run.rate is not None else float("inf")) == rate]
        if not all(is_complete(run) for run in same):
            break
        best = rate
    if best is None:
        return "none of them" if runs else ""
    return "max" if best == float("inf") else f"{best:,g}"


def _problems(runs: Sequence[Result]) -> str:
    rows: list[list[object]] = []
    for (load, tool), same in _groups(runs).items():
        for kind in sorted({kind for run in same for kind in run.reported.problems}):
            worst = max(same, key=lambda run: run.reported.problems.get(kind, 0))
            detail = worst.reported.details.get(kind, "")
            rows.append([load, NAMES[tool], f"`{kind}`", f"{worst.reported.problems[kind]:,}", detail])
    return _table(["load", "program", "kind", "count", "last"], rows) if rows else ""


def _latencies(latencies: Sequence[Latency]) -> str:
    rows: list[list[object]] = []
    for tool in dict.fromkeys(one.tool for one in latencies):
        same = [one for one in latencies if one.tool == tool]
        offered = same[0].offered
        messages = offered.requests + offered.responses
        rows.append(
            [
                *(NAMES[tool], len(same), f"{messages / offered.seconds:,.0f}"),
                f"{min(one.lines for one in same):,} of {messages:,}",
                *(_worst(one.median_ms for one in same), _worst(one.p99_ms for one in same)),
                _worst(one.most_ms for one in same),
            ]
        )
    return _table(["program", "runs", "messages/s", "lines", "median ms", "99th percentile ms", "most ms"], rows)


def _worst(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{max(known):,.0f}" if known else "none came"
