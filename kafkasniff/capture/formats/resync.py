"""Recovery after a corrupt place in a capture file: finds the first chain of plausible records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
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
"""Number of consecutive plausible records that prove the position."""

RESYNC_LIMIT: Final = 64 << 20
"""Bytes searched after one corrupt place before the rest of the capture is given up."""

FIRST_REACH: Final = 4 << 10
"""Bytes that are read at once after a corrupt place; twice as many after each success. Data that is read but not used,
because another corrupt place precedes it, is read again: so the work stays linear in any case.
"""

LARGEST_REACH: Final = 32 << 20
"""Maximum number of bytes that are read at once, unless a record is longer: compressed zeros may be far more, and all
of them look like records until they are read by columns.
"""

WINDOW: Final = 128 << 10
"""Maximum number of bytes whose candidates are computed at a time; FIRST_REACH at first, since most corrupt places are
short.
"""

IMPLAUSIBLE: Final = -1
"""Result of a step: no record can begin here."""

UNFINISHED: Final = -2
"""Result of a step: too few bytes to decide."""

Candidates = Callable[[bytes, int, int], NDArray[np.int64]]
"""(data, first, last) → ascending positions in [first, last) where a record's header looks plausible."""

Step = Callable[[bytes, int, int], int]
"""(data, position, first) → position after the record that begins at `position`, IMPLAUSIBLE or UNFINISHED (its header
is incomplete); the chain begins at `first`.
"""


class Search(msgspec.Struct, frozen=True):
    """The progress of a search."""

    position: int
    """The beginning of the chain if `found`, otherwise where to continue: everything before is ruled out."""
    found: bool
    need: int = 1
    """Bytes needed from `position` on to continue."""


def find_chain(data: bytes, position: int, *, ended: bool, header: int, candidates: Candidates, step: Step) -> Search:
    """The first position from `position` on where `CHAIN` plausible records follow each other.

    At the end of the data (`ended`) fewer suffice if they end exactly there. `header` is the number of bytes that
    `candidates` and `step` examine. The result does not depend on how the data is divided: the lowest candidate is
    decided first.
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
    """Whether a chain begins right at `first`: -1 if so, 0 if not, else how many bytes after it would decide it.

    With `cut_end` it may end in a record that is truncated by the end of the data.
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
