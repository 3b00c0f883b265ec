"""What a predicate is asked about."""

from __future__ import annotations

from kafkasniff.entities import Mentions, mentions
from kafkasniff.model import Exchange, Message, Problem, SaslToken

__all__ = ["Candidate"]


class Candidate:
    """An exchange as far as it is known, or what else can be asked about. One is made for each message: hot."""

    __slots__ = ("_named", "ended", "other", "request", "response", "seen", "start_ns", "unknown")

    def __init__(
        self,
        *,
        request: Message | None = None,
        response: Message | None = None,
        ended: Exchange | None = None,
        other: SaslToken | Problem | None = None,
        unknown: frozenset[str] = frozenset(),
        start_ns: int | None = None,
    ) -> None:
        self.request = request
        self.response = response
        self.ended = ended
        """The exchange, once it is over."""
        self.other = other
        self.seen: Message | SaslToken | Problem | None = request or response or other
        """What has the place and the time: the request; of an orphan its response."""
        self.unknown = unknown
        """Fields that may have more values than are known; of the others, what is missing stays missing."""
        self.start_ns = start_ns
        """Time of the run's first packet."""
        self._named: Mentions | None = None

    @property
    def named(self) -> Mentions:
        """What the bodies name."""
        if self._named is None:
            self._named = mentions(self.request, self.response)
        return self._named
