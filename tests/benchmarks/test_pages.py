"""The figures that benchmarks print: next to their targets, and judged by them."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from benchmarks import (
    compare_report,
    comparisons,
    growth_report,
    live_report,
    live_soak,
    live_targets,
    scale_report,
    shapes,
    targets,
)
from benchmarks.cluster_estimate import Cluster, Measured, StageCost, estimate
from benchmarks.comparisons import Comparison, Settings, plan
from benchmarks.driver import DriverWork, task_ms
from benchmarks.event_log import EventLog, Stage
from benchmarks.exported import Contents
from benchmarks.generate import FORMS, Capture
from benchmarks.growth_runs import Endless, Sample, Step, exponent
from benchmarks.live_loads import Offered
from benchmarks.live_run import Result
from benchmarks.live_tools import Reported
from benchmarks.measures import Requests, ours
from benchmarks.planning import Step as PlanningStep
from benchmarks.processes import Usage
from benchmarks.results_page import write_section
from benchmarks.scale_report import Measurement
from benchmarks.tables import against, table
from benchmarks.timing import Run, median, ratio
from tests.conftest import ROOT


def test_what_benchmarks_import_is_there() -> None:
    absent = set()
    for path in sorted((ROOT / "benchmarks").glob("[a-z]*.py")):
        try:
            importlib.import_module(f"benchmarks.{path.stem}")
        except ModuleNotFoundError as error:
            absent.add(error.name)
    # It has an environment of its own.
    assert absent <= {"confluent_kafka"}


def test_cells_and_medians() -> None:
    assert against(0.5, 0.5) == ["≤ 0.5", "yes"]
    assert against(0.51, 0.5) == ["≤ 0.5", "**no**"]
    assert against(9, None) == ["", ""]
    assert table(["a", "b"], [["x|y", 1]]).splitlines() == ["| a | b |", "| --- | --- |", "| x\\|y | 1 |"]
    mine = [Run(cpu, cpu * 2, 0, 0) for cpu in (1.0, 2.0, 90.0)]
    theirs = [Run(cpu, 1.0, 0, 0) for cpu in (4.0, 3.0, 8.0, 5.0)]
    assert (median(mine, "cpu"), median(theirs, "cpu")) == (2.0, 4.5)
    assert ratio(mine, theirs, "wall") == 4.0
    few, some, many = (DriverWork(n, PlanningStep("", 9.0, 1.0 + n / 1000, 15.0)) for n in (50, 400, 1050))
    assert task_ms([many, few, some]) == task_ms([few, many]) == pytest.approx(1.0)


def test_a_section_replaces_only_itself(tmp_path: Path) -> None:
    page = tmp_path / "RESULTS.md"
    for name, text in (("one", "first \\1"), ("two", "second"), ("one", "third \\g<0>")):
        write_section(name, text, page)
    text = page.read_text()
    assert "first" not in text
    assert text.index("third \\g<0>") < text.index("second")
    assert text.count("one: begin") == text.count("one: end") == text.count("two: begin") == 1


# Beside tshark


def beside(form: str, mine: float) -> Comparison:
    runs = {name: [Run(cpu, cpu, 100_000_000, 5_000_000)] * 3 for name, cpu in (("text", mine), ("tshark", 10.0))}
    return Comparison("lines", form, 120_000_000, 4_000, True, runs, Requests(900, 900, 0))


def test_the_page_of_the_comparison() -> None:
    text = compare_report.section([beside("A", 3.0)], ["today"], "python -m benchmarks.compare", ["B"])
    assert "| A | 120 | 3 | 3.00 (10.00) | 0.30 | ≤ 0.35 | yes |" in text
    assert "All targets of what was measured are met." in text
    assert "Not measured, because not made: B" in text
    text = compare_report.section([beside("A", 3.6)], [], "", [])
    assert "Targets that are not met: text on A 0.36 (≤ 0.35)" in text
    assert "**no**" in text


def test_what_can_be_compared_is_planned(tmp_path: Path) -> None:
    def planned(*forms: str) -> list[tuple[str, str]]:
        there = {form: Capture(form, tmp_path / form, [9092], 1) for form in forms}
        return [(task.group, task.form) for task in plan(there, tmp_path, Settings())]

    everything = planned(*FORMS)
    assert len(everything) == len(set(everything)) > 30
    assert {form for group, form in everything if group == "jobs"} == set(comparisons.SHARED)
    assert planned("start") == [("start", "start")]
    command = ours(Path("x.pcap"), "records", Path("folder"))
    assert command[-1] == "x.pcap"
    assert command[command.index("--jobs") + 1] == "1"


# Growth


def endless(*resident: int) -> Endless:
    samples = [Sample(place * 0.2, place * 100, value) for place, value in enumerate(resident)]
    return Endless("it", (len(resident) - 1) * 100, 10, 2, 5, 1.0, 2.0, samples)


def test_the_page_of_growth() -> None:
    sizes = [10**6, 2 * 10**6, 4 * 10**6]
    steps = [Step("C", 100, 1, 0.5, 4e7), *(Step("C", size, size // 1000, 0.5 + size / 1e6, 5e7) for size in sizes)]
    assert exponent(steps) == pytest.approx(1.0)
    flat, grown = endless(10, 50, *[100] * 6, 105), endless(10, 50, 100, 110, 120, 130, 140, 150, 165)
    assert (flat.growth(), grown.growth()) == (pytest.approx(0.05), pytest.approx(0.5))
    text = growth_report.section(steps, [flat, grown, endless(1)], ["today"], "python -m benchmarks.growth")
    for wanted in ("exponent **1.00**", "| +5% | yes |", "| +50% | **no** |", "too short to judge"):
        assert wanted in text


# Live


def replayed(rate: float, shown: int = 200, **other: Any) -> Result:
    usage = Usage(10.0, 2.5, {}, 80_000_000, 70_000_000, {}, {}, 0, 50)
    made = Result(
        *(f"C {rate:g} packets/s", "C", rate, "text", Offered(2.0, int(2 * rate), 60_000, 0, 200, 200)),
        *(Reported(requests=shown, lost=0), usage, 0.2, True, False, 0, 0.1),
    )
    return dataclasses.replace(made, **other)


def test_rates_that_were_held() -> None:
    assert live_report.is_complete(replayed(100))
    incomplete: list[dict[str, Any]] = [
        {"shown": 199},
        {"behind_s": 1.5},
        {"caught_up": False},
        {"reported": Reported(requests=200, lost=1)},
        {"reported": Reported(requests=200, lost=0, problems={"live-behind": 1})},
    ]
    for other in incomplete:
        assert not live_report.is_complete(replayed(100, **other)), other
    page = live_report.section([replayed(100), replayed(300, shown=199)], [], ["today"], [], "python")
    assert "| 300 | kafkasniff, text | 1 |" in page
    runs = [replayed(100_000), replayed(300_000), replayed(200_000, shown=199)]
    assert live_targets.verdicts(runs) == ["text: 100,000 packets/s held; target ≥ 200,000: no"]
    runs[2] = replayed(200_000)
    assert live_targets.verdicts(runs) == ["text: 300,000 packets/s held; target ≥ 200,000: yes"]


BEHIND = "live-behind"


@pytest.mark.parametrize(
    ("sizes", "reported", "faults"),
    [
        ([50, 100, 200, *[210] * 9], {}, []),
        ([*range(100, 400, 10)], {}, ["memory grew from 205 to 355 MB"]),
        ([1, 1], {"requests": 9}, ["9 of 10 requests shown"]),
        ([1, 1], {"lost": 3}, ["3 packets lost, 0 not delivered"]),
        ([1, 1], {"problems": {BEHIND: 2, "api-unknown": 5}}, [f"{BEHIND}: 2"]),
    ],
    ids=["sound", "memory", "requests", "lost", "behind"],
)
def test_faults_of_a_soak(sizes: list[int], reported: dict[str, Any], faults: list[str]) -> None:
    memory = [(float(second), size * 10**6) for second, size in enumerate(sizes, 1)]
    shown = Reported(**{"requests": 10, "lost": 0, **reported})
    assert live_soak.Soak("text", 10.0, 30, 10, shown, 0, 1.0, memory, (None, None, None), 0).faults() == faults


# Scale

CLUSTER = Cluster(
    nodes=10, cores=4, efficiency=0.5, disk_mb_s=100, network_gbit_s=8, replicas=3, captures_read=2,
    largest_connection_gb=5, capture_mb=50, driver_capture_ms=1, driver_task_ms=4,
    driver_warm_up_s=5, most_tasks=15_000,
)  # fmt: skip


def exported(engine: Literal["local", "spark"], gb: int, wall_s: float, *, cores: int = 2) -> Measurement:
    peaks, cpu = {"main": 10**9, "jvm": 0, "workers": 0}, {"main": 80.0 * gb, "jvm": 0.0, "workers": 0.0}
    usage = Usage(wall_s, 80.0 * gb, cpu, 10**9, 5 * 10**8, peaks, peaks, 3 * 10**9, 10)
    log = None
    if engine == "spark":
        stages = [
            Stage("scan", tasks=8, run_ms=30_000 * gb, shuffle_write_bytes=gb * 10**9),
            Stage("reassemble", tasks=4, run_ms=10_000 * gb, shuffle_read_bytes=gb * 10**9, spilled_disk_bytes=10**8),
        ]
        log = EventLog(stages, persisted_bytes=5 * 10**8, busy_ms=int(wall_s * 1000) - 12_000 - 500 * gb)
    tables = {"records": Contents(1000 * gb, gb * 5 * 10**8, {})}
    return Measurement(engine, gb * 10**9, 4 * gb, cores, usage, tables, 0.5, log)


def test_the_page_of_scale() -> None:
    runs = [exported(engine, gb, wall * gb) for gb in (1, 2) for engine, wall in (("local", 50.0), ("spark", 40.0))]
    render: Callable[..., str] = scale_report.page
    text = render(runs, ["a machine"], cluster=CLUSTER, captures_gb=10_000, made_by="python")
    assert "| 2.00 | 2 | spark | 80.0 | 160.0 | 160 / 0 / 0 | 1,000 | 500 | 1,000 / 0 / 0 | 0 | 3,000 | 0.50 |" in text
    assert "| 1.00 | 2 | 0.80 | 1.00 | 1.00 | 1.00 |" in text
    assert "## On paper: 10 TB on 10 nodes" in text
    # Runs of one engine cannot be compared.
    text = render(runs[:1], [], cluster=CLUSTER, captures_gb=10_000, made_by="python")
    assert not any(title in text for title in ("Spark beside", "Growth", "Stages", "On paper"))
    text = shapes.section([shapes.Shaped("long", exported("spark", 1, 90.0, cores=1))], ["a machine"], "python")
    assert "| long | 1,000 | 4 | spark | 1 | 90.0 |" in text


def test_an_estimate_is_of_the_scarcest_resource() -> None:
    stages = [StageCost("scan", 10, shuffle_write_gb=1), StageCost("join", 1, shuffle_read_gb=1, spilled_gb=0.5)]
    over, scan, join, written, driver = estimate(Measured(stages, tables_gb=0.5, tasks=20, start_s=20), CLUSTER, 1000)
    # Ten nodes of 1 GB/s; twice 1,000 GB.
    assert over.network_s == over.seconds == pytest.approx(200)
    # 10,000 CPU seconds on 40 cores at work half of the time; 1,000 GB on disks of together 1 GB/s.
    assert (scan.compute_s, scan.disk_s, scan.seconds) == pytest.approx((500, 1000, 1000))
    # Read, and spilled: written and read; nine tenths come from other nodes.
    assert (join.disk_s, join.network_s, join.one_task_s) == pytest.approx((2000, 90, 5))
    assert written.disk_s == pytest.approx(1500)
    # 20,000 captures; as many tasks would be too many.
    assert driver.seconds == pytest.approx(20 + 5 + 20 + 60)


def test_the_page_of_the_kernels_targets() -> None:
    rows = [targets.Row("json", "A", 2.0, 0.9), targets.Row("library", "C", 2.0, 1.4)]
    text = targets.section(rows, ["a machine"])
    assert f"| {targets.TITLES['json']} | A | 2.00 | 0.90 | 0.45 | ≤ 0.45 | yes |  |" in text
    assert f"| {targets.TITLES['library']} | C | 2.00 | 1.40 | 0.70 | ≤ 0.6 | **no** |  |" in text
