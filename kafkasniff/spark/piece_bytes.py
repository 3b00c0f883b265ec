"""The bytes of a piece: columns of its packets, compressed, and their payloads, compressed where that pays off.

Record batches are mostly compressed already. Compressing them again took 7 s of CPU time for each GB that was saved,
and Spark takes 4 to 5 s to move one. So a sample decides for each chunk of payload.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final

import msgspec
import pyarrow as pa
import zstandard

from kafkasniff.spark.shard_rows import ZSTD_LEVEL

__all__ = ["PiecePacker", "unpacked"]

CHUNK_BYTES: Final = 64 << 10
SAMPLE_BYTES: Final = 2 << 10
MOST: Final = 0.8
"""The part of a sample that may be left of it if its chunk is to be compressed. More is saved in the chunk, which has
more to refer to."""

_LENGTH_BYTES: Final = 4
_Bytes = bytes | memoryview


class _Head(msgspec.Struct, array_like=True):
    columns: bytes
    """Compressed; a list of byte strings."""
    runs: list[int]
    """Lengths of the parts that follow; of compressed ones negative."""


class PiecePacker:
    """Makes the bytes of pieces, one after the other."""

    def __init__(self) -> None:
        self._compress = zstandard.ZstdCompressor(ZSTD_LEVEL).compress

    def pack(self, columns: Sequence[bytes], payload: memoryview) -> list[_Bytes]:
        """Parts that make up a piece; some are views of the payload."""
        parts: list[_Bytes] = []
        runs: list[int] = []
        starts = range(0, len(payload), CHUNK_BYTES)
        for worth, run in groupby(starts, lambda start: self._is_worth(payload[start : start + CHUNK_BYTES])):
            begins = list(run)
            part: _Bytes = payload[begins[0] : begins[-1] + CHUNK_BYTES]
            size = len(part)
            if worth:
                part = self._compress(part)
                size = -len(part)
            parts.append(part)
            runs.append(size)
        head = msgspec.msgpack.encode(_Head(self._compress(msgspec.msgpack.encode(columns)), runs))
        return [len(head).to_bytes(_LENGTH_BYTES, "little"), head, *parts]

    def _is_worth(self, chunk: memoryview) -> bool:
        """Whether to compress a chunk; a sample from its middle decides."""
        start = max(0, (len(chunk) - SAMPLE_BYTES) // 2)
        sample = chunk[start : start + SAMPLE_BYTES]
        return len(self._compress(sample)) <= MOST * len(sample)


def unpacked(data: bytes | pa.Buffer) -> tuple[list[bytes], bytes]:
    """The columns and the payloads of a piece."""
    view = memoryview(data)
    decompress = zstandard.ZstdDecompressor().decompress
    at = _LENGTH_BYTES + int.from_bytes(view[:_LENGTH_BYTES], "little")
    head = msgspec.msgpack.decode(view[_LENGTH_BYTES:at], type=_Head)
    parts: list[_Bytes] = []
    for run in head.runs:
        part = view[at : at + abs(run)]
        parts.append(decompress(part) if run < 0 else part)
        at += abs(run)
    return msgspec.msgpack.decode(decompress(head.columns), type=list[bytes]), b"".join(parts)
