"""Packets in pieces: each shard gets its own, all of them, in capture order, however they are cut."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kafkasniff.capture.timeline.locations import find_captures, open_capture
from kafkasniff.capture.timeline.parts import plan_captures
from kafkasniff.engine.shards import shard_of_rows
from kafkasniff.runtime.threads import Threads
from kafkasniff.spark import pieces
from kafkasniff.spark.packet_rows import packet_rows
from kafkasniff.spark.pieces import PacketCutter, RowCutter, in_capture_order, read_ahead
from kafkasniff.spark.reading import packets_of, parts_of
from kafkasniff.spark.tables import PIPELINE
from kafkasniff.tcp.packets import NO_TIME, PacketBatch
from tests.capture.files import START
from tests.capture.reading import batch_rows
from tests.craft.packet import Packet
from tests.craft.write import pcap_bytes

CAPTURES = Path(__file__).resolve().parents[2] / "captures"


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> list[PacketBatch]:
    """Packets of captures that were made side by side, one after the other, and without times."""
    folder = tmp_path_factory.mktemp("captures")
    random, paths = Random(5), []
    for number in range(6):
        packets = [
            Packet(
                src="10.0.0.1",
                dst="10.0.0.2",
                sport=random.choice([50_000, 50_001, 50_002]),
                dport=9092,
                seq=at,
                ack=1,
                flags=0x18,
                payload=bytes([number]) * random.randrange(40),
                time_ns=START + random.randrange(2_000_000) + (number // 4) * 10**9,
            )
            for at in range(400)
        ]
        paths.append(folder / f"{number}.pcap")
        paths[-1].write_bytes(pcap_bytes(sorted(packets, key=lambda packet: packet.time_ns)))
    files = find_captures([str(CAPTURES / "java-group-share.pcap"), *map(str, paths)])
    plan = plan_captures(files, open_capture, split_size=64 << 10)
    found = [batch for part in parts_of(plan, 64 << 10) for batch in packets_of(part)]
    without = found[0].split(len(found[0]) // 2)[0]
    assert without.clock is not None
    without.clock = np.full(len(without), NO_TIME)
    without.time_ns = np.full(len(without), NO_TIME)
    without.capture = without.capture + len(plan.names)
    return [without, *found]


def rows_of(batch: PacketBatch) -> Iterator[tuple[Any, ...]]:
    """The packets, with their places before them."""
    assert batch.clock is not None
    for row, clock in zip(batch_rows(batch), batch.clock.tolist(), strict=True):
        yield (clock, *row[1:])


def wanted(batches: list[PacketBatch], shards: int) -> dict[int, list[tuple[Any, ...]]]:
    found: dict[int, list[tuple[Any, ...]]] = {}
    for batch in batches:
        for row, shard in zip(rows_of(batch), shard_of_rows(batch, shards).tolist(), strict=True):
            found.setdefault(shard, []).append(row)
    return {shard: sorted(rows, key=lambda row: row[:3]) for shard, rows in found.items()}


def put_together(rows: list[dict[str, Any]]) -> dict[int, list[tuple[Any, ...]]]:
    """What the shards get."""
    rows = sorted(rows, key=lambda row: (row["clock_ns"], row["capture_index"], row["number"]))
    found: dict[int, list[tuple[Any, ...]]] = {}
    for shard in {row["shard"] for row in rows}:
        mine = (row["data"] for row in rows if row["shard"] == shard)
        with Threads(1, "test") as threads:
            found[shard] = [row for batch in in_capture_order(read_ahead(mine, threads)) for row in rows_of(batch)]
    return found


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("size", [1, 3_000, 1 << 30])
def test_shards_get_their_packets_in_capture_order(
    batches: list[PacketBatch], shards: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PIECE_BYTES", "CUT_BYTES", "MERGE_BYTES"):
        monkeypatch.setattr(pieces, name, size)
    cut = [row for batch in PacketCutter(shards).cut(batches) for row in batch.to_pylist()]
    assert len(cut) >= (20 if size < 1 << 30 else shards)
    assert put_together(cut) == wanted(batches, shards)


def test_the_same_of_rows_in_any_order(batches: list[PacketBatch]) -> None:
    for batch in batches:
        batch.captures = tuple(map(str, range(20)))
    whole = pa.Table.from_batches([packet_rows(batch, PIPELINE) for batch in batches])
    mixed = whole.take(np.random.default_rng(7).permutation(len(whole))).combine_chunks()
    cut = [row for found in RowCutter(2)(mixed.to_batches(max_chunksize=700)) for row in found.to_pylist()]
    for row in cut:
        row["clock_ns"] = NO_TIME if row["clock_ns"] is None else row["clock_ns"]
    assert put_together(cut) == wanted(batches, 2)


def test_ports_and_captures_of_earlier_runs(batches: list[PacketBatch]) -> None:
    cut = [row for one in PacketCutter(2, ports=[50_001], captures_before=3).cut(batches) for row in one.to_pylist()]
    found = sorted(row for rows in put_together(cut).values() for row in rows)
    every = [row for batch in batches for row in rows_of(batch)]
    assert found == sorted((row[0], row[1] + 3, *row[2:]) for row in every if 50_001 in row)
    assert found


def test_bytes_of_other_packets_do_not_make_pieces_smaller(
    batches: list[PacketBatch], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "CUT_BYTES", sum(batch.nbytes for batch in batches) // 4)

    def cut(some: list[PacketBatch], **options: Any) -> list[dict[str, Any]]:
        return [row for one in PacketCutter(1, **options).cut(some) for row in one.to_pylist()]

    own = cut(batches)
    wide = [batch.split(len(batch))[0] for batch in batches]
    for batch in wide:
        batch.buffer += bytes(1000 * len(batch))
    assert 2 < len(cut(wide)) <= len(own)
    assert put_together(cut(wide)) == put_together(own)
    assert len(cut(batches, ports=[50_001])) == 1


def test_no_packets(batches: list[PacketBatch]) -> None:
    assert list(PacketCutter(4).cut([])) == []
    assert list(PacketCutter(4).cut([batches[0].split(0)[0]])) == []
    assert list(PacketCutter(4, ports=[1]).cut(batches)) == []
    assert list(in_capture_order([])) == []
