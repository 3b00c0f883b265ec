"""The figures that benchmarks print: next to their targets, and judged by them."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path
from typing import Any

import pytest

from benchmarks import (
    compare_report,
    comparisons,
    growth_report,
    live_report,
    live_soak,
    live_targets,
    targets,
)
from benchmarks.comparisons import Comparison, Settings, plan
from benchmarks.generate import FORMS, Capture
from benchmarks.growth_runs import Endless, Sample, Step, exponent
from benchmarks.live_loads import Offered
from benchmarks.live_run import Result
from benchmarks.live_tools import Reported
from benchmarks.measures import Requests, ours
from benchmarks.processes import Usage
from benchmarks.timing import Run
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


# The kernel


def test_the_page_of_the_kernels_targets() -> None:
    rows = [targets.Row("json", "A", 2.0, 0.9), targets.Row("library", "C", 2.0, 1.4)]
    text = targets.section(rows, ["a machine"])
    assert f"| {targets.TITLES['json']} | A | 2.00 | 0.90 | 0.45 | ≤ 0.45 | yes |  |" in text
    assert f"| {targets.TITLES['library']} | C | 2.00 | 1.40 | 0.70 | ≤ 0.6 | **no** |  |" in text
