from __future__ import annotations

from typing import Literal

import pytest

from benchmarks.cluster_estimate import Cluster, Measured, StageCost, assumptions, estimate
from benchmarks.event_log import EventLog, Stage
from benchmarks.exported import Contents
from benchmarks.processes import Usage
from benchmarks.scale_report import Measurement, growth, measured, page

CLUSTER = Cluster(
    nodes=10, cores=4, efficiency=0.5, disk_mb_s=100, network_gbit_s=8, replicas=3, captures_read=2,
    largest_connection_gb=5, capture_mb=50, driver_capture_ms=1, driver_task_ms=4,
    driver_warm_up_s=5, most_tasks=15_000,
)  # fmt: skip


def usage(wall_s: float, cpu_s: float, peak: int = 10**9) -> Usage:
    return Usage(
        wall_s, cpu_s, {"main": cpu_s, "jvm": 0.0, "workers": 0.0}, peak, peak // 2,
        {"main": peak, "jvm": 0, "workers": 0}, {"main": peak, "jvm": 0, "workers": 0}, 3 * 10**9, 10,
    )  # fmt: skip


def run(engine: Literal["local", "spark"], gb: int, wall_s: float, *, cores: int = 2) -> Measurement:
    log = None
    if engine == "spark":
        stages = [
            Stage("scan", tasks=8, run_ms=30_000 * gb, shuffle_write_bytes=gb * 10**9),
            Stage("reassemble", tasks=4, run_ms=10_000 * gb, shuffle_read_bytes=gb * 10**9, spilled_disk_bytes=10**8),
        ]
        log = EventLog(stages, persisted_bytes=5 * 10**8, busy_ms=int(wall_s * 1000) - 12_000 - 500 * gb)
    tables = {"records": Contents(1000 * gb, gb * 5 * 10**8, {})}
    return Measurement(engine, gb * 10**9, 4 * gb, cores, usage(wall_s, 80.0 * gb), tables, 0.5, log)


def test_growth_is_the_exponent() -> None:
    sizes = [1.0, 2.0, 4.0, 8.0]
    assert growth(sizes, [3 * size**1.5 for size in sizes]) == pytest.approx(1.5)
    assert growth(sizes, [7.0] * 4) == pytest.approx(0)
    assert growth([2.0, 2.0], [1.0, 2.0]) is None


def test_an_estimate_is_of_the_scarcest_resource() -> None:
    costs = Measured(
        [StageCost("scan", 10, shuffle_write_gb=1), StageCost("join", 1, shuffle_read_gb=1, spilled_gb=0.5)],
        tables_gb=0.5,
        tasks=20,
        start_s=20,
    )
    over, scan, join, tables, driver = estimate(costs, CLUSTER, 1000)
    # Ten nodes of 1 GB/s; twice 1,000 GB.
    assert over.network_s == over.seconds == pytest.approx(200)
    # 10,000 CPU seconds on 40 cores at work half of the time; 1,000 GB on disks of together 1 GB/s.
    assert scan.compute_s == pytest.approx(500)
    assert scan.disk_s == scan.seconds == pytest.approx(1000)
    assert scan.one_task_s == 0
    # Read, and spilled: written and read; nine tenths come from other nodes.
    assert join.disk_s == join.seconds == pytest.approx(2000)
    assert join.network_s == pytest.approx(90)
    assert join.one_task_s == pytest.approx(5)
    assert tables.disk_s == pytest.approx(1500)
    # 20,000 captures; as many tasks would be too many.
    assert driver.seconds == pytest.approx(20 + 5 + 20 + 60)
    assert estimate(costs, CLUSTER, 500)[-1].seconds == pytest.approx(20 + 5 + 10 + 40)


def test_the_largest_connection_can_be_what_takes_longest() -> None:
    costs = Measured([StageCost("reassemble", 30, shuffle_read_gb=0.001)], tables_gb=0)
    line = estimate(costs, CLUSTER, 10)[1]
    assert line.seconds == line.one_task_s == 150


def test_every_parameter_of_the_cluster_is_in_the_assumptions() -> None:
    text = " ".join(assumptions(Cluster(7, 13, 0.31, 777, 23, 5, 9, 17, 61, 0.9, 8, 41, 1234)))
    for value in (
        "7 nodes",
        "13 cores",
        "31%",
        "777 MB/s",
        "23 Gbit/s",
        "written 5 times",
        "read 9 times",
        "17 GB",
        "61 MB",
        "0.9 ms",
        "8 ms",
        "41 s",
        "1,234",
    ):
        assert value in text


def test_costs_are_those_of_the_largest_run() -> None:
    runs = [run("spark", gb, 40.0 * gb) for gb in (1, 2, 4)]
    found = measured(runs)
    # 80 CPU seconds for each GB, divided as the tasks' time is: 30 to 10.
    assert [stage.cpu_s for stage in found.stages] == pytest.approx([60, 20])
    assert [stage.shuffle_write_gb for stage in found.stages] == [1, 0]
    assert found.stages[1].spilled_gb == pytest.approx(0.025)
    assert found.tables_gb == 0.5
    # Each run has twelve of them.
    assert found.tasks == 3
    assert found.start_s == pytest.approx(12.5)


def test_the_page() -> None:
    runs = [run(engine, gb, wall * gb) for gb in (1, 2) for engine, wall in (("local", 50.0), ("spark", 40.0))]
    text = page(runs, ["a machine"], cluster=CLUSTER, captures_gb=10_000, made_by="python -m benchmarks.scale")
    assert "- a machine\n" in text
    assert "| 2.00 | 2 | spark | 80.0 | 160.0 | 160 / 0 / 0 | 1,000 | 500 | 1,000 / 0 / 0 | 0 | 3,000 | 0.50 |" in text
    assert "| 2.00 | 8 | local | 2,000 | 1,000 |" in text
    assert "| 1.00 | 2 | 0.80 | 1.00 | 1.00 | 1.00 |" in text
    assert "| local | 2 | 2 | 1.00 | 1.00 | -0.00 |" in text or "| local | 2 | 2 | 1.00 | 1.00 | 0.00 |" in text
    assert "| 2.00 | 2 | 2 | 12 | 0 | 80.0 | 2,000 | 1.00 | 100 | 500 |" in text
    assert "## On paper: 10 TB on 10 nodes" in text
    assert "| **together** |" in text
    assert "starting up" not in text
    for line in text.splitlines():
        assert not line.startswith("|") or line.endswith("|")


def test_the_page_of_one_engine_has_no_ratios() -> None:
    text = page([run("local", 1, 50.0)], [], cluster=CLUSTER, captures_gb=10_000, made_by="so")
    assert "| 1.00 | 2 | local |" in text
    for word in ("Spark beside", "Growth", "Stages", "On paper"):
        assert word not in text
