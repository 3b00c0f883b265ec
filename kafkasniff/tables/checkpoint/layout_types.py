"""Types that several layouts share."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

__all__ = ["Port", "Side", "most", "pair"]

Side = Literal[0, 1]
"""Direction of a stream."""
Port = tuple[int, int, int]
"""Both halves of an address, and a port."""


def pair(kind: Any) -> Any:
    """A list with an entry for each stream."""
    return Annotated[list[kind], Meta(min_length=2, max_length=2)]


def most(kind: Any, bound: int) -> Any:
    """A collection of at most `bound` entries."""
    return Annotated[kind, Meta(max_length=bound)]
