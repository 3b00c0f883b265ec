"""Boundaries of streams that Python follows: frames before a gap wait for the verdict as a trial."""

from __future__ import annotations

from struct import Struct
from typing import Final

from kafkasniff.tcp.segments import Gap
from tests.oracle.kafka.boundaries import Boundaries
from tests.oracle.kafka.framer import Framer
from tests.oracle.kafka.trial import Trial

__all__ = ["FollowedBoundaries"]

_INT = Struct(">i")
_SHORTEST_RESPONSE: Final = 8
"""Bytes of a frame up to the correlation id of a response."""


class FollowedBoundaries(Boundaries):
    """The streams of one connection that are not in step."""

    __slots__ = ()

    def release(self, direction: int) -> None:
        """The stream is in step, or its collected bytes are useless after a gap."""
        self._searchers[direction] = None

    def first_id(self, direction: int) -> tuple[int, int] | None:
        """Correlation id of the first response of a stream captured from its beginning, and its packet's order.

        None if the beginning, or a part of the response, is missing.
        """
        searcher = self._searchers[direction]
        if searcher is None or not searcher.aligned or searcher.dropped or len(searcher) < _SHORTEST_RESPONSE:
            return None
        beginning = searcher.beginning(_SHORTEST_RESPONSE)
        size = _INT.unpack_from(beginning)[0]
        if not 0 < size <= len(searcher) - 4:
            return None
        return _INT.unpack_from(beginning, 4)[0], searcher.order_at(3 + size)

    def begin_trial(self, gap: Gap, *, kafka: bool) -> Trial | None:
        """The bytes of a stream before a gap as frames, if they begin like one."""
        run = self.take_beginning(gap, kafka=kafka)
        if run is None:
            return None
        framer = Framer(gap.direction, self._max_frame)
        return Trial(framer, framer.cut(run, run.first, run.last))

    def judge_trial(self, trial: Trial, direction: int, *, kafka: bool) -> bool | None:
        """True: the stream of `direction` is in step as its trial says; False: it is not; None: undecided."""
        client = self._log.client
        if client not in (None, direction):
            return True if kafka and trial.frames else None
        if not trial.may_be_requests(known=client is not None):
            return False
        return True if len(trial.frames) >= (1 if kafka or self._forced else 2) else None
