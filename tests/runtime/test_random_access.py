"""Files in blocks: the same bytes as in one piece, few requests, bounded memory."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.runtime import random_access
from kafkasniff.runtime.random_access import LocalFile, RemoteFile

CONTENT = bytes(range(256)) * 5


class Store:
    """Counts requests."""

    def __init__(self, content: bytes = CONTENT) -> None:
        self.content = content
        self.requests: list[tuple[int, int]] = []

    def fetch(self, start: int, end: int) -> bytes:
        self.requests.append((start, end))
        return self.content[start:end]

    def file(self) -> RemoteFile:
        return RemoteFile(len(self.content), self.fetch)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_access, "BLOCK_BYTES", 100)
    monkeypatch.setattr(random_access, "MAX_BLOCKS", 4)


@given(st.lists(st.tuples(st.integers(0, 1400), st.integers(0, 1400)), min_size=1, max_size=20))
def test_any_reads(reads: list[tuple[int, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(random_access, "BLOCK_BYTES", 100)
        patch.setattr(random_access, "MAX_BLOCKS", 4)
        file = Store().file()
        for offset, size in reads:
            assert file.read(size, offset) == CONTENT[offset : offset + size]
            target = bytearray(size)
            count = file.read_into(memoryview(target), offset)
            assert target[:count] == CONTENT[offset : offset + size]
            assert len(file._blocks) <= 4


def test_a_block_is_fetched_once_while_it_is_kept() -> None:
    store = Store()
    file = store.file()
    file.read(10, 250)
    file.read(100, 210)
    assert store.requests == [(200, 300), (300, 400)]
    file.read(500, 100)
    # All that is missing, in one request.
    assert store.requests[2:] == [(100, 600)]
    file.read(1, 550)
    assert len(store.requests) == 3


def test_a_short_answer_is_an_error() -> None:
    file = RemoteFile(1000, lambda start, end: b"x" * (end - start - 1))
    with pytest.raises(OSError, match="99 bytes instead of 100 were read"):
        file.read(1, 0)


def test_a_local_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(CONTENT)
    file = LocalFile(io.BufferedReader(io.FileIO(tmp_path / "file")))  # type: ignore[arg-type]  # as `open` makes it
    assert (file.size, file.read(5, 1278), file.read(5, 3)) == (1280, b"\xfe\xff", CONTENT[3:8])
    target = bytearray(4)
    assert file.read_into(memoryview(target), 8) == 4
    assert target == CONTENT[8:12]
    file.close()
