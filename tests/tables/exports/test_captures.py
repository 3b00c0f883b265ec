"""How captures are looked at: with few requests, and without keeping their bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.tables.exports.captures import SAMPLE, KeptHead

CONTENT = bytes(range(256)) * (3 * SAMPLE // 256)
PLACES = st.integers(0, len(CONTENT) + 10)


class Reads:
    """A file that counts its reads."""

    def __init__(self) -> None:
        self.made: list[tuple[int, int]] = []

    def __call__(self, offset: int, size: int) -> bytes:
        self.made.append((offset, size))
        return CONTENT[offset : offset + size]


@given(st.lists(st.tuples(PLACES | st.just(0), PLACES), max_size=20))
def test_any_reads(places: list[tuple[int, int]]) -> None:
    file = KeptHead(Reads())
    for offset, size in places:
        assert file(offset, size) == CONTENT[offset : offset + size]
        assert len(file._head) <= SAMPLE


def test_the_first_bytes_are_read_once_until_they_are_forgotten() -> None:
    reads = Reads()
    file = KeptHead(reads)
    for size in (SAMPLE, 24, 100, SAMPLE):
        file(0, size)
    assert file(50, 50) == CONTENT[50:100]
    assert reads.made == [(0, SAMPLE)]
    file.forget()
    file(0, 24)
    assert reads.made == [(0, SAMPLE), (0, 24)]
    # More than the first bytes is not kept.
    file(0, SAMPLE + 1)
    file(0, SAMPLE + 1)
    assert len(reads.made) == 4
