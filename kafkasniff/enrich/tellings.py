"""What a run was told of topics and brokers, and when: for rows whose names are resolved at the end of a run.

Tellings are gathered wherever messages are read, in several processes if need be, and merged then: which process read
what changes nothing, since of every fact the earliest telling stands.
"""

from __future__ import annotations

from typing import Final

import msgspec

from kafkasniff.model import Connection, Endpoint

__all__ = ["BEFORE", "MAX_TOLD", "Place", "Tellings"]

MAX_TOLD: Final = 1 << 18
"""Facts of each kind that are kept, some 200 bytes each; what comes later is not taken. More topics, listeners or
addresses than this have not been seen in one place."""

BEFORE: Final = -(2**63)
"""The time of what has none: before everything."""

Place = tuple[str, int]
"""Address or host, and port."""

LOOPBACK: Final = frozenset({"127.0.0.1", "::1"})


class Tellings(msgspec.Struct):
    """Mutable. Times are nanoseconds since the epoch of the packets that told, `BEFORE` where they have none."""

    topics: dict[str, tuple[int, str]] = {}
    """By id: when its name was told first, and the name."""
    brokers: dict[Place, dict[int, int]] = {}
    """By host, as told, and port: the numbers of the brokers that listen there, each with when it was told first."""
    hosts: dict[str, str] = {}
    """Address → name, as the captures' name records tell."""
    software: dict[int, tuple[str, str | None]] = {}
    """By `connection_id`: client software and its version, of connections whose client said it late."""
    kafka: dict[Place, int] = {}
    """Brokers' endpoints that spoke Kafka, with when the first connection was known to."""

    def topic(self, topic_id: str, name: str, time_ns: int | None) -> None:
        """A message names a topic by both."""
        told = (BEFORE if time_ns is None else time_ns, name)
        known = self.topics.get(topic_id)
        if known is None:
            if len(self.topics) < MAX_TOLD:
                self.topics[topic_id] = told
        elif told < known:
            self.topics[topic_id] = told

    def broker(self, place: Place, node: int, time_ns: int | None) -> None:
        """A message tells which broker listens at a place."""
        time_ns = BEFORE if time_ns is None else time_ns
        nodes = self.brokers.get(place)
        if nodes is None:
            if len(self.brokers) >= MAX_TOLD:
                return
            nodes = self.brokers[place] = {}
        if node in nodes:
            nodes[node] = min(nodes[node], time_ns)
        elif len(nodes) < MAX_TOLD:
            nodes[node] = time_ns

    def late_software(self, connection_id: int, name: str, version: str | None) -> None:
        """A client said what it is when exchanges of its connection were over."""
        if len(self.software) < MAX_TOLD:
            self.software[connection_id] = (name, version)

    def spoke_kafka(self, endpoint: Endpoint, time_ns: int | None) -> None:
        """A connection to this endpoint turned out to be Kafka."""
        time_ns = BEFORE if time_ns is None else time_ns
        place = (endpoint.address, endpoint.port)
        if place in self.kafka:
            self.kafka[place] = min(self.kafka[place], time_ns)
        elif len(self.kafka) < MAX_TOLD:
            self.kafka[place] = time_ns

    def connection(self, connection: Connection) -> None:
        """What the account of a connection tells."""
        if connection.verdict != "kafka":
            return
        self.spoke_kafka(connection.broker, connection.verdict_time_ns)
        if connection.software_late and connection.software_name is not None:
            self.late_software(connection.connection_id, connection.software_name, connection.software_version)

    def merge(self, other: Tellings) -> None:
        """Take over what another process was told, or an earlier run."""
        for topic_id, (time_ns, name) in other.topics.items():
            self.topic(topic_id, name, time_ns)
        for place, nodes in other.brokers.items():
            for node, time_ns in nodes.items():
                self.broker(place, node, time_ns)
        for address, name in other.hosts.items():
            if len(self.hosts) < MAX_TOLD:
                self.hosts[address] = name
        for connection_id, (name, version) in other.software.items():
            self.late_software(connection_id, name, version)
        for (address, port), time_ns in other.kafka.items():
            self.spoke_kafka(Endpoint(address, port), time_ns)

    def broker_at(self, address: str, port: int) -> list[tuple[int, int]]:
        """(when told first, number) of the brokers that listen there, earliest first; empty where nothing told it.

        Told may be the address, `localhost`, or a name that the captures resolve.
        """
        nodes = self.brokers.get((address, port))
        if nodes is None and address in LOOPBACK:
            nodes = self.brokers.get(("localhost", port))
        if nodes is None and address in self.hosts:
            nodes = self.brokers.get((self.hosts[address].rstrip(".").lower(), port))
        return [] if nodes is None else sorted((time_ns, node) for node, time_ns in nodes.items())
