"""Delta Lake from Maven Central, and the newest Spark that its newest release runs on, from the cache of downloads."""

from __future__ import annotations

from pathlib import Path

from captures.record.distribution import cache_directory, has_python_with, maven_jars, python_with

__all__ = ["DELTA", "SETTINGS", "SPARK", "delta_jars", "is_fetched", "spark_for_delta"]

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
