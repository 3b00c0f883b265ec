"""librdkafka with a schema registry in memory: records with schema ids, records that resemble these, trace headers."""

from __future__ import annotations

import struct
import sys
import warnings
from typing import Any

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from reporting import report
from sample_records import timestamp

warnings.simplefilter("ignore")  # a package that the registry client imports speaks of its own future
from confluent_kafka.schema_registry import (  # noqa: E402
    Schema,
    SchemaRegistryClient,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroSerializer  # noqa: E402
from confluent_kafka.schema_registry.json_schema import JSONSerializer  # noqa: E402
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer  # noqa: E402

bootstrap = sys.argv[1]
base: dict[str, Any] = {"bootstrap.servers": bootstrap, "debug": "protocol", "broker.address.family": "any"}

EARLIER_SCHEMAS = 300
"""Schemas of others that the registry holds already, so that ids have more than one byte that is not zero."""

ORDER_AVRO = """{"type": "record", "name": "Order", "namespace": "shop", "fields": [
  {"name": "id", "type": "long"}, {"name": "item", "type": "string"}, {"name": "price", "type": ["null", "double"]}]}"""
KEY_AVRO = '{"type": "string"}'
ORDER_JSON = """{"$schema": "http://json-schema.org/draft-07/schema#", "title": "Order", "type": "object",
  "properties": {"id": {"type": "integer"}, "item": {"type": "string"}}, "required": ["id"]}"""

# What W3C Trace Context and Zipkin's B3 put into headers; the last of the first kind is not valid (all zeros).
TRACES: list[list[tuple[str, bytes]]] = [
    [("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")],
    [
        ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-00"),
        ("tracestate", b"rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"),
        ("baggage", b"tenant=blue,order=42"),
    ],
    [("b3", b"80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1-1-05e3ac9a4f6e3b90")],
    [
        ("X-B3-TraceId", b"463ac35c9f6413ad48485a3953bb6124"),
        ("X-B3-SpanId", b"a2fb4a1d1a96d312"),
        ("X-B3-Sampled", b"1"),
    ],
    [("traceparent", b"00-00000000000000000000000000000000-0000000000000000-01")],
]


def order_messages() -> tuple[type, type]:
    """Classes of two Protobuf messages of one file, made without a compiler; the second stands within another."""
    file = descriptor_pb2.FileDescriptorProto(name="shop/order.proto", package="shop", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    order.field.add(name="item", number=2, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    invoice = file.message_type.add(name="Invoice")
    invoice.nested_type.add(name="Head")
    line = invoice.nested_type.add(name="Line")
    line.field.add(name="text", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = ("shop.Order", "shop.Invoice.Line")
    first, second = (message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in names)
    return first, second


class Registry:
    """The registry, and what it gave."""

    def __init__(self) -> None:
        self.client = SchemaRegistryClient.new_client({"url": "mock://schemas"})
        for number in range(EARLIER_SCHEMAS):
            schema = Schema(f'{{"type": "fixed", "name": "Earlier{number}", "size": 1}}', "AVRO")
            self.client.register_schema(f"earlier-{number}", schema)
        self.told: set[str] = set()

    def id_of(self, subject: str) -> int:
        """Id of a subject's schema; reported when it is asked for first."""
        latest = self.client.get_latest_version(subject)
        if subject not in self.told:
            self.told.add(subject)
            report("registered", subject=subject, schema_id=latest.schema_id, guid=latest.guid,
                   schema_type=latest.schema.schema_type, schema=latest.schema.schema_str)  # fmt: skip
        return latest.schema_id


registry = Registry()
producer = Producer({**base, "client.id": "schema-producer", "linger.ms": 20, "acks": 1})
sent = 0


def send(topic: str, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes]], **told: Any) -> None:
    """Produce one record; the report says in ``told`` what its bytes mean."""
    global sent  # noqa: PLW0603 (a number for each record of the program)
    number = sent
    sent += 1

    def delivered(error: object, message: Message) -> None:
        report("produced", topic=topic, partition=message.partition(), offset=message.offset(),
               timestamp=message.timestamp()[1], key=key, value=value, headers=headers, codec="none",
               error=error and str(error), **told)  # fmt: skip

    producer.produce(
        topic, value, key, partition=0, timestamp=timestamp(number), headers=headers, on_delivery=delivered
    )
    producer.flush(10)


def context(topic: str, field: str, headers: list[tuple[str, bytes]] | None = None) -> SerializationContext:
    return SerializationContext(topic, field, headers)


ORDERS = [{"id": 1, "item": "lamp", "price": 12.5}, {"id": 70000, "item": "größe 數", "price": None}]


def framed_avro() -> None:
    topic = "avro-orders"
    keys = AvroSerializer(registry.client, KEY_AVRO)
    values = AvroSerializer(registry.client, ORDER_AVRO)
    for order in ORDERS:
        key = keys(f"order-{order['id']}", context(topic, MessageField.KEY))
        value = values(order, context(topic, MessageField.VALUE))
        ids = {"key_schema_id": registry.id_of(f"{topic}-key"), "value_schema_id": registry.id_of(f"{topic}-value")}
        send(topic, key, value, [], **ids, value_format="avro", means=order)
    key = keys("order-70000", context(topic, MessageField.KEY))
    send(topic, key, None, [], key_schema_id=registry.id_of(f"{topic}-key"), value_schema_id=None)


def framed_json() -> None:
    topic = "json-orders"
    values = JSONSerializer(ORDER_JSON, registry.client)
    for order in ORDERS:
        content = {name: order[name] for name in ("id", "item")}
        value = values(content, context(topic, MessageField.VALUE))
        send(topic, f"order-{order['id']}".encode(), value, [], key_schema_id=None,
             value_schema_id=registry.id_of(f"{topic}-value"), value_format="json", means=content)  # fmt: skip


def framed_protobuf() -> None:
    """Keys are plain numbers, eight bytes each: all begin with a zero byte, and 2^24 has the look of schema id 1."""
    topic = "protobuf-orders"
    order_class, line_class = order_messages()
    orders = ProtobufSerializer(order_class, registry.client, {"use.deprecated.format": False})
    lines = ProtobufSerializer(line_class, registry.client, {"use.deprecated.format": False})
    for number, message, indexes, serializer in (
        (42, order_class(id=1, item="lamp"), [0], orders),
        (1 << 24, order_class(id=70000, item="größe 數"), [0], orders),
        ((EARLIER_SCHEMAS + 1) << 24, line_class(text="one lamp"), [1, 1], lines),
    ):
        value = serializer(message, context(topic, MessageField.VALUE))
        ids = {"key_schema_id": None, "value_schema_id": registry.id_of(f"{topic}-value")}
        key = struct.pack(">q", number)
        send(topic, key, value, [], **ids, key_number=number, value_format="protobuf", message_indexes=indexes)


def ids_in_headers() -> None:
    topic = "header-orders"
    settings = {"schema.id.serializer": header_schema_id_serializer}
    keys = AvroSerializer(registry.client, KEY_AVRO, conf=settings)
    values = AvroSerializer(registry.client, ORDER_AVRO, conf=settings)
    for order in ORDERS:
        headers: list[tuple[str, bytes]] = [("origin", b"shop")]
        key = keys(f"order-{order['id']}", context(topic, MessageField.KEY, headers))
        value = values(order, context(topic, MessageField.VALUE, headers))
        ids = {"key_schema_id": registry.id_of(f"{topic}-key"), "value_schema_id": registry.id_of(f"{topic}-value")}
        send(topic, key, value, headers, **ids, value_format="avro", ids_in_headers=True, means=order)


def not_framed() -> None:
    """No schema at all: numbers, short values and text."""
    topic = "plain"
    none = {"key_schema_id": None, "value_schema_id": None}
    for number in (0, 1, 255, 1 << 24, (EARLIER_SCHEMAS + 2) << 24, -1):
        send(topic, struct.pack(">q", number), struct.pack(">q", number * 3), [], **none)
    for key, value in ((b"\0", b"\0\0\0\0"), (b"\0\0\0\0\x05", b"\0\0\0\0\x05"), (b"text", b'{"id": 1}'), (None, b"")):
        send(topic, key, value, [], **none)


def traced() -> None:
    for headers in TRACES:
        send("traced", b"request", b"done", headers)


report("client", name="librdkafka", version=confluent_kafka.libversion()[0])
TOPICS = ("avro-orders", "json-orders", "protobuf-orders", "header-orders", "plain", "traced")
admin = AdminClient({**base, "client.id": "schema-admin"})
for name, done in admin.create_topics([NewTopic(name, 1, 1) for name in TOPICS]).items():
    done.result()
    report("created", topic=name, partitions=1)
for scenario in (framed_avro, framed_json, framed_protobuf, ids_in_headers, not_framed, traced):
    scenario()
reading = {"client.id": "schema-reader", "group.id": "unused", "enable.auto.commit": False, "fetch.wait.max.ms": 200}
consumer = Consumer({**base, **reading})
consumer.assign([TopicPartition(name, 0, OFFSET_BEGINNING) for name in TOPICS])
for _ in range(sent):
    message = consumer.poll(15)
    if message is None or message.error():
        sys.exit(f"not all records came back: {message and message.error()}")
    report("consumed", client_id="schema-reader", topic=message.topic(), partition=message.partition(),
           offset=message.offset(), timestamp=message.timestamp()[1], key=message.key(), value=message.value(),
           headers=message.headers() or [])  # fmt: skip
consumer.close()
