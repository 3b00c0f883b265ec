"""Writers of the lines of messages, and the facts that they need besides the bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from kafkasniff.kafka.connection.events import Detail
from kafkasniff.model import Endpoint, Lines
from kafkasniff.native.lines import LineBatch


class Facts(Protocol):
    """The names that an enricher adds to bodies (`sinks.native_names.AddedNames`)."""

    @property
    def learned(self) -> int:
        """Incremented for every topic learned."""

    def session(self, index: int, first: int, second: int, /) -> object:
        """Process a Fetch message; see `native.names.NameFacts`."""


class FactsAhead(Facts, Protocol):
    """The same for a separate thread; changes no shared state (`sinks.native_names.NamesAhead`)."""

    requests: set[int]
    """Messages that were skipped because they may belong to a session."""
    responses: dict[int, tuple[int, int]]
    """Error codes and sessions of responses, by message."""


class LineMaker(Protocol):
    """Writes lines (`sinks.native_lines.NativeLines`, `sinks.native_text.NativeText`).

    The enricher and the sink must have everything that comes before lines when these are taken, unless they are made
    ahead.
    """

    only_asked: bool
    """No messages after the requested ones will be requested; may be set."""

    @property
    def facts(self) -> Facts:
        """The names added to bodies; a `sinks.native_names.NamesAhead` if lines are written ahead."""

    def use(self, detail: Detail) -> None:
        """Use the current level of `detail` from now on."""

    def takes(self, key: int, version: int, *, is_request: bool) -> bool:
        """Whether regular messages of a version of an API have lines."""

    def forget(self, connections: list[int]) -> None:
        """These connection indices were reused."""

    def bind(self, batch: LineBatch) -> None:
        """Set the batch whose lines are requested from now on."""

    def take(self, first: int, last: int) -> Iterator[Lines | int]:
        """The lines of these messages, one or more at a time; the index of a message that Python has to process."""


Ends = tuple[int, Endpoint | None, Endpoint | None]
"""The number of a connection, its client and its broker."""


class MakeLines(Protocol):
    """Creates line writers."""

    def __call__(
        self, ends: Callable[[int], Ends], capture: Callable[[int], str | None], /, *, ahead: bool = False
    ) -> LineMaker:
        """Create a writer, given the ends of a connection and the name of a capture by their indices.

        `ahead`: for a separate thread that runs before the lines are due (`LineMaker.facts`).
        """
