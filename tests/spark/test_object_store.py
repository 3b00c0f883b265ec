"""Exports of captures in an object store, and into one, by either engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkasniff.errors import OutputError
from kafkasniff.runtime.addresses import Location
from kafkasniff.runtime.confined_files import ConfinedPath
from kafkasniff.spark.tasks import StoredOutput
from kafkasniff.tables.exports.manifest import WrittenFile
from kafkasniff.tables.exports.options import ExportOptions
from tests.cli.console import kafkasniff
from tests.object_store import boto3_client, bucket
from tests.tables.exports.exported import CAPTURES, by_partition, cut, files, manifest, named_files, run, tables
from tests.tables.exports.stored import fetched, objects

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["bucket"]

pytestmark = pytest.mark.extended


def test_an_export_of_captures_in_an_object_store(spark: SparkSession, bucket: str, tmp_path: Path) -> None:
    """Tasks read them, with what the address says: Spark's workers know the environment of their start only."""
    from kafkasniff.spark.export import export

    capture = CAPTURES / "java-group-share.pcap"
    folder = tmp_path / "kafka"
    folder.mkdir()
    parts = cut(capture, (0.5,), folder)
    client = boto3_client(bucket)
    for part in parts:
        client.put_object(Bucket="captures", Key=f"kafka/{part.name}", Body=part.read_bytes())
    address = bucket.format("kafka").replace("s3a://", "s3a://key:hidden@")
    result = export(spark, [address], tmp_path / "spark", ExportOptions())
    assert [one.name for one in result.manifest.captures] == [f"s3://captures/kafka/{part.name}" for part in parts]
    run(parts, tmp_path / "local")
    found, wanted = tables(tmp_path / "spark"), tables(tmp_path / "local")
    assert {row["capture"] for row in found["exchanges"]} == {f"s3://captures/kafka/{part.name}" for part in parts}
    for table, rows in wanted.items():
        for row in (*rows, *found[table]):
            if table != "transport":
                row["capture"] = (row["capture"] or "").rpartition("/")[2]
        assert sorted(found[table], key=repr) == sorted(rows, key=repr)
    reported = b"".join(path.read_bytes() for path in (tmp_path / "spark").rglob("*") if path.is_file())
    assert b"hidden" not in reported
    assert export(spark, [address], tmp_path / "spark", ExportOptions()).new == 0


def test_an_export_into_an_object_store(spark: SparkSession, bucket: str, tmp_path: Path) -> None:
    """The rows of a folder, run by run; either engine continues what the other one has begun."""
    from kafkasniff.spark.export import export

    parts = cut(CAPTURES / "kraft-two-brokers.pcap", (0.3, 0.6), tmp_path)
    address = bucket.replace("s3a://", "s3://key:hidden@").format("spark")
    for number in range(1, len(parts) + 1):
        named = [str(part) for part in parts[:number]]
        engine = run if number == 2 else lambda some, into: export(spark, some, into, ExportOptions())
        result = engine(named, address)
        assert result.new == 1
        run(parts[:number], tmp_path / "local")
        copy = fetched(address, tmp_path / f"copy-{number}")
        assert by_partition(copy) == by_partition(tmp_path / "local")
        assert files(copy) == named_files(copy)
    assert manifest(copy)["engine"] == "spark"
    assert b"hidden" not in b"".join(objects(address).values())
    # Tasks read the files of an export, here as in a folder.
    question = ("analyze", "latency", "--format", "json")
    asked = kafkasniff(*question, "--engine", "spark", address)
    assert asked.code == 0, asked.err
    assert asked.out == kafkasniff(*question, tmp_path / "local").out != b""


def test_attempts_that_fail_after_they_have_written(spark: SparkSession, bucket: str, tmp_path: Path) -> None:
    """Their objects are removed once the run is there, and are in no manifest before."""
    from kafkasniff.spark.export import export

    address = bucket.replace("s3a://", "s3://key:hidden@").format("attempts")
    capture = CAPTURES / "sarama.pcap"
    with pytest.MonkeyPatch.context() as patch:
        # The class goes to the tasks by its name, and what is patched here with it.
        patch.setattr("kafkasniff.spark.tasks.StoredOutput", FailingOutput)
        with pytest.raises(OutputError, match="no route to host"):
            export(spark, [str(capture)], address, ExportOptions())
    left = objects(address)
    assert {"exchanges", "records"} <= {path.partition("/")[0] for path in left}
    assert "manifest.json" not in left
    assert StoredOutput(Location.of(address)).refusal() is None
    export(spark, [str(capture)], address, ExportOptions())
    copy = fetched(address, tmp_path / "copy")
    assert files(copy) == named_files(copy)
    run([capture], tmp_path / "local")
    assert tables(copy) == tables(tmp_path / "local")


class FailingOutput(StoredOutput):
    """Writes the files of a task, and fails then."""

    def deliver(self, into: ConfinedPath, files: Sequence[WrittenFile]) -> None:
        super().deliver(into, files)
        raise OutputError("no route to host")


def test_executors_without_access(bucket: str) -> None:
    output = StoredOutput(Location.of(bucket.replace("captures", "none").format("out")))
    refusal = output.refusal()
    assert refusal.startswith("it cannot be written (")
