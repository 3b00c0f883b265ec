"""Files of `live --write` as a stream, while they are written and rotated by the writer itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkasniff.capture.formats.raw import Interface
from kafkasniff.capture.live.frames import Frames
from kafkasniff.capture.write import rotation
from kafkasniff.capture.write.pcapng_writer import packet_blocks
from kafkasniff.capture.write.rotation import CaptureFiles, Rotation
from tests.capture.fake_interface import captured, raw_packets
from tests.tables.exports.exported import CAPTURES, manifest, run

pytest.importorskip("pyspark")
from tests.spark.test_stream import Follower
from tests.spark.test_streaming import no_orphans, same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CAPTURE = CAPTURES / "franz-go.pcap"
BATCH = 40
"""Packets that are written at a time, as `live` writes those of one block of the kernel's."""


def files(target: Path, limits: Rotation) -> CaptureFiles:
    """The files of a capture into which nothing was lost."""
    return CaptureFiles(
        str(target), (Interface(1, 0, "eth0", 262_144),), limits, counts=lambda: [(0, 0)], failed=pytest.fail
    )


def write(kept: CaptureFiles) -> Iterator[int]:
    """Write the packets of a real capture, batch by batch; gives how many are written."""
    packets = captured(CAPTURE)
    for start in range(0, len(packets), BATCH):
        kept.write(packet_blocks(Frames.plain(raw_packets(packets[start : start + BATCH]))))
        yield min(start + BATCH, len(packets))


@pytest.mark.parametrize("count", [None, 3], ids=["-C", "-C -W 3"])
def test_only_whole_packets_are_taken(count: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looked at in the midst of blocks, too: each packet comes once, in order, and nothing that is not whole."""
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / CAPTURE.name).symlink_to(CAPTURE)
    wanted = [row["payload"] for row in Follower(tmp_path / "plain").look()]
    assert len(wanted) > 100
    folder = tmp_path / "rotated"
    folder.mkdir()
    stream = Follower(folder)
    found: list[bytes] = []
    cuts = writes = 0
    real = os.write

    def write_some(descriptor: int, data: memoryview) -> int:
        """As the kernel may: a part, which is seen before the rest is written."""
        nonlocal cuts, writes
        done = real(descriptor, data[:1_999])
        writes += 1
        if writes % 2 == 0:
            found.extend(row["payload"] for row in stream.look())
            cuts += any(one["seen"] > one["at"] for one in stream.offset["files"].values() if "seen" in one)
        return done

    monkeypatch.setattr(rotation.os, "write", write_some)
    with files(folder / "ring", Rotation(size=10_000, files=count)) as kept:
        for _ in write(kept):
            found.extend(row["payload"] for row in stream.look())
    found.extend(row["payload"] for row in stream.look())
    assert found == wanted
    assert cuts > 5
    assert kept.made > 5
    assert len(list(folder.iterdir())) == (count or kept.made)


def test_tables_while_files_are_written(spark: SparkSession, tmp_path: Path) -> None:
    """A query that runs while files grow and rotate makes the rows of one export of them all."""
    from kafkasniff.spark.streaming import decode_stream

    folder, out = tmp_path / "rotated", tmp_path / "out"
    folder.mkdir()
    size = CAPTURE.stat().st_size
    packets = spark.readStream.format("kafkasniff").load(str(folder))
    with files(folder / "kafka.pcapng", Rotation(size=size // 3)) as kept:
        progress = write(kept)
        next(progress)
        query = decode_stream(packets, out, trigger={"processingTime": "0 seconds"}, shards=2)
        try:
            query.processAllAvailable()
            first = manifest(out)
            assert [Path(one["name"]).name for one in first["captures"]] == ["kafka.pcapng"]
            for _ in progress:
                assert query.isActive
            query.processAllAvailable()
        finally:
            query.stop()
    assert query.exception() is None
    reported = manifest(out)
    assert reported["runs"] > first["runs"]
    assert len(reported["captures"]) == kept.made > 2
    run([one["name"] for one in reported["captures"]], tmp_path / "once")
    same_rows(out, tmp_path / "once")
    no_orphans(out)
