"""Messages for form C-deep: requests and responses of clients of four releases, nearly all with different bodies.

They are written by the dissectors' own layouts, which tests/vectors compares with Kafka's classes. Topics, partitions,
offsets, records, generations and coordinators are drawn at random for each exchange. Two kinds of responses repeat
because they hold nothing that could differ: those to Heartbeat, and those to FindCoordinator that name only a broker
(up to version 3).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final, NamedTuple

from kafkasniff.kafka.apis import dissectors
from kafkasniff.kafka.schema.definition import Struct
from tests.craft import kafka_bytes as kafka
from tests.craft.from_layout import encoded

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, HEARTBEAT = 8, 9, 10, 12
KEYS: Final = (PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, HEARTBEAT)
SHARES: Final = (25, 21, 5, 6, 30, 8, 3, 2)
"""How often each of `KEYS` is sent, in percent."""


def _newest(key: int) -> int:
    api = dissectors.api(key)
    assert api is not None
    return api.versions[-1]


ERAS: Final[tuple[tuple[int, ...], ...]] = (
    (5, 6, 2, 5, 3, 3, 1, 1),  # Kafka 1.0
    (7, 11, 5, 8, 7, 5, 2, 3),  # 2.3, the last before flexible versions
    (9, 12, 7, 12, 8, 8, 4, 4),  # 3.0, flexible
    tuple(_newest(key) for key in KEYS),  # by topic id where there is one
)
"""Versions of `KEYS` that clients of a release use."""

TOPICS: Final = 400
PARTITIONS: Final = 12
GROUPS: Final = 150
BROKERS: Final = 3
BROKER_PORT: Final = 9092
MOST_TOPICS: Final = 40
"""Topics of a Metadata exchange; at least a fifth of them."""
METADATA_PARTITIONS: Final = 3
"""Partitions of each topic in a Metadata response."""
TIMESTAMP_MS: Final = 1_781_000_000_000

Values = dict[str, Any]
Exchange = tuple[bytes, bytes]
"""A request and its response, with length prefixes."""


class Client(NamedTuple):
    """One connection's client."""

    era: int
    """Index into `ERAS`."""
    client_id: str
    group: str
    member: str


def make_client(rng: Random, number: int) -> Client:
    """The client of connection `number`."""
    member = f"consumer-{number}-{rng.getrandbits(128):032x}"
    return Client(number % len(ERAS), f"client-{number}", f"group-{rng.randrange(GROUPS)}", member)


def make_exchange(rng: Random, client: Client, correlation_id: int) -> Exchange:
    """A request of a random API, and the response of a broker without an error."""
    which = rng.choices(range(len(KEYS)), SHARES)[0]
    key, version = KEYS[which], ERAS[client.era][which]
    api = dissectors.api(key)
    assert api is not None
    asked, answered = _MAKERS[key](rng, client)
    body = _encode(api.request(version).root, asked)
    flexible = api.request_header(version) > 1
    request = kafka.request(key, version, correlation_id, body, client_id=client.client_id, flexible=flexible)
    body = _encode(api.response(version).root, answered)
    return request, kafka.response(correlation_id, body, flexible=api.response_header(version) > 0)


def _encode(struct_: Struct, values: Values) -> bytes:
    return encoded(struct_, _known(struct_, values))


def _known(struct_: Struct, values: Mapping[str, Any]) -> Values:
    """The fields of this version; `values` holds those of all versions."""
    found: Values = {}
    for field in (*struct_.fields, *struct_.tagged):
        if field.name in values:
            value, inner = values[field.name], field.struct
            found[field.name] = [_known(inner, one) for one in value] if inner is not None and field.array else value
    return found


def _topic(number: int) -> Values:
    """A topic's name, under both of its fields' names, and its id."""
    name = f"topic-{number:03d}-{number * 2_654_435_761 % 65_521:04x}"
    topic_id = struct.pack(">QQ", 0x6B61_666B_6173_6E69, 0x8000_0000_0000_0000 | number)
    return {"name": name, "topic": name, "topic_id": topic_id}


def _chosen(rng: Random, least: int, most: int) -> list[tuple[int, list[int]]]:
    """`least` to `most` topics with 1 to 4 partitions each."""
    topics = rng.sample(range(TOPICS), rng.randint(least, most))
    return [(topic, sorted(rng.sample(range(PARTITIONS), rng.randint(1, 4)))) for topic in topics]


def _offset(rng: Random) -> int:
    return rng.randrange(1 << 40)


def _batch(rng: Random, base_offset: int) -> bytes:
    """A batch of 1 to 4 records."""
    records = [
        kafka.record(index, f"key-{rng.randrange(1 << 30)}".encode(), rng.randbytes(rng.randint(15, 80)).hex().encode())
        for index in range(rng.randint(1, 4))
    ]
    return kafka.record_batch(records, base_offset, timestamp_ms=TIMESTAMP_MS + rng.randrange(10_000_000))


def _produce(rng: Random, client: Client) -> tuple[Values, Values]:
    del client
    topic, partition, offset = _topic(rng.randrange(TOPICS)), rng.randrange(PARTITIONS), _offset(rng)
    sent = {"index": partition, "records": _batch(rng, 0)}
    stored = {"index": partition, "base_offset": offset, "log_append_time_ms": -1}
    return (
        {"acks": -1, "timeout_ms": 30_000, "topic_data": [{**topic, "partition_data": [sent]}]},
        {"responses": [{**topic, "partition_responses": [stored]}]},
    )


def _fetch(rng: Random, client: Client) -> tuple[Values, Values]:
    del client
    wanted, found = [], []
    for number, partitions in _chosen(rng, 1, 3):
        topic, offsets = _topic(number), {partition: _offset(rng) for partition in partitions}
        asked = [
            {"partition": one, "fetch_offset": offset, "last_fetched_epoch": -1, "partition_max_bytes": 1_048_576}
            for one, offset in offsets.items()
        ]
        wanted.append({**topic, "partitions": asked})
        # One of the partitions has new records.
        one = rng.choice(partitions)
        end = offsets[one] + rng.randrange(1, 1000)
        records = {"records": _batch(rng, offsets[one]), "preferred_read_replica": -1}
        answer = {"partition_index": one, "high_watermark": end, "last_stable_offset": end, **records}
        found.append({**topic, "partitions": [answer]})
    request = {
        "replica_id": -1,
        "max_wait_ms": 500,
        "min_bytes": 1,
        "max_bytes": 52_428_800,
        # In a session, a request would name only what changed since the one before.
        "session_epoch": -1,
        "topics": wanted,
    }
    return request, {"responses": found}


def _list_offsets(rng: Random, client: Client) -> tuple[Values, Values]:
    del client
    wanted, found = [], []
    for number, partitions in _chosen(rng, 1, 4):
        asked = [{"partition_index": one, "current_leader_epoch": -1, "timestamp": -1} for one in partitions]
        answers = [{"partition_index": one, "timestamp": -1, "offset": _offset(rng)} for one in partitions]
        wanted.append({**_topic(number), "partitions": asked})
        found.append({**_topic(number), "partitions": answers})
    return {"replica_id": -1, "topics": wanted}, {"topics": found}


def _metadata(rng: Random, client: Client) -> tuple[Values, Values]:
    del client
    numbers = rng.sample(range(TOPICS), rng.randint(MOST_TOPICS // 5, MOST_TOPICS))
    hosts = [
        {"node_id": node, "host": f"broker-{node}.example", "port": BROKER_PORT, "rack": f"rack-{node}"}
        for node in range(1, BROKERS + 1)
    ]
    found = []
    for number in numbers:
        partitions = []
        for index in range(METADATA_PARTITIONS):
            leader = rng.randint(1, BROKERS)
            nodes = [leader, leader % BROKERS + 1]
            epoch = rng.randrange(1000)
            place = {"partition_index": index, "leader_id": leader, "leader_epoch": epoch}
            partitions.append({**place, "replica_nodes": nodes, "isr_nodes": nodes})
        found.append({**_topic(number), "partitions": partitions, "topic_authorized_operations": -(2**31)})
    asked = [{"topic_id": bytes(16), "name": _topic(number)["name"]} for number in numbers]
    cluster = {"brokers": hosts, "cluster_id": "deep", "controller_id": 1}
    return {"topics": asked}, {**cluster, "topics": found, "cluster_authorized_operations": -(2**31)}


def _offset_commit(rng: Random, client: Client) -> tuple[Values, Values]:
    wanted, found = [], []
    for number, partitions in _chosen(rng, 2, 5):
        committed = [
            {"partition_index": one, "committed_offset": _offset(rng), "committed_leader_epoch": rng.randrange(100)}
            for one in partitions
        ]
        wanted.append({**_topic(number), "partitions": [{**one, "committed_metadata": ""} for one in committed]})
        found.append({**_topic(number), "partitions": [{"partition_index": one} for one in partitions]})
    who = {"group_id": client.group, "generation_id_or_member_epoch": rng.randrange(10_000), "member_id": client.member}
    return {**who, "retention_time_ms": -1, "topics": wanted}, {"topics": found}


def _offset_fetch(rng: Random, client: Client) -> tuple[Values, Values]:
    wanted, found = [], []
    for number, partitions in _chosen(rng, 2, 5):
        positions = [
            {"partition_index": one, "committed_offset": _offset(rng), "committed_leader_epoch": -1, "metadata": ""}
            for one in partitions
        ]
        wanted.append({**_topic(number), "partition_indexes": partitions})
        found.append({**_topic(number), "partitions": positions})
    # One group up to version 7, several from version 8 on.
    asked = {"group_id": client.group, "member_epoch": -1, "topics": wanted}
    answered = {"group_id": client.group, "topics": found}
    return {**asked, "groups": [asked]}, {"topics": found, "groups": [answered]}


def _find_coordinator(rng: Random, client: Client) -> tuple[Values, Values]:
    del client
    # Groups of clients that run once.
    key, node = f"job-{rng.randrange(1 << 40):010x}", rng.randint(1, BROKERS)
    found = {"key": key, "node_id": node, "host": f"broker-{node}.example", "port": BROKER_PORT}
    # One key up to version 3, several from version 4 on.
    return {"key": key, "key_type": 0, "coordinator_keys": [key]}, {**found, "coordinators": [found]}


def _heartbeat(rng: Random, client: Client) -> tuple[Values, Values]:
    who = {"group_id": client.group, "member_id": client.member}
    return {**who, "generation_id": rng.randrange(1 << 20)}, {}


_MAKERS: Final[dict[int, Callable[[Random, Client], tuple[Values, Values]]]] = {
    PRODUCE: _produce,
    FETCH: _fetch,
    LIST_OFFSETS: _list_offsets,
    METADATA: _metadata,
    OFFSET_COMMIT: _offset_commit,
    OFFSET_FETCH: _offset_fetch,
    FIND_COORDINATOR: _find_coordinator,
    HEARTBEAT: _heartbeat,
}
