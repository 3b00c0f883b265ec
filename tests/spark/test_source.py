"""Planned captures in Spark: their packets as rows and in pieces are the same, and a changed capture is noticed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkasniff.runtime.threads import Threads
from kafkasniff.spark.packet_rows import packet_rows
from kafkasniff.spark.pieces import in_capture_order, read_ahead
from tests.tables.exports.exported import CAPTURES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = ("capture_index", "number", "clock_ns", "src_ip", "src_port", "seq", "payload")


def test_pieces_have_the_packets_of_the_rows(spark: SparkSession) -> None:
    from kafkasniff.spark.source import open_captures

    paths = [str(CAPTURES / name) for name in ("sarama.pcap", "librdkafka-ipv6-ns.pcapng")]
    captures = open_captures(spark, paths, split_size=64 << 10)
    assert captures.names == tuple(paths)
    rows = {tuple(row) for row in captures.packets(columns=COLUMNS).collect()}
    found = []
    for shard in (0, 1):
        pieces = captures.pieces(2).where(f"shard = {shard}").orderBy("clock_ns", "capture_index", "number").collect()
        assert pieces
        with Threads(1, "test") as threads:
            for batch in in_capture_order(read_ahead((bytes(row["data"]) for row in pieces), threads)):
                batch.captures = captures.names
                found += [tuple(row.values()) for row in packet_rows(batch, COLUMNS).to_pylist()]
    assert len(found) == len(rows)
    assert {(*row[:-1], bytes(row[-1])) for row in rows} == set(found)


def test_a_capture_that_changes_after_planning(spark: SparkSession, tmp_path: Path) -> None:
    from kafkasniff.spark.source import open_captures

    path = tmp_path / "a.pcap"
    path.write_bytes((CAPTURES / "sarama.pcap").read_bytes())
    captures = open_captures(spark, [str(path)])
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(Exception, match=r"a\.pcap"):
        captures.pieces(1).count()
