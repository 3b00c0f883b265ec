"""Bounded partial answers, percentiles and phases: the same in any order and number of parts."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkasniff.analysis.detectors.registry import detector_names, find_detector
from kafkasniff.analysis.partials import ENCODED_ROWS, Partials, Shape
from kafkasniff.analysis.percentiles import RELATIVE_ERROR, bucket_of, middle_of, percentiles
from kafkasniff.analysis.questions import find_question
from kafkasniff.analysis.timing import Timing, TimingParameters
from kafkasniff.report.ladder import Ladder
from tests.analysis.test_accumulator import ACCUMULATORS, merged_in_parts, pool_batch
from tests.choice import examples

NUMBER = pa.int64()
COUNTS = {"measures": (("count", NUMBER, "sum"),)}


def keyed(*keys: str, **more: Any) -> Shape:
    return Shape(keys=tuple((key, NUMBER) for key in keys), **more)


COUNTED = keyed("key", **COUNTS, weight="count", bound=40)
SAMPLED = keyed("hash", **COUNTS, keep="sampled", sample="hash", bound=32)
EACH = keyed("group", "at", "id", order=("at", "id"), keep="earliest", group=("group",), each=3, bound=50)
EARLIEST = keyed("at", "id", order=("at", "id"), keep="earliest", bound=20)


def rows(shape: Shape, *columns: list[Any]) -> dict[str, Any]:
    return dict(zip(shape.schema.names, columns, strict=True))


def content(part: Partials) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in part.table().to_pylist())


def test_the_heaviest_keys_stay_within_the_reported_error() -> None:
    random = Random(7)
    # Three heavy keys among many light ones that come and go.
    keys = [random.choice((1, 2, 3)) if random.random() < 0.5 else random.randrange(100, 3000) for _ in range(20_000)]
    true = {key: keys.count(key) for key in (1, 2, 3)}
    part = Partials(COUNTED)
    for start in range(0, len(keys), 100):
        some = keys[start : start + 100]
        part.add(rows(COUNTED, some, [1] * len(some)))
    found = dict(content(part))
    assert len(found) <= COUNTED.bound
    assert part.lost.weight + sum(found.values()) == len(keys)
    assert part.lost.undercount > 0
    for key, count in true.items():
        assert count - part.lost.undercount <= found[key] <= count


def test_groups_are_dropped_as_a_whole() -> None:
    shape = keyed("key", "bucket", **COUNTS, weight="count", group=("key",), bound=30)
    part = Partials(shape)
    for key in range(10):
        part.add(rows(shape, [key] * 8, list(range(8)), [key + 1] * 8))
    left = content(part)
    kept = {key for key, *_ in left}
    assert len(left) == 8 * len(kept)
    assert 9 in kept


def test_many_rows_of_a_group_are_sorted_by_texts() -> None:
    keys = (("group", pa.int64()), ("place", pa.int64()), ("api", pa.string()))
    part = Partials(Shape(keys=keys, order=("place",), keep="earliest", group=("group",), each=2, bound=30))
    texts = pa.array(["b", "a"] * (ENCODED_ROWS // 2)).dictionary_encode()
    part.add({"group": [1] * ENCODED_ROWS, "place": [7] * ENCODED_ROWS, "api": texts})
    assert sorted(part.table()["api"].to_pylist()) == ["a", "b"]


@given(st.data())
def test_the_earliest_are_kept_in_any_order(data: st.DataObject) -> None:
    values = data.draw(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), unique=True, max_size=120))
    part = merged(EARLIEST, data, [rows(EARLIEST, [at], [number]) for at, number in values])
    assert content(part) == sorted(values)[: EARLIEST.bound]
    assert part.lost.rows == max(len(values) - EARLIEST.bound, 0)


@given(st.data())
def test_the_earliest_of_each_group_are_kept_in_any_order(data: st.DataObject) -> None:
    number = st.integers(0, 5) | st.none()
    values = data.draw(st.lists(st.tuples(number, number, number), max_size=60))
    part = merged(EACH, data, [rows(EACH, *([one] for one in row)) for row in values])
    # A null comes after all numbers.
    order = [tuple((one is None, one or 0) for one in row) for row in set(values)]
    kept = [row for row in order if sum(one[0] == row[0] and one < row for one in order) < EACH.each]
    assert Counter(tuple(row.values()) for row in part.table().to_pylist()) == Counter(
        tuple(None if missing else one for missing, one in row) for row in kept
    )


def test_what_decides_who_is_early_only_falls() -> None:
    owners = [*map(find_detector, detector_names()), *map(find_question, ACCUMULATORS), Ladder]
    for shape in (shape for owner in owners for shape in owner().shapes().values() if shape.keep == "earliest"):
        folded = {name: how for name, _, how in shape.measures}
        assert {folded.get(name, "min") for name in shape.order} <= {"min", "first"}, shape


@given(st.data())
def test_the_sample_is_the_same_in_any_order(data: st.DataObject) -> None:
    hashes = data.draw(st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, max_size=150))
    part = merged(SAMPLED, data, [rows(SAMPLED, [one], [1]) for one in hashes])
    level = next(level for level in range(64) if sum(one % 2**level == 0 for one in hashes) <= SAMPLED.bound)
    assert part.lost.level == level
    assert content(part) == sorted((one, 1) for one in hashes if one % 2**level == 0)


def merged(shape: Shape, data: st.DataObject, pieces: list[dict[str, Any]]) -> Partials:
    """Merge the shuffled pieces through a random tree of partial answers."""
    parts = [Partials(shape) for _ in range(data.draw(st.integers(1, 4)))]
    for piece in data.draw(st.permutations(pieces)):
        parts[data.draw(st.integers(0, len(parts) - 1))].add(piece)
    while len(parts) > 1:
        one = parts.pop(data.draw(st.integers(0, len(parts) - 1)))
        parts[0].merge(one)
    return parts[0]


def test_different_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="shape"):
        Partials(SAMPLED).merge(Partials(COUNTED))
    with pytest.raises(ValueError, match="shape"):
        Partials(SAMPLED).load(*Partials(COUNTED).dump())


@pytest.mark.parametrize("seed", range(3))
def test_wider_buckets_keep_all_groups_in_every_order(seed: int) -> None:
    shape = keyed("group", "bucket", **COUNTS, weight="count", group=("group",), coarsens="bucket", bound=700)
    random = Random(seed)
    pairs = [(random.randrange(20), random.randrange(-300, 600)) for _ in range(3000)]
    whole = Partials(shape)
    for start in range(0, len(pairs), 100):
        groups, buckets = zip(*pairs[start : start + 100], strict=True)
        whole.add(rows(shape, list(groups), list(buckets), [1] * len(groups)))
    random.shuffle(pairs)
    parts = [Partials(shape) for _ in range(7)]
    for number, part in enumerate(parts):
        groups, buckets = zip(*pairs[number::7], strict=True)
        part.add(rows(shape, list(groups), list(buckets), [1] * len(groups)))
    merged = Partials(shape)
    for part in parts:
        merged.merge(part)
    assert content(merged) == content(whole)
    assert merged.lost == whole.lost
    assert whole.lost.rows == 0
    level = whole.lost.level
    assert 0 < level < 7
    assert len(content(whole)) <= shape.bound
    assert {group for group, _, _ in content(whole)} == set(range(20))
    expected: dict[tuple[int, int], int] = {}
    for group, bucket in pairs:
        cut = abs(bucket) >> level << level
        key = group, cut if bucket > 0 else -cut
        expected[key] = expected.get(key, 0) + 1
    assert content(whole) == sorted((*key, count) for key, count in expected.items())


INT64 = st.integers(-(2**63) + 1, 2**63 - 1)


def numbers(values: list[int]) -> np.ndarray:
    return np.array(values, np.int64)


@given(st.lists(INT64, min_size=1, max_size=50))
@example([2**53 + 1, 2**54 - 1, 2**62 - 1, 2**62, 2**63 - 1, 0, -1])
def test_the_middle_is_near(values: list[int]) -> None:
    found = middle_of(bucket_of(numbers(values)))
    for value, middle in zip(values, found.tolist(), strict=True):
        assert abs(value - middle) <= abs(value) * RELATIVE_ERROR
        if abs(value) < 256:
            assert middle == value


def test_every_power_and_its_neighbours() -> None:
    """Buckets increase with the value."""
    values = sorted({one for power in range(63) for one in (2**power - 1, 2**power, 2**power + 1)} | {2**63 - 1})
    assert (np.diff(bucket_of(numbers(values))) >= 0).all()
    assert (np.diff(bucket_of(numbers([-one for one in values]))) <= 0).all()


@given(
    values=st.lists(st.integers(-(10**6), 10**9), min_size=1, max_size=300),
    quantile=st.sampled_from([0.0, 0.5, 0.9, 0.99, 1.0]),
)
def test_against_numpy(values: list[int], quantile: float) -> None:
    # The nearest rank, as NumPy's method `inverted_cdf` has it.
    expected = np.quantile(numbers(values), quantile, method="inverted_cdf")
    buckets = bucket_of(numbers(values))
    (found,) = percentiles(np.zeros(len(values), np.int64), buckets, np.ones(len(values), np.int64), [quantile], 1)
    assert abs(found[0] - expected) <= abs(expected) * RELATIVE_ERROR


@examples(3)
@given(data=st.data())
def test_timing_of_parts(data: st.DataObject) -> None:
    def fresh() -> Timing:
        return Timing(TimingParameters(by=("api", "client")))

    whole = fresh()
    whole.update(pool_batch("exchanges"))
    merged = merged_in_parts(data, ["exchanges"], fresh, lambda part: Timing.from_state(part.state()))
    assert merged.result().to_pylist() == whole.result().to_pylist() != []
