"""Which pairs of a capture and a variant are tested: some in turn, all where `KAFKASNIFF_ALL` or `deep` asks for them.

Every capture with every variant is thousands of tests, of which each adds next to nothing to the others.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from typing import TypeVar

import pytest
from hypothesis import settings

Source = TypeVar("Source")
Variant = TypeVar("Variant")

DEEP = os.environ.get("KAFKASNIFF_HYPOTHESIS") == "deep"
"""Everything with everything, as long as that takes."""
ALL = DEEP or bool(os.environ.get("KAFKASNIFF_ALL"))
"""Every member of the families that the default run thins (a step of `.ci/run`), with the usual number of examples."""


only_with_all = pytest.mark.skipif(not ALL, reason="runs with KAFKASNIFF_ALL=1, as in .ci/run")
"""For a test whose parts have tests of their own, and which takes seconds to run all of them together."""


def in_turn(
    sources: Sequence[Source], variants: Iterable[Variant], every: int, *, all_of: Collection[Source] = ()
) -> list[tuple[Source, Variant]]:
    """One in `every` pairs: each source with some variants, each variant with that share of the sources.

    `all_of`: sources that meet every variant. Raises ValueError where there are too few for each to have its turn.
    """
    names = list(variants)
    if every > min(len(names), len(sources)):
        raise ValueError("a source or a variant would never have its turn")
    return [
        (source, name)
        for place, source in enumerate(sources)
        for number, name in enumerate(names)
        if ALL or source in all_of or (place + number) % every == 0
    ]


def one_in(every: int, sources: Sequence[Source], start: int = 0) -> list[Source]:
    """One in `every` sources, from the one at `start` on: what has another start meets others."""
    return list(sources) if ALL else list(sources[start::every])


def fewer(count: int, whole: int) -> int:
    """How many places of each input a test changes: `count`, or `whole` where every member of a family runs."""
    return whole if ALL else count


def examples(count: int) -> settings:
    """This many examples of a property whose examples take long; as many as the profile has in `deep`."""
    return settings() if DEEP else settings(max_examples=count)
