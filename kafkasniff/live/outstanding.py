"""Requests that wait for their response."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kafkasniff.kafka.connection.waits import UNLIMITED_NS, wait_of
from kafkasniff.model import Exchange, Message

__all__ = ["MAX_OUTSTANDING", "OpenRequests"]

MAX_OUTSTANDING: Final = 65_536
"""Maximum number of requests that are kept; later ones are only counted. A client has five in flight by default."""


class OpenRequests:
    """Requests by exchange, in order of completion; fed with messages and the ends of exchanges."""

    def __init__(self) -> None:
        self._waiting: dict[int, Message] = {}
        self.overlooked = 0
        """Number of requests above the bound."""

    def __len__(self) -> int:
        return len(self._waiting)

    def message(self, message: Message) -> Message | None:
        """A request waits, or a response has arrived; returns the request of a response if it is known. Hot."""
        number = message.exchange
        if number is None:
            return None
        if message.type == "response":
            return self._waiting.pop(number, None)
        elif len(self._waiting) < MAX_OUTSTANDING:
            # The inspector keeps the request itself until the exchange is over, so this costs no more.
            self._waiting[number] = message
        else:
            self.overlooked += 1
        return None

    def exchange(self, exchange: Exchange) -> None:
        """An exchange is over, with or without a response."""
        self._waiting.pop(exchange.exchange, None)

    def since(self, time_ns: int) -> Iterator[Message]:
        """Requests that were complete by this time, in order of completion; those without a time are skipped."""
        for message in self._waiting.values():
            # No early end: requests that waited for their connection's verdict follow younger ones.
            if message.time_ns is not None and message.time_ns <= time_ns:
                yield message

    def overdue(self, time_ns: int) -> Iterator[Message]:
        """The same, without those whose broker may still wait by then as requested (`connection.waits`)."""
        for message in self.since(time_ns):
            wait = wait_of(message.api_key, message.body, None, 0, 0)
            if wait is None or wait.reason == "replicas":
                yield message
            elif message.time_ns is not None:
                limit = UNLIMITED_NS if wait.limit_ns is None else wait.limit_ns
                if message.time_ns + limit <= time_ns:
                    yield message
