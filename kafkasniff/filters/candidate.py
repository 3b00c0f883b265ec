"""The subject of a predicate."""

from __future__ import annotations

from kafkasniff.kafka.apis.entities import Mentions, mentions
from kafkasniff.model import Exchange, Message, Problem, SaslToken

__all__ = ["Candidate"]


class Candidate:
    """An exchange as far as it is known, or another subject of predicates. Created once per message: hot."""

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
        """The exchange, once it has ended."""
        self.other = other
        self.seen: Message | SaslToken | Problem | None = request or response or other
        """The message with place and time: the request, or an orphan response."""
        self.unknown = unknown
        """Fields that may get more values than are known; for other fields, missing values stay missing."""
        self.start_ns = start_ns
        """Time of the run's first packet."""
        self._named: Mentions | None = None

    @property
    def named(self) -> Mentions:
        """Names in the bodies."""
        if self._named is None:
            self._named = mentions(self.request, self.response)
        return self._named
