"""Delta Lake from Maven Central, and the newest Spark that its newest release runs on, from the cache of downloads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyarrow import parquet as pq

from captures.record.distribution import cache_directory, has_python_with, maven_jars, python_with
from tests.tables.exports.exported import Rows

DELTA = "4.4.0"
SPARK = "4.2.1"
"""With Spark 4.3, Delta Lake 4.4 fails to read: java.lang.NoSuchMethodError, of a constructor that has changed."""

SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Each of the default of 50 is a task.
    "spark.databricks.delta.snapshotPartitions": "1",
}

_PYSPARK = f"pyspark=={SPARK}"
_POM = Path(__file__).with_name("delta-pom.xml")


def is_fetched() -> bool:
    """Whether all of it is there without a download."""
    return (cache_directory() / f"delta-{DELTA}").is_dir() and has_python_with(_PYSPARK)


def delta_jars() -> list[Path]:
    """The jars. Raises SetupError."""
    return sorted(maven_jars(_POM, "delta.version", DELTA).glob("*.jar"))


def spark_for_delta() -> Path:
    """The folder of packages with that pyspark, and what it needs. Raises SetupError."""
    (packages,) = Path(python_with(_PYSPARK)).parents[1].glob("lib/python*/site-packages")
    return packages


def delta_rows(folder: Path) -> Rows:
    """The rows of a table by its log and files, in any order. Values of partitions are text, but for true and false."""
    live: dict[str, dict[str, Any]] = {}
    for log in sorted(folder.glob("_delta_log/*.json")):
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        for action in actions:
            if "remove" in action:
                live.pop(action["remove"]["path"], None)
        live |= {action["add"]["path"]: action["add"] for action in actions if "add" in action}
    truth = {"true": True, "false": False}
    found: Rows = []
    for path, added in live.items():
        assert "deletionVector" not in added
        values = {name: truth.get(text, text) for name, text in added["partitionValues"].items()}
        found += [{**row, **values} for row in pq.ParquetFile(folder / path).read().to_pylist()]
    return found
