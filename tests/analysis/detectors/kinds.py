"""Kinds of trouble by layer and manner, from `kinds.txt`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

LAYERS: Final = (
    *("name", "TCP", "TLS", "SASL", "ACL", "quota", "metadata", "broker", "group", "transaction", "share-group", "log"),
    *("controller", "client", "capture"),
)
MANNERS: Final = ("absent", "slow", "wrong", "flapping", "expired")
FILE: Final = Path(__file__).with_name("kinds.txt")


class Kind(NamedTuple):
    """A capture of trouble, or what was seen with a real cluster without one."""

    layer: str
    manner: str
    capture: str | None
    """Its name without the suffix."""
    shows: str = ""
    first: str = ""
    code: str = ""

    @property
    def name(self) -> str:
        """`TCP, slow`."""
        return f"{self.layer.replace('-', ' ')}, {self.manner}"


def kinds() -> Iterator[Kind]:
    """In the order of the file."""
    for line in FILE.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        what, _, named = line.partition(": ")
        if what.startswith("lab "):
            _, layer, manner = what.split(" ")
            shows, first, code = named.split(" | ")
            yield Kind(layer, manner, None, shows, first, code)
        else:
            layer, manner = what.split(" ")
            yield from (Kind(layer, manner, name) for name in named.split(" "))
