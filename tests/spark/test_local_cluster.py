"""A master, workers and executors as processes of this machine, without kafkasniff, and a session that ships it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.spark.checks import EXECUTORS
from tests.spark.processes import check_what_was_found, folder, python, require_spark, run_checks
from tests.tables.exports.exported import tables

__all__ = ["folder", "python"]

# Not beside the others that start several Javas.
pytestmark = [pytest.mark.xdist_group("spark-processes"), pytest.mark.extended]


@pytest.fixture(scope="module")
def found(folder: Path, python: str) -> dict[str, Any]:
    environment = require_spark()
    import pyspark

    home = Path(pyspark.__file__).parent
    before = {path.name for path in home.iterdir()}
    found = run_checks("local-cluster", folder, {**environment, "PYSPARK_PYTHON": python})
    # Executors keep their files elsewhere.
    assert {path.name for path in home.iterdir()} == before
    return found


def test_the_same_as_without_spark(found: dict[str, Any], folder: Path) -> None:
    check_what_was_found(found, folder)


def test_an_executor_is_lost_with_its_staged_rows(found: dict[str, Any], folder: Path) -> None:
    """Its files of records count; Spark reads and decodes the packets again for its other rows."""
    without = found["exported_without_an_executor"]
    assert without["is_lost"]
    assert {name: without[name] for name in ("rows", "notices")} == found["exported"]
    assert tables(folder / "without") == tables(folder / "tables")


def test_executors_are_processes_that_take_it_from_what_was_shipped(found: dict[str, Any], python: str) -> None:
    workers = found["where_workers_run"]
    assert len({worker["executor"] for worker in workers}) == EXECUTORS
    for worker in workers:
        assert worker["python"] == python
        assert found["shipping"]["zip"] in Path(worker["package"]).parts
    assert found["settings"]["spark.master"].startswith("local-cluster[")
    # The shipped files are removed at the end.
    assert not Path(found["shipping"]["folder"]).exists()


def test_executors_that_cannot_be_had(found: dict[str, Any]) -> None:
    assert found["no_session"].startswith("Spark does not start: ")
    assert "Executor memory 67108864 must be at least" in found["no_session"]
    assert "\n" not in found["no_session"]


def test_nobody_else_can_reach_it(found: dict[str, Any]) -> None:
    assert found["addresses"]
    assert set(found["addresses"]) == {"127.0.0.1"}
