"""Rows for the tasks of shards: with the beginnings of some, and of all in their partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from kafkasniff.spark.connections import BEGIN_VALUES, ShardBegin
from kafkasniff.spark.piece_store import BEGIN_INDEX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["begin_rows", "in_tasks_of_shards"]


def begin_rows(spark: SparkSession, begins: Mapping[int, ShardBegin]) -> DataFrame:
    """Rows that give tasks, by number, their beginnings."""
    return spark.createDataFrame(
        pa.table(
            {
                "shard": pa.array(begins, pa.int32()),
                "capture_index": pa.array([BEGIN_INDEX] * len(begins), pa.int32()),
                "data": pa.array([BEGIN_VALUES.dump(one) for one in begins.values()], pa.binary()),
            }
        )
    )


def in_tasks_of_shards(first: DataFrame, pieces: DataFrame, tasks: int) -> DataFrame:
    """Pieces in any order (`pieces.PIECES`), those of a task in a partition, each with its row of `first`."""
    # In this order: a task can begin to decode once it has its beginning.
    return first.unionByName(pieces, allowMissingColumns=True).repartitionById(tasks, "shard")
