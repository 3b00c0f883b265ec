"""A disk or pipe that fails in the middle of a capture: packets read so far are kept, the rest is reported."""

from __future__ import annotations

import errno
import gzip
import os
import threading
import tty
from pathlib import Path

import pytest

from kafkasniff.capture import open_captures
from kafkasniff.cli.environment import Exit
from kafkasniff.model import Problem
from tests.capture.files import pcap
from tests.capture.reading import batch_rows
from tests.capture.segments import frames, numbers
from tests.cli.console import kafkasniff
from tests.craft.samples import mixed
from tests.craft.write import pcap_bytes
from tests.tables.exports.exported import rows

REASON = "reading it failed: Input/output error"


def failing_after(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads of files return `limit` bytes, then an error, as on a disk with a bad sector."""
    real = os.pread

    def pread(descriptor: int, size: int, offset: int) -> bytes:
        if offset >= limit:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(descriptor, min(size, limit - offset), offset)

    monkeypatch.setattr("kafkasniff.capture.formats.reader.os.pread", pread)


@pytest.mark.parametrize("packed", [False, True])
def test_a_file(packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = pcap(frames(400))
    path = tmp_path / "a.pcap"
    path.write_bytes(gzip.compress(data, 1) if packed else data)
    limit = path.stat().st_size // 2
    failing_after(limit, monkeypatch)
    with open_captures([path], chunk_size=4096) as source:
        batches = list(source)
        found = numbers([row.payload for batch in batches for row in batch_rows(batch)])
        assert source.broken
    assert found == list(range(len(found)))
    assert 100 < len(found) < 400
    reported = [note.value for batch in batches for note in batch.notes if isinstance(note.value, Problem)]
    assert [one.kind for one in reported] == ["capture-broken"]
    assert reported[0].detail.startswith(f"{path}: {REASON}; nothing after packet {len(found)} ")


def test_a_pipe() -> None:
    """A real one: a terminal whose other side has closed returns what was written, then EIO."""
    data = pcap(frames(60))
    ours, theirs = os.openpty()
    tty.setraw(theirs)

    def write() -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(theirs, rest) :]
        os.close(theirs)

    writer = threading.Thread(target=write)
    writer.start()
    with open(ours, "rb", buffering=0) as stdin, open_captures(["-"], stdin=stdin) as source:
        batches = list(source)
        assert source.broken
    writer.join()
    assert numbers([row.payload for batch in batches for row in batch_rows(batch)]) == list(range(60))
    reported = [note.value for batch in batches for note in batch.notes if isinstance(note.value, Problem)]
    assert [one.kind for one in reported] == ["capture-broken"]
    assert REASON in reported[0].detail.replace("[Errno 5] ", "")


def test_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 4, and everything that was read."""
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap_bytes(mixed(), nanoseconds=True))
    limit = path.stat().st_size * 2 // 3
    (tmp_path / "half.pcap").write_bytes(path.read_bytes()[:limit])
    half = kafkasniff("decode", "--format", "json", tmp_path / "half.pcap")
    assert half.code == Exit.BROKEN
    failing_after(limit, monkeypatch)
    result = kafkasniff("decode", "--format", "json", path)
    assert result.code == Exit.BROKEN
    messages = [[one for one in output.objects if one["type"] != "problem"] for output in (result, half)]
    assert messages[0] == messages[1]
    assert len(messages[0]) > 20
    (reported,) = [one for one in result.objects if one.get("kind") == "capture-broken"]
    assert reported["detail"].startswith(f"{path}: {REASON}; nothing after packet ")
    assert kafkasniff("export", path, "-q", "-o", tmp_path / "out").code == Exit.BROKEN
    assert len(rows(tmp_path / "out", "exchanges")) > 10
    assert "capture-broken" in {row["kind"] for row in rows(tmp_path / "out", "problems")}
