"""Pieces in memory and on disk: all of them, in order of their places, whatever order they come in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.capture.timeline.parts import Place
from kafkasniff.spark import piece_store
from kafkasniff.spark.piece_store import BEGIN_INDEX, COUNT_INDEX, Piece, PieceOnDisk, PieceStore
from kafkasniff.spark.pieces import PIECE_SCHEMA
from kafkasniff.tcp.packets import NO_TIME

Row = dict[str, Any]
BEGIN: Row = {"shard": 1, "capture_index": BEGIN_INDEX, "data": b"the beginning"}


def rows(count: int, seed: int) -> list[Row]:
    """Pieces with few different times, in order of their places."""
    random = Random(seed)
    places = {(random.choice([NO_TIME, 0, 5, 10**18]), random.randrange(3), at) for at in range(count)}
    return [
        {"shard": 1, "clock_ns": clock, "capture_index": capture, "number": number, "data": random.randbytes(at % 7)}
        for at, (clock, capture, number) in enumerate(sorted(places))
    ]


def place(row: Row) -> Place:
    return Place(row["clock_ns"], row["capture_index"], row["number"])


def in_parts(found: list[Row], parts: int, seed: int, *, one_by_one: bool = False) -> tuple[list[Row], list[Place]]:
    """Number the pieces by part; returns the numbers of pieces as rows, and the place before each part.

    `one_by_one`: the parts follow one another.
    """
    random = Random(seed)
    of = [random.randrange(parts) for _ in found]
    if one_by_one:
        of.sort()
    known = []
    for one in range(parts):
        first = next((place(row) for row, part in zip(found, of, strict=True) if part == one), Place(NO_TIME, 0, 0))
        known.append(first._replace(number=first.number - random.randrange(2)))
    new = {old: number for number, old in enumerate(sorted(range(parts), key=known.__getitem__))}
    counts = [0] * parts
    for row, part in zip(found, of, strict=True):
        row["part"] = new[part]
        row["piece"] = counts[new[part]]
        counts[new[part]] += 1
    ends = [
        {"shard": 1, "part": part, "piece": number, "capture_index": COUNT_INDEX, "data": b""}
        for part, number in enumerate(counts)
    ]
    return ends, sorted(known)


def batches(found: list[Row], size: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(found), size):
        yield pa.RecordBatch.from_pylist(found[start : start + size], schema=PIECE_SCHEMA)


def read(piece: Piece) -> bytes:
    return piece.read() if isinstance(piece, PieceOnDisk) else bytes(piece)


@given(count=st.integers(1, 40), parts=st.integers(1, 5), seed=st.integers(0, 99), size=st.integers(1, 9))
def test_pieces_that_come_in_order_do_not_wait(count: int, parts: int, seed: int, size: int) -> None:
    wanted = rows(count, seed)
    ends, earliest = in_parts(wanted, parts, seed, one_by_one=True)
    # A part's number of pieces follows its last one.
    come: list[Row] = sorted([*wanted, *ends], key=lambda row: (row["part"], row["capture_index"] == COUNT_INDEX))
    given_out: list[bytes] = []
    taken = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal taken
        for batch in batches(come, size):
            assert len(given_out) == taken
            taken += sum(index != COUNT_INDEX for index in batch.column("capture_index").to_pylist())
            yield batch

    with pytest.MonkeyPatch.context() as patch, PieceStore(earliest) as store:
        # More than what comes at once.
        patch.setattr(piece_store, "HELD_BYTES", 7 * size)
        assert store.beginning(iter(batches([BEGIN], 1)))
        for piece in store.in_order(counted()):
            assert not isinstance(piece, PieceOnDisk)
            given_out.append(read(piece))
    assert given_out == [row["data"] for row in wanted]


def test_the_file_is_private_and_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it lost its end, such as by an administrator who makes room on a full disk, that is noticed."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    monkeypatch.setattr(piece_store, "HELD_BYTES", 0)
    with PieceStore() as store:
        pieces = list(store.in_order(batches(rows(20, 1), 20)))
        (file,) = tmp_path.rglob("pieces")
        assert file.stat().st_mode & 0o777 == 0o600
        os.truncate(file, 1)
        with pytest.raises(OSError, match="shorter"):
            [piece.read() for piece in pieces if isinstance(piece, PieceOnDisk)]
    assert list(tmp_path.iterdir()) == []
