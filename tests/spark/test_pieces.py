"""The file of pieces that do not fit in memory. Their order: test_connections.py."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from kafkasniff.spark import pieces
from kafkasniff.spark.pieces import BEGIN_INDEX, PIECE_SCHEMA, PieceOnDisk, PieceStore


def rows() -> Iterator[pa.RecordBatch]:
    pieces = [{"shard": 1, "clock_ns": at, "capture_index": 0, "number": at, "data": bytes(at)} for at in range(20)]
    first = {"shard": 1, "capture_index": BEGIN_INDEX, "data": b"begin"}
    for some in (pieces[7:], [first, *pieces[:7]]):
        yield pa.RecordBatch.from_pylist(some, schema=PIECE_SCHEMA)


def test_the_file_is_private_and_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it lost its end, such as by an administrator who makes room on a full disk, that is noticed."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    monkeypatch.setattr(pieces, "HELD_BYTES", 0)
    with PieceStore() as store:
        assert store.take(rows()) == (1, b"begin")
        given = list(store.in_order())
        assert [piece.size for piece in given if isinstance(piece, PieceOnDisk)] == [*range(1, 20)]
        (file,) = tmp_path.rglob("pieces")
        assert file.stat().st_mode & 0o777 == 0o600
        os.truncate(file, 1)
        with pytest.raises(OSError, match="shorter"):
            [piece.read() for piece in given if isinstance(piece, PieceOnDisk)]
    assert list(tmp_path.iterdir()) == []
