"""What the default run has of Spark itself: one session, from captures to tables, rows and answers. Spark's rows are
compared with those of the local engine. What a session does besides is in the extended tests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafkasniff.tables.exports.options import ExportOptions
from tests.spark.conftest import answered, of_spark, plain
from tests.tables.exports.exported import CAPTURES, by_partition, cut, files, manifest, named_files, run, tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OTHERS = [CAPTURES / "java-codecs.pcap", CAPTURES / "tls" / "tls13-kafka-python.pcapng"]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the local engine makes in two runs of captures, one of which is in three files that split connections."""
    folder = tmp_path_factory.mktemp("local")
    parts = cut(CAPTURES / "kraft-two-brokers.pcap", (0.3, 0.6), folder / "parts")
    parts[-1].write_bytes(parts[-1].read_bytes()[:-11])
    for some in ([*parts[:2], *OTHERS], parts):
        run(some, folder / "out")
    return folder


@pytest.mark.usefixtures("small_parts")
def test_an_export_and_a_resumed_one(
    spark: SparkSession, local: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks look at the captures, which are divided into splits and shards; TLS is decrypted, and a capture is cut."""
    from kafkasniff.spark.export import export

    monkeypatch.setattr("kafkasniff.spark.source.FEW_BYTES", -1)
    parts = sorted((local / "parts").iterdir())
    for some in ([*parts[:2], *OTHERS], parts):
        result = export(spark, [*map(str, some)], tmp_path / "out", ExportOptions(), split_size=100_000, shards=2)
    assert (result.new, result.broken) == (1, True)
    assert by_partition(tmp_path / "out") == by_partition(local / "out")
    reported, known = manifest(tmp_path / "out"), manifest(local / "out")
    assert reported["captures"] == known["captures"]
    assert (reported["engine"], reported["runs"]) == ("spark", known["runs"])
    assert files(tmp_path / "out") == named_files(tmp_path / "out")
    again = export(spark, [*map(str, parts)], tmp_path / "out", ExportOptions())
    assert (again.new, again.rows) == (0, {})


def test_tables_of_the_data_source_and_of_packets(spark: SparkSession, tmp_path: Path) -> None:
    from kafkasniff.spark import pipeline

    capture = CAPTURES / "java-transactions.pcap"
    run([capture], tmp_path)
    wanted = plain(tables(tmp_path))
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW made USING kafkasniff OPTIONS (path '{capture}', table 'exchanges')")
    found = spark.sql("SELECT * FROM made").collect()
    assert sorted((plain(row.asDict(recursive=True)) for row in found), key=repr) == wanted["exchanges"]
    with pipeline.decode(spark.read.format("kafkasniff").load(str(capture)), shards=2) as decoded:
        assert of_spark(decoded) == wanted


def test_a_question(spark: SparkSession, local: Path) -> None:
    from kafkasniff.spark import queries

    parameters: dict[str, Any] = {"by": ("api", "broker")}
    exchanges = spark.read.parquet(str(local / "out" / "exchanges")).repartition(2)
    found = queries.ask("latency", {"exchanges": exchanges}, reducers=2, **parameters).toArrow().to_pylist()
    assert found == answered(local / "out", "latency", **parameters) != []
