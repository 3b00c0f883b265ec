"""Crafted conversations about topics that are named by id, and what an enriched run makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafkasniff.engine.inspector import Inspector
from kafkasniff.enrich import Catalog, Enricher
from kafkasniff.model import Exchange, Message
from tests.craft import kafka_bytes as kafka
from tests.craft.batches import batch
from tests.craft.conversation import START_NS, Conversation, interleaved
from tests.craft.packet import Packet

# 16 bytes and what Kafka prints for them: uuid_text is not used here on purpose.
ORDERS = (bytes(range(16)), "AAECAwQFBgcICQoLDA0ODw")
OFFSETS = (b"\xff" * 16, "_____________________w")
BROKER = ("10.0.0.9", 9092)


def consumer() -> Conversation:
    """Fetches by id before and after another message has the name, in a session that changes and is closed."""
    talk = Conversation(("10.0.0.6", 51_400), BROKER)
    talk.handshake()
    talk.exchange(kafka.api_versions_request(1, 3, ("craft-consumer", "1.0")), kafka.api_versions_response(1, 3))
    value = kafka.record_batch([kafka.record(0, b"k", b"v")], 7)
    talk.exchange(
        kafka.fetch_request_by_id(2, [(ORDERS[0], [0, 1])], session=(0, 0)),
        kafka.fetch_response_by_id(2, [(ORDERS[0], 0, value)], session=17),
    )
    talk.wait(10_000_000)
    talk.exchange(kafka.fetch_request_by_id(3, session=(17, 1)), kafka.fetch_response_by_id(3, session=17))
    talk.exchange(
        kafka.fetch_request_by_id(4, [(OFFSETS[0], [5])], session=(17, 2), forgotten=[(ORDERS[0], [1])]),
        kafka.fetch_response_by_id(4, [(OFFSETS[0], 5, committed())], session=17),
    )
    talk.exchange(kafka.fetch_request_by_id(5, session=(17, -1)), kafka.fetch_response_by_id(5))
    talk.close()
    return talk


def committed() -> bytes:
    """A batch of `__consumer_offsets`: one offset, and a key that is cut."""
    key = kafka.int16(1) + kafka.string("billing") + kafka.string("orders") + kafka.int32(0)
    value = kafka.int16(3) + kafka.int64(42) + kafka.int32(-1) + kafka.string("") + kafka.int64(1_781_000_000_000)
    return kafka.record_batch([kafka.record(0, key, value), kafka.record(1, key[:5], value)], 3)


def admin() -> Conversation:
    """Metadata with both names and the broker's number, between the consumer's first and second Fetch."""
    talk = Conversation(("10.0.0.7", 51_500), BROKER, start_ns=START_NS + 5_000_000)
    talk.handshake()
    talk.exchange(
        kafka.metadata_request_by_id(1, [(kafka.NO_ID, "orders"), (kafka.NO_ID, "__consumer_offsets")]),
        kafka.metadata_response_with_ids(
            1, [(ORDERS[0], "orders"), (OFFSETS[0], "__consumer_offsets")], [(3, "10.0.0.9", 9092)]
        ),
    )
    talk.exchange(
        kafka.metadata_request_by_id(2, [(ORDERS[0], None)]), kafka.metadata_response_with_ids(2, [(ORDERS[0], None)])
    )
    talk.close()
    return talk


def both() -> list[Packet]:
    return interleaved([consumer(), admin()])


def events(packets: Sequence[Packet], catalog: Catalog | None = None, **options: Any) -> list[Any]:
    """What the inspector yields of packets, enriched."""
    inspector = Inspector(**options)
    enricher = Enricher(catalog, summary=inspector.summary)
    return [*enricher.feed(inspector.feed(batch(packets))), *enricher.feed(inspector.close())]


def messages(found: Sequence[Any], kind: str, api: str) -> list[Message]:
    return [one for one in found if isinstance(one, Message) and one.type == kind and one.api == api]


def exchanges(found: Sequence[Any], api: str) -> list[Exchange]:
    return [one for one in found if isinstance(one, Exchange) and one.request is not None and one.request.api == api]
