"""Exchanges of a batch as columns, and what finds them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kafkasniff.engine.connection_stats import MessageOwner
from kafkasniff.engine.message_table import Messages
from kafkasniff.kafka.schema.context import DecodeOptions

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class PairColumns(NamedTuple):
    """Exchanges as columns of one length."""

    owners: Sequence[MessageOwner | None]
    """By connection index."""
    asked: NDArray[np.void]
    """The requests (`native.feed.MESSAGE`)."""
    answered: NDArray[np.void]
    """The responses."""
    ends: Any
    """Facts about each owner, for the consumer of the columns."""
    names: list[str]
    client_id: Ints
    """Index in `names`, `NONE` if there is none."""
    facts: Any = None
    """Facts from the bodies, for the consumer of the columns; None: only headers were read."""
    selected: bool = True
    """Whether a filter keeps them."""
    problems: Ints = np.zeros(0, np.int64)
    """Number of problems of each; empty: there are none."""


class PairFinder(Protocol):
    """Finds exchanges that become columns."""

    def may_take(self, code: int, options: DecodeOptions) -> bool:
        """Whether regular exchanges of a version of an API, by its code, can be columns."""

    def find(
        self, messages: Messages, options: DecodeOptions, capture: Callable[[int], str | None]
    ) -> tuple[list[PairColumns], Bools]:
        """Exchanges as columns, and a mask of the other messages of whole exchanges.

        `capture`: the name of a capture by its index.
        """
