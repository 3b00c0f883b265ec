"""The file of pieces that do not fit in memory. Their order: test_connections.py."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from kafkasniff.spark import piece_store
from kafkasniff.spark.piece_store import PieceOnDisk, PieceStore
from kafkasniff.spark.pieces import PIECE_SCHEMA


def rows() -> Iterator[pa.RecordBatch]:
    pieces = [{"shard": 1, "clock_ns": at, "capture_index": 0, "number": at, "data": bytes(at)} for at in range(20)]
    yield pa.RecordBatch.from_pylist(pieces, schema=PIECE_SCHEMA)


def test_the_file_is_private_and_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it lost its end, such as by an administrator who makes room on a full disk, that is noticed."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    monkeypatch.setattr(piece_store, "HELD_BYTES", 0)
    with PieceStore() as store:
        pieces = list(store.in_order(rows()))
        (file,) = tmp_path.rglob("pieces")
        assert file.stat().st_mode & 0o777 == 0o600
        os.truncate(file, 1)
        with pytest.raises(OSError, match="shorter"):
            [piece.read() for piece in pieces if isinstance(piece, PieceOnDisk)]
    assert list(tmp_path.iterdir()) == []
