"""Each family of parsers on its seeds and on inputs made from them. `make fuzz FUZZ=quick` runs all families in
processes of their own, guided by coverage where atheris is installed."""

from __future__ import annotations

import functools
from itertools import islice
from pathlib import Path

import pytest

from tests.choice import fewer
from tests.fuzz.families import FAMILIES, Family, family
from tests.fuzz.mutate import inputs
from tests.fuzz.watch import watched

COUNT = fewer(30, 400)
"""Inputs of each family; `python -m tests.fuzz` makes more. Families with `DEAR` get a part of them."""


@functools.cache
def seeded(name: str) -> tuple[Family, tuple[bytes, ...]]:
    found = family(name)
    return found, tuple(found.seeds())


def test_every_module_of_the_folder_is_a_family() -> None:
    with_inputs = {path.stem for path in Path(__file__).parent.glob("*.py") if "\ndef one_input(" in path.read_text()}
    assert with_inputs == set(FAMILIES)


@pytest.mark.parametrize("name", FAMILIES)
def test_seeds_and_changed_seeds(name: str) -> None:
    found, seeds = seeded(name)
    assert len(seeds) >= 20
    assert max(map(len, seeds)) <= found.MAX_LENGTH
    take = watched(found.one_input, found.MEGABYTES)
    dear: int = getattr(found, "DEAR", 1)
    made = inputs(seeds, found.WORDS, seed=7, max_length=found.MAX_LENGTH)
    given = seeds[:: max(1, dear * len(seeds) // fewer(6, 60))]
    for data in (*given, b"", b"\0", b"\xff" * 50, *islice(made, COUNT // dear)):
        take(data)
