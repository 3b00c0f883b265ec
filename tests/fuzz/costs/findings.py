"""Makers of captures in which a great many things go wrong: what detectors count, compare and name is what costs."""

from __future__ import annotations

from typing import Final

from tests.craft import kafka_bytes as kafka
from tests.craft.from_layout import request_bytes, response_bytes
from tests.craft.packet import ACK, RST, SYN
from tests.fuzz.costs.streams import exchange
from tests.fuzz.costs.wire import Talk, Wire
from tests.kafka.records_craft import Record, batch, record

TOPIC_ERRORS: Final = (3, 6, 7, 1, 5, 19, 29, 56)
"""Error codes of partitions, from UNKNOWN_TOPIC_OR_PARTITION on."""
ONE_RECORD: Final = record(Record(0, 0, None, b""))


def _begun(size: int) -> tuple[Wire, Talk]:
    wire = Wire(size)
    talk = Talk(wire)
    talk.open()
    exchange(talk, 0)
    return wire, talk


def topics_errors(size: int, topics: int, kind: int, again: int) -> bytes:
    """Exchanges about this many topics, new ones or the same: responses of Produce, Fetch, Metadata or OffsetCommit
    with errors, deletions, or records that share groups get again."""
    wire, talk = _begun(size)
    topics = min(topics, size // 64)
    first, number = 0, 1
    while not wire.full:
        names = [f"t{first + one:x}" for one in range(topics)]
        codes = [TOPIC_ERRORS[one % len(TOPIC_ERRORS)] for one in range(topics)]
        first += 0 if again else topics
        match kind:
            case 0:
                parts = [{"name": name, "partition_data": [{}]} for name in names]
                asked = request_bytes(0, 7, number, acks=1, timeout_ms=1_000, topic_data=parts)
                found = [
                    {"name": name, "partition_responses": [{"error_code": code}]}
                    for name, code in zip(names, codes, strict=True)
                ]
                answer = response_bytes(0, 7, number, responses=found)
            case 1:
                fetched = [{"topic": name, "partitions": [{}]} for name in names]
                asked = request_bytes(1, 7, number, replica_id=-1, session_epoch=-1, topics=fetched)
                got = [
                    {"topic": name, "partitions": [{"error_code": code, "records": b""}]}
                    for name, code in zip(names, codes, strict=True)
                ]
                answer = response_bytes(1, 7, number, responses=got)
            case 2:
                asked = request_bytes(3, 1, number, topics=[{"name": name} for name in names])
                known = [{"error_code": code, "name": name} for name, code in zip(names, codes, strict=True)]
                answer = response_bytes(3, 1, number, topics=known)
            case 4:
                asked = request_bytes(20, 1, number, topic_names=names, timeout_ms=1_000)
                deleted = [{"name": name} for name in names]
                answer = response_bytes(20, 1, number, responses=deleted)
            case 5:
                ids = [(first << 32 | one + 1).to_bytes(16) for one in range(topics)]
                wanted = [{"topic_id": one, "partitions": [{}]} for one in ids]
                asked = request_bytes(78, 1, number, group_id="g", member_id="m", topics=wanted)
                again_acquired = [{"first_offset": 0, "last_offset": 0, "delivery_count": 5}]
                acquired = [{"topic_id": one, "partitions": [{"acquired_records": again_acquired}]} for one in ids]
                answer = response_bytes(78, 1, number, responses=acquired)
            case _:
                committed = [{"name": name, "partitions": [{}]} for name in names]
                asked = request_bytes(8, 2, number, group_id="g", topics=committed)
                failed = [
                    {"name": name, "partitions": [{"error_code": code}]}
                    for name, code in zip(names, codes, strict=True)
                ]
                answer = response_bytes(8, 2, number, topics=failed)
        talk.send("client", asked)
        talk.send("broker", answer)
        number += 1
    return wire.pcap()


def clients_errors(size: int, exchanges: int, kind: int) -> bytes:
    """Each connection is another client's and has this many responses with an error, of another group or id each."""
    wire = Wire(size)
    one = 0
    for place, talk in enumerate(wire.talks()):
        talk.open()
        for number in range(exchanges):
            if wire.full:
                break
            one += 1
            name, client = f"g{one:x}", f"c{place:x}"
            match kind:
                case 0:
                    key, version, asked, code = 10, 0, kafka.string(name), 15
                    answer = kafka.int16(code) + kafka.int32(-1) + kafka.string("") + kafka.int32(-1)
                case 1:
                    key, version = 11, 0
                    asked = kafka.string(name) + kafka.int32(9_000) + kafka.string("m") + kafka.string("consumer")
                    asked += kafka.array([])
                    answer = kafka.int16(25) + kafka.int32(-1) + kafka.string("") * 3 + kafka.array([])
                case 2:
                    key, version, asked = 12, 0, kafka.string(name) + kafka.int32(1) + kafka.string("m")
                    answer = kafka.int16(25)
                case 3:
                    key, version, asked = 22, 0, kafka.string(name) + kafka.int32(1_000)
                    answer = kafka.int32(0) + kafka.int16(53) + kafka.int64(-1) + kafka.int16(-1)
                case _:
                    key, version, asked = 17, 0, kafka.string("PLAIN")
                    answer = kafka.int16(33) + kafka.array([])
            talk.send("client", kafka.request(key, version, number, asked, client_id=client))
            talk.send("broker", kafka.response(number, answer))
        talk.close()
    return wire.pcap()


def attempts_endpoints(size: int, brokers: int, answer: int, repeats: int) -> bytes:
    """Connects to this many brokers in turn: without an answer, refused, or accepted and reset."""
    wire = Wire(size)
    place = 0
    while not wire.full:
        broker = place % brokers
        talk = Talk(wire, place, (f"10.200.{broker >> 8 & 255}.{broker & 255}", 9092 + (broker >> 16)))
        place += 1
        for _ in range(repeats):
            talk.packet("client", b"", 0, SYN)
        if answer == 1:
            talk.packet("broker", b"", 0, RST | ACK)
        elif answer == 2:
            talk.packet("broker", b"", 0, SYN | ACK)
            talk.packet("broker", b"", 1, RST | ACK)
    return wire.pcap()


def segments_overlaps(size: int, segment: int, back: int, hole: int) -> bytes:
    """Segments that begin `back` bytes before the end of the one before, after a hole or not."""
    wire = Wire(size)
    for talk in wire.talks():
        talk.open()
        exchange(talk, 0)
        at = talk.next["client"] + hole
        for _ in range(20_000):
            if wire.full:
                break
            talk.packet("client", bytes(segment), at)
            at += max(segment - back, 1)
    return wire.pcap()


def members_groups(size: int, groups: int, members: int) -> bytes:
    """Members join this many groups again and again, in a new generation each time."""
    wire, talk = _begun(size)
    number = 1
    while not wire.full:
        group, member, generation = f"g{number % groups:x}", f"m{number % members:x}", number // groups
        talk.send(
            "client",
            request_bytes(
                11,
                2,
                number,
                group_id=group,
                session_timeout_ms=9_000,
                member_id=member,
                protocol_type="consumer",
                protocols=[{"name": "range"}],
            ),
        )
        talk.send(
            "broker",
            response_bytes(
                11, 2, number, generation_id=generation, protocol_name="range", leader=member, member_id=member
            ),
        )
        number += 1
    return wire.pcap()


def leaders_topics(size: int, topics: int, brokers: int) -> bytes:
    """Metadata in which each topic's leader is another one each time."""
    wire, talk = _begun(size)
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


def unanswered_connections(size: int, requests: int, end: int) -> bytes:
    """Each connection has this many requests without a response: it stays open, is closed or reset."""
    wire = Wire(size)
    for place, talk in enumerate(wire.talks()):
        talk.open()
        exchange(talk, 0)
        for number in range(1, 1 + requests):
            if wire.full:
                break
            asked = kafka.request(3, 1, number, kafka.array([kafka.string("t")]), client_id=f"c{place:x}")
            talk.send("client", asked)
        if end == 1:
            talk.close()
        elif end == 2:
            talk.packet("broker", b"", talk.next["broker"], RST | ACK)
    return wire.pcap()


def producers_batches(size: int, producers: int, sequences: int, refused: int) -> bytes:
    """Batches of this many producers with this many sequence numbers in turn, all refused or all accepted."""
    wire, talk = _begun(size)
    number = 1
    while not wire.full:
        producer, sequence = number % producers, number // producers % sequences
        data = batch(ONE_RECORD, 1, producer=(producer, 0, sequence))
        talk.send("client", kafka.produce_request(number, f"t{producer:x}", data, version=3))
        found = [{"name": f"t{producer:x}", "partition_responses": [{"error_code": 45 if refused else 0}]}]
        talk.send("broker", response_bytes(0, 3, number, responses=found))
        number += 1
    return wire.pcap()
