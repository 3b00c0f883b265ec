"""Files, pipes and what is neither; a disk or pipe that fails in the middle of a capture."""

from __future__ import annotations

import errno
import gzip
import io
import os
import threading
import zlib
from pathlib import Path

import pytest

from kafkasniff.capture import open_captures
from kafkasniff.cli.environment import Exit
from kafkasniff.errors import CaptureError, UsageError
from kafkasniff.model import Problem
from tests.capture.files import enhanced, interface, pcap, pcap_header, pcap_record, section
from tests.capture.reading import batch_rows, read
from tests.capture.segments import frames, numbers
from tests.cli.console import kafkasniff
from tests.craft.samples import mixed
from tests.craft.write import pcap_bytes
from tests.tables.exports.exported import rows


@pytest.mark.parametrize("kind", ["pcap", "pcapng", "gzip"])
def test_a_live_pipe_yields_what_has_arrived(kind: str) -> None:
    data = frames(6)
    packer = zlib.compressobj(wbits=31)
    if kind == "pcapng":
        head, records = section() + interface(), [enhanced(f, n) for n, f in enumerate(data)]
    else:
        head, records = pcap_header(), [pcap_record(f) for f in data]
    if kind == "gzip":
        records = [packer.compress(r) + packer.flush(zlib.Z_SYNC_FLUSH) for r in [head, *records]]
        head, records = records[0], records[1:]
    read_end, write_end = os.pipe()
    os.write(write_end, head)
    with os.fdopen(read_end, "rb") as stdin, open_captures(["-"], stdin=stdin) as source:
        batches = iter(source)
        # Each packet must be yielded before the next one is written; a source that waited for more would never return.
        for number, record in enumerate(records[:3]):
            os.write(write_end, record)
            assert numbers([row.payload for row in batch_rows(next(batches))]) == [number]
        # A packet written in two halves is yielded once complete, together with those that follow it.
        os.write(write_end, records[3][:20])
        timer = threading.Timer(0.05, os.write, [write_end, b"".join([records[3][20:], *records[4:]])])
        timer.start()
        found = [row.payload for row in batch_rows(next(batches))]
        timer.join()
        os.close(write_end)
        found += [row.payload for batch in batches for row in batch_rows(batch)]
        assert numbers(found) == [3, 4, 5]
        assert source.bytes_total is None
        assert source.bytes_read > 0


def test_a_named_pipe(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=[pcap(frames(500))])
    writer.start()
    result = read(path)
    writer.join()
    assert numbers(result.payloads) == list(range(500))


def test_progress(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_bytes(pcap(frames(1000)))
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    for path in (plain, packed):
        with open_captures([path], chunk_size=1000) as source:
            assert source.bytes_total == path.stat().st_size
            seen = [source.bytes_read for _ in source]
            assert seen == sorted(seen)
            assert source.bytes_read == source.bytes_total
    with open_captures([plain, packed]) as source:
        assert source.captures == (str(plain), str(packed))
        list(source)
        assert source.bytes_read == source.bytes_total == plain.stat().st_size + packed.stat().st_size


def test_unreadable_inputs(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    text = tmp_path / "text"
    text.write_text("Frame 1: 98 bytes on wire\n")
    good = tmp_path / "good"
    good.write_bytes(pcap(frames(1)))
    folder = tmp_path / "folder"
    folder.mkdir()
    for path, reason in [
        (tmp_path / "missing", "No such file"),
        (folder, "contains neither captures"),
        (empty, "empty"),
        (text, "not a capture"),
        (Path("nul\0byte"), "cannot be opened"),
    ]:
        # The same among valid captures: before any of their packets is read.
        for paths in ([path], [good, path]):
            with pytest.raises(CaptureError, match=reason) as caught:
                open_captures(paths)
            assert str(path) in str(caught.value)
            assert "\n" not in str(caught.value)
    with pytest.raises(CaptureError, match="stdin: is empty"):
        open_captures(["-"], stdin=io.BytesIO())


def test_usage_errors(tmp_path: Path) -> None:
    data = io.BytesIO(pcap(frames(1)))
    with pytest.raises(UsageError, match="only once"):
        open_captures(["-", "-"], stdin=data)
    with pytest.raises(UsageError, match="at least one"):
        open_captures([])
    with pytest.raises(UsageError, match="positive"):
        open_captures(["-"], stdin=data, chunk_size=0)
    with open_captures(["-"], stdin=data) as source:
        list(source)
        with pytest.raises(UsageError, match="already"):
            iter(source)


# Packets read before an error are kept, the rest is reported.

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
