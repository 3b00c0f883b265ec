"""The tables as DataFrames, of the data source's packets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkasniff.errors import UsageError
from tests.tables.exports.exported import CAPTURES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = pytest.mark.extended


def test_packets_can_be_chosen_before(spark: SparkSession) -> None:
    """With Spark's own means, and the schema is known without a job. Misuse is reported."""
    from kafkasniff.spark import pipeline

    packets = spark.read.format("kafkasniff").load(str(CAPTURES / "kraft-three-brokers.pcap"))
    (broker,) = packets.groupBy("dst_port").count().orderBy("count", ascending=False).limit(1).collect()
    port = broker["dst_port"]
    with pipeline.decode(packets.where(f"src_port = {port} or dst_port = {port}")) as found:
        ports = {row["broker_port"] for row in found.exchanges.select("broker_port").distinct().collect()}
        assert ports == {port}
        found.exchanges.createOrReplaceTempView("exchanges")
        (asked,) = spark.sql("select count(*) as n from exchanges where api = 'ApiVersions'").collect()
        assert asked["n"] > 0
    with pytest.raises(UsageError, match="packets: missing columns: payload"):
        pipeline.decode(packets.drop("payload"))
    with pytest.raises(UsageError, match="tables are exchanges, records, connections, transport, problems"):
        pipeline.decode(packets, tables=["packets"])
