"""Topics, brokers and client software that the traffic has named so far."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Container, Mapping
from functools import lru_cache
from typing import Final

import msgspec

from kafkasniff.enrich.learned_facts import LearnedFacts
from kafkasniff.kafka.apis import cluster_metadata
from kafkasniff.kafka.schema.uuids import ZERO_UUID
from kafkasniff.model import Endpoint
from kafkasniff.runtime.memory_limits import in_proportion

__all__ = ["MAX_BROKERS", "MAX_CONNECTIONS", "MAX_NAME", "MAX_TOPICS", "Broker", "Catalog"]

MAX_TOPICS: Final = 1 << 18
"""Topic ids whose names are kept, about 200 bytes each; the one learned first is evicted first. This and the next two
bounds are for a memory budget of 1 GiB or more, and are reduced in proportion below that."""
MAX_BROKERS: Final = 1 << 14
"""Broker addresses that are kept; the one not reported for longest is evicted first."""
MAX_CONNECTIONS: Final = 1 << 18
"""Connections whose client software is kept; the least recently used is evicted first."""
MAX_NAME: Final = 255
"""Longest name that is kept, in characters. Topics have up to 249
(`org.apache.kafka.common.internals.Topic.MAX_NAME_LENGTH`), hosts up to 253 (RFC 1035). Longer ones are invalid."""
FACT_BYTES: Final = 400
"""Bytes of memory of a name, an address or a client's software, including when it was reported."""
MAX_PAIRS: Final = 1024
"""Software names with version that are shared between connections."""

LOOPBACK: Final = frozenset({"127.0.0.1", "::1"})
"""Addresses of the host `localhost` (RFC 6761)."""


class Broker(msgspec.Struct, frozen=True, gc=False):
    """A broker or controller, as a message reported it."""

    id: int
    host: str
    """As reported: an address or a name."""
    port: int
    rack: str | None = None


class Catalog:
    """Names learned from messages in capture order. Mutable.

    A topic id keeps its name forever (a topic that is created again gets another id), so the first name is kept.
    The address of a broker may move to another broker, so the last report replaces earlier ones. With `retroactive` the
    first report is kept instead: then a first, learning pass ends with what holds at the beginning of the capture, for
    the second pass that writes the output.
    """

    def __init__(
        self,
        topics: Mapping[str, str] | None = None,
        *,
        retroactive: bool = False,
        learned_facts: LearnedFacts | None = None,
    ) -> None:
        self.retroactive = retroactive
        self.learned_facts = learned_facts
        """Records which facts were reported and when; None if the caller does not need that."""
        self.now: int | None = None
        """time_ns of the message that is being read, for `learned_facts`."""
        self.hosts: Mapping[str, str] = {}
        """Address → name, from the captures' name records, for brokers that are reported by name."""
        self.topics_learned = 0
        """Incremented for every topic learned: names that were unknown may be looked up again."""
        self._given = {cluster_metadata.TOPIC_ID: cluster_metadata.TOPIC_NAME, **(topics or {})}
        self._topics: dict[str, str] = {}
        self._brokers: OrderedDict[tuple[str, int], Broker] = OrderedDict()
        self._software: OrderedDict[int, tuple[str, str]] = OrderedDict()
        self._pairs: dict[tuple[str, str], tuple[str, str]] = {}
        self.most_topics = MAX_TOPICS
        """Largest number of topic ids kept."""
        self._most_brokers = MAX_BROKERS
        self._most_connections = MAX_CONNECTIONS

    @property
    def memory(self) -> int:
        """Approximate bytes of memory used, without the names given at the start."""
        count = len(self._topics) + len(self._brokers) + len(self._software)
        known = self.learned_facts
        if known is not None:
            count += len(known.topics) + len(known.brokers) + len(known.software) + len(known.kafka)
        return FACT_BYTES * count

    def limit_memory(self, size: int) -> None:
        """Keep as much as a memory budget of `size` bytes allows."""
        self.most_topics = in_proportion(MAX_TOPICS, size)
        self._most_brokers = in_proportion(MAX_BROKERS, size)
        self._most_connections = in_proportion(MAX_CONNECTIONS, size)

    # -- topics

    def topic(self, topic_id: object) -> str | None:
        """The name of a topic id of 22 characters; None if unknown. Names from the traffic take precedence. Hot."""
        if not isinstance(topic_id, str):
            return None
        name = self._topics.get(topic_id)
        return name if name is not None else self._given.get(topic_id)

    def topics_named(self, names: Container[str]) -> list[str]:
        """The ids of topics with these names."""
        return [found for known in (self._given, self._topics) for found, name in known.items() if name in names]

    def learn_topic(self, topic_id: object, name: object) -> None:
        """Learn a name from a message that has both. Hot: a Metadata response may have thousands of topics."""
        if topic_id in self._topics or not isinstance(topic_id, str) or topic_id == ZERO_UUID:
            return
        if isinstance(name, str) and 0 < len(name) <= MAX_NAME:
            self._topics[topic_id] = name
            if self.learned_facts is not None and len(self.learned_facts.topics) < self.most_topics:
                self.learned_facts.topic(topic_id, name, self.now)
            if len(self._topics) > self.most_topics:
                del self._topics[next(iter(self._topics))]
            # Incremented last: another thread that sees the new number must also see the name.
            self.topics_learned += 1

    def absorb(self, other: Catalog) -> None:
        """Take over what another catalog knows and this one does not, and its `learned_facts` if both have them."""
        self._given.update({key: name for key, name in other._given.items() if key not in self._given})
        for topic_id, name in other._topics.items():
            self.learn_topic(topic_id, name)
        for place, broker in other._brokers.items():
            self._brokers.setdefault(place, broker)
        for connection, pair in other._software.items():
            self._software.setdefault(connection, pair)
        for known, most in ((self._brokers, self._most_brokers), (self._software, self._most_connections)):
            while len(known) > most:
                known.popitem(last=False)
        if self.learned_facts is not None and other.learned_facts is not None:
            self.learned_facts.merge(other.learned_facts)

    @property
    def given(self) -> Mapping[str, str]:
        """Names by topic id that were known at the start."""
        return self._given

    @property
    def learnt(self) -> Mapping[str, str]:
        """Names by topic id that messages reported, in the order in which they were learned."""
        return self._topics

    # -- brokers

    @property
    def brokers(self) -> list[Broker]:
        """All known brokers, the one not reported for longest first; a broker has one entry per listener."""
        return list(self._brokers.values())

    def broker_id(self, endpoint: Endpoint | None) -> int | None:
        """Id of the broker that listens at an endpoint; None if unknown."""
        if endpoint is None:
            return None
        found = self._brokers.get((endpoint.address, endpoint.port))
        if found is None and endpoint.address in LOOPBACK:
            found = self._brokers.get(("localhost", endpoint.port))
        if found is None and endpoint.address in self.hosts:
            found = self._brokers.get((_host(self.hosts[endpoint.address]), endpoint.port))
        return None if found is None else found.id

    def learn_broker(self, node: object, host: object, port: object, rack: object = None) -> None:
        """Learn the address of a node. An unknown address is reported as -1, "" or a host without a port."""
        if not isinstance(node, int) or not isinstance(port, int) or not isinstance(host, str):
            return
        if node < 0 or not 0 < port < 65536 or not 0 < len(host) <= MAX_NAME:
            return
        place = (_host(host), port)
        known = self._brokers.get(place)
        if known is None or not (self.retroactive or (known.id == node and known.host == host)):
            named = rack if isinstance(rack, str) and len(rack) <= MAX_NAME else None
            self._brokers[place] = Broker(node, host, port, named)
            if self.learned_facts is not None:
                self.learned_facts.broker(place, node, self.now)
        self._brokers.move_to_end(place)
        if len(self._brokers) > self._most_brokers:
            self._brokers.popitem(last=False)

    # -- clients

    def software(self, connection: int) -> tuple[str | None, str | None]:
        """Name and version of the client's software from ApiVersions; None if the client did not send them."""
        found = self._software.get(connection)
        if found is None:
            return (None, None)
        self._software.move_to_end(connection)
        return found

    def learn_software(self, connection: int, name: object, version: object) -> None:
        """Learn the name and version that the client of a connection sent (KIP-511)."""
        if not isinstance(name, str) or not isinstance(version, str) or max(len(name), len(version)) > MAX_NAME:
            return
        if self.retroactive and connection in self._software:
            return
        if len(self._pairs) >= MAX_PAIRS:
            self._pairs.clear()
        pair = (name, version)
        self._software[connection] = self._pairs.setdefault(pair, pair)
        self._software.move_to_end(connection)
        if len(self._software) > self._most_connections:
            self._software.popitem(last=False)


@lru_cache(maxsize=4096)  # Metadata responses repeat the same hosts
def _host(host: str) -> str:
    """A host for comparison: addresses as `Endpoint` has them, names in lower case without the root's dot."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.rstrip(".").lower()
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)
