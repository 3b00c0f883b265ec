"""Codecs of records and their bounds. The first byte of an input has codec, magic and whether the rest is compressed
first (the highest bit: it must decompress to itself), the second the bound; then comes the value."""

from __future__ import annotations

from typing import Final

from kafkasniff.kafka.records.compression import decompress
from tests.fuzz.intake import Intake
from tests.kafka.records_craft import COMPRESSORS, SNAPPY, XERIAL_HEADER, xerial

MAX_LENGTH = 4000
MEGABYTES = 256
"""zstd's window may have 128 MB (compression.MAX_ZSTD_WINDOW)."""
WORDS = (
    *map(bytes.fromhex, ("1f8b0800", "1f8b081f", "04224d18604082", "04224d186440a7", "00000000", "28b52ffd")),
    *map(bytes.fromhex, ("502a4d18", "ffffffff0f", "ffffff07")),
    XERIAL_HEADER,
)

BACK: Final = 128
_MAGIC_0: Final = 8
_LARGEST: Final = 1 << 20
"""Bytes of output allowed if the second byte is 255."""


def one_input(data: bytes) -> None:
    intake = Intake(data)
    how, bound = intake.number(), intake.number()
    codec, magic = how & 7, 0 if how & _MAGIC_0 else 2
    value = intake.rest()
    if how & BACK and codec in COMPRESSORS:
        packed = xerial(value, 1 + bound) if codec == SNAPPY and bound else COMPRESSORS[codec](value)
        found = decompress(codec, packed, len(value), magic=magic)
        assert (found.data, found.failure) == (value, None), "compressed data decompresses to something else"
        if value:
            refused = decompress(codec, packed, len(value) - 1, magic=magic)
            assert (refused.data, refused.failure) == (b"", "decompression-bound")
        return
    limit = _LARGEST * bound * bound // (255 * 255)
    found = decompress(codec, value, limit, magic=magic)
    assert len(found.data) <= limit
    assert found.produced <= limit + (1 << 20), "more than a step beyond the bound"
    if found.failure is None:
        assert found.produced == len(found.data)
        exact = decompress(codec, value, len(found.data), magic=magic)
        assert exact == found, "the bound changes the result although it is not reached"
    else:
        assert not found.data
        assert found.detail


def seeds() -> list[bytes]:
    texts = [b"", b"a", b"some words, some words, some words" * 20, bytes(range(256)) * 4, bytes(60_000)]
    found = []
    for codec, compress in COMPRESSORS.items():
        found += [bytes((codec, 255)) + compress(text)[:2000] for text in texts]
        found += [bytes((codec, 9)) + compress(texts[2]) + compress(texts[1])]
        found += [bytes((codec | BACK, 40)) + text[:2000] for text in texts]
    found += [bytes((2, 255)) + xerial(text, 300)[:2000] for text in texts]
    found += [bytes((3 | _MAGIC_0, 255)) + COMPRESSORS[3](text)[:2000] for text in texts]
    return found
