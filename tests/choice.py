"""Selects the members of families to test, such as pairs of capture and variant: fewer by default, all with `deep`. All
captures with all variants would be thousands of tests, each of which adds next to nothing to the others."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from typing import TypeVar

from hypothesis import settings

Source = TypeVar("Source")
Variant = TypeVar("Variant")

DEEP = os.environ.get("KAFKASNIFF_HYPOTHESIS") == "deep"
"""Everything with everything, as long as that takes."""
ALL = DEEP or bool(os.environ.get("KAFKASNIFF_ALL"))
"""`make test-all`: extended tests, more members of the families that the default run thins, more examples."""


def in_turn(
    sources: Sequence[Source],
    variants: Iterable[Variant],
    every: int,
    *,
    with_all: int = 1,
    all_of: Collection[Source] = (),
) -> list[tuple[Source, Variant]]:
    """One in `every` pairs (`with_all` where every member of a family runs).

    Each source has some variants, each variant that share of the sources. `all_of`: sources that are tested with every
    variant. Raises ValueError where there are too few sources to give each variant its turn.
    """
    names = list(variants)
    if every > min(len(names), len(sources)):
        raise ValueError("a source or a variant would never have its turn")
    return [
        (source, name)
        for place, source in enumerate(sources)
        for number, name in enumerate(names)
        if source in all_of or (place + number) % fewer(every, with_all) == 0
    ]


def some_pairs(
    sources: Sequence[Source], variants: Collection[Variant], count: int, whole: int
) -> list[tuple[Source, Variant]]:
    """`count` pairs, with `ALL` `whole`: sources at even distances, and each variant equally often. With `DEEP` all."""
    names = list(variants)
    pairs = len(sources) * len(names)
    most = pairs if DEEP else min(fewer(count, whole), pairs)
    return [(sources[place * len(sources) // most], names[place % len(names)]) for place in range(most)]


def one_in(every: int, sources: Sequence[Source], start: int = 0) -> list[Source]:
    """One in `every` sources, beginning at `start`: different starts select different sources. With `ALL` four times as
    many, with `DEEP` all."""
    step = 1 if DEEP else fewer(every, max(every // 4, 1))
    return list(sources[start % step :: step])


def fewer(count: int, whole: int) -> int:
    """Number of places in each input that a test changes: `count`, or `whole` where every member of a family runs."""
    return whole if ALL else count


def examples(count: int) -> settings:
    """A fifth of `count` examples, with `ALL` all of them, with `DEEP` as many as that profile has."""
    return settings() if DEEP else settings(max_examples=fewer(count // 5, count) or 1)
