"""The bytes of a piece: what was packed comes back, and only what gets smaller is compressed."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.spark import piece_bytes
from kafkasniff.spark.piece_bytes import CHUNK_BYTES, SAMPLE_BYTES, PiecePacker, unpacked

RANDOM = Random(3).randbytes(3 * CHUNK_BYTES)
"""No compressor makes it smaller."""
TEXT = b"".join(b'{"number": %d, "square": %d}' % (at, at * at) for at in range(10**4))[: 3 * CHUNK_BYTES]


@given(
    columns=st.lists(st.binary(max_size=9), max_size=4),
    payload=st.lists(st.sampled_from([b"", b"a" * 70, RANDOM[:30], RANDOM[:5], TEXT[:50]]), max_size=12).map(b"".join),
    chunk=st.integers(1, 90),
    sample=st.integers(1, 40),
)
def test_what_was_packed_comes_back(columns: list[bytes], payload: bytes, chunk: int, sample: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(piece_bytes, "CHUNK_BYTES", chunk)
        patch.setattr(piece_bytes, "SAMPLE_BYTES", sample)
        packer = PiecePacker()
        for _ in range(2):
            data = b"".join(packer.pack(columns, memoryview(payload)))
            assert unpacked(data) == unpacked(pa.py_buffer(data)) == (columns, payload)


@pytest.mark.parametrize(
    ("payload", "most"),
    [
        pytest.param(RANDOM, len(RANDOM), id="random"),
        pytest.param(TEXT, 0.6 * len(TEXT), id="text"),
        pytest.param(RANDOM + TEXT + RANDOM, 2 * len(RANDOM) + 0.6 * len(TEXT), id="mixed"),
        pytest.param(RANDOM + TEXT[:SAMPLE_BYTES], len(RANDOM) + 0.7 * SAMPLE_BYTES, id="short end"),
        pytest.param(b"", 0, id="nothing"),
    ],
)
def test_chunks_that_do_not_get_smaller_are_not_compressed(payload: bytes, most: float) -> None:
    head_bytes = 64
    data = b"".join(PiecePacker().pack([], memoryview(payload)))
    assert len(data) <= most + head_bytes
    assert data.count(RANDOM) == payload.count(RANDOM)


def test_a_chunk_whose_sample_deceives_is_not_made_larger() -> None:
    middle = (CHUNK_BYTES - SAMPLE_BYTES) // 2
    payload = RANDOM[:middle] + bytes(SAMPLE_BYTES) + RANDOM[middle : CHUNK_BYTES - SAMPLE_BYTES]
    data = b"".join(PiecePacker().pack([], memoryview(payload)))
    assert len(data) < len(payload)
    assert unpacked(data) == ([], payload)
