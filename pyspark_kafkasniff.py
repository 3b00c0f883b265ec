"""Registers the data source `kafkasniff`: Spark looks for modules whose names begin with `pyspark_` by itself."""

from kafkasniff.spark.data_source import DefaultSource

__all__ = ["DefaultSource"]
