"""Colours, prepared once: lines are built by plain string formatting, with or without them."""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = ["COLOUR", "PLAIN", "Paint"]


class Paint(msgspec.Struct, frozen=True):
    """Codes before and after a word; empty strings without colours."""

    error: str = ""
    """Error names."""
    warn: str = ""
    """Problems."""
    api: str = ""
    request: str = ""
    """The arrow of a request."""
    response: str = ""
    name: str = ""
    """Field names in the tree."""
    note: str = ""
    """Annotations of values: enum names, dates."""
    dim: str = ""
    reset: str = ""


PLAIN: Final = Paint()
# Only SGR codes of the eight basic colours: they follow the terminal's own palette, light or dark.
COLOUR: Final = Paint(
    error="\x1b[1;31m",
    warn="\x1b[33m",
    api="\x1b[1m",
    request="\x1b[36m",
    response="\x1b[32m",
    name="\x1b[36m",
    note="\x1b[33m",
    dim="\x1b[2m",
    reset="\x1b[0m",
)
