"""Conversations for each detector: faults, and harmless look-alikes; brokers of one or two clusters, and TLS."""

from __future__ import annotations

import functools
import ssl
from collections.abc import Sequence
from typing import Any

from tests.analysis.detectors.talks import SECOND, Talk
from tests.craft.conversation import START_NS, Conversation
from tests.craft.kafka_bytes import metadata_request, metadata_response, record
from tests.craft.packet import ACK, RST, SYN
from tests.craft.samples import BROKER
from tests.kafka.records_craft import COMPRESSORS, batch
from tests.tls.endpoints import Flight, Pair

TOPICS = {"topics": [{"name": "orders"}]}
HOSTILE = "Key \x1b[2J\u202e of record\n" + "word " * 200


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


def repeated(count: int, *exchange: Any, talk: Talk | None = None, **times: float) -> list[Talk]:
    """One exchange, some times."""
    talk = talk or Talk()
    for _ in range(count):
        talk.ask(*exchange, **times)
    return [talk.ended()]


def late() -> list[Talk]:
    talk = Talk()
    for seconds in (2, 2, 2, 2, 2, 4):
        talk.ask("Metadata", 1, TOPICS, {}, wait=seconds)
    return [talk.ended()]


def metadata(count: int, then: float = 0.01) -> list[Talk]:
    return repeated(count, "Metadata", 1, TOPICS, {}, then=then)


def all_topics() -> list[Talk]:
    talk = Talk()
    for number in range(1, 7):
        talk.exchange(metadata_request(number, None), metadata_response(number, "broker", 9092, ["orders"]))
    return [talk.ended()]


def joined(talk: Talk, generation: int, *members: str) -> None:
    """Member a, the leader, joins a generation and is given the list of members."""
    answer = {"generation_id": generation, "leader": "a", "member_id": "a", "protocol_name": "range"}
    asked = {"group_id": "workers", "member_id": "a", "rebalance_timeout_ms": 1000, "protocol_type": "consumer"}
    talk.ask("JoinGroup", 5, asked, {**answer, "members": [{"member_id": one} for one in members]})
    talk.ask("SyncGroup", 3, {"group_id": "workers", "generation_id": generation, "member_id": "a"}, {}, then=0.1)


def left(talk: Talk, member: str, reason: str | None = None) -> None:
    who = {"member_id": member, "reason": reason}
    talk.ask("LeaveGroup", 5, {"group_id": "workers", "members": [who]}, {"members": [{"member_id": member}]})


def lost() -> list[Talk]:
    """b disappears from the list of members without a LeaveGroup; c leaves because its program stopped polling."""
    talk = Talk()
    joined(talk, 1, "a", "b", "c")
    joined(talk, 2, "a", "c")
    left(talk, "c", "consumer poll timeout has expired.")
    joined(talk, 3, "a")
    return [talk.ended()]


def orderly() -> list[Talk]:
    """Members that leave with LeaveGroup."""
    talk = Talk()
    joined(talk, 1, "a", "b", "c")
    left(talk, "b", "the consumer is being closed")
    joined(talk, 2, "a", "c")
    return [talk.ended()]


def commits(count: int, then: float, error: int = 0, member: str = "one") -> list[Talk]:
    topics = [{"name": "orders", "partitions": [{"partition_index": 0}]}]
    asked = {"group_id": "workers", "member_id": member, "topics": topics}
    return repeated(count, "OffsetCommit", 2, asked, partitions("OffsetCommit", error), then=then)


def produced(count: int, data: bytes, then: float = 0.001, address: str = "10.0.0.5", **rest: Any) -> list[Talk]:
    talk = Talk(address)
    for _ in range(count):
        produce(talk, data, then=then, **rest)
    return [talk.ended()]


def produced_to(*counts: int, known: int | None = None) -> list[Talk]:
    """Batches of 100 records, a number of them per partition; `known`: the number of partitions in the metadata."""
    talk = Talk()
    partitions = [{"partition_index": number} for number in range(known or len(counts))]
    named = {"topics": [{"name": "orders", "partitions": partitions}]}
    talk.ask("Metadata", 1, TOPICS, {**advertised(BROKER), **named})
    for partition, count in enumerate(counts):
        data = [{"index": partition, "records": records(100)}]
        asked = {"acks": -1, "topic_data": [{"name": "orders", "partition_data": data}]}
        answer = {"responses": [{"name": "orders", "partition_responses": [{"index": partition}]}]}
        for _ in range(count):
            talk.ask("Produce", 5, asked, answer)
    return [talk.ended()]


def fetches(count: int, wait: float, data: bytes = b"") -> list[Talk]:
    parts = [{"partition": 0, "fetch_offset": 7, "partition_max_bytes": 100}]
    asked = {"max_wait_ms": 500, "topics": [{"topic": "orders", "partitions": parts}]}
    answer = {"responses": [{"topic": "orders", "partitions": [{"partition_index": 0, "records": data}]}]}
    return repeated(count, "Fetch", 4, asked, answer, wait=wait)


def reported(code: int, message: str) -> list[Talk]:
    """A Produce whose response has a message of the broker."""
    part = {"index": 0, "error_code": code, "error_message": message}
    answer = {"responses": [{"name": "orders", "partition_responses": [part]}]}
    return repeated(1, "Produce", 8, {"acks": -1, "topic_data": []}, answer)


def advertised(*brokers: tuple[str, int]) -> dict[str, Any]:
    """A Metadata response that names brokers."""
    return {"brokers": [{"node_id": number, "host": host, "port": port} for number, (host, port) in enumerate(brokers)]}


def short_lived(count: int, seconds: float) -> list[Talk]:
    """Open `count` connections, one per second, each for a given time."""
    talks = [Talk(port=40_000 + number, after=number) for number in range(count)]
    return [one for talk in talks for one in repeated(1, "ApiVersions", 0, {}, {}, talk=talk, then=seconds)]


def brokers(milliseconds: tuple[float, ...], count: int = 25) -> list[Talk]:
    """Brokers that answer Metadata, each with its own delay."""
    talks = []
    for number, time in enumerate(milliseconds):
        talk = Talk(port=51_000 + number, broker=(f"10.0.1.{number}", 9092))
        talks += repeated(count, "Metadata", 1, TOPICS, advertised(BROKER), talk=talk, wait=time / 1000)
    return talks


def peers(other: str) -> list[Talk]:
    """Two fast brokers of the cluster `one`, and a slow one of `other`."""
    talks = []
    for number, (name, wait) in enumerate((("one", 0.001), ("one", 0.001), (other, 0.2)), 1):
        talk, answer = Talk(port=50_000 + number, broker=(f"10.0.0.{number}", 9092)), {"brokers": [], "topics": []}
        talks += repeated(25, "Metadata", 2, {"topics": []}, {**answer, "cluster_id": name}, talk=talk, wait=wait)
    return talks


def refused_connect(number: int) -> Conversation:
    """A broker that refuses to connect, `number` seconds after the start."""
    talk = Conversation(("10.0.0.5", 52_000 + number), ("10.0.0.10", 9092))
    talk.wait(number * SECOND)
    talk._add("client", SYN)
    talk._seen["broker"] = talk._next["client"]
    talk._add("broker", RST | ACK)
    return talk


@functools.cache
def _shaken() -> list[Flight]:
    """A handshake of OpenSSL."""
    return Pair(version=ssl.TLSVersion.TLSv1_3, kind="ecdsa").talk([], ends=False).flights


def _sealed(size: int) -> bytes:
    return b"\x17\x03\x03" + size.to_bytes(2) + bytes(size)


def _talk(number: int, slow: float = 0) -> Conversation:
    """A client that shakes hands for `slow` seconds, asks three times, and once more without an answer."""
    talk = Conversation(("10.0.0.5", 51_000 + number), ("10.0.0.9", 9093), start_ns=START_NS + number * SECOND)
    talk.handshake()
    for place, (side, data) in enumerate(_shaken()):
        talk.wait(round(slow * SECOND) if place == 1 else 0)
        talk.send(side, data)
    for _ in range(3):
        talk.send("client", _sealed(300))
        talk.wait(SECOND // 100)
        talk.send("broker", _sealed(60))
    talk.send("client", _sealed(300))
    return talk


def stalled(count: int, silent: float) -> Sequence[Conversation]:
    """Clients that leave after waiting for an answer."""
    talks = [_talk(number) for number in range(count)]
    for talk in talks:
        talk.wait(round(silent * SECOND))
        talk.send("client", _sealed(19))
        talk.close()
    return talks


def cut(count: int) -> Sequence[Conversation]:
    """Connections that the broker resets while it owes an answer."""
    talks = [_talk(number) for number in range(count)]
    for talk in talks:
        talk.reset("broker")
    return talks


def slow(seconds: float) -> Sequence[Conversation]:
    """Six handshakes; each connection is answered to its end."""
    talks = [_talk(number, seconds) for number in range(6)]
    for talk in talks:
        talk.send("broker", _sealed(60))
        talk.close()
    return talks
