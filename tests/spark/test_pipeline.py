"""The tables as DataFrames, of the data source's packets and of planned captures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkasniff.errors import UsageError
from tests.spark.tables import of_spark, plain
from tests.tables.exports.exported import CAPTURES, run, tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = pytest.mark.extended


def test_the_tables_of_captures(spark: SparkSession, tmp_path: Path) -> None:
    """A cut packet, which only `Captures` reports."""
    from kafkasniff.spark import pipeline
    from kafkasniff.spark.source import open_captures

    capture = tmp_path / "cut.pcap"
    capture.write_bytes((CAPTURES / "java-group-classic.pcap").read_bytes()[:-5])
    run([capture], tmp_path / "out")
    with pipeline.decode(open_captures(spark, [str(capture)]), tables=["exchanges", "problems"]) as found:
        wanted = plain(tables(tmp_path / "out"))
        assert of_spark(found, ["exchanges", "problems"]) == {name: wanted[name] for name in ("exchanges", "problems")}
        assert "capture-cut" in {row["kind"] for row in wanted["problems"]}
        with pytest.raises(UsageError, match="there is no table records; decoded were exchanges, problems"):
            found.table("records")


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
