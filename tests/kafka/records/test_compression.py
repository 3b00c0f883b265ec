"""Codecs: what encoders write, damage, and bounds on what it decompresses to."""

from __future__ import annotations

import functools
import gzip
import struct
import zlib
from collections.abc import Callable

import cramjam
import lz4.frame
import pytest
import zstandard

from kafkasniff.kafka.records import compression
from kafkasniff.kafka.records.compression import MAX_FRAMES, MAX_RATIO, MAX_UNRATED, allowance, decompress
from tests.kafka.records_craft import COMPRESSORS, GZIP, LZ4, SNAPPY, XERIAL_HEADER, ZSTD, xerial

TEXT = b"".join(b'{"order": %d, "amount": %d}\n' % (number, number * 7919 % 1000) for number in range(4000))
"""110 kB: several blocks of every codec, and more than one step of output for the small ones."""
BIG = 1 << 24

FORMS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "gzip": (GZIP, gzip.compress),
    "gzip stored": (GZIP, lambda text: gzip.compress(text, 0)),
    "snappy raw": (SNAPPY, lambda text: bytes(cramjam.snappy.compress_raw(text))),
    "snappy xerial": (SNAPPY, xerial),
    "snappy xerial, concatenated": (SNAPPY, lambda text: xerial(text[:50_000]) + xerial(text[50_000:])),
    "lz4": (LZ4, lz4.frame.compress),
    "lz4 linked, checksums, no size": (
        LZ4,
        lambda text: lz4.frame.compress(
            text, block_linked=True, content_checksum=True, block_checksum=True, store_size=False
        ),
    ),
    "zstd without size": (ZSTD, lambda text: zstandard.ZstdCompressor(write_content_size=False).compress(text)),
    "zstd with size and checksum": (ZSTD, lambda text: zstandard.ZstdCompressor(write_checksum=True).compress(text)),
    "zstd level 12": (ZSTD, lambda text: zstandard.ZstdCompressor(level=12, write_content_size=False).compress(text)),
}


@functools.cache
def compressed(form: str) -> tuple[int, bytes]:
    """Codec and bytes of the text in a form."""
    codec, compress = FORMS[form]
    return codec, compress(TEXT)


each_form = pytest.mark.parametrize("form", FORMS)


@each_form
def test_data_of_other_encoders(form):
    codec, data = compressed(form)
    result = decompress(codec, data, BIG)
    assert result.data == TEXT
    assert (result.produced, result.failure, result.detail) == (len(TEXT), None, "")


@each_form
def test_the_limit_is_exact(form):
    codec, data = compressed(form)
    assert decompress(codec, data, len(TEXT)).data == TEXT
    result = decompress(codec, data, len(TEXT) - 1)
    assert (result.failure, result.data) == ("decompression-bound", b"")
    assert result.produced <= len(TEXT)


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
def test_concatenated_frames(codec):
    compress = COMPRESSORS[codec]
    pieces = [TEXT, b"", b"middle", TEXT[::-1]] * 3
    assert decompress(codec, b"".join(map(compress, pieces)), BIG).data == b"".join(pieces)
    many = compress(b"x") * (MAX_FRAMES + 1)
    assert decompress(codec, many[: -len(compress(b"x"))], BIG).data == b"x" * MAX_FRAMES
    result = decompress(codec, many, BIG)
    assert result.failure == "decompression-failed"
    assert str(MAX_FRAMES) in result.detail


@pytest.mark.parametrize("codec", [GZIP, LZ4])
def test_trailing_bytes_are_reported(codec):
    result = decompress(codec, COMPRESSORS[codec](TEXT) + b"\0\0\0", BIG)
    assert (result.data, result.failure) == (TEXT, None)
    assert result.detail.startswith("3 bytes after")
    assert decompress(ZSTD, COMPRESSORS[ZSTD](TEXT) + b"\0\0\0", BIG).failure == "decompression-failed"


@pytest.mark.parametrize("size", [0, 1, 3, 4, 15, 100])
@pytest.mark.parametrize("store_size", [False, True])
def test_lz4_of_magic_0_with_the_broken_header_checksum(size, store_size):
    """Kafka before 0.10 hashed the frame's magic number too. The library refuses such frames; magic 0 reads both."""
    right = lz4.frame.compress(TEXT[:size], store_size=store_size)
    at = 14 if right[4] & 8 else 6
    for checksum in range(0, 256, 5):
        broken = right[:at] + bytes([checksum]) + right[at + 1 :]
        assert decompress(LZ4, broken, BIG, magic=0).data == TEXT[:size]
        refused = decompress(LZ4, broken, BIG, magic=1).failure == "decompression-failed"
        assert refused == (checksum != right[at])


def test_zstd_window_is_bounded():
    parameters = zstandard.ZstdCompressionParameters(window_log=28, write_content_size=False)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    result = decompress(ZSTD, stream.compress(TEXT) + stream.flush(), BIG)
    assert result.failure == "decompression-failed"
    allowed = zstandard.ZstdCompressionParameters(window_log=27, write_content_size=False)
    stream = zstandard.ZstdCompressor(compression_params=allowed).compressobj()
    assert decompress(ZSTD, stream.compress(TEXT) + stream.flush(), BIG).data == TEXT


def test_snappy_lengths_are_not_trusted():
    for stated in (b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff\xff\x01"):
        assert decompress(SNAPPY, stated + b"\0abc", 1 << 40).failure == "decompression-failed"
    for length in (-1, 1000, 0x7FFFFFFF):
        data = XERIAL_HEADER + struct.pack(">i", length) + b"\x01\x00a"
        assert decompress(SNAPPY, data, BIG).failure == "decompression-failed"


def test_gzip_checksum_is_checked():
    data = bytearray(gzip.compress(TEXT))
    data[-6] ^= 1
    assert decompress(GZIP, bytes(data), BIG).failure == "decompression-failed"
    raw = zlib.compress(TEXT)
    assert decompress(GZIP, raw, BIG).failure == "decompression-failed"


def bomb(codec: int, size: int) -> bytes:
    """`size` zeros, made without holding them."""
    piece = bytes(1 << 24)
    if codec == GZIP:
        # After a full flush, the same deflate blocks can be repeated; the end is never reached.
        encoder = zlib.compressobj(9, wbits=-15)
        blocks = encoder.compress(piece) + encoder.flush(zlib.Z_FULL_FLUSH)
        return gzip.compress(b"")[:10] + blocks * (size // len(piece))
    if codec == LZ4:
        with lz4.frame.LZ4FrameCompressor() as frame:
            return frame.begin() + b"".join(frame.compress(piece) for _ in range(size // len(piece))) + frame.flush()
    if codec == ZSTD:
        stream = zstandard.ZstdCompressor().compressobj()
        return b"".join(stream.compress(piece) for _ in range(size // len(piece))) + stream.flush()
    block = bytes(cramjam.snappy.compress_raw(piece))
    return XERIAL_HEADER + (struct.pack(">i", len(block)) + block) * (size // len(piece))


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_zeros_stop_at_the_bound(codec: int) -> None:
    """However much would follow; only zstd can reach the ratio that is refused, whatever its bound."""
    data = bomb(codec, 1 << 26)
    limit = 1 << 21
    result = decompress(codec, data, limit)
    assert result.failure == "decompression-bound"
    assert result.produced <= limit + 1
    assert ("times their size" in result.detail) == (len(data) < limit)
    zeros = bytes(1 << 24)
    assert decompress(codec, COMPRESSORS[codec](zeros), 1 << 28).data == zeros
    # The length that raw Snappy states is checked before.
    data = bytes(cramjam.snappy.compress_raw(zeros))
    result = decompress(SNAPPY, data, 1 << 20)
    assert (result.failure, result.produced) == ("decompression-bound", 0)


def test_a_small_bomb_stops_at_the_bound_for_its_size():
    data = COMPRESSORS[ZSTD](bytes(MAX_UNRATED))
    assert decompress(ZSTD, data, 1 << 28).produced == MAX_UNRATED
    data = COMPRESSORS[ZSTD](bytes(MAX_UNRATED + 1))
    result = decompress(ZSTD, data, 1 << 28)
    assert (result.failure, result.data, result.produced) == ("decompression-bound", b"", MAX_UNRATED + 1)
    excess = f"{len(data)} bytes of zstd decompress to more than the {MAX_UNRATED} bytes allowed for their size"
    assert excess in result.detail
    less = decompress(ZSTD, data, MAX_UNRATED)
    assert f"the {MAX_UNRATED} bytes that are left of the limit for one message (see --memory)" in less.detail


@pytest.mark.parametrize("beyond", [0, 1])
def test_the_bound_of_the_ratio(monkeypatch, beyond):
    monkeypatch.setattr(compression, "MAX_UNRATED", 1000)
    # A skippable frame gives the value its length.
    size = 2000
    data = COMPRESSORS[ZSTD](bytes(MAX_RATIO * size + beyond))
    filling = size - len(data) - 8
    data += b"\x50\x2a\x4d\x18" + struct.pack("<I", filling) + bytes(filling)
    assert allowance(len(data)) == MAX_RATIO * size
    result = decompress(ZSTD, data, 1 << 28)
    assert result.failure == ("decompression-bound" if beyond else None)
    assert len(result.data) == (0 if beyond else MAX_RATIO * size)
