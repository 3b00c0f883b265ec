"""Facts from earlier messages of a connection that later ones need for decoding."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import msgspec

__all__ = ["MAX_GROUPS", "ConnectionMemory", "GroupProtocol"]

MAX_GROUPS: Final = 64
"""Groups of a connection whose protocol is remembered; the least recently used one is evicted first."""


class GroupProtocol(msgspec.Struct, frozen=True):
    """The protocol of the members of a classic group."""

    type: str
    """`consumer`, `connect` …"""
    name: str | None
    """The one agreed on by the members, for consumers the assignor (`range` …); None while that is open."""


class ConnectionMemory:
    """Mutable, one per connection, bounded. Messages are decoded in the order in which they are reported."""

    __slots__ = ("_groups", "sasl_mechanism")

    def __init__(self) -> None:
        self._groups: OrderedDict[str | bytes, GroupProtocol] | None = None
        self.sasl_mechanism: str | None = None
        """The mechanism of the last SaslHandshake that was not refused."""

    def remember_group(self, group: str | bytes, protocol: GroupProtocol) -> None:
        """A member of this connection joins the group, or has joined it."""
        if self._groups is None:
            self._groups = OrderedDict()
        self._groups[group] = protocol
        self._groups.move_to_end(group)
        if len(self._groups) > MAX_GROUPS:
            self._groups.popitem(last=False)

    def group_protocol(self, group: str | bytes) -> GroupProtocol | None:
        """The protocol with which a member of this connection last joined the group."""
        return None if self._groups is None else self._groups.get(group)
