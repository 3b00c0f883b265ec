"""The figures of `benchmarks.scale` as a Markdown page."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Final, Literal

import numpy as np

from benchmarks.cluster_estimate import Cluster, Line, Measured, StageCost, assumptions, estimate
from benchmarks.event_log import EventLog, Stage
from benchmarks.exported import Contents
from benchmarks.processes import Usage

Engine = Literal["local", "spark"]
MB: Final = 1e6
GB: Final = 1e9
OTHER_GB: Final = (10, 100, 1000)
OTHER_NODES: Final = (1, 4)
"""Sizes of captures and of clusters for which there is an estimate, too."""
OTHER_SIZES: Final = (
    "The same for less data and fewer nodes, with what takes longest. The largest connection is at most a tenth of the "
    "captures."
)
LEAST_GB: Final = 1.0
"""Estimates from less data are marked as unreliable."""


@dataclasses.dataclass(frozen=True)
class Measurement:
    """One run of one engine."""

    engine: Engine
    captures_bytes: int
    files: int
    cores: int
    usage: Usage
    tables: dict[str, Contents]
    load_before: float
    log: EventLog | None = None
    """The stages of Spark."""

    @property
    def tables_bytes(self) -> int:
        return sum(table.bytes for table in self.tables.values())

    @property
    def gb(self) -> float:
        return self.captures_bytes / GB


def growth(sizes: Sequence[float], seconds: Sequence[float]) -> float | None:
    """The exponent e of seconds ≈ c · size^e: least squares over the logarithms. None for less than two sizes."""
    if len(set(sizes)) < 2:
        return None
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def measured(runs: Sequence[Measurement]) -> Measured:
    """What an estimate starts from: the largest of `runs`, all of Spark, and for the start all of them."""
    largest = max(runs, key=lambda run: run.captures_bytes)
    assert largest.log is not None
    stages = [stage for stage in largest.log.stages if stage.run_ms]
    whole = sum(stage.run_ms for stage in stages)
    costs = [
        StageCost(
            stage.name,
            cpu_s=largest.usage.cpu_s * stage.run_ms / whole / largest.gb,
            shuffle_read_gb=stage.shuffle_read_bytes / largest.captures_bytes,
            shuffle_write_gb=stage.shuffle_write_bytes / largest.captures_bytes,
            spilled_gb=stage.spilled_disk_bytes / largest.captures_bytes,
        )
        for stage in stages
    ]
    start = min(run.usage.wall_s - run.log.busy_ms / 1000 for run in runs if run.log is not None)
    tasks = largest.log.total("tasks") / largest.gb
    return Measured(costs, largest.tables_bytes / largest.captures_bytes, tasks=tasks, start_s=max(0.0, start))


def page(
    runs: Sequence[Measurement], machine: Sequence[str], *, cluster: Cluster, captures_gb: float, made_by: str
) -> str:
    """The page; `machine` and `made_by` say where and how the figures were taken."""
    ordered = sorted(runs, key=lambda run: (run.captures_bytes, run.cores, run.engine))
    parts = [
        "# Exports at scale, measured",
        "Written by `python -m benchmarks.scale`; [README.md](README.md) explains the measurements.",
        "\n".join(f"- {line}" for line in (*machine, f"Made by `{made_by}`")),
        "## Runs",
        _runs(ordered),
        "Memory is PSS, the highest sum over all processes at one moment; *anonymous* excludes pages of files. Disk "
        "is the highest size of the run's folder, tables included. Load is that of the machine at the start. "
        "Runs use no more of its cores than stated.",
        "## Rows",
        _rows(ordered),
    ]
    if ratios := _ratios(ordered):
        parts += ["## Spark beside the embedded engine", ratios]
    if exponents := _exponents(ordered):
        parts += ["## Growth", "Exponents: 1 is growth in proportion, less is better.", exponents]
    sparks = [run for run in ordered if run.log is not None]
    if sparks:
        parts += ["## Shuffles", _shuffles(sparks)]
        largest = max(sparks, key=lambda run: (run.captures_bytes, run.cores))
        assert largest.log is not None
        costs = measured([run for run in sparks if run.cores == largest.cores])
        parts += [
            f"## Stages at {largest.gb:.2f} GB on {_cores(largest.cores)}",
            _stages(largest.log.stages),
            f"## On paper: {captures_gb / 1000:g} TB on {cluster.nodes} nodes",
            "An estimate from the run above, not a measurement. "
            + ("That run is so small that starting up is most of it. " if largest.gb < LEAST_GB else "")
            + "It assumes:",
            "\n".join(f"- {line}" for line in assumptions(cluster)),
            _estimate(costs, cluster, captures_gb),
            OTHER_SIZES,
            _other_sizes(costs, cluster),
        ]
    return "\n\n".join(parts) + "\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def _cores(count: int) -> str:
    return f"{count} core{'s' if count != 1 else ''}"


def _mb(size: float) -> str:
    return f"{size / MB:,.0f}"


def _runs(runs: Sequence[Measurement]) -> str:
    head = ["GB", "cores", "engine", "wall s", "CPU s", "of it main / JVM / workers", "peak MB", "anonymous"]
    head += ["main / JVM / workers", "largest worker", "disk MB", "load"]
    return _table(head, (_run_row(run) for run in runs))


def _run_row(run: Measurement) -> list[object]:
    usage = run.usage
    return [
        f"{run.gb:.2f}",
        run.cores,
        run.engine,
        f"{usage.wall_s:.1f}",
        f"{usage.cpu_s:.1f}",
        " / ".join(f"{usage.cpu_by_role[role]:.0f}" for role in usage.cpu_by_role),
        _mb(usage.peak),
        _mb(usage.peak_anonymous),
        " / ".join(_mb(usage.peak_by_role[role]) for role in usage.peak_by_role),
        _mb(usage.largest["workers"]),
        _mb(usage.disk),
        f"{run.load_before:.2f}",
    ]


def _rows(runs: Sequence[Measurement]) -> str:
    """One line for each size and engine, since cores change nothing."""
    names = sorted({name for run in runs for name in run.tables})
    kept = {(run.captures_bytes, run.engine): run for run in runs}
    return _table(
        ["GB", "files", "engine", *names, "tables MB"],
        (
            [
                f"{run.gb:.2f}",
                run.files,
                run.engine,
                *(f"{run.tables[name].rows:,}" if name in run.tables else "" for name in names),
                _mb(run.tables_bytes),
            ]
            for run in kept.values()
        ),
    )


def _ratios(runs: Sequence[Measurement]) -> str:
    by_key = {(run.captures_bytes, run.cores, run.engine): run for run in runs}
    rows = []
    for (size, cores, engine), spark in by_key.items():
        local = by_key.get((size, cores, "local"))
        if engine == "spark" and local is not None:
            ours, theirs = local.usage, spark.usage
            ratios = (
                _ratio(theirs.wall_s, ours.wall_s),
                _ratio(theirs.cpu_s, ours.cpu_s),
                _ratio(theirs.peak, ours.peak),
                _ratio(theirs.disk, ours.disk),
            )
            rows.append([f"{spark.gb:.2f}", cores, *ratios])
    return _table(["GB", "cores", "wall", "CPU", "peak memory", "disk"], rows) if rows else ""


def _ratio(one: float, other: float) -> str:
    return f"{one / other:.2f}" if other else ""


def _exponents(runs: Sequence[Measurement]) -> str:
    rows = []
    kinds = sorted({(run.engine, run.cores) for run in runs})
    for engine, cores in kinds:
        ours = [run for run in runs if (run.engine, run.cores) == (engine, cores)]
        sizes = [run.gb for run in ours]
        values = (
            growth(sizes, [run.usage.wall_s for run in ours]),
            growth(sizes, [run.usage.cpu_s for run in ours]),
            growth(sizes, [float(run.usage.peak_anonymous) for run in ours]),
        )
        if all(value is not None for value in values):
            rows.append([engine, cores, len(ours), *(f"{value:.2f}" for value in values)])
    return _table(["engine", "cores", "sizes", "wall", "CPU", "anonymous memory"], rows) if rows else ""


def _shuffles(runs: Sequence[Measurement]) -> str:
    head = ["GB", "cores", "stages", "tasks", "failed", "task s", "shuffle written MB", "for each byte captured"]
    head += ["spilled to disk MB", "persisted on disk MB"]
    rows: list[list[object]] = []
    for run in runs:
        log = run.log
        assert log is not None
        shuffled = log.total("shuffle_write_bytes")
        rows.append(
            [
                f"{run.gb:.2f}",
                run.cores,
                len(log.stages),
                log.total("tasks"),
                log.total("failed"),
                f"{log.total('run_ms') / 1000:.1f}",
                _mb(shuffled),
                f"{shuffled / run.captures_bytes:.2f}",
                _mb(log.total("spilled_disk_bytes")),
                _mb(log.persisted_bytes),
            ]
        )
    return _table(head, rows)


def _stages(stages: Sequence[Stage]) -> str:
    whole = sum(stage.run_ms for stage in stages) or 1
    head = ["stage", "tasks", "task s", "share", "longest s", "GC s", "read MB", "most in one task", "written MB"]
    head += ["spilled MB"]
    return _table(
        head,
        (
            [
                stage.name,
                stage.tasks,
                f"{stage.run_ms / 1000:.1f}",
                f"{stage.run_ms / whole:.0%}",
                f"{stage.longest_ms / 1000:.1f}",
                f"{stage.gc_ms / 1000:.1f}",
                _mb(stage.shuffle_read_bytes),
                _mb(stage.largest_read_bytes),
                _mb(stage.shuffle_write_bytes),
                _mb(stage.spilled_disk_bytes),
            ]
            for stage in stages
        ),
    )


def _estimate(costs: Measured, cluster: Cluster, captures_gb: float) -> str:
    lines = estimate(costs, cluster, captures_gb)
    per_gb: Iterable[str] = itertools.chain(
        [""], (f"{stage.cpu_s:.1f}" for stage in costs.stages), itertools.repeat("")
    )
    rows: list[list[object]] = [
        [line.name, cpu, *(_duration(value) for value in _by_resource(line)), _duration(line.seconds)]
        for line, cpu in zip(lines, per_gb, strict=False)
    ]
    rows.append(["**together**", "", "", "", "", "", f"**{_duration(sum(line.seconds for line in lines))}**"])
    return _table(["step", "CPU s for each GB", "cores", "disks", "network", "largest connection", "takes"], rows)


def _other_sizes(costs: Measured, cluster: Cluster) -> str:
    """Minutes for each size and number of nodes."""
    counts = [count for count in OTHER_NODES if count < cluster.nodes] + [cluster.nodes]
    rows: list[list[object]] = []
    for gb in OTHER_GB:
        rows.append([f"{gb:,}"])
        for nodes in counts:
            largest = min(cluster.largest_connection_gb, gb / 10)
            lines = estimate(costs, dataclasses.replace(cluster, nodes=nodes, largest_connection_gb=largest), gb)
            longest = max(lines, key=lambda line: line.seconds)
            rows[-1].append(f"{_duration(sum(line.seconds for line in lines))} ({longest.limit})")
    return _table(["GB", *(f"{nodes} nodes" if nodes > 1 else "1 node" for nodes in counts)], rows)


def _by_resource(line: Line) -> tuple[float, float, float, float]:
    return line.compute_s, line.disk_s, line.network_s, line.one_task_s


def _duration(seconds: float) -> str:
    """Minutes; nothing for nothing."""
    return f"{math.ceil(seconds / 6) / 10:g} min" if seconds else ""
