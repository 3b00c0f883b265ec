"""Brokers listed in bodies: in Metadata and DescribeCluster, and as the listeners of a BrokerRegistration."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from kafkasniff.model import Endpoint

__all__ = ["MAX_NAME", "ListedBroker"]

MAX_NAME: Final = 256
"""Maximum number of characters of a host name or cluster id; DNS allows 253, Kafka's cluster ids have 22."""
_MAX_NODE: Final = (1 << 31) - 1
_MAX_PORT: Final = (1 << 16) - 1
_LOCAL: Final = {"localhost": "127.0.0.1"}


class ListedBroker(msgspec.Struct):
    """One broker of a list.

    A field of another type is accepted, so that one odd entry does not hide the others; the properties check them.
    """

    node_id: Any = None
    host: Any = None
    port: Any = None

    @property
    def node(self) -> int | None:
        """The number of the broker; None if the body has none."""
        return self.node_id if type(self.node_id) is int and 0 <= self.node_id <= _MAX_NODE else None

    @property
    def endpoint(self) -> str | None:
        """`address:port` in the form of `broker_endpoint`; a host name, which no packet has, is not resolved."""
        if not isinstance(self.host, str) or not 0 < len(self.host) <= MAX_NAME:
            return None
        if type(self.port) is not int or not 0 <= self.port <= _MAX_PORT:
            return None
        return str(Endpoint(_LOCAL.get(self.host, self.host), self.port))
