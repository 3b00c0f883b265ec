"""The default run has some members of each family, the extended run all of them."""

from __future__ import annotations

from collections import Counter

import pytest

from tests import choice
from tests.choice import examples, fewer, in_turn, one_in, some_pairs

NAMES = [f"capture-{number}" for number in range(20)]
VARIANTS = ["one", "two", "three"]


def test_each_source_and_each_variant_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "ALL", False)
    pairs = in_turn(NAMES, VARIANTS, 3, all_of=NAMES[:1])
    sources, variants = Counter(source for source, _ in pairs), Counter(name for _, name in pairs)
    assert len(set(pairs)) == len(pairs) == len(NAMES) + 2
    assert (sources.keys(), variants.keys()) == (set(NAMES), set(VARIANTS))
    assert sources[NAMES[0]] == len(VARIANTS)
    parts = [one_in(3, NAMES, start) for start in range(3)]
    assert sorted(name for part in parts for name in part) == sorted(NAMES)
    assert (fewer(3, 8), examples(7).max_examples, examples(1).max_examples) == (3, 2, 1)
    some = some_pairs(NAMES, VARIANTS, 6, 40)
    assert len({name for name, _ in some}) == 6
    assert Counter(variant for _, variant in some) == dict.fromkeys(VARIANTS, 2)
    with pytest.raises(ValueError, match="never have its turn"):
        in_turn(NAMES, ["one", "two"], 3)


def test_all_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "ALL", True)
    monkeypatch.setattr(choice, "DEEP", False)
    assert len(in_turn(NAMES, VARIANTS, 3, with_all=2)) == len(NAMES) * len(VARIANTS) / 2
    assert in_turn(NAMES, VARIANTS, 3) == [(source, name) for source in NAMES for name in VARIANTS]
    assert len(set(some_pairs(NAMES, VARIANTS, 6, 40))) == 40
    assert (one_in(3, NAMES, 1), fewer(3, 8), examples(7).max_examples) == (NAMES, 8, 7)
