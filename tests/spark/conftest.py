"""One Spark session for all tests of a run: starting it takes longer than they do."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.conftest import missing
from tests.spark.checks import JAVA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAST = {
    "spark.driver.extraJavaOptions": JAVA,
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stopTimeout": "60s",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.driver.memory": "1g",
    # Queries are too small to be compiled.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session as a command has it, on two cores of this machine; skips (or fails) without pyspark or Java."""
    if importlib.util.find_spec("pyspark") is None:
        missing("pyspark is not installed")
    from kafkasniff.errors import MissingPartError
    from kafkasniff.spark.shipping import ready_session

    folder = tmp_path_factory.mktemp("spark")
    try:
        places = {"spark.sql.warehouse.dir": str(folder / "warehouse"), "spark.local.dir": str(folder / "local")}
        session = ready_session("local[2]", **FAST, **places)
    except MissingPartError as error:
        missing(str(error))
    yield session
    session.stop()
