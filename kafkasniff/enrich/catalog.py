"""What is known of topics, brokers and connections, and when the traffic reported it.

Rows whose names are resolved at the end of a run need `LearnedFacts`: these are collected wherever messages are read,
possibly in several processes, and merged afterwards. The earliest report of a fact is kept, so the distribution of
messages to processes does not change the result. Names of topic ids may also come from a user's file.
"""

from __future__ import annotations

import ipaddress
import re
from collections import OrderedDict
from collections.abc import Container, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from kafkasniff.errors import UsageError
from kafkasniff.kafka.apis import entities
from kafkasniff.kafka.schema.codes import ZERO_UUID
from kafkasniff.model import Connection, Endpoint
from kafkasniff.runtime.memory_limits import in_proportion

MAX_FACTS: Final = 1 << 18
"""Facts of each kind that are kept, about 200 bytes each; later ones are dropped. We have not seen an installation with
more topics, listeners or addresses."""

BEFORE: Final = -(2**63)
"""Time of facts without a time: before everything."""

LOOPBACK: Final = frozenset({"127.0.0.1", "::1"})
"""Addresses of the host `localhost` (RFC 6761)."""

Place = tuple[str, int]
"""Address or host, and port."""


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
        self._given = {entities.METADATA_TOPIC_ID: entities.METADATA_TOPIC, **(topics or {})}
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
        broker = self._brokers.get((endpoint.address, endpoint.port))
        if broker is None and endpoint.address in LOOPBACK:
            broker = self._brokers.get(("localhost", endpoint.port))
        if broker is None and endpoint.address in self.hosts:
            broker = self._brokers.get((_host(self.hosts[endpoint.address]), endpoint.port))
        return None if broker is None else broker.id

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


_ID: Final = re.compile(r"[A-Za-z0-9_-]{21}[AQgw]")
"""16 bytes as Kafka prints them; the last character has two bits."""
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""Names that Kafka allows for a topic (`org.apache.kafka.common.internals.Topic`)."""
_DESCRIBED: Final = re.compile(r"Topic:\s*(\S+)\s+TopicId:\s*(\S+)")
_PARTITION: Final = re.compile(r"Topic:\s*\S+\s+Partition:\s*\d+")
_Entry = tuple[int, str, str]
"""Line number, topic id and name."""


def parse_topic_ids(text: str, source: str) -> dict[str, str]:
    """Names by topic id, from a text in one of these forms, which its content identifies.

    - a JSON object, `{id: name}` or `{name: id}`;
    - lines `id name`, in either order; empty lines and those that begin with `#` are skipped;
    - the output of `kafka-topics.sh --describe`.

    If both words of a line can be ids, the first is the id. Raises UsageError, one line with `source` and the line
    number, for anything else, for an id with two names, and for more than MAX_TOPICS ids.
    """
    entries = _from_json(text, source) if text.lstrip().startswith("{") else _from_lines(text, source)
    found: dict[str, str] = {}
    for line, topic_id, name in entries:
        if topic_id == ZERO_UUID:
            raise UsageError(f"{source}:{line}: {topic_id} is the zero id, which no topic has")
        if found.setdefault(topic_id, name) != name:
            raise UsageError(f"{source}:{line}: {topic_id} is {found[topic_id]} before, {name} here")
        if len(found) > MAX_TOPICS:
            raise UsageError(f"{source}:{line}: more than {MAX_TOPICS} topic ids")
    return found


def _from_lines(text: str, source: str) -> Iterator[_Entry]:
    for number, line in enumerate(text.split("\n"), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        described = _DESCRIBED.match(line.strip())
        if described is not None:
            words = [described[2], described[1]]
        elif _PARTITION.match(line.strip()):
            continue
        if len(words) != 2:
            raise UsageError(f"{source}:{number}: not a topic id and a name")
        yield _entry(source, number, *words)


def _from_json(text: str, source: str) -> Iterator[_Entry]:
    import json  # noqa: PLC0415 - few runs have a file of topic ids

    try:
        pairs: Any = json.loads(text, object_pairs_hook=_Pairs)
    except json.JSONDecodeError as error:
        raise UsageError(f"{source}:{error.lineno}: {error.msg}") from None
    except RecursionError:
        raise UsageError(f"{source}:1: nested too deep") from None
    line, at = 1, 0
    for key, value in pairs:
        # The parser does not report positions; entries come in order, so the key follows the previous one.
        quoted = json.dumps(key, ensure_ascii=False)
        place = text.find(quoted, at)
        if place >= 0:
            line += text.count("\n", at, place)
            at = place + len(quoted)
        if not isinstance(value, str):
            raise UsageError(f"{source}:{line}: {key!r} has no string for a value")
        yield _entry(source, line, key, value)


class _Pairs(list[tuple[str, Any]]):
    """All members of a JSON object, in order, duplicates included."""

    def __init__(self, pairs: Iterable[tuple[str, Any]]) -> None:
        super().__init__(pairs)


def _entry(source: str, line: int, one: str, other: str) -> _Entry:
    topic_id, name = (one, other) if _ID.fullmatch(one) else (other, one)
    if not _ID.fullmatch(topic_id):
        raise UsageError(f"{source}:{line}: neither {one!r} nor {other!r} is a topic id as Kafka prints it")
    if not _NAME.fullmatch(name) or name in {".", ".."}:
        raise UsageError(f"{source}:{line}: {name!r} cannot be a topic's name")
    return (line, topic_id, name)
