"""What tests of the pipeline share: rows of both engines in a form that can be compared."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from kafkasniff.tables.rows import TABLE_NAMES
from tests.tables.exports.exported import Rows

if TYPE_CHECKING:
    from kafkasniff.spark.pipeline import SparkRun


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
