from __future__ import annotations

import random

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.tables.repeated_values import SAMPLE, SHARE, repeats


def values(distinct: int, rows: int, size: int = 40) -> list[bytes]:
    """Random values that begin and end alike, each about as often."""
    chosen = random.Random(distinct * rows)
    made = [b'{"id":' + chosen.randbytes(size) + b"}" for _ in range(distinct)]
    return [made[index % distinct] for index in range(rows)]


def shared(share: float, rows: int = 30_000) -> list[bytes]:
    """Different values, but for a part that is always the same."""
    made = values(rows, rows)
    for index in range(rows):
        if index % 100 < share * 100:
            made[index] = made[0]
    random.Random(1).shuffle(made)
    return made


def test_values_that_repeat() -> None:
    base = b"x" * 700
    # They differ in bytes that are not sampled.
    alike = [base[:351] + index.to_bytes(4, "big") + base[355:] for index in range(20_000)]
    cases = [(values(rows // times, rows), times > 1) for rows in (10, SAMPLE, 40_000) for times in (1, 2, 5)]
    cases += [(shared(share), share > 0.4) for share in (0.2, 0.35, 0.45, 0.9)]
    cases += [(alike, False), (alike[:1_000] * 3, True), ([], False), ([b"one"], False), ([b"one"] * 2, True)]
    for number, (made, expected) in enumerate(cases):
        for kind in (pa.binary(), pa.large_binary()):
            assert repeats(pa.chunked_array([pa.array(made, kind)])) is expected, f"case {number}"


@given(st.lists(st.one_of(st.none(), st.binary(max_size=3)), max_size=60), st.integers(1, 20), st.integers(0, 5))
def test_chunks_and_slices_do_not_matter(made: list[bytes | None], size: int, skipped: int) -> None:
    whole = pa.array(made, pa.binary())
    padded = pa.array([b"x"] * skipped + made, pa.binary()).slice(skipped)
    parts = pa.chunked_array([padded.slice(at, size) for at in range(0, len(made), size)], pa.binary())
    assert parts.to_pylist() == made
    expected = bool(made) and len({one or b"" for one in made}) <= SHARE * len(made)
    assert repeats(parts) is repeats(pa.chunked_array([whole])) is expected
