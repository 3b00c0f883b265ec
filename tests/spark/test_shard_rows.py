"""Staged rows on their way between the stages: whole again after, in blocks of bounded size, with their steps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from kafkasniff.capture import open_captures
from kafkasniff.enrich import Catalog
from kafkasniff.enrich.sessions import SessionStep
from kafkasniff.runtime.threads import Threads
from kafkasniff.spark import shard_rows
from kafkasniff.spark.shard_rows import STEP, ShardRows, read_block, values_of
from kafkasniff.tables.exports.beginning import new_state
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.staging import new_stager, stage, stage_rest
from kafkasniff.tables.rows.staged import STAGED, StagedParts

CAPTURE = Path(__file__).resolve().parents[2] / "captures" / "java-codecs.pcap"


class Kept:
    """Staged rows as they were written."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, pa.RecordBatch]] = []

    def write(self, table: str, batch: pa.RecordBatch) -> None:
        self.batches.append((table, batch))

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def staged() -> list[tuple[str, pa.RecordBatch]]:
    options, kept = ExportOptions(), Kept()
    state = new_state(options, Catalog(), sessions=False)
    stager = new_stager(state, options, None, kept)
    with open_captures([str(CAPTURE)]) as source:
        for batch in source:
            stage(state, stager, batch)
    stage_rest(state, stager, kept)
    assert {table for table, _ in kept.batches} >= {"exchanges", "records", "connections"}
    return kept.batches


@pytest.fixture
def threads() -> Iterator[Threads]:
    with Threads(1, "test") as found:
        yield found


@pytest.mark.parametrize("size", [1, 2000, 1 << 20])
def test_rows_are_the_same_in_blocks_of_any_size(
    size: int, staged: list[tuple[str, pa.RecordBatch]], threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_rows, "BLOCK_BYTES", size)
    monkeypatch.setattr(shard_rows, "BATCH_BYTES", 10 * size)
    out = ShardRows(3, threads)
    for table, batch in staged:
        out.write(table, batch)
    rows = [row for batch in out.take() for row in batch.to_pylist()]
    blocks = [row for row in rows if row["kind"] != STEP]
    assert {row["shard"] for row in rows} == {3}
    assert [row["number"] for row in blocks] == list(range(len(blocks)))
    counts = [len(read_block(pa.py_buffer(row["data"]))) for row in blocks]
    sizes = [read_block(pa.py_buffer(row["data"])).nbytes for row in blocks]
    assert out.bytes == pytest.approx(sum(sizes), rel=0.05)
    assert all(rows == 1 or size < 2 * shard_rows.BLOCK_BYTES for size, rows in zip(sizes, counts, strict=True))
    for table in STAGED:
        wanted = [row for name, batch in staged if name == table for row in batch.to_pylist()]
        found = [
            row for one in blocks if one["kind"] == table for row in read_block(pa.py_buffer(one["data"])).to_pylist()
        ]
        assert sorted(found, key=repr) == sorted(wanted, key=repr)


def test_exchanges_in_sessions_have_blocks_of_their_own(
    staged: list[tuple[str, pa.RecordBatch]], threads: Threads
) -> None:
    out = ShardRows(0, threads)
    for table, batch in staged:
        out.write(table, batch)
    rows = [row for batch in out.take() for row in batch.to_pylist()]
    steps = {}
    in_blocks = {}
    for row in rows:
        if row["kind"] == STEP:
            key = row["number"], row["connection_id"], row["exchange_id"]
            steps[key] = row["time_ns"], row["broker"], msgspec.msgpack.decode(row["data"], type=SessionStep)
        elif row["kind"] == "exchanges":
            for one in read_block(pa.py_buffer(row["data"])).to_pylist():
                pending = one["_pending"] and msgspec.msgpack.decode(one["_pending"], type=StagedParts)
                assert bool(pending and pending.session) == row["in_session"]
                if row["in_session"]:
                    key = row["number"], one["connection_id"], one["exchange_id"]
                    in_blocks[key] = one["time_ns"], f"{one['broker_ip']}/{one['broker_port']}", pending.session
        else:
            assert not row["in_session"]
    assert steps == in_blocks
    assert len(steps) > 2
    assert 0 < out.bytes_in_session < out.bytes


def test_values_of_a_column_are_views() -> None:
    values = [b"one", b"", b"three", b"4"]
    column = pa.array(values, pa.binary())
    assert [one.to_pybytes() for one in values_of(column)] == values
    assert [one.to_pybytes() for one in values_of(column[1:3])] == [b"", b"three"]
    assert list(values_of(column[:0])) == []
    assert [one.to_pybytes() for one in values_of(pa.array([b""], pa.binary()))] == [b""]
    first = next(values_of(column))
    assert first.address == column.buffers()[2].address


def test_rows_are_handed_on_when_there_are_enough(threads: Threads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_rows, "BATCH_BYTES", 100)
    monkeypatch.setattr(shard_rows, "WAITING_BYTES", 100)
    out = ShardRows(0, threads)
    out.add(STEP, b"1" * 60)
    assert list(out.full()) == []
    out.add(STEP, b"2" * 60)
    out.add(STEP, b"3" * 60)
    assert [batch.column("data").to_pylist() for batch in out.full()] == [[b"1" * 60, b"2" * 60], [b"3" * 60]]
    assert list(out.full()) == list(out.take()) == []
