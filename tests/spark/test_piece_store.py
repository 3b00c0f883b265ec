"""Pieces in memory and on disk: all of them, in order of their places, whatever order they come in."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.spark import piece_store
from kafkasniff.spark.piece_store import BEGIN_INDEX, PieceOnDisk, PieceStore
from kafkasniff.spark.pieces import PIECE_SCHEMA
from kafkasniff.tcp.packets import NO_TIME

Row = dict[str, Any]


def rows(count: int, seed: int) -> list[Row]:
    """Pieces with few different times, in order of their places."""
    random = Random(seed)
    places = {(random.choice([NO_TIME, 0, 5, 10**18]), random.randrange(3), at) for at in range(count)}
    return [
        {"shard": 1, "clock_ns": clock, "capture_index": capture, "number": number, "data": random.randbytes(at % 7)}
        for at, (clock, capture, number) in enumerate(sorted(places))
    ]


def taken(store: PieceStore, found: list[Row], size: int) -> None:
    for start in range(0, len(found), size):
        store.take(pa.RecordBatch.from_pylist(found[start : start + size], schema=PIECE_SCHEMA))


@given(count=st.integers(0, 40), seed=st.integers(0, 99), size=st.integers(1, 9), held=st.integers(0, 150))
def test_pieces_in_any_order(count: int, seed: int, size: int, held: int) -> None:
    wanted = rows(count, seed)
    mixed = [*wanted, {"shard": 1, "capture_index": BEGIN_INDEX, "data": b"the beginning"}]
    Random(seed).shuffle(mixed)
    with pytest.MonkeyPatch.context() as patch, PieceStore() as store:
        patch.setattr(piece_store, "HELD_BYTES", held)
        taken(store, mixed, size)
        assert store.begin == b"the beginning"
        found = list(store.in_order())
        data = [piece.read() if isinstance(piece, PieceOnDisk) else piece for piece in found]
        assert data == [row["data"] for row in wanted]
        assert any(isinstance(piece, PieceOnDisk) for piece in found) == (sum(map(len, data)) > held)


def test_the_file_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    monkeypatch.setattr(piece_store, "HELD_BYTES", 0)
    with PieceStore() as store:
        taken(store, rows(20, 1), 3)
        (file,) = tmp_path.rglob("pieces")
        assert file.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_lost_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as by an administrator who makes room on a full disk."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    monkeypatch.setattr(piece_store, "HELD_BYTES", 0)
    with PieceStore() as store:
        taken(store, rows(20, 1), 20)
        pieces = list(store.in_order())
        (file,) = tmp_path.rglob("pieces")
        os.truncate(file, 1)
        with pytest.raises(OSError, match="shorter"):
            [piece.read() for piece in pieces if isinstance(piece, PieceOnDisk)]
