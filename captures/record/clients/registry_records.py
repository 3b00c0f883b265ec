"""librdkafka with a real schema registry: references, imports, many kinds of fields, and a schema that is replaced."""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from reporting import report
from sample_records import timestamp

warnings.simplefilter("ignore")  # a package that the registry client imports speaks of its own future
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient  # noqa: E402
from confluent_kafka.schema_registry.avro import AvroSerializer  # noqa: E402
from confluent_kafka.schema_registry.json_schema import JSONSerializer  # noqa: E402

bootstrap, url = sys.argv[1:3]
base: dict[str, Any] = {"bootstrap.servers": bootstrap, "debug": "protocol", "broker.address.family": "any"}
registry = SchemaRegistryClient({"url": url})
producer = Producer({**base, "client.id": "registry-producer", "linger.ms": 20, "acks": 1})
sent = 0

ADDRESS = {"type": "record", "name": "Address", "namespace": "shop",
           "fields": [{"name": "city", "type": "string"}, {"name": "zip", "type": ["null", "int"]}]}  # fmt: skip
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "to", "type": "shop.Address"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "items", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "weight", "type": "float"},
        {"name": "paid", "type": "boolean"},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "parent", "type": ["null", "Order"]},
    ],
}
NEXT = {**ADDRESS, "fields": [*ADDRESS["fields"], {"name": "street", "type": "string", "default": ""}]}
PERSON = """{"$schema": "http://json-schema.org/draft-07/schema#", "title": "Person", "type": "object",
  "properties": {"name": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}}}"""
PLACE_PROTO = """syntax = "proto3";
package shop;
message Place { string city = 1; }
"""
PARCEL_PROTO = """syntax = "proto3";
package shop;
import "place.proto";
import "google/protobuf/timestamp.proto";
// What is sent.
message Parcel {
  enum Kind { LETTER = 0; BOX = 1; }
  message Item { string name = 1; repeated double sizes = 2 [packed = true]; }
  uint64 id = 1;
  Kind kind = 2;
  Place to = 3;
  repeated Item items = 4;
  map<string, int32> counts = 5;
  google.protobuf.Timestamp at = 6;
  oneof way { string road = 7; bool rail = 8; }
  optional int32 weight = 9;
  bytes code = 10;
}
"""


def context(topic: str, field: str = MessageField.VALUE) -> SerializationContext:
    return SerializationContext(topic, field, None)


def send(topic: str, key: bytes | None, value: bytes, **means: Any) -> None:
    """Produce one record; the report says in ``means`` what its bytes mean."""
    global sent  # noqa: PLW0603 (a number for each record of the program)
    number = sent
    sent += 1

    def delivered(error: object, message: Message) -> None:
        report("produced", topic=topic, partition=message.partition(), offset=message.offset(),
               timestamp=message.timestamp()[1], key=key, value=value, headers=[], codec="none",
               error=error and str(error), **means)  # fmt: skip

    producer.produce(topic, value, key, partition=0, timestamp=timestamp(number), on_delivery=delivered)
    producer.flush(10)


def avro() -> None:
    registry.register_schema("address", Schema(json.dumps(ADDRESS), "AVRO"))
    schema = Schema(json.dumps(ORDER), "AVRO", [SchemaReference("shop.Address", "address", 1)])
    keys, values = AvroSerializer(registry, '{"type": "string"}'), AvroSerializer(registry, schema)
    order: dict[str, Any] = {
        "id": 1, "to": {"city": "Ulm", "zip": None}, "state": "NEW", "items": ["lamp", "größe"], "counts": {"lamp": -2},
        "price": "12.50", "weight": 0.5, "paid": True, "hash": b"\0\xff\1\2", "at": 1_700_000_000_123, "parent": None,
    }  # fmt: skip
    order = {**order, "id": 2**40, "state": "PAID", "items": [], "price": "-0.05", "parent": order}
    from decimal import Decimal  # noqa: PLC0415

    def plain(one: dict[str, Any]) -> dict[str, Any]:
        parent = one["parent"] and plain(one["parent"])
        return {**one, "price": Decimal(one["price"]), "parent": parent}

    key = keys("order-1", context("avro", MessageField.KEY))
    send("avro", key, values(plain(order), context("avro")), means=order, key_means="order-1", schema_type="AVRO")


def avro_evolves() -> None:
    for schema, place in (
        (ADDRESS, {"city": "Ulm", "zip": 89073}),
        (NEXT, {"city": "Bonn", "zip": None, "street": "A"}),
    ):
        values = AvroSerializer(registry, json.dumps(schema))
        send("places", None, values(place, context("places")), means=place, schema_type="AVRO")


def json_schema() -> None:
    person = {"name": "Ada", "tags": ["a", "b"]}
    values = JSONSerializer(PERSON, registry)
    send("people", b"plain", values(person, context("people")), means=person, schema_type="JSON")


def protobuf() -> None:
    """Registered as text; the client's own serializer registers only descriptors, which this registry refuses."""
    registry.register_schema("place", Schema(PLACE_PROTO, "PROTOBUF"))
    schema = Schema(PARCEL_PROTO, "PROTOBUF", [SchemaReference("place.proto", "place", 1)])
    number = registry.register_schema("parcels-value", schema)
    parcel = {"id": 7, "kind": "BOX", "to": {"city": "Ulm"}, "items": [{"name": "lamp", "sizes": [1.5, 2.0]}],
              "counts": {"lamp": 3}, "at": "2026-11-21T04:00:00.250Z", "road": "A8", "code": "AAE="}  # fmt: skip
    for name, indexes, content in (
        ("shop.Parcel", b"\0", parcel),
        ("shop.Parcel.Item", b"\4\0\0", {"name": "lamp", "sizes": [1.0]}),
    ):
        message = json_format.ParseDict(
            content, message_factory.GetMessageClass(messages().FindMessageTypeByName(name))()
        )
        value = b"\0" + number.to_bytes(4, "big") + indexes + message.SerializeToString()
        send("parcels", None, value, means=content, schema_type="PROTOBUF", name=name)


def messages() -> descriptor_pool.DescriptorPool:
    """The messages of both files, from descriptors that were made by hand."""
    kinds = descriptor_pb2.FieldDescriptorProto
    one, many = kinds.LABEL_OPTIONAL, kinds.LABEL_REPEATED
    place = descriptor_pb2.FileDescriptorProto(name="place.proto", package="shop", syntax="proto3")
    place.message_type.add(name="Place").field.add(name="city", number=1, type=kinds.TYPE_STRING, label=one)
    file = descriptor_pb2.FileDescriptorProto(name="parcel.proto", package="shop", syntax="proto3")
    file.dependency.extend(["place.proto", "google/protobuf/timestamp.proto"])
    parcel = file.message_type.add(name="Parcel")
    kind = parcel.enum_type.add(name="Kind")
    for number, name in enumerate(("LETTER", "BOX")):
        kind.value.add(name=name, number=number)
    item = parcel.nested_type.add(name="Item")
    item.field.add(name="name", number=1, type=kinds.TYPE_STRING, label=one)
    item.field.add(name="sizes", number=2, type=kinds.TYPE_DOUBLE, label=many)
    entry = parcel.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=one)
    entry.field.add(name="value", number=2, type=kinds.TYPE_INT32, label=one)
    parcel.oneof_decl.add(name="way")
    for number, (name, kind_of, type_name, label) in enumerate(
        (
            ("id", kinds.TYPE_UINT64, None, one),
            ("kind", kinds.TYPE_ENUM, ".shop.Parcel.Kind", one),
            ("to", kinds.TYPE_MESSAGE, ".shop.Place", one),
            ("items", kinds.TYPE_MESSAGE, ".shop.Parcel.Item", many),
            ("counts", kinds.TYPE_MESSAGE, ".shop.Parcel.CountsEntry", many),
            ("at", kinds.TYPE_MESSAGE, ".google.protobuf.Timestamp", one),
            ("road", kinds.TYPE_STRING, None, one),
            ("rail", kinds.TYPE_BOOL, None, one),
            ("weight", kinds.TYPE_INT32, None, one),
            ("code", kinds.TYPE_BYTES, None, one),
        ),
        1,
    ):
        field = parcel.field.add(name=name, number=number, type=kind_of, type_name=type_name, label=label)
        if name in ("road", "rail"):
            field.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    from google.protobuf import timestamp_pb2  # noqa: PLC0415

    time = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(time)
    for one_file in (time, place, file):
        pool.Add(one_file)
    return pool


report("client", name="librdkafka", version=confluent_kafka.libversion()[0])
TOPICS = ("avro", "places", "people", "parcels")
admin = AdminClient({**base, "client.id": "registry-admin"})
for name, done in admin.create_topics([NewTopic(name, 1, 1) for name in TOPICS]).items():
    done.result()
    report("created", topic=name, partitions=1)
for scenario in (avro, avro_evolves, json_schema, protobuf):
    scenario()
reading = {"client.id": "registry-reader", "group.id": "unused", "enable.auto.commit": False, "fetch.wait.max.ms": 200}
consumer = Consumer({**base, **reading})
consumer.assign([TopicPartition(name, 0, OFFSET_BEGINNING) for name in TOPICS])
for _ in range(sent):
    message = consumer.poll(15)
    if message is None or message.error():
        sys.exit(f"not all records came back: {message and message.error()}")
    report("consumed", client_id="registry-reader", topic=message.topic(), partition=message.partition(),
           offset=message.offset(), timestamp=message.timestamp()[1], key=message.key(), value=message.value(),
           headers=message.headers() or [])  # fmt: skip
consumer.close()
