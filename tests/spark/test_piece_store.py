"""The file of pieces that do not fit in memory. Their order: test_connections.py."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from kafkasniff.spark import piece_store
from kafkasniff.spark.piece_store import PieceOnDisk, PieceStore
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


def batches(found: list[Row], size: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(found), size):
        yield pa.RecordBatch.from_pylist(found[start : start + size], schema=PIECE_SCHEMA)


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
