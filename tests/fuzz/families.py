"""The families of parsers, by name, and the interface of their modules."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Final, Protocol, cast

FAMILIES: Final = (
    *("captures", "links", "streams", "oracle", "messages", "records", "compression", "embedded", "tls"),
    *("definitions", "filters", "states", "commands"),
)


class Family(Protocol):
    """The module of a family. Where an input costs as much as many of other families, `DEAR` is their number."""

    MAX_LENGTH: int
    """Largest input in bytes."""
    MEGABYTES: int
    """Memory that any input may take: the bounds of its parsers, and room for what they keep."""
    WORDS: Sequence[bytes]
    """Byte strings that inputs are likely to contain."""

    def seeds(self) -> list[bytes]:
        """Initial inputs."""

    def one_input(self, data: bytes) -> None:
        """Give an input to the parsers; raises if they break a promise."""


def family(name: str) -> Family:
    return cast(Family, importlib.import_module(f"tests.fuzz.{name}"))
