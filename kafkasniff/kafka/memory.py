"""What earlier messages of a connection said that later ones are read by."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

__all__ = ["MAX_GROUPS", "ConnectionMemory"]

MAX_GROUPS: Final = 64
"""Groups of a connection whose protocol type is remembered; the one not spoken of for the longest time goes first."""


class ConnectionMemory:
    """Mutable, one per connection, bounded. Messages are read in the order in which they are told."""

    __slots__ = ("_protocol_types",)

    def __init__(self) -> None:
        self._protocol_types: OrderedDict[str | bytes, str] | None = None

    def remember_protocol_type(self, group: str | bytes, protocol_type: str) -> None:
        """A member joins a group with this protocol type (`consumer`, `connect` …)."""
        if self._protocol_types is None:
            self._protocol_types = OrderedDict()
        self._protocol_types[group] = protocol_type
        self._protocol_types.move_to_end(group)
        if len(self._protocol_types) > MAX_GROUPS:
            self._protocol_types.popitem(last=False)

    def protocol_type(self, group: str | bytes) -> str | None:
        """The protocol type that a member of this connection last joined the group with."""
        return None if self._protocol_types is None else self._protocol_types.get(group)
