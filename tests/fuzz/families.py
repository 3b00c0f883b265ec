"""The families of parsers, by name, and what their modules have."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Final, Protocol, cast

__all__ = ["FAMILIES", "Family", "family"]

FAMILIES: Final = (
    "captures",
    "links",
    "reassembly",
    "streams",
    "feed",
    "messages",
    "records",
    "kernel",
    "lines",
    "compression",
    "embedded",
    "tls",
    "definitions",
    "filters",
    "snippets",
    "states",
)


class Family(Protocol):
    """The module of a family.

    One whose inputs can be given together has two more, see `crowd`: `TOGETHER`, how many at a time, and
    `many_inputs(inputs)`, which raises where one of them breaks a promise.
    """

    MAX_LENGTH: int
    """Bytes of an input, at most."""
    MEGABYTES: int
    """What an input may take of memory whatever its length: the bounds of its parsers, and room for what they keep."""
    WORDS: Sequence[bytes]
    """What inputs are likely to hold."""

    def seeds(self) -> list[bytes]:
        """Inputs to begin with."""

    def one_input(self, data: bytes) -> None:
        """Give an input to the parsers; raises where they break a promise."""


def family(name: str) -> Family:
    """The module of a family; imports what it tests."""
    return cast(Family, importlib.import_module(f"tests.fuzz.{name}"))
