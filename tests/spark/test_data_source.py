"""The data source `kafkasniff`, read by a real Spark: the rows are those of `open_captures`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from kafkasniff.spark.packet_rows import PACKETS_SCHEMA
from tests.capture.files import pcap
from tests.capture.segments import frames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CAPTURES = Path(__file__).parents[2] / "captures"
REAL = [CAPTURES / name for name in ("librdkafka-ipv6-ns.pcapng", "java-telemetry.pcap", "sarama.pcap")]
pytestmark = pytest.mark.extended

PLACE = ("clock_ns", "capture_index", "number")


def load(spark: SparkSession, *paths: Path, **options: str) -> DataFrame:
    return spark.read.format("kafkasniff").options(**options).load([str(path) for path in paths])


def in_order(frame: DataFrame) -> list[dict[str, Any]]:
    """Rows by their places; null, which Spark sorts first, stands for a clock that has not begun."""
    rows = frame.toArrow().to_pylist()
    return sorted(rows, key=lambda row: (row["clock_ns"] is not None, row["clock_ns"] or 0, *map(row.get, PLACE[1:])))


def scanned(frame: DataFrame) -> set[str]:
    """The columns that Spark takes from the source, by its plan."""
    plan = frame._jdf.queryExecution().executedPlan().toString()
    found = re.search(r"BatchScan kafkasniff\[(.*?)\]", plan)
    return {name.partition("#")[0] for name in found[1].split(", ")}


def test_only_named_columns_are_read(spark: SparkSession) -> None:
    """Spark does not show sources in Python which columns a query needs; should it begin to, docs/spark.md changes."""
    reader = spark.read.format("kafkasniff")
    whole = reader.load(str(REAL[2]))
    named = load(spark, REAL[2], columns="src_ip,length")
    given = spark.read.format("kafkasniff").schema("src_ip string, length int").load(str(REAL[2]))
    answers = [frame.groupBy("src_ip").sum("length") for frame in (whole, named, given)]
    assert [scanned(answer) for answer in answers] == [set(PACKETS_SCHEMA.names), *[{"src_ip", "length"}] * 2]
    assert len({tuple(answer.collect()) for answer in answers}) == 1


def test_filters_that_are_pushed_down(spark: SparkSession) -> None:
    condition = "number > 20 AND number < 90 AND src_ip = '127.0.0.1' AND length % 2 = 0 AND NOT dst_port IN (1, 2)"
    plain = load(spark, REAL[2]).where(condition)
    pushed = load(spark, REAL[2], pushdown="true").where(condition)
    assert in_order(pushed) == in_order(plain)
    assert plain.count() > 5
    (left,) = [
        line for line in pushed._jdf.queryExecution().executedPlan().toString().splitlines() if "Filter (" in line
    ]
    assert "length" in left
    assert "number" not in left
    # If Spark may not ask, a reader without filters still works.
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        assert load(spark, REAL[2]).where(condition).count() == plain.count()
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_batches_are_bounded_by_bytes(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "long.pcap"
    path.write_bytes(pcap(frames(900, 60_000)))

    def sizes(batches: Any) -> Any:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"bytes": [sum(map(len, batch.column("payload").to_pylist()))]})

    found = [row["bytes"] for row in load(spark, path).mapInArrow(sizes, "bytes bigint").collect()]
    assert sum(found) == 900 * 60_000
    assert max(found) <= 18 << 20


def test_files_are_selected_as_in_other_sources(spark: SparkSession, tmp_path: Path) -> None:
    inner = tmp_path / "day" / "hour"
    inner.mkdir(parents=True)
    for place, modified in ((tmp_path / "day" / "a.pcap", 1_000), (inner / "b.pcap", 2_000), (inner / "b.old", 3_000)):
        place.write_bytes(REAL[2].read_bytes())
        os.utime(place, (modified, modified))

    def names(**options: str) -> set[str]:
        rows = load(spark, tmp_path / "day", columns="capture", **options).distinct().collect()
        return {row["capture"].rpartition("/")[2] for row in rows}

    assert names() == {"a.pcap"}
    assert names(recursiveFileLookup="true") == {"a.pcap", "b.pcap", "b.old"}
    assert names(recursiveFileLookup="true", pathGlobFilter="*.pcap") == {"a.pcap", "b.pcap"}
    assert names(recursiveFileLookup="true", modifiedAfter="1970-01-01T00:30:00Z") == {"b.pcap", "b.old"}
    assert names(recursiveFileLookup="true", modifiedBefore="1970-01-01T00:30:00") == {"a.pcap"}
    assert names(pathGlobFilter="*.nothing") == set()
    for table in ("exchanges", "notes"):
        assert load(spark, tmp_path / "day", table=table, pathGlobFilter="*.nothing").count() == 0


def test_misuse(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("no capture at all, and it never was")
    (tmp_path / "nothing").mkdir()
    for path, options, message in (
        (REAL[0], {"tabel": "packets"}, "no option tabel"),
        (REAL[0], {"columns": "nothing"}, "no column nothing"),
        (REAL[0], {"table": "exchanges", "columns": "payload"}, "table exchanges has no column payload"),
        (tmp_path / "a.txt", {}, r"a\.txt: is not a capture"),
        (tmp_path / "nothing", {}, "contains neither captures"),
    ):
        with pytest.raises(Exception, match=message):
            load(spark, path, **options).count()
    with pytest.raises(Exception, match=r"payload_ is|no column payload_"):
        spark.read.format("kafkasniff").schema("payload_ binary").load(str(REAL[0])).count()
    # Scans of a table of a catalog would get none of its options.
    with pytest.raises(Exception, match="use CREATE TEMPORARY VIEW, or export the captures") as raised:
        spark.sql(f"CREATE TABLE refused USING kafkasniff OPTIONS (path '{CAPTURES}/sarama.pcap', table 'exchanges')")
    assert "UsageError" in str(raised.value)
    assert not spark.catalog.tableExists("refused")
