"""Makers of captures whose messages are what costs: their fields, their records, what they decompress to."""

from __future__ import annotations

from tests.craft import kafka_bytes as kafka
from tests.craft.from_layout import request_bytes, response_bytes
from tests.fuzz.costs.streams import LAST_ID, begun, heartbeat
from tests.fuzz.costs.wire import Wire
from tests.kafka.records_craft import COMPRESSORS, Record, batch, message, record, wrapper


def _repeated(size: int, data: bytes) -> bytes:
    """The same request again and again, with a correlation id of its own each, and answered by nobody."""
    wire, talk = begun(size)
    number = 1
    while not wire.full:
        talk.send("client", data[:8] + kafka.int32(number % LAST_ID) + data[12:])
        number += 1
    return wire.pcap()


def _produce(records: bytes) -> bytes:
    return kafka.produce_request(1, "t", records)


def ratio_messages(size: int) -> bytes:
    """Requests with a batch of one record of 100 bytes, by zstd."""
    return _repeated(size, _produce(batch(COMPRESSORS[4](record(Record(0, 0, None, bytes(100)))), 1, attributes=4)))


def nested_records(size: int, records: int) -> bytes:
    """Message sets in message sets; in the innermost one this many messages."""
    return _repeated(size, _produce(wrapper(0, [message(0, None, None) * records], 1)[:size]))


def headers_records(size: int, headers: int, records: int) -> bytes:
    """Records with this many headers of two bytes each."""
    one = record(Record(0, 0, None, None, (("", None),) * headers))
    return _repeated(size, _produce(batch(one * records, records)))


def elements_messages(size: int, topics: int, partitions: int) -> bytes:
    """Requests and responses of metadata, of topics without a name and partitions without replicas."""
    wire, talk = begun(size)
    partition = kafka.int16(0) + bytes(8) + kafka.array([]) * 2
    topic = kafka.int16(0) + kafka.string("") + b"\0" + kafka.array([partition] * min(partitions, size // 20))
    count = min(topics, size // len(topic))
    body = kafka.array([]) + kafka.int32(0) + kafka.int32(count) + topic * count
    number = 1
    while not wire.full:
        talk.send("client", kafka.metadata_request(number, None))
        talk.send("broker", kafka.response(number, body))
        number += 1
    return wire.pcap()


def tags_messages(size: int, tags: int) -> bytes:
    """Requests with this many empty tagged fields that nobody knows."""
    count = min(tags, size // 4)
    fields = b"".join(kafka.unsigned_varint(1_000 + tag) + b"\0" for tag in range(count))
    body = kafka.compact_string("c") + kafka.compact_string("1") + kafka.unsigned_varint(count) + fields
    return _repeated(size, kafka.request(kafka.API_VERSIONS, 3, 1, body, flexible=True))


def problems_exchanges(size: int, batches: int) -> bytes:
    """Requests with a wrong checksum in each of their batches."""
    return _repeated(size, _produce(batch(b"", 0, crc=1) * batches))


def topics_fetches(size: int, topics: int, together: int, changed: int) -> bytes:
    """A fetch session of this many topics, then fetches that name `changed` of them, several in each segment."""
    wire, talk = begun(size)
    topics = min(topics, size // 64)

    def named(numbers: range) -> list[dict[str, object]]:
        return [{"topic": f"{number:x}", "partitions": [{"partition": 0}]} for number in numbers]

    talk.send("client", request_bytes(1, 7, 1, session_epoch=0, topics=named(range(topics))))
    talk.send("broker", response_bytes(1, 7, 1, session_id=77))
    tail = request_bytes(1, 7, 2, session_id=77, session_epoch=1, topics=named(range(min(changed, topics))))[12:]
    together = max(1, min(together, size // (len(tail) + 12)))
    epoch = tail.rindex(kafka.int32(77) + kafka.int32(1)) + 4
    number = 2
    while not wire.full:
        numbers = range(number, number + together)
        head = kafka.int16(1) + kafka.int16(7)
        rest = ((kafka.int32(one), tail[:epoch], kafka.int32(one - 1), tail[epoch + 4 :]) for one in numbers)
        requests = [kafka.frame(head + b"".join(parts)) for parts in rest]
        talk.send("client", b"".join(requests))
        talk.send("broker", b"".join(response_bytes(1, 7, one, session_id=77) for one in numbers))
        number += together
    return wire.pcap()


def sessions_partitions(size: int, partitions: int, fetches: int) -> bytes:
    """A session for each connection, of one topic with this many partitions, and this many fetches of it."""
    wire = Wire(size)
    for number, talk in enumerate(wire.talks()):
        session = 1 + number
        whole = [{"topic": "t", "partitions": [{"partition": one} for one in range(min(partitions, size // 32))]}]
        talk.open()
        talk.send("client", request_bytes(1, 7, 1, session_epoch=0, topics=whole))
        talk.send("broker", response_bytes(1, 7, 1, session_id=session))
        for one in range(2, 2 + fetches):
            if wire.full:
                break
            talk.send("client", request_bytes(1, 7, one, session_id=session, session_epoch=one - 1))
            talk.send("broker", response_bytes(1, 7, one, session_id=session))
    return wire.pcap()


def names_requests(size: int, length: int, requests: int) -> bytes:
    """Each request has a client id of its own, of this many characters."""
    wire = Wire(size)
    name = 0
    for talk in wire.talks():
        talk.open()
        for number in range(requests):
            if wire.full:
                break
            client = f"{name:x}".rjust(length, "n")
            talk.send("client", kafka.request(12, 0, number, bytes(8), client_id=client))
            talk.send("broker", kafka.response(number, bytes(2)))
            name += 1
    return wire.pcap()


def topics_names(size: int, length: int, topics: int) -> bytes:
    """Each request names this many topics that no other names, of this many characters."""
    wire, talk = begun(size)
    name, number = 0, 1
    while not wire.full:
        names = [f"{name + one:x}".rjust(min(length, 249), "t") for one in range(min(topics, size // (length + 2)))]
        name += topics
        talk.send("client", kafka.metadata_request(number, names))
        talk.send("client", heartbeat(number + 1))
        number += 2
    return wire.pcap()
