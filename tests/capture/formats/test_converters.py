from __future__ import annotations

import bz2
import functools
import gzip
import lzma
import random
from collections.abc import Callable

import lz4.frame
import pytest
import zstandard

from kafkasniff.capture.formats.converters import MAX_OUTPUT, inflater_for
from kafkasniff.errors import CaptureError
from tests.capture.files import pcap
from tests.capture.reading import read, read_bytes
from tests.capture.segments import frame, frames, numbers

SKIPPABLE = bytes.fromhex("5a2a4d18 05000000") + b"hello"
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "zstd": zstandard.ZstdCompressor().compress,
    "lz4": lz4.frame.compress,
    "xz": lzma.compress,
    "bzip2": bz2.compress,
}
CODECS = pytest.mark.parametrize("codec", COMPRESS)
KINDS = pytest.mark.parametrize("through_stdin", [False, True])


@functools.cache
def noisy(count: int) -> bytes:
    """An incompressible capture: bytes cut from the compressed file are bytes cut from the packets."""
    generator = random.Random(5)
    return pcap([frame(b"%010d" % n + generator.randbytes(1000)) for n in range(count)])


@functools.cache
def noisy_compressed(codec: str, count: int) -> bytes:
    return COMPRESS[codec](noisy(count))


@CODECS
@KINDS
@pytest.mark.parametrize("chunk_size", [1000, 1 << 24])
def test_compressed_captures(codec: str, through_stdin: bool, chunk_size: int, tmp_path) -> None:
    path = tmp_path / "capture"  # the file's name does not matter
    path.write_bytes(noisy_compressed(codec, 300))
    if through_stdin:
        result = read_bytes(path.read_bytes(), chunk_size=chunk_size)
    else:
        result = read(path, chunk_size=chunk_size)
    assert numbers(result.payloads) == list(range(300))
    assert not result.broken


def zstd_of_zeros(blocks: int, window: int) -> bytes:
    """A zstd frame that begins with a pcap header; every 4 bytes expand to 128 KiB of zeros.

    `window`: exponent of 2.
    """
    header = pcap([])
    raw, run = (size.to_bytes(3, "little") for size in (len(header) << 3, (128 << 10) << 3 | 2))
    front = b"\x28\xb5\x2f\xfd\x00" + bytes(((window - 10) << 3,)) + raw + header
    return front + (run + b"\0") * blocks + b"\1\0\0"


def test_the_memory_of_xz_has_a_bound() -> None:
    def xz(dictionary: int) -> bytes:
        return lzma.compress(pcap([]), filters=[{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": dictionary}])

    assert read_bytes(xz(64 << 20)).kinds == []
    with pytest.raises(CaptureError, match=r"xz data is corrupt .*[Mm]emory"):
        read_bytes(xz(256 << 20))


def test_a_window_of_zstd_has_a_bound() -> None:
    assert read_bytes(zstd_of_zeros(1, 27)).kinds == ["capture-broken"]
    with pytest.raises(CaptureError, match="zstd data is corrupt"):
        read_bytes(zstd_of_zeros(1, 28))


@CODECS
def test_concatenated_members(codec: str) -> None:
    data = noisy(100)
    parts = [data[:5], data[5:60_000], b"", data[60_000:]]
    result = read_bytes(b"".join(COMPRESS[codec](part) for part in parts))
    assert numbers(result.payloads) == list(range(100))
    assert result.notes == []


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_skippable_frames(codec: str) -> None:
    data = COMPRESS[codec](pcap(frames(3)))
    assert numbers(read_bytes(data + SKIPPABLE + data[:0]).payloads) == [0, 1, 2]


@CODECS
@KINDS
def test_cut_compressed_capture(codec: str, through_stdin: bool, tmp_path) -> None:
    compressed = noisy_compressed(codec, 1500)
    cut = compressed[: len(compressed) * 3 // 4]
    path = tmp_path / "capture"
    path.write_bytes(cut)
    result = read_bytes(cut) if through_stdin else read(path)
    found = numbers(result.payloads)
    # LZ4 and zstd lose the truncated block (4 MiB at most), gzip hardly anything.
    assert found == list(range(len(found)))
    assert len(found) > (1050 if codec == "gzip" else 0)
    assert result.kinds == ["capture-cut"]
    assert "is truncated; nothing after packet" in result.problem("capture-cut").detail
    assert result.broken


def test_corrupt_compressed_capture() -> None:
    compressed = bytearray(gzip.compress(noisy(700), mtime=0))
    middle = len(compressed) // 2
    compressed[middle : middle + 300] = b"\xff" * 300
    for chunk_size in (5000, 1 << 24):
        result = read_bytes(bytes(compressed), chunk_size=chunk_size)
        found = numbers(result.payloads)
        assert found[:100] == list(range(100))
        assert result.broken
        assert "gzip data is corrupt" in result.notes[-1].value.detail


@CODECS
def test_garbage_after_a_member(codec: str) -> None:
    result = read_bytes(COMPRESS[codec](pcap(frames(3))) + b"garbage after it")
    assert numbers(result.payloads) == [0, 1, 2]
    assert result.kinds == ["capture-broken"]


@CODECS
def test_compressed_data_that_is_not_a_capture(codec: str) -> None:
    with pytest.raises(CaptureError, match="not a capture"):
        read_bytes(COMPRESS[codec](b"plain text" * 100))
    with pytest.raises(CaptureError, match=r"is truncated|file header|not a capture"):
        read_bytes(COMPRESS[codec](pcap(frames(1)))[:9])


@pytest.mark.parametrize("codec", ["gzip", "lz4"])
def test_output_is_bounded_at_any_ratio(codec: str) -> None:
    """A hundred megabytes of zeros in a hundred kilobytes."""
    data = COMPRESS[codec](bytes(100 << 20))
    inflater = inflater_for(data[:8])
    assert inflater is not None
    inflater.push(data)
    total = 0
    while piece := inflater.pull():
        assert len(piece) <= MAX_OUTPUT
        total += len(piece)
    inflater.finish()
    assert (total, inflater.failure) == (100 << 20, None)
