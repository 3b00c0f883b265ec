"""Conversations for each detector: faults, and harmless look-alikes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.analysis.detectors.talks import Talk
from tests.craft.kafka_bytes import (
    NO_ID,
    metadata_request,
    metadata_request_by_id,
    metadata_response,
    metadata_response_with_ids,
    record,
)
from tests.enrich.talks import ORDERS
from tests.kafka.records_craft import COMPRESSORS, batch

Scene = Callable[[], Sequence[Talk]]
METADATA: tuple[dict[str, Any], dict[str, Any]] = ({"topics": [{"name": "orders"}]}, {})
NOT_LEADER = 6
OUT_OF_ORDER = 45
CONCURRENT_TRANSACTIONS = 51


def heartbeat(talk: Talk, then: float = 0) -> None:
    """An answered request, so that the capture continues."""
    talk.ask("ApiVersions", 0, {}, {}, then=then)


def partitions(api: str, error: int, topic: str = "orders") -> dict[str, Any]:
    """A response with one partition of one topic and an error code."""
    if api == "Produce":
        return {"responses": [{"name": topic, "partition_responses": [{"index": 0, "error_code": error}]}]}
    if api == "AddPartitionsToTxn":
        results = [{"partition_index": 0, "partition_error_code": error}]
        return {"results_by_topic_v3_and_below": [{"name": topic, "results_by_partition": results}]}
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


def patient() -> list[Talk]:
    """Long waits that were allowed, for a Fetch and a JoinGroup; and an old broker that throttles."""
    talk = Talk()
    talk.ask("Fetch", 4, {"replica_id": -1, "max_wait_ms": 5000, "min_bytes": 1, "topics": []}, {}, wait=5.5)
    talk.ask("JoinGroup", 2, {"group_id": "g", "rebalance_timeout_ms": 60_000}, {"error_code": 27}, wait=20)
    talk.ask("JoinGroup", 0, {"group_id": "g", "session_timeout_ms": 30_000}, {"error_code": 27}, wait=20)
    talk.ask("CreateTopics", 1, {"timeout_ms": 30_000}, {}, wait=8)
    talk.ask("SyncGroup", 0, {"group_id": "g"}, {"error_code": 27}, wait=20)
    talk.ask("Produce", 5, {"acks": 1}, {"throttle_time_ms": 3000}, wait=3.5)
    return [talk.ended()]


# -- errors, leaders, metadata


def joins(*codes: int, clients: int = 1, then: float = 0.1) -> Scene:
    """Members that join a group of their own, one after the other, with these outcomes."""

    def scene() -> list[Talk]:
        talks = []
        for number in range(clients):
            talk = Talk(f"10.0.{number // 200}.{number % 200 + 5}", 40_000 + number)
            for code in codes:
                asked = {"group_id": f"group-{number}", "session_timeout_ms": 1, "protocol_type": "consumer"}
                talk.ask("JoinGroup", 5, asked, {"error_code": code}, then=then)
            talks.append(talk.ended())
        return talks

    return scene


def asked_for_groups(times: int) -> Scene:
    """A program that asks for a group that does not exist."""

    def scene() -> list[Talk]:
        talk = Talk()
        for _ in range(times):
            answer = {"groups": [{"error_code": 69, "group_id": "gone", "error_message": "Group gone not found."}]}
            talk.ask("DescribeGroups", 6, {"groups": ["gone"]}, answer, then=0.1)
        return [talk.ended()]

    return scene


def stale() -> list[Talk]:
    """A producer refused every second for eight seconds, with two metadata requests in between."""
    talk = Talk()
    for turn in range(9):
        produce(talk, records(), error=NOT_LEADER, then=0.5)
        if turn in (2, 4):
            talk.ask("Metadata", 1, *METADATA)
        talk.pause(0.5)
    return [talk.ended()]


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


def storm() -> list[Talk]:
    """b leaves, rejoins and leaves again, and so does c: four generations per leave."""
    talk = Talk()
    for turn in range(4):
        member = "bc"[turn % 2]
        joined(talk, 2 * turn + 1, ["a", member])
        left(talk, member)
        joined(talk, 2 * turn + 2, ["a"])
    return [talk.ended()]


def growing() -> list[Talk]:
    """A group that starts: each generation has one member more."""
    talk = Talk()
    for generation in range(1, 8):
        joined(talk, generation, ["a", "b", "c", "d", "e", "f", "g"][:generation])
    return [talk.ended()]


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


def repeated(error: int) -> Scene:
    """Sequences 0 to 4 twice, the first time refused; then 5 to 9, with or without an error."""

    def scene() -> list[Talk]:
        talk = Talk()
        produce(talk, records(5, producer=(7, 0, 0)), error=NOT_LEADER)
        produce(talk, records(5, producer=(7, 0, 0)))
        produce(talk, records(5, producer=(7, 0, 5)), error=error)
        return [talk.ended()]

    return scene


def concurrent(again: int) -> Scene:
    """Three batches in flight, of which the first is refused because the previous transaction is not complete yet.

    The first `again` of them are sent again and accepted.
    """

    def scene() -> list[Talk]:
        talk = Talk()
        for turn in range(3):
            error = CONCURRENT_TRANSACTIONS if turn == 0 else OUT_OF_ORDER
            produce(talk, records(5, producer=(7, 0, 5 * turn)), error=error)
        for turn in range(again):
            produce(talk, records(5, producer=(7, 0, 5 * turn)))
        return [talk.ended()]

    return scene


def in_order() -> list[Talk]:
    talk = Talk()
    for turn in range(3):
        produce(talk, records(5, producer=(7, 0, 5 * turn)))
    return [talk.ended()]


# -- transactions


def transaction(talk: Talk, seconds: float, *, ends: bool = True, error: int = 0) -> None:
    asked = {
        "v3_and_below_transactional_id": "payments",
        "v3_and_below_topics": [{"name": "orders", "partitions": [0]}],
    }
    talk.ask("AddPartitionsToTxn", 1, asked, partitions("AddPartitionsToTxn", error), then=seconds)
    if ends:
        talk.ask("EndTxn", 1, {"transactional_id": "payments", "committed": 1}, {})


def begun(talk: Talk, timeout_ms: int = 10_000) -> None:
    talk.ask("InitProducerId", 1, {"transactional_id": "payments", "transaction_timeout_ms": timeout_ms}, {})


def hanging() -> list[Talk]:
    """One transaction ends in time, one too late, and one not at all."""
    talk = Talk()
    begun(talk)
    transaction(talk, 1)
    transaction(talk, 12.5)
    transaction(talk, 1, ends=False)
    talk.pause(20)
    heartbeat(talk)
    return [talk.ended()]


def in_time() -> list[Talk]:
    """Transactions within their timeout; the last one is still open, but not for long."""
    talk = Talk()
    begun(talk)
    for _ in range(3):
        transaction(talk, 5)
    transaction(talk, 9, ends=False)
    begun(talk)
    transaction(talk, 9, ends=False)
    return [talk.ended()]


def in_a_row(count: int, refusals: int) -> Scene:
    """Transactions that are refused while the one before is completed, each this often, and then begin."""

    def scene() -> list[Talk]:
        talk = Talk()
        begun(talk)
        for _ in range(count):
            for _ in range(refusals):
                transaction(talk, 0.1, ends=False, error=CONCURRENT_TRANSACTIONS)
            transaction(talk, 0.1)
        return [talk.ended()]

    return scene


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


def one_cause() -> list[Talk]:
    """A failed disk, which each partition of each topic has."""
    talk = Talk()
    topics = [
        {"topic_name": name, "partition_index": place, "error_code": 56}
        for name in ("orders", "stock", "bills", "users")
        for place in range(3)
    ]
    talk.ask("LeaderAndIsr", 2, {"controller_id": 1}, {"error_code": 0, "partition_errors": topics})
    return [talk.ended()]


def two_causes() -> list[Talk]:
    """Two clients, of which one has two error codes."""
    one, other = Talk(), Talk("10.0.0.6", 50_000)
    refused(one, {"index": 0, "error_code": 87})
    refused(one, {"index": 0, "error_code": 29})
    refused(other, {"index": 0, "error_code": 87})
    return [one.ended(), other.ended()]


def acknowledged_elsewhere() -> list[Talk]:
    """Acknowledgements of share fetches that the broker refuses: it does not lead the partition."""
    talk = Talk()
    part = {"partition_index": 0, "error_code": 0, "acknowledge_error_code": 6, "acquired_records": []}
    answer = {"responses": [{"topic_id": ORDERS[0], "partitions": [part]}]}
    asked = {"group_id": "sharers", "member_id": "one", "max_wait_ms": 500, "topics": []}
    for _ in range(3):
        talk.ask("ShareFetch", 1, asked, answer, then=1)
    return [talk.ended()]


def refused_by_id_and_name() -> list[Talk]:
    """A topic refused by its id before any message maps it to the name, and by its name."""
    talk = Talk()
    data = [{"topic_id": ORDERS[0], "partition_data": [{"index": 0, "records": records()}]}]
    answer = [{"topic_id": ORDERS[0], "partition_responses": [{"index": 0, "error_code": 10}]}]
    talk.ask("Produce", 13, {"acks": 1, "topic_data": data}, {"responses": answer})
    produce(talk, records(), error=10)
    talk.exchange(
        metadata_request_by_id(9, [(NO_ID, "orders")]),
        metadata_response_with_ids(9, [(ORDERS[0], "orders")], [(1, "10.0.0.9", 9092)]),
    )
    return [talk.ended()]
