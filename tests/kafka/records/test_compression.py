from __future__ import annotations

import functools
import gzip
import resource
import struct
import time
import zlib
from collections.abc import Callable

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.kafka.records import compression
from kafkasniff.kafka.records.compression import (
    CODECS,
    MAX_FRAMES,
    MAX_RATIO,
    MAX_UNRATED,
    allowance,
    codec_name,
    decompress,
)
from kafkasniff.kafka.schema.enums import enum_text
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
    "zstd level 22": (ZSTD, lambda text: zstandard.ZstdCompressor(level=22, write_content_size=False).compress(text)),
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
def test_cut_anywhere_is_a_failure(form):
    codec, data = compressed(form)
    cuts = {0, 1, 2, 5, 17, len(data) // 2, len(data) - 9, len(data) - 4, len(data) - 1}
    for cut in sorted(cuts):
        result = decompress(codec, data[:cut], BIG)
        assert (result.failure, result.data) == ("decompression-failed", b""), cut
        assert result.detail


def test_a_cut_between_the_streams_is_no_failure():
    first = xerial(TEXT[:50_000])
    assert decompress(SNAPPY, first, BIG).data == TEXT[:50_000]


@each_form
def test_the_limit_is_exact(form):
    codec, data = compressed(form)
    assert decompress(codec, data, len(TEXT)).data == TEXT
    result = decompress(codec, data, len(TEXT) - 1)
    assert (result.failure, result.data) == ("decompression-bound", b"")
    assert result.produced <= len(TEXT)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_nothing_compressed(codec):
    assert decompress(codec, COMPRESSORS[codec](b""), 0).data == b""
    assert decompress(codec, COMPRESSORS[codec](b"x"), 0).failure == "decompression-bound"


def test_uncompressed_is_bounded_too():
    assert decompress(0, TEXT, BIG).data is TEXT
    assert decompress(0, TEXT, 10).failure == "decompression-bound"


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


def test_zstd_skippable_frame():
    skipped = struct.pack("<II", 0x184D2A5C, 5) + b"notes"
    frame = COMPRESSORS[ZSTD](TEXT)
    assert decompress(ZSTD, skipped + frame + skipped, BIG).data == TEXT
    assert decompress(ZSTD, frame + skipped[:-1], BIG).failure == "decompression-failed"


@pytest.mark.parametrize("codec", [GZIP, LZ4])
def test_trailing_bytes_are_reported(codec):
    result = decompress(codec, COMPRESSORS[codec](TEXT) + b"\0\0\0", BIG)
    assert (result.data, result.failure) == (TEXT, None)
    assert result.detail.startswith("3 bytes after")


def test_zstd_refuses_trailing_bytes():
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


def test_xerial_versions_are_not_checked():
    """Redpanda writes them little-endian; snappy-java's reader only checks that the compatible version is known."""
    data = xerial(TEXT)
    assert decompress(SNAPPY, data[:8] + struct.pack("<ii", 1, 1) + data[16:], BIG).data == TEXT


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
def test_a_gigabyte_of_zeros_stops_at_the_bound(codec):
    data = bomb(codec, 1 << 30)
    limit = 1 << 25
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    result = decompress(codec, data, limit)
    seconds = time.process_time() - start
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert result.failure == "decompression-bound"
    assert result.produced <= limit + 1
    assert ("times their size" in result.detail) == (len(data) < limit)
    assert seconds < 2
    assert grown < 4 * limit >> 10  # kB


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_batch_of_16_mib_of_zeros_is_accepted(codec):
    assert decompress(codec, COMPRESSORS[codec](bytes(1 << 24)), 1 << 28).data == bytes(1 << 24)


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


def test_only_zstd_can_reach_the_ratio(monkeypatch):
    """The other codecs' best ratio for zeros is below the bound."""
    monkeypatch.setattr(compression, "MAX_UNRATED", 0)
    zeros = bytes(1 << 25)
    for codec, data in (
        (GZIP, gzip.compress(zeros, 9)),
        (LZ4, lz4.frame.compress(zeros, block_size=lz4.frame.BLOCKSIZE_MAX4MB, compression_level=12)),
        (SNAPPY, bytes(cramjam.snappy.compress_raw(zeros))),
    ):
        assert decompress(codec, data, 1 << 28).data == zeros
    assert decompress(ZSTD, COMPRESSORS[ZSTD](zeros), 1 << 28).failure == "decompression-bound"


def test_raw_snappy_bomb_is_refused_unopened():
    data = bytes(cramjam.snappy.compress_raw(bytes(1 << 26)))
    result = decompress(SNAPPY, data, 1 << 20)
    assert (result.failure, result.produced) == ("decompression-bound", 0)


def test_names():
    assert [codec_name(codec) for codec in range(8)] == [
        "none",
        "gzip",
        "snappy",
        "lz4",
        "zstd",
        "unknown-5",
        "unknown-6",
        "unknown-7",
    ]
    assert decompress(5, b"", 10).failure == "decompression-failed"
    assert [enum_text("compression_codec", codec) for codec in range(5)] == list(CODECS)


@given(st.sampled_from([GZIP, SNAPPY, LZ4, ZSTD]), st.binary(max_size=20_000), st.integers(0, 2))
def test_round_trip(codec, data, magic):
    assert decompress(codec, COMPRESSORS[codec](data), len(data), magic=magic).data == data
    assert decompress(SNAPPY, xerial(data, 1000), len(data)).data == data


@given(
    st.sampled_from(sorted(FORMS)),
    st.lists(st.tuples(st.integers(0, 40_000), st.integers(0, 255)), min_size=1, max_size=4),
    st.integers(0, 300_000),
    st.integers(0, 1),
)
def test_damage_never_raises(form, damage, limit, magic):
    codec, data = compressed(form)
    changed = bytearray(data)
    for at, byte in damage:
        changed[at % len(changed)] = byte
    result = decompress(codec, bytes(changed), limit, magic=magic)
    assert len(result.data) <= limit
    assert result.failure is None or result.data == b""


@given(st.integers(1, 4), st.binary(max_size=200), st.booleans())
def test_garbage_never_raises(codec, data, with_magic):
    starts = {GZIP: b"\x1f\x8b\x08\0", SNAPPY: XERIAL_HEADER, LZ4: b"\x04\x22\x4d\x18", ZSTD: b"\x28\xb5\x2f\xfd"}
    result = decompress(codec, (starts[codec] if with_magic else b"") + data, 1 << 16, magic=0)
    assert len(result.data) <= 1 << 16
