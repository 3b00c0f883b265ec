"""Conversations for each detector: faults, and harmless look-alikes; brokers of one or two clusters, and TLS."""

from __future__ import annotations

import functools
import ssl
from collections.abc import Callable, Sequence
from typing import Any

from tests.analysis.detectors.talks import SECOND, Talk
from tests.craft.conversation import START_NS, Conversation
from tests.craft.kafka_bytes import (
    metadata_request,
    metadata_response,
    record,
)
from tests.craft.packet import ACK, RST, SYN
from tests.craft.samples import BROKER
from tests.kafka.records_craft import COMPRESSORS, batch
from tests.tls.endpoints import Flight, Pair

Scene = Callable[[], Sequence[Talk]]
METADATA: tuple[dict[str, Any], dict[str, Any]] = ({"topics": [{"name": "orders"}]}, {})


def heartbeat(talk: Talk, then: float = 0) -> None:
    """An answered request, so that the capture continues."""
    talk.ask("ApiVersions", 0, {}, {}, then=then)


def partitions(api: str, error: int, topic: str = "orders") -> dict[str, Any]:
    """A response with one partition of one topic and an error code."""
    if api == "Produce":
        return {"responses": [{"name": topic, "partition_responses": [{"index": 0, "error_code": error}]}]}
    return {"topics": [{"name": topic, "partitions": [{"partition_index": 0, "error_code": error}]}]}


def records(count: int = 1, size: int = 5, *, producer: tuple[int, int, int] = (-1, -1, -1), codec: int = 0) -> bytes:
    payload = b"".join(record(place, None, b"x" * size) for place in range(count))
    return batch(COMPRESSORS[codec](payload), count, attributes=codec, producer=producer)


def produce(
    talk: Talk, data: bytes, *, acks: int = -1, error: int = 0, throttle: int = 0, topic: str = "orders", **rest: Any
) -> None:
    asked = {"acks": acks, "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": data}]}]}
    answer = {**partitions("Produce", error, topic), "throttle_time_ms": throttle}
    talk.ask("Produce", 5, asked, answer if acks else None, **rest)


# -- requests and their answers


def late() -> list[Talk]:
    talk = Talk()
    for seconds in (2, 2, 2, 2, 2, 4):
        talk.ask("Metadata", 1, *METADATA, wait=seconds)
    return [talk.ended()]


# -- errors, leaders, metadata


def metadata(count: int, asked: dict[str, Any], then: float = 0.01) -> Scene:
    def scene() -> list[Talk]:
        talk = Talk()
        for _ in range(count):
            talk.ask("Metadata", 1, asked, {}, then=then)
        return [talk.ended()]

    return scene


def all_topics() -> list[Talk]:
    talk = Talk()
    for number in range(1, 7):
        talk.exchange(metadata_request(number, None), metadata_response(number, "broker", 9092, ["orders"]))
    return [talk.ended()]


# -- groups


def joined(talk: Talk, generation: int, members: Sequence[str], then: float = 0.1) -> None:
    """Member a, the leader, joins a generation and is given the list of members."""
    answer = {
        "generation_id": generation,
        "leader": "a",
        "member_id": "a",
        "protocol_name": "range",
        "members": [{"member_id": one} for one in members],
    }
    asked = {"group_id": "workers", "member_id": "a", "rebalance_timeout_ms": 1000, "protocol_type": "consumer"}
    talk.ask("JoinGroup", 5, asked, answer)
    talk.ask("SyncGroup", 3, {"group_id": "workers", "generation_id": generation, "member_id": "a"}, {}, then=then)


def left(talk: Talk, member: str, reason: str | None = None) -> None:
    who = {"member_id": member, "reason": reason}
    talk.ask("LeaveGroup", 5, {"group_id": "workers", "members": [who]}, {"members": [{"member_id": member}]})


def lost() -> list[Talk]:
    """b disappears from the list of members without a LeaveGroup; c leaves because its program stopped polling."""
    talk = Talk()
    joined(talk, 1, ["a", "b", "c"])
    joined(talk, 2, ["a", "c"])
    left(talk, "c", "consumer poll timeout has expired.")
    joined(talk, 3, ["a"])
    return [talk.ended()]


def orderly() -> list[Talk]:
    """Members that leave with LeaveGroup."""
    talk = Talk()
    joined(talk, 1, ["a", "b", "c"])
    left(talk, "b", "the consumer is being closed")
    joined(talk, 2, ["a", "c"])
    return [talk.ended()]


def commits(count: int, then: float, error: int = 0, member: str = "one") -> Scene:
    def scene() -> list[Talk]:
        talk = Talk()
        asked = {
            "group_id": "workers",
            "member_id": member,
            "topics": [{"name": "orders", "partitions": [{"partition_index": 0}]}],
        }
        for _ in range(count):
            talk.ask("OffsetCommit", 2, asked, partitions("OffsetCommit", error), then=then)
        return [talk.ended()]

    return scene


# -- producers


def produced(count: int, data: bytes, then: float = 0.001, address: str = "10.0.0.5", **rest: Any) -> Scene:
    def scene() -> list[Talk]:
        talk = Talk(address)
        for _ in range(count):
            produce(talk, data, then=then, **rest)
        return [talk.ended()]

    return scene


# -- transactions


# -- consumers and quotas


def fetches(count: int, wait: float, data: bytes = b"") -> Scene:
    def scene() -> list[Talk]:
        talk = Talk()
        parts = [{"partition": 0, "fetch_offset": 7, "partition_max_bytes": 100}]
        asked = {"max_wait_ms": 500, "topics": [{"topic": "orders", "partitions": parts}]}
        answer = {"responses": [{"topic": "orders", "partitions": [{"partition_index": 0, "records": data}]}]}
        for _ in range(count):
            talk.ask("Fetch", 4, asked, answer, wait=wait)
        return [talk.ended()]

    return scene


# -- causes in brokers' own words

HOSTILE = "Key \x1b[2J\u202e of record\n" + "word " * 200


def refused(talk: Talk, *partitions: dict[str, Any]) -> None:
    """A Produce with these partitions in its response."""
    response = {"responses": [{"name": "orders", "partition_responses": list(partitions)}]}
    talk.ask("Produce", 8, {"acks": -1, "topic_data": []}, response)


def hostile_message() -> list[Talk]:
    talk = Talk()
    refused(talk, {"index": 0, "error_code": 87, "error_message": HOSTILE})
    return [talk.ended()]


def message_without_an_error() -> list[Talk]:
    talk = Talk()
    refused(talk, {"index": 0, "error_code": 0, "error_message": "all went well"})
    return [talk.ended()]


# -- brokers, connections and TLS

TOPICS = {"topics": [{"name": "orders"}]}
OTHER = ("10.0.0.10", 9092)


def advertised(*brokers: tuple[str, int]) -> dict[str, Any]:
    """A Metadata response that names brokers."""
    return {"brokers": [{"node_id": number, "host": host, "port": port} for number, (host, port) in enumerate(brokers)]}


# -- brokers that disappear


# -- versions


# -- connections


def short_lived(count: int, seconds: float) -> list[Conversation]:
    """Open `count` connections, one per second, each for a given time."""
    talks = []
    for number in range(count):
        talk = Talk(port=40_000 + number, after=number)
        heartbeat(talk, then=seconds)
        talks.append(talk.ended())
    return talks


# -- authentication and protocols


# -- speed and the network


def brokers(milliseconds: tuple[float, ...], count: int = 25) -> list[Conversation]:
    """Brokers that answer Metadata, each with its own delay."""
    talks = []
    for number, time in enumerate(milliseconds):
        talk = Talk(port=51_000 + number, broker=(f"10.0.1.{number}", 9092))
        for _ in range(count):
            talk.ask("Metadata", 1, TOPICS, advertised(BROKER), wait=time / 1000)
        talks.append(talk.ended())
    return talks


# -- partitions


def produced_to(*counts: int, known: int | None = None) -> list[Conversation]:
    """Batches of 100 records, with a number of records per partition.

    `known`: the number of partitions in the metadata.
    """
    talk = Talk()
    partitions = [{"partition_index": number} for number in range(known or len(counts))]
    named = {"topics": [{"name": "orders", "partitions": partitions}]}
    talk.ask("Metadata", 1, TOPICS, {**advertised(BROKER), **named})
    for partition, count in enumerate(counts):
        for _ in range(count):
            data = [{"index": partition, "records": records(100)}]
            asked = {"acks": -1, "topic_data": [{"name": "orders", "partition_data": data}]}
            answer = {"responses": [{"name": "orders", "partition_responses": [{"index": partition}]}]}
            talk.ask("Produce", 5, asked, answer)
    return [talk.ended()]


# -- brokers of one or two clusters


A, B, C = ("10.0.0.1", 9092), ("10.0.0.2", 9092), ("10.0.0.3", 9092)


def cluster(talk: Talk, name: str | None) -> None:
    """Metadata that names a cluster, if there is a name."""
    if name is not None:
        talk.ask("Metadata", 2, {"topics": []}, {"brokers": [], "topics": [], "cluster_id": name})


def peers(other: str) -> list[Conversation]:
    """Two fast brokers of the cluster `one`, and a slow one of `other`."""
    talks: list[Conversation] = []
    places: Sequence[tuple[tuple[str, int], str, float]] = ((A, "one", 0.001), (B, "one", 0.001), (C, other, 0.2))
    for number, (broker, name, wait) in enumerate(places):
        talk = Talk(port=50_001 + number, broker=broker)
        for _ in range(25):
            talk.ask("Metadata", 2, {"topics": []}, {"brokers": [], "topics": [], "cluster_id": name}, wait=wait)
        talks.append(talk.ended())
    return talks


# -- TLS that nobody can decrypt


@functools.cache
def _shaken() -> list[Flight]:
    """A handshake of OpenSSL."""
    return Pair(version=ssl.TLSVersion.TLSv1_3, kind="ecdsa").talk([], ends=False).flights


def _sealed(size: int) -> bytes:
    return b"\x17\x03\x03" + size.to_bytes(2) + bytes(size)


def _talk(number: int, *, slow: float = 0, answers: int = 3) -> Conversation:
    """A client that shakes hands for `slow` seconds, asks some times, and once more without an answer."""
    talk = Conversation(("10.0.0.5", 51_000 + number), ("10.0.0.9", 9093), start_ns=START_NS + number * SECOND)
    talk.handshake()
    for place, (side, data) in enumerate(_shaken()):
        talk.wait(round(slow * SECOND) if place == 1 else 0)
        talk.send(side, data)
    for _ in range(answers):
        talk.send("client", _sealed(300))
        talk.wait(SECOND // 100)
        talk.send("broker", _sealed(60))
    talk.send("client", _sealed(300))
    return talk


def stalled(count: int, silent: float) -> Callable[[], Sequence[Conversation]]:
    """Clients that leave after waiting for an answer."""

    def scene() -> list[Conversation]:
        talks = [_talk(number) for number in range(count)]
        for talk in talks:
            talk.wait(round(silent * SECOND))
            talk.send("client", _sealed(19))
            talk.close()
        return talks

    return scene


def cut(count: int) -> Callable[[], Sequence[Conversation]]:
    """Connections that the broker resets while it owes an answer."""

    def scene() -> list[Conversation]:
        talks = [_talk(number) for number in range(count)]
        for talk in talks:
            talk.reset("broker")
        return talks

    return scene


def slow(seconds: float) -> Callable[[], Sequence[Conversation]]:
    """Six handshakes; each connection is answered to its end."""

    def scene() -> list[Conversation]:
        talks = [_talk(number, slow=seconds) for number in range(6)]
        for talk in talks:
            talk.send("broker", _sealed(60))
            talk.close()
        return talks

    return scene


def refused_connect(number: int) -> Conversation:
    """A broker that refuses to connect, `number` seconds after the start."""
    talk = Conversation(("10.0.0.5", 52_000 + number), OTHER)
    talk.wait(number * SECOND)
    talk._add("client", SYN)
    talk._seen["broker"] = talk._next["client"]
    talk._add("broker", RST | ACK)
    return talk
