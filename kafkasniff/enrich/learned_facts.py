"""Which topic and broker names the traffic reported, and when: for rows whose names are resolved at the end of a run.

Facts are collected wherever messages are read, possibly in several processes, and merged afterwards. The earliest
report of a fact is kept, so the distribution of messages to processes does not change the result.
"""

from __future__ import annotations

from typing import Final

import msgspec

from kafkasniff.model import Connection, Endpoint

__all__ = ["BEFORE", "MAX_FACTS", "LearnedFacts", "Place"]

MAX_FACTS: Final = 1 << 18
"""Facts of each kind that are kept, about 200 bytes each; later ones are dropped. We have not seen an installation with
more topics, listeners or addresses."""

BEFORE: Final = -(2**63)
"""Time of facts without a time: before everything."""

Place = tuple[str, int]
"""Address or host, and port."""

LOOPBACK: Final = frozenset({"127.0.0.1", "::1"})


class LearnedFacts(msgspec.Struct):
    """Reported facts. Mutable. Times are those of the packets in nanoseconds since the epoch, `BEFORE` if unknown."""

    topics: dict[str, tuple[int, str]] = {}
    """By topic id: when its name was first reported, and the name."""
    brokers: dict[Place, dict[int, int]] = {}
    """By host, as reported, and port: the ids of the brokers that listen there, each with its first report."""
    hosts: dict[str, str] = {}
    """Address → name, from the captures' name records."""
    software: dict[int, tuple[str, str | None]] = {}
    """By `connection_id`: client software and version, of connections whose client sent them late."""
    kafka: dict[Place, int] = {}
    """Broker endpoints that spoke Kafka, each with the time at which the first connection was recognized."""

    def topic(self, topic_id: str, name: str, time_ns: int | None) -> None:
        """Record a message that has a topic's id and name."""
        reported = (BEFORE if time_ns is None else time_ns, name)
        known = self.topics.get(topic_id)
        if known is None:
            if len(self.topics) < MAX_FACTS:
                self.topics[topic_id] = reported
        elif reported < known:
            self.topics[topic_id] = reported

    def broker(self, place: Place, node: int, time_ns: int | None) -> None:
        """Record a message that reports which broker listens at a place."""
        time_ns = BEFORE if time_ns is None else time_ns
        nodes = self.brokers.get(place)
        if nodes is None:
            if len(self.brokers) >= MAX_FACTS:
                return
            nodes = self.brokers[place] = {}
        if node in nodes:
            nodes[node] = min(nodes[node], time_ns)
        elif len(nodes) < MAX_FACTS:
            nodes[node] = time_ns

    def late_software(self, connection_id: int, name: str, version: str | None) -> None:
        """Record client software that was sent after exchanges of its connection were complete."""
        if len(self.software) < MAX_FACTS:
            self.software[connection_id] = (name, version)

    def spoke_kafka(self, endpoint: Endpoint, time_ns: int | None) -> None:
        """Record that a connection to this endpoint was recognized as Kafka."""
        time_ns = BEFORE if time_ns is None else time_ns
        place = (endpoint.address, endpoint.port)
        if place in self.kafka:
            self.kafka[place] = min(self.kafka[place], time_ns)
        elif len(self.kafka) < MAX_FACTS:
            self.kafka[place] = time_ns

    def connection(self, connection: Connection) -> None:
        """Record what the `Connection` at the end of a connection reports."""
        if connection.verdict != "kafka":
            return
        self.spoke_kafka(connection.broker, connection.verdict_time_ns)
        if connection.software_late and connection.software_name is not None:
            self.late_software(connection.connection_id, connection.software_name, connection.software_version)

    def merge(self, other: LearnedFacts) -> None:
        """Add the facts of another process or of an earlier run."""
        for topic_id, (time_ns, name) in other.topics.items():
            self.topic(topic_id, name, time_ns)
        for place, nodes in other.brokers.items():
            for node, time_ns in nodes.items():
                self.broker(place, node, time_ns)
        for address, name in other.hosts.items():
            if len(self.hosts) < MAX_FACTS:
                self.hosts[address] = name
        for connection_id, (name, version) in other.software.items():
            self.late_software(connection_id, name, version)
        for (address, port), time_ns in other.kafka.items():
            self.spoke_kafka(Endpoint(address, port), time_ns)

    def broker_at(self, address: str, port: int) -> list[tuple[int, int]]:
        """(first report, id) of the brokers that listen there, earliest first; empty if unknown.

        The broker may have been reported by address, as `localhost`, or by a name that the captures resolve.
        """
        nodes = self.brokers.get((address, port))
        if nodes is None and address in LOOPBACK:
            nodes = self.brokers.get(("localhost", port))
        if nodes is None and address in self.hosts:
            nodes = self.brokers.get((self.hosts[address].rstrip(".").lower(), port))
        return [] if nodes is None else sorted((time_ns, node) for node, time_ns in nodes.items())
