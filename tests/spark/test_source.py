"""Planned captures in Spark: their packets as rows and in pieces are the same, and a changed capture is noticed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkasniff.capture.timeline.parts import Place
from kafkasniff.runtime.threads import Threads
from kafkasniff.spark.packet_rows import packet_rows
from kafkasniff.spark.piece_store import COUNT_INDEX
from kafkasniff.spark.pieces import in_capture_order, read_ahead, read_piece
from kafkasniff.spark.section_borders import SectionBorders, SectionTask
from tests.craft.conversation import START_NS
from tests.craft.samples import consumer, producer
from tests.craft.write import write_pcap
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
        of_shard = captures.pieces(2).where(f"shard = {shard} and capture_index >= 0")
        pieces = of_shard.orderBy("clock_ns", "capture_index", "number").collect()
        assert pieces
        with Threads(1, "test") as threads:
            for batch in in_capture_order(read_ahead((bytes(row["data"]) for row in pieces), threads)):
                batch.captures = captures.names
                found += [tuple(row.values()) for row in packet_rows(batch, COLUMNS).to_pylist()]
    assert len(found) == len(rows)
    assert {(*row[:-1], bytes(row[-1])) for row in rows} == set(found)


def test_numbers_of_pieces(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which parts have which pieces, and where they begin: what a shard has to know to decode before it has all."""
    from kafkasniff.spark import source

    paths = [str(CAPTURES / name) for name in ("sarama.pcap", "librdkafka-ipv6-ns.pcapng")]
    captures = source.open_captures(spark, paths, split_size=16 << 10)
    earliest = captures.earliest(5)
    assert len(earliest) > len(paths)
    assert earliest == sorted(earliest)
    rows = captures.pieces(3, captures_before=5).drop("data").collect()
    pieces = Counter((row["part"], row["shard"]) for row in rows if row["capture_index"] != COUNT_INDEX)
    counts = {(row["part"], row["shard"]): row["piece"] for row in rows if row["capture_index"] == COUNT_INDEX}
    assert counts == {(part, shard): pieces[part, shard] for part in range(len(earliest)) for shard in range(3)}
    for row in rows:
        if row["capture_index"] != COUNT_INDEX:
            assert earliest[row["part"]] <= (row["clock_ns"], row["capture_index"], row["number"])
            assert row["piece"] < counts[row["part"], row["shard"]]
    monkeypatch.setattr(source, "MAX_COUNTS", 3 * len(earliest) - 1)
    assert captures.pieces(3).where(f"capture_index = {COUNT_INDEX}").count() == 0


def test_pieces_of_sections(spark: SparkSession, tmp_path: Path) -> None:
    """Parts of captures before all sections are not read again."""
    from kafkasniff.spark.source import open_captures

    talks = producer().packets, consumer(start_ns=START_NS + 10**9).packets
    paths = [write_pcap(tmp_path / f"{at}.pcap", talk, nanoseconds=True) for at, talk in enumerate(talks)]
    captures = open_captures(spark, [*map(str, paths)], split_size=max(path.stat().st_size for path in paths))
    begin = Place(talks[1][3].time_ns, 1 + 5, 4)
    task = SectionTask(0, 1, 1, begin, None)
    paths[0].unlink()
    rows = captures.pieces(1, captures_before=5, sections=SectionBorders(1, [task], 5)).collect()
    (piece,) = (row for row in rows if row["capture_index"] != COUNT_INDEX)
    assert (piece["shard"], piece["clock_ns"], piece["capture_index"], piece["number"]) == (0, *begin)
    assert len(read_piece(bytes(piece["data"]))) == len(talks[1]) - 3
    parts = {row["part"]: row["piece"] for row in rows if row["capture_index"] == COUNT_INDEX}
    assert sorted(parts.values()) == [0, 1]


def test_a_capture_that_changes_after_planning(spark: SparkSession, tmp_path: Path) -> None:
    from kafkasniff.spark.source import open_captures

    path = tmp_path / "a.pcap"
    path.write_bytes((CAPTURES / "sarama.pcap").read_bytes())
    captures = open_captures(spark, [str(path)])
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(Exception, match=r"a\.pcap"):
        captures.pieces(1).count()
