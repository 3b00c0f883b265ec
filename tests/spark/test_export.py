"""`export --engine spark`: the rows of the local engine, on every capture, however it is cut and dealt out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkasniff.errors import CaptureError, OutputError, UsageError
from kafkasniff.tables.exports.options import ExportOptions
from tests.fuzz.costs.streams import dates_rows
from tests.tables.exports.exported import CAPTURES, by_partition, cut, files, manifest, named_files, rows, run, tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkasniff.tables.exports.run import Result

pytestmark = pytest.mark.extended

SPLIT = 64 << 10
FEW_TASKS = 512 << 10
"""What a task reads where it is not about how captures are cut: each task costs as much as some thousand packets."""


def by_spark(spark: SparkSession, captures: list[Path], folder: Path, **more: object) -> Result:
    from kafkasniff.spark.export import export

    options, size = more.pop("options", ExportOptions()), more.pop("split_size", SPLIT)
    return export(spark, [str(path) for path in captures], folder, options, split_size=size, **more)  # type: ignore[arg-type]


def test_both_engines_make_the_same_rows_of_all_captures(
    spark: SparkSession, captures: list[Path], tmp_path: Path
) -> None:
    # Those of TLS hold their secrets themselves.
    captures = [*captures, *sorted((CAPTURES / "tls").glob("*.pcap*"))]
    local = run(captures, tmp_path / "local")
    result = by_spark(spark, captures, tmp_path / "spark", shards=3, split_size=FEW_TASKS)
    assert tables(tmp_path / "spark") == tables(tmp_path / "local")
    assert result.rows == local.rows
    assert result.broken == local.broken
    reported, known = manifest(tmp_path / "spark"), manifest(tmp_path / "local")
    assert reported["captures"] == known["captures"]
    assert (reported["engine"], known["engine"]) == ("spark", "local")
    assert files(tmp_path / "spark") == named_files(tmp_path / "spark")


@pytest.mark.usefixtures("small_parts")
def test_both_engines_make_the_same_partitions(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which dates have most rows no task knows alone."""
    monkeypatch.setattr("kafkasniff.tables.exports.finalise.MAX_DATES", 5)
    capture = tmp_path / "dates.pcap"
    capture.write_bytes(dates_rows(1 << 14, 86_400, 1))
    captures = [capture, CAPTURES / "old-message-formats.pcap"]
    local = run(captures, tmp_path / "local")
    result = by_spark(spark, captures, tmp_path / "spark", shards=2)
    assert local.notices
    assert result.notices == local.notices
    assert by_partition(tmp_path / "spark") == by_partition(tmp_path / "local")
    assert files(tmp_path / "spark") == named_files(tmp_path / "spark")
    assert not list((tmp_path / "spark").glob(".partial*"))


def test_what_cannot_be_done_is_said(spark: SparkSession, tmp_path: Path) -> None:
    capture, bad, grown, out = CAPTURES / "sarama.pcap", tmp_path / "a.pcap", tmp_path / "b.pcap", tmp_path / "out"
    bad.write_bytes(b"")
    data = capture.read_bytes()
    for captures, message in (
        ([tmp_path / "nothing.pcap"], r"nothing\.pcap: cannot be opened"),
        ([capture, bad], r"a\.pcap: is empty.* \(--on-bad-capture skip reads the others\)"),
    ):
        with pytest.raises(CaptureError, match=message):
            by_spark(spark, captures, out)
        assert not out.exists()
    with pytest.raises(UsageError, match="--engine spark does not support filters"):
        by_spark(spark, [capture], out, options=ExportOptions(filters=(("api", ("Fetch",)),)))
    grown.write_bytes(data[:-5_000])
    by_spark(spark, [grown], out)
    with pytest.raises(UsageError, match=r"other options \(bodies\)"):
        by_spark(spark, [grown], out, options=ExportOptions(bodies=False))
    grown.write_bytes(data)
    with pytest.raises(UsageError, match="was exported when it was shorter"):
        by_spark(spark, [grown], out)
    assert not (out / ".partial").exists()
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputError):
        by_spark(spark, [capture], tmp_path / "file")


def test_tables_of_a_catalog_read_an_export(spark: SparkSession, tmp_path: Path) -> None:
    """With the session's setting they find the folders of days, including those of later runs; others are repaired."""
    first, second = cut(CAPTURES / "java-group-classic.pcap", (0.5,), tmp_path)
    folder = tmp_path / "export"
    run([first], folder)

    def count(table: str) -> int:
        return spark.sql(f"SELECT * FROM {table}").count()

    setting = "spark.sql.hive.manageFilesourcePartitions"
    for name, managed in (("exported", "false"), ("managed", "true")):
        spark.conf.set(setting, managed)
        spark.sql(f"CREATE TABLE {name} USING parquet LOCATION '{folder / 'exchanges'}'")
    try:
        assert (count("exported"), count("managed")) == (len(rows(folder, "exchanges")), 0)
        run([first, second], folder)
        for name in ("exported", "managed"):
            spark.sql(f"REFRESH TABLE {name}")
        spark.sql("MSCK REPAIR TABLE managed")
        assert count("exported") == count("managed") == len(rows(folder, "exchanges")) > 0
    finally:
        spark.conf.set(setting, "false")
        for name in ("exported", "managed"):
            spark.sql(f"DROP TABLE {name}")
