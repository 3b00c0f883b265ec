"""A master, workers and executors as processes of this machine: what a cluster needs beyond threads."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import kafkasniff
from tests.spark.processes import check_what_was_found, require_spark, run_checks

# Not beside the others that start several Javas.
pytestmark = pytest.mark.xdist_group("spark-processes")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("local-cluster")


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, Any]:
    environment = require_spark()
    import pyspark

    home = Path(pyspark.__file__).parent
    before = {path.name for path in home.iterdir()}
    found = run_checks("local-cluster", folder, environment)
    # Executors keep their files elsewhere.
    assert {path.name for path in home.iterdir()} == before
    return found


def test_the_same_as_without_spark(found: dict[str, Any], folder: Path) -> None:
    check_what_was_found(found, folder)


def test_executors_are_processes_with_our_python(found: dict[str, Any]) -> None:
    workers = found["where_workers_run"]
    assert len({worker["executor"] for worker in workers}) == 2
    assert {(worker["python"], worker["package"]) for worker in workers} == {(sys.executable, kafkasniff.__file__)}
    assert found["settings"]["spark.master"].startswith("local-cluster[")


def test_nobody_else_can_reach_it(found: dict[str, Any]) -> None:
    assert found["addresses"]
    assert set(found["addresses"]) == {"127.0.0.1"}
