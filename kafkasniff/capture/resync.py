"""Finding the way back into a capture file behind a corrupt place: the first chain of plausible records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "FIRST_REACH",
    "IMPLAUSIBLE",
    "LARGEST_REACH",
    "RESYNC_LIMIT",
    "UNFINISHED",
    "Search",
    "chain_at",
    "find_chain",
]

CHAIN: Final = 3
"""Plausible records in a row that count as the way back."""

RESYNC_LIMIT: Final = 64 << 20
"""Bytes searched behind one corrupt place before the rest of the capture is given up."""

FIRST_REACH: Final = 4 << 10
"""Bytes that are read at once behind a corrupt place; twice as many each time that all is well. What is read and not
taken, because another corrupt place comes before it, is read again: so the work stays linear however many there are."""

LARGEST_REACH: Final = 32 << 20
"""Bytes that are read at once at most, unless a record is longer: compressed zeros may be far more, and all of them
look like records until they are read by columns."""

WINDOW: Final = 128 << 10
"""Most bytes whose candidates are computed at a time; FIRST_REACH at first, since most corrupt places are short."""

IMPLAUSIBLE: Final = -1
"""From a step: no record can begin here."""

UNFINISHED: Final = -2
"""From a step: too few bytes to tell."""

Candidates = Callable[[bytes, int, int], NDArray[np.int64]]
"""(data, first, last) → ascending positions in [first, last) where a record's header looks plausible."""

Step = Callable[[bytes, int, int], int]
"""(data, position, first) → position behind the record that begins at `position`, IMPLAUSIBLE or UNFINISHED (its header
is not there yet); the chain begins at `first`."""


class Search(NamedTuple):
    """How far a search came."""

    position: int
    """Where the chain begins if `found`, else where to go on searching: everything before is ruled out."""
    found: bool
    need: int = 1
    """Bytes needed from `position` on to go on."""


def find_chain(data: bytes, position: int, *, ended: bool, header: int, candidates: Candidates, step: Step) -> Search:
    """The first position from `position` on where `CHAIN` plausible records follow each other.

    At the end of the data (`ended`) fewer suffice if they end exactly there. `header` is the size of what `candidates`
    and `step` look at. What is found does not depend on how the data comes in pieces: the lowest candidate is decided
    first.
    """
    last = len(data) - header + 1
    window = FIRST_REACH
    while position < last:
        border = min(position + window, last)
        window = min(2 * window, WINDOW)
        for candidate in candidates(data, position, border).tolist():
            need = chain_at(data, candidate, ended=ended, header=header, step=step)
            if need != 0:
                return Search(candidate, need < 0, max(need, 1))
        position = border
    return Search(len(data) if ended else position, False, header)


def chain_at(data: bytes, first: int, *, ended: bool, header: int, step: Step, cut_end: bool = False) -> int:
    """Whether a chain begins right at `first`: -1 if so, 0 if not, else how many bytes from there on would tell.

    With `cut_end` it may end in a record that the end of the data cuts.
    """
    place = first
    for _ in range(CHAIN):
        if ended and place == len(data) and place > first:
            return -1
        after = step(data, place, first)
        if after == IMPLAUSIBLE:
            return 0
        if after == UNFINISHED or after > len(data):
            if ended:
                return -1 if cut_end and place > first else 0
            wanted = place + header if after == UNFINISHED else after
            return wanted - first
        place = after
    return -1
