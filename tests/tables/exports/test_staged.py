from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafkasniff.tables.exports import staged
from kafkasniff.tables.exports.staged import StagingFile

PAGE = 4096
BLOCK = 2 * PAGE


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that small files reach: three blocks are cached."""
    monkeypatch.setattr(staged, "BLOCK_BYTES", BLOCK)
    monkeypatch.setattr(staged, "CACHED_BYTES", 3 * BLOCK)


def pieces(size: int) -> list[bytes]:
    """Bytes with no two equal pages, in pieces that end anywhere."""
    data = b"".join(number.to_bytes(4, "big") for number in range(-(-size // 4)))[:size]
    found = []
    while data:
        length = 1 + 3 * len(found) * (1 + len(found) % 7)
        found.append(data[:length])
        data = data[length:]
    return found


def write(path: Path, some: list[bytes]) -> None:
    stream = StagingFile(path.open("xb"))
    size = 0
    for number, piece in enumerate(some):
        assert stream.tell() == size
        assert stream.write(pa.py_buffer(piece) if number % 2 else piece) == len(piece)
        size += len(piece)
    stream.close()
    assert stream.closed
    stream.close()


def test_written_bytes_are_read_back(tmp_path: Path) -> None:
    sizes = [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 4 * BLOCK, 4 * BLOCK + 1, 9 * BLOCK + PAGE, 20 * BLOCK - 7]
    for size in sizes:
        some = pieces(size)
        write(tmp_path / f"{size}", some)
        assert (tmp_path / f"{size}").read_bytes() == b"".join(some)
    # A piece may have many blocks.
    data = os.urandom(11 * BLOCK + 5)
    write(tmp_path / "file", [data[:7], data[7:]])
    assert (tmp_path / "file").read_bytes() == data


@pytest.mark.skipif(not hasattr(os, "O_DIRECT"), reason="this system writes everything by way of its page cache")
@pytest.mark.parametrize("refusal", ["flag", "write"])
def test_a_file_system_may_refuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: str) -> None:
    set_flags, put = staged.fcntl.fcntl, os.write
    refused = []

    def no_flag(handle: int, command: int, value: int = 0) -> int:
        if refusal == "flag" and value & os.O_DIRECT:
            refused.append(value)
            raise OSError(errno.EINVAL, "Invalid argument")
        return set_flags(handle, command, value)

    def no_write(handle: int, data: Any) -> int:
        if refusal == "write" and set_flags(handle, staged.fcntl.F_GETFL) & os.O_DIRECT:
            refused.append(len(data))
            raise OSError(errno.EINVAL, "Invalid argument")
        return put(handle, data)

    monkeypatch.setattr(staged.fcntl, "fcntl", no_flag)
    monkeypatch.setattr(staged.os, "write", no_write)
    some = pieces(9 * BLOCK + 9)
    write(tmp_path / "file", some)
    assert len(refused) == 1
    assert (tmp_path / "file").read_bytes() == b"".join(some)


@pytest.mark.parametrize("full_at", [BLOCK, 7 * BLOCK])
def test_a_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full_at: int) -> None:
    put, written = os.write, []

    def full(handle: int, data: Any) -> int:
        if sum(written) >= full_at:
            raise OSError(errno.ENOSPC, "No space left on device")
        # Write a part of the data, as a nearly full disk does.
        written.append(put(handle, data[: len(data) // 2 or 1]))
        return written[-1]

    monkeypatch.setattr(staged.os, "write", full)
    monkeypatch.setattr(staged, "_DIRECT", 0)
    stream = StagingFile((tmp_path / "file").open("xb"))
    data = b"".join(pieces(20 * BLOCK))
    with pytest.raises(OSError, match="No space left"):
        stream.write(data)
    # There is room again, but the file lacks some bytes.
    full_at = 100 * BLOCK
    with pytest.raises(OSError, match="No space left"):
        stream.close()
    assert stream.closed
