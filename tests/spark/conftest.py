"""What tests share: one Spark session for a run, since starting it takes longer than they do; rows of both engines."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafkasniff.analysis import find_question, make_parameters
from kafkasniff.analysis.export import Export, answer
from kafkasniff.tables.rows import TABLE_NAMES
from tests.conftest import missing
from tests.spark.checks import JAVA
from tests.tables.exports.exported import Rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkasniff.spark.pipeline import SparkRun

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


def answered(folder: Path, name: str, **parameters: Any) -> Rows:
    """The answer to a question about an export, without Spark."""
    question = find_question(name)
    accumulator = question(make_parameters(question, parameters))
    answer(Export.open(str(folder)), accumulator)
    return list(accumulator.result().to_pylist())


def plain(value: Any) -> Any:
    """A value as Parquet's reader and Spark's both have it."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    return bytes(value) if isinstance(value, bytearray) else value


def of_spark(found: SparkRun, tables: Iterable[str] = TABLE_NAMES) -> dict[str, Rows]:
    """All rows, in an order that does not depend on the tasks."""
    return {
        name: sorted((plain(row.asDict(recursive=True)) for row in found.table(name).collect()), key=repr)
        for name in tables
    }


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks of stage 2 that make rows of some kilobytes each, of blocks that are smaller still."""
    monkeypatch.setattr("kafkasniff.spark.pipeline.SMALL_PART", 32 << 10)
    monkeypatch.setattr("kafkasniff.spark.pipeline.LARGE_PART", 64 << 10)
    monkeypatch.setattr("kafkasniff.spark.connections.BLOCK_BYTES", 8 << 10)


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Captures of some kilobytes reach them: pieces go through the disk."""
    for name in ("PIECE_BYTES", "CUT_BYTES", "MERGE_BYTES"):
        monkeypatch.setattr(f"kafkasniff.spark.pieces.{name}", 3_000)
    monkeypatch.setattr("kafkasniff.spark.pieces.HELD_BYTES", 1_000)
    monkeypatch.setattr("kafkasniff.spark.connections.BLOCK_BYTES", 2_000)
    monkeypatch.setattr("kafkasniff.spark.connections.BATCH_BYTES", 10_000)
