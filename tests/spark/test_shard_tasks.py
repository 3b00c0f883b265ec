"""Rows for the tasks of shards: each gets its beginning and its pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkasniff.spark.connections import BEGIN_VALUES, ShardBegin
from kafkasniff.spark.piece_store import BEGIN_INDEX
from kafkasniff.spark.pieces import PIECES
from kafkasniff.spark.shard_tasks import begin_rows, in_tasks_of_shards
from kafkasniff.spark.tables import ddl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_each_task_gets_its_rows(spark: SparkSession) -> None:
    from pyspark.sql import functions as sf

    begins = {at: ShardBegin(b"state %d" % at, order=at) for at in range(3)}
    pieces = spark.createDataFrame([(at % 3, 0, at, at, 0, at, b"piece %d" % at) for at in range(7)], ddl(PIECES))
    rows = in_tasks_of_shards(begin_rows(spark, begins), pieces, 3).withColumn("task", sf.spark_partition_id())
    found = rows.collect()
    assert len(found) == 10
    assert all(row["task"] == row["shard"] for row in found)
    given = {row["task"]: BEGIN_VALUES.load(bytes(row["data"])) for row in found if row["capture_index"] == BEGIN_INDEX}
    assert given == begins
