"""Packets in pieces, and the bytes of a piece. Pieces of captures: test_connections.py."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.capture.timeline.locations import find_captures, open_capture
from kafkasniff.capture.timeline.parts import plan_captures
from kafkasniff.runtime.threads import Threads
from kafkasniff.spark import piece_bytes
from kafkasniff.spark.piece_bytes import CHUNK_BYTES, SAMPLE_BYTES, PiecePacker, unpacked
from kafkasniff.spark.pieces import PacketCutter, in_capture_order, read_ahead
from kafkasniff.spark.reading import packets_of, parts_of
from tests.capture.reading import batch_rows
from tests.tables.exports.exported import CAPTURES


def test_ports_and_captures_of_earlier_runs() -> None:
    plan = plan_captures(find_captures([str(CAPTURES / "java-group-share.pcap")]), open_capture)
    batches = [batch for part in parts_of(plan, 64 << 10) for batch in packets_of(part)]
    port = int(batches[-1].src_port[0])
    cutter = PacketCutter(2, ports=[port], captures_before=3)
    data = [one for rows in cutter.cut(batches) for one in rows.column("data").to_pylist()]
    with Threads(1, "test") as threads:
        found = [row for piece in in_capture_order(read_ahead(data, threads)) for row in batch_rows(piece)]
    wanted = [row for batch in batches for row in batch_rows(batch) if port in {row.sport, row.dport}]
    assert sorted(row[2:] for row in found) == sorted(row[2:] for row in wanted) != []
    assert {row.capture for row in found} == {3}
    assert list(PacketCutter(4).cut([batches[0].split(0)[0]])) == []
    assert list(PacketCutter(4, ports=[1]).cut(batches)) == []
    assert list(in_capture_order([])) == []


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


MIDDLE = (CHUNK_BYTES - SAMPLE_BYTES) // 2
DECEIVING = RANDOM[:MIDDLE] + bytes(SAMPLE_BYTES) + RANDOM[MIDDLE : CHUNK_BYTES - SAMPLE_BYTES]


@pytest.mark.parametrize(
    ("payload", "most"),
    [
        pytest.param(RANDOM, len(RANDOM), id="random"),
        pytest.param(TEXT, 0.6 * len(TEXT), id="text"),
        pytest.param(RANDOM + TEXT + RANDOM, 2 * len(RANDOM) + 0.6 * len(TEXT), id="mixed"),
        pytest.param(RANDOM + TEXT[:SAMPLE_BYTES], len(RANDOM) + 0.7 * SAMPLE_BYTES, id="short end"),
        pytest.param(DECEIVING, len(DECEIVING) - 100, id="a sample that deceives"),
        pytest.param(b"", 0, id="nothing"),
    ],
)
def test_chunks_that_do_not_get_smaller_are_not_compressed(payload: bytes, most: float) -> None:
    head_bytes = 64
    data = b"".join(PiecePacker().pack([], memoryview(payload)))
    assert len(data) <= most + head_bytes
    assert data.count(RANDOM) == payload.count(RANDOM)
    assert unpacked(data) == ([], payload)
