"""Words for exchanges that end without a response."""

from __future__ import annotations

from typing import Final

__all__ = ["CLOSED_BEFORE", "span_text"]

NS_IN_S: Final = 1_000_000_000
CLOSED_BEFORE: Final = "the broker had closed it"
"""Problem text for a request that was sent after the end of its connection."""


def span_text(nanoseconds: int) -> str:
    """A duration as text."""
    if nanoseconds < NS_IN_S:
        return f"{nanoseconds / 1_000_000:.3g} ms"
    return f"{nanoseconds / NS_IN_S:,.1f} s"
