"""The Spark session: the one that is active, or one of our own that starts quietly and finds its Java by itself."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafkasniff.errors import MissingPartError, UsageError
from kafkasniff.spark.java import find_java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["get_session"]

DEFAULTS: Final = {
    "spark.app.name": "kafkasniff",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Payloads of offloaded segments have up to 64 KiB: without the second, 10,000 of them would be one batch.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
    "spark.sql.session.timeZone": "UTC",
    # INT96, the default, has no statistics.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.python.filterPushdown.enabled": "true",
}
LOCAL: Final = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
"""Nobody else has to reach a session that runs on this machine alone."""

LOGGING: Final = Path(__file__).with_name("log4j2.properties")
"""Spark's own greets, warns and says how to have it quieter."""


def get_session(master: str | None = None, **conf: str) -> SparkSession:
    """The active Spark session (Spark Connect's too), else a new one with settings that suit captures.

    `master` is Spark's (`local[4]`, `spark://host:7077`, `yarn`, `sc://host:15002`); default: `SPARK_REMOTE`, else all
    cores of this machine. `conf` are Spark's properties, which win over our defaults. Both are for a new session:
    raises UsageError where an active one has another master. Raises MissingPartError where pyspark or Java is missing
    or Spark does not start.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise MissingPartError("Spark is not installed: pip install 'kafkasniff[spark]'")
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        used = active.conf.get("spark.master", None)
        if master is not None and used is not None and master != used:
            raise UsageError(f"a Spark session is active already, with master {used}, not {master}")
        return active
    master = master or conf.get("spark.master") or os.environ.get("SPARK_REMOTE") or "local[*]"
    builder = SparkSession.builder
    if master.startswith("sc://"):
        # What a server runs with is its own affair; what Python runs here is only the client.
        builder = builder.remote(master)
        settings = conf
    else:
        _prepare_environment()
        local = master.startswith("local")
        settings = {**DEFAULTS, **(LOCAL if local else {}), **conf, "spark.master": master}
        java = f"-Dlog4j2.configurationFile={LOGGING.as_uri()}"
        settings["spark.driver.extraJavaOptions"] = f"{java} {conf.get('spark.driver.extraJavaOptions', '')}".strip()
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except Exception as error:  # py4j, pyspark and gRPC have classes of their own
        reason = (str(error) or type(error).__name__).strip().split("\n", 1)[0]
        raise MissingPartError(f"Spark does not start: {reason}") from error


def _prepare_environment() -> None:
    """What Spark's launcher and its Python workers look for; what is set stays."""
    os.environ["JAVA_HOME"] = str(find_java_home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    # Workers import kafkasniff, too: from a checkout that is not installed as well.
    root = str(Path(__file__).resolve().parents[2])
    known = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if root not in known and not _is_installed(root):
        os.environ["PYTHONPATH"] = os.pathsep.join([root, *known])


def _is_installed(root: str) -> bool:
    return Path(root).name in {"site-packages", "dist-packages"}
