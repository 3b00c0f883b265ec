"""A run of the pipeline: the tables as DataFrames, its shards, and that Spark's storage is released."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kafkasniff.errors import UsageError
from kafkasniff.model import Problem
from kafkasniff.spark import pipeline as module
from kafkasniff.spark.pipeline import MAX_SHARDS, SHARD_BYTES, SparkRun, _shards
from kafkasniff.spark.table_rows import KINDS
from kafkasniff.tables.checkpoint import dump
from kafkasniff.tables.exports.options import ExportOptions
from tests.craft.conversation import START_NS
from tests.craft.samples import bystander, consumer, producer
from tests.craft.write import write_pcap
from tests.tables.exports.exported import CAPTURES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.mark.extended
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


LITTLE = SHARD_BYTES // 100


def test_the_number_of_shards() -> None:
    for size, parallel, before, shards in (
        (0, 8, 0, 1),
        (LITTLE, 8, 0, 1),
        # From an eighth of a shard on all cores work.
        (SHARD_BYTES // 8 + 1, 8, 0, 8),
        (100 * SHARD_BYTES, 8, 0, 100),
        (100 * SHARD_BYTES + 1, 8, 0, 101),
        # States stay where they are, unless there are far too few shards.
        (100 * SHARD_BYTES, 8, 25, 25),
        (100 * SHARD_BYTES, 8, 24, 100),
        (LITTLE, 8, 64, 64),
        (SHARD_BYTES << 20, 8, 0, MAX_SHARDS),
        (0, 1 << 20, 0, 1),
    ):
        assert _shards(size, parallel, before) == shards


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two captures, the second of which is later."""
    folder = tmp_path_factory.mktemp("captures")
    later = START_NS + 10**9
    talks = [producer().packets + bystander().packets, consumer(start_ns=later).packets]
    return [str(write_pcap(folder / f"{number}.pcap", one, nanoseconds=True)) for number, one in enumerate(talks)]


def packets_of(spark: SparkSession, paths: list[str], **options: str) -> DataFrame:
    return spark.read.format("kafkasniff").options(**options).load(paths)


def made(packets: DataFrame, all_packets: int | None = None, **more: Any) -> SparkRun:
    found = module.of_rows(packets)
    found.all_packets = all_packets
    return SparkRun(found, ExportOptions(), shards=2, **more)


def kept(spark: SparkSession) -> int:
    """What Spark stores for later jobs."""
    return int(spark.sparkContext._jsc.getPersistentRDDs().size())


@pytest.mark.extended
def test_a_run_and_the_next_one(spark: SparkSession, paths: list[str]) -> None:
    """The second continues with the state of the first, and both release what Spark kept."""
    before = kept(spark)
    first, second = (packets_of(spark, [path]) for path in paths)
    problem = Problem("capture-cut", "it ends within a packet", capture="other.pcap")
    with made(first, problems=[problem]) as run:
        assert kept(spark) > before
        assert run.shards == 2
        assert [end.shard for end in run.ends] == [0, 1]
        assert run.summary.requests == 15
        assert run.summary.problems >= 1
        carried = run.carry()
        assert len(carried.shards) == 2
        assert carried.order == run._order == max(end.order for end in run.ends)
        kinds = {row["kind"] for row in run.in_parts(KINDS["problems"]).select("kind").collect()}
        assert "problems" in kinds
        assert "held" not in kinds
    assert kept(spark) == before
    with made(second, carried=carried, all_packets=1_000) as run:
        # Those that are not TCP were counted by who planned the captures.
        assert (run.summary.requests, run.summary.packets) == (9, 1_000)
        assert run.carry().order > carried.order
        assert dump(run.carry().sessions) == dump(carried.sessions)
    assert kept(spark) == before


@pytest.mark.extended
def test_a_failing_stage_releases_what_spark_kept(
    spark: SparkSession, paths: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.errors import PySparkException

    before = kept(spark)
    monkeypatch.setattr(module, "first_states", lambda *_: [b"no state", b"no state"])
    with pytest.raises(PySparkException):
        made(packets_of(spark, paths[1:]))
    assert kept(spark) == before
