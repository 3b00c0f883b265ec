"""The problems of one sender's packets, and what they add up to in any time span (`kernel/link_trouble.zig`)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final

from kafkasniff.timing import Trouble

MAX_TROUBLE: Final = 65_536
"""Maximum number of retransmissions, late segments and closed windows that each half of a connection remembers; later
ones are only counted.
"""
MAX_LOOKED: Final = 256
"""Maximum number of lost segments within one exchange that are examined."""


class TroubleLog:
    """What was wrong with the packets of one sender. Times are ns since the epoch."""

    def __init__(self) -> None:
        self.again: list[int] = []
        """Times of retransmitted segments."""
        self.lost: list[tuple[int, int]] = []
        """Those of them that were not acknowledged before the retransmission: its time, and that of the first
        transmission.
        """
        self.late: list[int] = []
        """Times of late segments."""
        self.late_sum: list[int] = [0]
        """For how long the first 0, 1, 2 … of them were missing in total."""
        self.closed: list[int] = []
        """When its window was closed."""
        self.opened: list[int] = []
        """When it was opened again; the last one may still be closed."""
        self.closed_sum: list[int] = [0]
        """How long the first 0, 1, 2 … of them lasted in total."""
        self.counts = [0, 0, 0, 0]
        """Retransmitted segments, late segments, closed windows, and for how many ns in total windows were closed that
        were opened again: all of them, whether remembered or not.
        """

    # -- input ------------------------------------------------------------------------------------------------------

    def retransmitted(self, time: int, sent: int | None) -> None:
        """A segment was retransmitted; `sent`: when it was first sent, if known and not acknowledged since."""
        self.counts[0] += 1
        if self._remembers(self.again):
            self.again.append(time)
            if sent is not None:
                self.lost.append((time, sent))

    def came_late(self, time: int, since: int) -> None:
        """A segment arrived that had been missing `since` then."""
        self.counts[1] += 1
        if self._remembers(self.late):
            self.late.append(time)
            self.late_sum.append(self.late_sum[-1] + max(time - since, 0))

    def window_closed(self, time: int) -> None:
        """The sender announced a window of size 0."""
        self.counts[2] += 1
        if self._remembers(self.closed):
            self.closed.append(time)

    def window_opened(self, time: int, since: int) -> None:
        """It announced a window again, after one of size 0 `since` then."""
        self.counts[3] += max(time - since, 0)
        if len(self.opened) < len(self.closed):
            self.opened.append(time)
            self.closed_sum.append(self.closed_sum[-1] + max(time - since, 0))

    @staticmethod
    def _remembers(found: Sequence[object]) -> bool:
        return len(found) < MAX_TROUBLE

    # -- queries ----------------------------------------------------------------------------------------------------

    def retransmitted_at(self, sent: int, until: int) -> int | None:
        """When data sent by `sent` and lost after the capture point was last retransmitted by `until`.

        None: none of it was lost in that time, as far as the capture shows.
        """
        place = bisect_right(self.lost, (until, 1 << 63))
        for time, first in reversed(self.lost[max(place - MAX_LOOKED, 0) : place]):
            if time <= sent:
                return None
            if first <= sent:
                return time
        return None

    def between(self, first: int, last: int) -> Trouble:
        """Problems from `first` to `last`, both included."""
        again = max(bisect_right(self.again, last) - bisect_left(self.again, first), 0)
        low, high = bisect_left(self.late, first), bisect_right(self.late, last)
        late, late_ns = max(high - low, 0), self.late_sum[max(high, low)] - self.late_sum[low]
        # Windows reopened by `first` are over; those closed after `last` are not part of this span.
        low, high = bisect_right(self.opened, first), bisect_right(self.closed, last)
        if low >= high:
            return Trouble(again, late, late_ns)
        done = min(high, len(self.opened))
        lasted = self.closed_sum[done] - self.closed_sum[low] if done > low else 0
        if done < high:
            lasted += last - self.closed[high - 1]
        elif self.opened[high - 1] > last:
            lasted -= self.opened[high - 1] - last
        lasted -= max(first - self.closed[low], 0)
        return Trouble(again, late, late_ns, high - low, max(lasted, 0))
