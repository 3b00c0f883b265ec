"""One exchange as a waterfall: its parts in order, its network, and what is unknown."""

from __future__ import annotations

import itertools
import re

import msgspec
import pytest

from kafkasniff.cli.render.waterfall import MAX_BAR, MIN_BAR, waterfall, who
from kafkasniff.timing import Timed
from tests.cli.commands.test_timing import packets
from tests.timing.test_exchanges import of


def exchanges() -> list[Timed]:
    return of(packets())


@pytest.mark.parametrize("width", [20, 60, 80, 100, 200])
def test_bars_follow_one_another(width: int) -> None:
    """Each begins where the previous one ends, and all are as wide as the screen allows."""
    for one in exchanges():
        bars = re.findall("[·█]+", waterfall(one, width, coloured=False))
        columns = {len(bar) for bar in bars}
        assert len(columns) == 1
        assert MIN_BAR <= columns.pop() <= MAX_BAR
        for before, after in itertools.pairwise(bars):
            assert after.index("█") <= before.rindex("█") + 1
        assert bars[0].startswith("█")
        assert bars[-1].endswith("█")


def test_names_from_the_wire_are_escaped() -> None:
    (one, *_) = exchanges()
    request = one.exchange.request
    assert request is not None
    evil = msgspec.structs.replace(request, client_id="a\x1b[31m b")
    changed = msgspec.structs.replace(one, exchange=msgspec.structs.replace(one.exchange, request=evil))
    assert "\x1b" not in waterfall(changed, 80, coloured=False)
    assert who(changed) == 'Metadata v1 of "a\\x1b[31m b"'
    nothing = msgspec.structs.replace(one.exchange, request=None)
    assert who(msgspec.structs.replace(one, exchange=nothing)).startswith("Metadata v1")
    orphan = msgspec.structs.replace(nothing, response=None)
    assert who(msgspec.structs.replace(one, exchange=orphan)) == "a response without its request"
