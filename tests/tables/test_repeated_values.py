from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.tables.repeated_values import SAMPLE, SHARE, repeats


def values(distinct: int, rows: int, size: int = 40) -> list[bytes]:
    """Random values that begin and end alike, each about as often."""
    chosen = random.Random(distinct * rows)
    made = [b'{"id":' + chosen.randbytes(size) + b"}" for _ in range(distinct)]
    return [made[index % distinct] for index in range(rows)]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
@pytest.mark.parametrize("rows", [10, SAMPLE, 40_000])
@pytest.mark.parametrize(("times", "expected"), [(1, False), (2, True), (5, True)])
def test_values_that_occur_so_often_at_any_distance(kind: pa.DataType, rows: int, times: int, expected: bool) -> None:
    column = pa.chunked_array([pa.array(values(rows // times, rows), kind)])
    assert repeats(column) is expected


@pytest.mark.parametrize(("share", "expected"), [(0.2, False), (0.35, False), (0.45, True), (0.9, True)])
def test_a_part_of_the_values_that_is_always_the_same(share: float, expected: bool) -> None:
    rows = 30_000
    made = values(rows, rows)
    for index in range(rows):
        if index % 100 < share * 100:
            made[index] = made[0]
    random.Random(1).shuffle(made)
    assert repeats(pa.chunked_array([made], pa.binary())) is expected


def test_values_that_only_look_alike() -> None:
    """They differ in bytes that are not sampled."""
    base = b"x" * 700
    made = [base[:351] + index.to_bytes(4, "big") + base[355:] for index in range(20_000)]
    assert not repeats(pa.chunked_array([made], pa.binary()))
    assert repeats(pa.chunked_array([made[:1_000] * 3], pa.binary()))


def test_few_values_and_none() -> None:
    assert not repeats(pa.chunked_array([], pa.binary()))
    assert not repeats(pa.chunked_array([[]], pa.binary()))
    assert not repeats(pa.chunked_array([["one"]], pa.string()))
    assert repeats(pa.chunked_array([["one", "one"]], pa.string()))
    assert repeats(pa.chunked_array([[None] * 10_000], pa.string()))
    assert repeats(pa.chunked_array([[b""] * 10_000], pa.binary()))
    assert repeats(pa.chunked_array([values(5, 20_000)], pa.binary()))


@given(st.lists(st.one_of(st.none(), st.binary(max_size=3)), max_size=60), st.integers(1, 20), st.integers(0, 5))
def test_chunks_and_slices_do_not_matter(made: list[bytes | None], size: int, skipped: int) -> None:
    whole = pa.array(made, pa.binary())
    padded = pa.array([b"x"] * skipped + made, pa.binary()).slice(skipped)
    parts = pa.chunked_array([padded.slice(at, size) for at in range(0, len(made), size)], pa.binary())
    assert parts.to_pylist() == made
    expected = bool(made) and len({one or b"" for one in made}) <= SHARE * len(made)
    assert repeats(parts) is repeats(pa.chunked_array([whole])) is expected
