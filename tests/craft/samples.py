"""Crafted captures that several tests start from."""

from __future__ import annotations

from tests.craft import kafka_bytes as kafka
from tests.craft.conversation import START_NS, Conversation, interleaved
from tests.craft.packet import Packet

BROKER = ("10.0.0.9", 9092)


def _batch(count: int, base: int, *, compressed: bool = False, size: int = 20) -> bytes:
    records = [
        kafka.record(index, f"key-{base + index}".encode(), bytes([97 + index % 26]) * size, [("h", b"\x00\xff")])
        for index in range(count)
    ]
    return kafka.record_batch(records, base, compressed=compressed)


def producer(port: int = 51_334, start_ns: int = START_NS) -> Conversation:
    """ApiVersions v3, Metadata v1, then Produce v3 and v9 one by one, in a pipeline, with acks 0 and with an error."""
    talk = Conversation(("10.0.0.5", port), BROKER, start_ns=start_ns)
    talk.handshake()
    talk.exchange(kafka.api_versions_request(1, 3), kafka.api_versions_response(1, 3))
    talk.exchange(kafka.metadata_request(2, ["orders"]), kafka.metadata_response(2, "broker", 9092, ["orders"], 3))
    base = 0
    for correlation_id in range(3, 9):
        version = 9 if correlation_id % 2 else 3
        batch = _batch(correlation_id, base, compressed=correlation_id == 5)
        talk.exchange(
            kafka.produce_request(correlation_id, "orders", batch, version=version),
            kafka.produce_response(correlation_id, "orders", base, version=version),
        )
        base += correlation_id
    numbers = range(9, 14)
    pipeline = [kafka.produce_request(number, "orders", _batch(2, base, size=700)) for number in numbers]
    answers = [
        kafka.produce_response(number, "orders", base + 2 * place, error=6 if number == 11 else 0)
        for place, number in enumerate(numbers)
    ]
    talk.send("client", b"".join(pipeline), 1000)
    talk.send("broker", b"".join(answers), [11, 90, 1])
    talk.send("client", kafka.produce_request(14, "orders", _batch(1, 0), acks=0))
    talk.exchange(kafka.metadata_request(15, None), kafka.metadata_response(15, "broker", 9092, ["orders", "öre"], 2))
    talk.close()
    return talk


def consumer(port: int = 51_336, start_ns: int = START_NS) -> Conversation:
    """ApiVersions v0, then Fetch v4 with small, empty and large answers; the last one stays without an answer."""
    talk = Conversation(("10.0.0.6", port), BROKER, start_ns=start_ns, isn=(0xFFFF_FF00, 0xFFFF_F000))
    talk.handshake()
    talk.exchange(kafka.api_versions_request(0), kafka.api_versions_response(0))
    offset = 0
    for correlation_id, count in enumerate((1, 0, 40, 3, 200, 0, 2), start=1):
        batch = _batch(count, offset, size=60) if count else b""
        talk.exchange(
            kafka.fetch_request(correlation_id, "orders", offset),
            kafka.fetch_response(correlation_id, "orders", batch, offset + count),
        )
        offset += count
        talk.wait(1_000_000)
    talk.send("client", kafka.fetch_request(8, "orders", offset))
    talk.close("client")
    return talk


def bystander(port: int = 51_338, start_ns: int = START_NS) -> Conversation:
    """HTTP with another server: not Kafka, and nobody's business."""
    talk = Conversation(("10.0.0.5", port), ("10.0.0.80", 80), start_ns=start_ns)
    talk.handshake()
    talk.exchange(b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    talk.close("broker")
    return talk


def mixed() -> list[Packet]:
    """A producer, a consumer and a bystander at the same time."""
    return interleaved([producer(), consumer(start_ns=START_NS + 33_000), bystander(start_ns=START_NS + 66_000)])
