"""Makers of captures in which a great many things go wrong: what detectors count, compare and name is what costs."""

from __future__ import annotations

from typing import Final

from tests.craft import kafka_bytes as kafka
from tests.craft.from_layout import request_bytes, response_bytes
from tests.craft.packet import ACK, RST, SYN
from tests.fuzz.costs.streams import begun, known
from tests.fuzz.costs.wire import Talk, Wire
from tests.kafka.records_craft import Record, batch, record

TOPIC_ERRORS: Final = (3, 6, 7, 1, 5, 19, 29, 56)
"""Error codes of partitions, from UNKNOWN_TOPIC_OR_PARTITION on."""
ONE_RECORD: Final = record(Record(0, 0, None, b""))


def topics_errors(size: int, topics: int, kind: int, again: int) -> bytes:
    """Exchanges about this many topics, new ones or the same: responses of Produce (kind 0), Fetch (1) or Metadata (2)
    with errors, or records that share groups get again (3)."""
    wire, talk = begun(size)
    topics = min(topics, size // 64)
    first, number = 0, 1
    while not wire.full:
        names = [f"t{first + one:x}" for one in range(topics)]
        coded = [(name, TOPIC_ERRORS[one % len(TOPIC_ERRORS)]) for one, name in enumerate(names)]
        first += 0 if again else topics
        match kind:
            case 0:
                parts = [{"name": name, "partition_data": [{}]} for name in names]
                asked = request_bytes(0, 7, number, acks=1, timeout_ms=1_000, topic_data=parts)
                found = [{"name": name, "partition_responses": [{"error_code": code}]} for name, code in coded]
                answer = response_bytes(0, 7, number, responses=found)
            case 1:
                fetched = [{"topic": name, "partitions": [{}]} for name in names]
                asked = request_bytes(1, 7, number, replica_id=-1, session_epoch=-1, topics=fetched)
                got = [{"topic": name, "partitions": [{"error_code": code, "records": b""}]} for name, code in coded]
                answer = response_bytes(1, 7, number, responses=got)
            case 2:
                asked = request_bytes(3, 1, number, topics=[{"name": name} for name in names])
                named = [{"error_code": code, "name": name} for name, code in coded]
                answer = response_bytes(3, 1, number, topics=named)
            case _:
                ids = [(first << 32 | one + 1).to_bytes(16) for one in range(topics)]
                wanted = [{"topic_id": one, "partitions": [{}]} for one in ids]
                asked = request_bytes(78, 1, number, group_id="g", member_id="m", topics=wanted)
                again_acquired = [{"first_offset": 0, "last_offset": 0, "delivery_count": 5}]
                acquired = [{"topic_id": one, "partitions": [{"acquired_records": again_acquired}]} for one in ids]
                answer = response_bytes(78, 1, number, responses=acquired)
        talk.send("client", asked)
        talk.send("broker", answer)
        number += 1
    return wire.pcap()


def clients_errors(size: int) -> bytes:
    """Each connection is another client's and has one response with an error, of another group each."""
    wire = Wire(size)
    for place, talk in enumerate(wire.talks()):
        talk.open()
        asked = kafka.string(f"g{place:x}") + kafka.int32(9_000) + kafka.string("m") + kafka.string("consumer")
        talk.send("client", kafka.request(11, 0, 0, asked + kafka.array([]), client_id=f"c{place:x}"))
        refused = kafka.int16(25) + kafka.int32(-1) + kafka.string("") * 3 + kafka.array([])
        talk.send("broker", kafka.response(0, refused))
        talk.close()
    return wire.pcap()


def attempts_endpoints(size: int, brokers: int) -> bytes:
    """Connects to this many brokers in turn, all refused."""
    wire = Wire(size)
    place = 0
    while not wire.full:
        broker = place % brokers
        talk = Talk(wire, place, (f"10.200.{broker >> 8 & 255}.{broker & 255}", 9092 + (broker >> 16)))
        place += 1
        talk.packet("client", b"", 0, SYN)
        talk.packet("broker", b"", 0, RST | ACK)
    return wire.pcap()


def segments_overlaps(size: int, segment: int, back: int) -> bytes:
    """Segments that begin `back` bytes before the end of the one before, after a hole."""
    wire = Wire(size)
    for talk in known(wire):
        at = talk.next["client"] + 1
        for _ in range(20_000):
            if wire.full:
                break
            talk.packet("client", bytes(segment), at)
            at += max(segment - back, 1)
    return wire.pcap()


def members_groups(size: int, groups: int, members: int) -> bytes:
    """Members join this many groups again and again, in a new generation each time."""
    wire, talk = begun(size)
    number = 1
    while not wire.full:
        group, member, generation = f"g{number % groups:x}", f"m{number % members:x}", number // groups
        joins = {"group_id": group, "session_timeout_ms": 9_000, "member_id": member, "protocol_type": "consumer"}
        talk.send("client", request_bytes(11, 2, number, **joins, protocols=[{"name": "range"}]))
        joined = {"generation_id": generation, "protocol_name": "range", "leader": member, "member_id": member}
        talk.send("broker", response_bytes(11, 2, number, **joined))
        number += 1
    return wire.pcap()


def leaders_topics(size: int, topics: int, brokers: int) -> bytes:
    """Metadata in which each topic's leader is another one each time."""
    wire, talk = begun(size)
    topics, brokers = min(topics, size // 64), min(brokers, size // 64)
    number = 1
    while not wire.full:
        nodes = [{"node_id": one, "host": f"b{one:x}", "port": 9092} for one in range(brokers)]
        found = [
            {"name": f"t{one:x}", "partitions": [{"leader_id": (one + number) % brokers, "replica_nodes": [1]}]}
            for one in range(topics)
        ]
        talk.send("client", request_bytes(3, 1, number))
        talk.send("broker", response_bytes(3, 1, number, brokers=nodes, topics=found))
        number += 1
    return wire.pcap()


def unanswered_connections(size: int) -> bytes:
    """Each connection has a request without a response, and is reset."""
    wire = Wire(size)
    for place, talk in enumerate(known(wire)):
        talk.send("client", kafka.request(3, 1, 1, kafka.array([kafka.string("t")]), client_id=f"c{place:x}"))
        talk.packet("broker", b"", talk.next["broker"], RST | ACK)
    return wire.pcap()


def producers_batches(size: int, sequences: int) -> bytes:
    """Batches of a producer with this many sequence numbers in turn, all refused."""
    wire, talk = begun(size)
    number = 1
    while not wire.full:
        data = batch(ONE_RECORD, 1, producer=(0, 0, number % sequences))
        talk.send("client", kafka.produce_request(number, "t", data, version=3))
        found = [{"name": "t", "partition_responses": [{"error_code": 45}]}]
        talk.send("broker", response_bytes(0, 3, number, responses=found))
        number += 1
    return wire.pcap()
