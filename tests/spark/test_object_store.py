"""Exports of captures in an object store, by either engine."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.console import kafkasniff
from tests.object_store import boto3_client, bucket
from tests.tables.exports.exported import CAPTURES, cut, manifest, run, tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["bucket"]


def test_an_export_of_captures_in_an_object_store(spark: SparkSession, bucket: str, tmp_path: Path) -> None:
    """Tasks read them, with what the address says: Spark's workers know the environment of their start only."""
    from kafkasniff.spark.export import export
    from kafkasniff.tables.exports.options import ExportOptions

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
            row["capture"] = (row["capture"] or "").rpartition("/")[2]
        assert sorted(found[table], key=repr) == sorted(rows, key=repr)
    told = b"".join(path.read_bytes() for path in (tmp_path / "spark").rglob("*") if path.is_file())
    assert b"hidden" not in told
    assert export(spark, [address], tmp_path / "spark", ExportOptions()).new == 0


@pytest.mark.usefixtures("spark")
def test_both_engines_take_the_same_inputs_and_say_the_same(bucket: str, tmp_path: Path) -> None:
    client = boto3_client(bucket)
    capture = CAPTURES / "java-group-share.pcap"
    for key, data in (("a.pcap", capture.read_bytes()), ("b.pcap", b""), ("c.txt", b"no capture")):
        client.put_object(Bucket="captures", Key=f"same/{key}", Body=data)
    (tmp_path / "folder").mkdir()
    shutil.copy(CAPTURES / "sarama.pcap", tmp_path / "folder" / "d.pcap")
    (tmp_path / "folder" / "e.pcap").write_bytes(b"<html>not found</html>")
    # Spark's workers know the environment of their start only.
    store = bucket.replace("s3a://", "s3a://key:hidden@")
    folder = tmp_path / "folder"
    inputs = [store.format("same"), store.format("day-*/[a].pcap"), str(folder), f"{folder}/?.pcap"]
    said = []
    for engine in ("local", "spark"):
        out = tmp_path / engine
        done = kafkasniff("export", "--engine", engine, "--on-bad-capture", "skip", *inputs, "-o", str(out))
        assert done.code == 4
        said.append(done.err.replace(str(out), "OUT"))
    assert said[0] == said[1]
    assert "2 captures skipped; " in said[0]
    assert "endpoint_override" not in said[0]
    assert "hidden" not in said[0]
    assert tables(tmp_path / "local") == tables(tmp_path / "spark")
    assert manifest(tmp_path / "local")["captures"] == manifest(tmp_path / "spark")["captures"]


def test_captures_in_an_object_store_are_decoded_like_files(bucket: str, tmp_path: Path) -> None:
    capture = CAPTURES / "java-group-share.pcap"
    boto3_client(bucket).put_object(Bucket="captures", Key="decode/a.pcap.gz", Body=gzip.compress(capture.read_bytes()))
    remote = kafkasniff("decode", "--format", "json", bucket.format("decode/*.gz"))
    local = kafkasniff("decode", "--format", "json", str(capture))
    assert (remote.code, local.code) == (0, 0)
    assert remote.out.replace(b"s3://captures/decode/a.pcap.gz", str(capture).encode()) == local.out
    assert remote.err == local.err
