"""The family `costs`: what it makes, and what commands take for it."""

from __future__ import annotations

import itertools
from typing import Final

import pytest

from tests.fuzz.costs import trial
from tests.fuzz.costs.pairs import PAIRS
from tests.fuzz.costs.trial import OUTPUTS, Base

pytestmark = pytest.mark.extended

SIZE = 20_000


def test_what_is_made() -> None:
    """Captures of about the size that was asked for, the same again, others with other numbers."""
    for name, pair in PAIRS.items():
        ends = [(one.low, min(one.high, max(one.low, 300))) for one in pair.quantities]
        found = set()
        for values in itertools.product(*ends):
            data = pair.make(SIZE, *values)
            assert data == pair.make(SIZE, *values), name
            assert 0.8 * SIZE < len(data) < 4 * SIZE, name
            assert data[:4] in {b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1", b"\x0a\x0d\x0d\x0a"}, name
            found.add(data)
        assert len(found) > 1, name
        highest = pair.make(1 << 18, *(one.high for one in pair.quantities))
        assert 0.8 < len(highest) / (1 << 18) < 4, name


FAMILIES: Final = (
    *("topics-errors", "clients-errors", "attempts-endpoints", "segments-overlaps", "members-groups"),
    *("leaders-topics", "connections-unanswered", "producers-batches", "gaps-outstanding", "segments-holes"),
)
"""Hostile inputs that no decompression makes longer."""
EACH_SIZE: Final = 1 << 17
MOST_SECONDS: Final = 3.0
"""CPU time for a megabyte."""
MOST_RSS: Final = 256 << 20
"""Memory beside that of a few exchanges."""


@pytest.mark.parametrize(("number", "output"), enumerate(OUTPUTS), ids=list(OUTPUTS))
def test_every_command_keeps_to_3_s_for_a_megabyte(number: int, output: str) -> None:
    """Each with every other input, questions with two, since a process takes longer to start than to read it."""
    # `report` draws charts of any exchange, with a browser's engine.
    few = trial.run(PAIRS["connections-overhead"].make(2_000, 1, 3), output)
    base = Base(few.seconds, few.rss)
    costs = {
        name: trial.run(PAIRS[name].make(EACH_SIZE, *PAIRS[name].worst), output, base, cpu_seconds=10)
        for name in (FAMILIES[number % 5 :: 5] if output.startswith("analyze-") else FAMILIES[number % 2 :: 2])
    }
    assert {name: found.code for name, found in costs.items() if found.code not in {0, 1}} == {}
    seconds = sum(found.seconds for found in costs.values())
    assert seconds * 1e6 < MOST_SECONDS * sum(found.size for found in costs.values()), costs
    assert max(found.rss for found in costs.values()) < MOST_RSS, costs
