"""Lakehouse tables: with the real Delta Lake and the newest Spark that it runs on, and what is refused without."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from captures.record.distribution import SetupError
from kafkasniff.errors import UsageError
from kafkasniff.spark.lakehouse import LakeTables, TableMark
from kafkasniff.tables.exports.captures import ManifestCapture
from tests.cli.console import kafkasniff
from tests.conftest import ROOT, missing, ran
from tests.spark.conftest import FAST
from tests.spark.delta import SETTINGS, delta_jars, delta_rows, is_fetched, spark_for_delta
from tests.spark.lakehouse_checks import HIVE, TABLES, lacking
from tests.spark.processes import PATIENCE, require_spark
from tests.tables.exports.exported import CAPTURES, cut, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.xdist_group("spark-processes"), pytest.mark.extended]

SOURCE = CAPTURES / "java-group-consumer.pcap"
PLACES = (0.5,)
"""Requests wait for their responses here, and the first part has a problem that the second one solves."""
NAME = "spark_catalog.kafka"


@pytest.fixture(scope="module")
def runtime() -> tuple[str, dict[str, str]]:
    """The jars of Delta Lake, and the environment for a Python with its Spark."""
    environment = require_spark()
    if not is_fetched() and not os.environ.get("KAFKASNIFF_REQUIRE_ALL"):
        missing("Delta Lake and its Spark are not in the cache; `python -m tests.integration` fetches them")
    try:
        jars, packages = delta_jars(), spark_for_delta()
    except SetupError as error:
        missing(str(error))
    # That Spark comes before the one of this environment.
    return ",".join(map(str, jars)), {**environment, "PYTHONPATH": os.pathsep.join([str(packages), str(ROOT)])}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, runtime: tuple[str, dict[str, str]]) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("lake")
    (folder / "parts").mkdir()
    jars, environment = runtime
    other = folder / "cut.pcap"
    other.write_bytes((CAPTURES / "java-group-share.pcap").read_bytes()[:-7])
    captures = [*cut(SOURCE, PLACES, folder / "parts"), other]
    script = Path(__file__).with_name("lakehouse_checks.py")
    command = [sys.executable, "-P", str(script), str(folder), jars, *map(str, captures)]
    done = ran(command, cwd=folder, env=environment, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr[max(0, done.stderr.find("Traceback")) :][:6000]
    found = json.loads(done.stdout)
    return {**found, "folder": folder, "captures": captures, "stderr": done.stderr}


def none_differ(differences: dict[str, list[int]]) -> bool:
    return all(one[1:] == [0, 0] for one in differences.values())


def test_several_runs(found: dict[str, Any]) -> None:
    """Rows are those of the export after each run, which replaces open rows; users' columns keep their values."""
    runs = found["several_runs"]
    assert all(map(none_differ, [*runs["differences"], runs["read"]]))
    assert runs["read"].items() <= runs["differences"][-1].items()
    counts = [one["exchanges"][0] for one in runs["differences"]]
    assert counts == sorted(set(counts))
    first, second = (
        {table: [row[:2] for row in one[table]] for table in ("exchanges", "connections")} for one in runs["runs"]
    )
    # All connections of the first part continue in the second.
    assert first == {"exchanges": [[1, False], [1, True]], "connections": [[1, True]]}
    assert second == {"exchanges": [[1, False], [2, False]], "connections": [[2, False]]}
    # A problem of the first part was none, as the second one shows: a run may only remove rows.
    assert [one["problems"] for one in runs["runs"]] == [[[1, True, 1]], []]
    before, after = runs["repeated"]
    assert all(before)
    assert before == after, "a repeated run commits nothing"
    assert runs["notes"] == [[1, "kept"], [2, None]]


def test_rows_without_an_export_and_those_of_something_else(found: dict[str, Any]) -> None:
    direct = found["written_directly"]
    assert all(map(none_differ, direct["differences"]))
    assert all(one[0] for one in direct["differences"][0].values())
    for (first, first_open, count), (second, second_open, same) in direct["runs"].values():
        assert (first, first_open, second, second_open, count) == (20261126, False, 20261127, False, same)
    assert direct["refused"] == f"{NAME}.rotated_exchanges has the rows of an export: write to other tables"
    own = "has rows that are not of this export: name the folder that they are from with -o, or other tables"
    assert found["several_runs"]["elsewhere"] == f"{NAME}.rotated_exchanges {own}"
    assert direct["exported"] == f"{NAME}.direct_exchanges {own}"
    assert (
        found["rows_of_others"] == f"{NAME}.theirs_records has rows that kafkasniff did not write: choose another name"
    )


def test_the_whole_command(found: dict[str, Any], runtime: tuple[str, dict[str, str]]) -> None:
    """Each run is a session of its own, which finds the tables of the earlier ones in the metastore."""
    jars, environment = runtime
    folder, captures = found["folder"], found["captures"]
    code, said, made = found["by_command"]
    assert (code, made) == (2, False)
    assert said.endswith("there is no database spark_catalog.nowhere: create it with CREATE DATABASE\n")
    assert "\tat " not in found["stderr"]  # no exception of Java
    settings = {**FAST, **SETTINGS, **HIVE, "spark.jars": jars, "spark.sql.warehouse.dir": str(folder / "warehouse")}
    options = ["--engine", "spark", "--master", "local[2]", "--table", f"{NAME}.rotated", "-o", "rotated"]
    conf = [word for item in settings.items() for word in ("--conf", "=".join(item))]
    command = [sys.executable, "-P", "-m", "kafkasniff", "export", *options, "--tables", ",".join(TABLES)]
    done = ran([*command, *captures, *conf], cwd=folder, env=environment, timeout=PATIENCE)
    assert done.returncode == 4, done.stderr[-6000:]
    places = {table: folder / "warehouse" / "kafka.db" / f"rotated_{table}" for table in TABLES}
    last = {table: lacking(rows(folder / "rotated", table), delta_rows(place)) for table, place in places.items()}
    assert none_differ(last)
    assert 0 < found["several_runs"]["differences"][-1]["exchanges"][0] < last["exchanges"][0]


def test_what_is_no_catalog_is_one_line(spark: SparkSession, tmp_path: Path) -> None:
    """The classes are not there, as without their jars: that of the last one is looked for."""
    # The command uses the active session, which may be a copy of the fixture's: streams make copies.
    active = type(spark).getActiveSession() or spark
    active.conf.set("spark.sql.catalog.broken", "org.example.NoSuchCatalog")
    active.conf.set("spark.sql.catalog.spark_catalog", "org.example.NoSuchDeltaCatalog")
    try:
        for name, said in {
            "kafka.week": "--table: kafka.week is not of the form CATALOG.DATABASE.NAME",
            "lake.kafka.a-b": "--table: lake.kafka.a-b is not of the form CATALOG.DATABASE.NAME",
            "lake.kafka.week": "--table: there is no catalog lake for lakehouse tables: name one with --conf ",
            "spark_catalog.kafka.week": "--table: spark_catalog forgets its tables when the session ends",
            "broken.kafka.week": "--table: cannot use broken.kafka.week: ",
        }.items():
            done = kafkasniff("export", "--engine", "spark", "--table", name, str(SOURCE), "-o", str(tmp_path / "out"))
            assert (done.code, said in done.err, done.err.count("\n")) == (2, True, 1), done.err
            assert "NoSuchCatalog" in done.err or name != "broken.kafka.week"
            assert not (tmp_path / "out").exists()
        # What is not for other sessions need not last.
        with pytest.raises(UsageError, match=r"cannot use|no database"):
            LakeTables(active, "spark_catalog.kafka.week", ())
    finally:
        active.conf.unset("spark.sql.catalog.broken")
        active.conf.unset("spark.sql.catalog.spark_catalog")


def test_marks_are_of_one_export() -> None:
    captures = [ManifestCapture("a.pcap", 1, "x", "y"), ManifestCapture("b.pcap", 2, "x", "z")]
    mark = TableMark.of(3, captures)
    assert TableMark.load(mark.dump()) == mark
    assert mark.digest != TableMark.of(3, captures[::-1]).digest
    assert TableMark.load("none") is None
    assert TableMark.load("3 2 nothing") is None
