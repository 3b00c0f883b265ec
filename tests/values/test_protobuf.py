"""Protobuf values: what each kind of field becomes, imports, message indexes, and unusable descriptors."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import descriptor_pb2, json_format

from kafkasniff.values.protobuf import ProtobufReader, descriptor_file, descriptor_set, parse_proto
from kafkasniff.values.schemas import MAX_SCHEMA, MalformedValueError, SchemaError
from tests.craft.kafka_bytes import unsigned_varint

ORDER = """
// A comment; with "quotes".
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import public "google/protobuf/any.proto";
option java_package = "shop";
option (custom).list = { a: [1, 2], b { c: "}" } };
enum State { option allow_alias = true; NEW = 0; PAID = 1; DONE = 0x1; reserved 5 to 9; }
message Order /* the first */ {
  reserved 20 to max, "old";
  uint64 id = 1 [(validate.rules) = { int64: { gt: 0 } }, deprecated = true];
  double price = 2; bytes note = 3; State state = 4;
  repeated string items = 5;
  map<int32, int64> counts = 6;
  google.protobuf.Timestamp at = 7;
  Order parent = 8;
  optional bool flag = 9;
  .google.protobuf.Any extra = 10;
  message Line { string text = 1; }
  Line line = 11;
  enum Kind { NONE = 0; SOME = -1; }
  Kind kind = 12;
  oneof way { string road = 13; Line rail = 14; }
  map<string, Line> by_name = 15;
}
message Other { string name = 1; string message = 2; string enum = 3; }
service Orders { rpc Get (Order) returns (stream Other) { option idempotency_level = IDEMPOTENT; } }
"""


def test_the_same_as_by_descriptors() -> None:
    reader, other = ProtobufReader([descriptor_file(ORDER, "value")]), ProtobufReader([order()])
    data = filled(other).SerializeToString()
    found = reader.read(data, 0)
    more = {"kind": "NONE", "by_name": {}}
    assert found.name == "shop.Order"
    assert found.value == {**FULL, **more, "parent": {**_parent(), **more}}
    found = reader.read(b"\x5a\3\x0a\1x" + b"\x60" + b"\xff" * 9 + b"\1" + b"\x6a\1r" + b"\x7a\7\x0a\1k\x12\2\x0a\0", 0)
    fields = {"line": {"text": "x"}, "kind": "SOME", "road": "r", "by_name": {"k": {"text": ""}}}
    assert found.value.items() >= fields.items()
    assert reader.read(b"\x0a\1x\x1a\1e", 0, (1,)).value == {"name": "x", "message": "", "enum": "e"}
    assert reader.read(b"", 0, (0, 1)).name == "shop.Order.Line"


def _parent() -> dict[str, Any]:
    found = FULL["parent"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("message", "the end"),
        ("message M {", "the end"),
        ("message M { int32 a; }", "instead of '='"),
        ("message M { int32 a = b; }", "'b' is not a number"),
        ("message M { int32 a = 1 [", "the end"),
        ("enum E { A }", "instead of '='"),
        ("€", "line 1: unexpected '€'"),
        ("\n\n}", "unexpected '}'"),
        ('syntax = "proto3', "line 1"),
        ("message M {" * 200, "nested more than 100 levels|instead of"),
        ("a" * (MAX_SCHEMA + 1), "larger than 1 MiB"),
        ("option " * 1000, "the end"),
    ],
)
def test_text_that_is_not_a_file(text: str, what: str) -> None:
    with pytest.raises(SchemaError, match=what):
        descriptor_file(text, "value")


def test_deep_nesting_and_large_numbers() -> None:
    with pytest.raises(SchemaError, match="nested more than 100 levels"):
        parse_proto("".join(f"message M{n} {{" for n in range(200)), "value")
    for number in ("99999999999999999999", "-1", "0", "536870912"):
        with pytest.raises(SchemaError):
            ProtobufReader([descriptor_file(f"message M {{ int32 a = {number}; }}", "value")])


Kinds = descriptor_pb2.FieldDescriptorProto
MANY = Kinds.LABEL_REPEATED


def file_of(name: str = "order.proto", *imports: str) -> Any:
    return descriptor_pb2.FileDescriptorProto(name=name, package="shop", syntax="proto3", dependency=imports)


def add(message: Any, name: str, kind: Any, type_name: str | None = None, label: Any = Kinds.LABEL_OPTIONAL) -> Any:
    number = len(message.field) + 1
    return message.field.add(name=name, number=number, type=kind, type_name=type_name, label=label)


def order() -> Any:
    """A file whose first message has a field of every kind."""
    file = file_of("order.proto", "google/protobuf/timestamp.proto", "google/protobuf/any.proto")
    state = file.enum_type.add(name="State")
    state.value.add(name="NEW", number=0)
    state.value.add(name="PAID", number=1)
    message = file.message_type.add(name="Order")
    for name, kind, *more in (
        *(("id", Kinds.TYPE_UINT64), ("price", Kinds.TYPE_DOUBLE), ("note", Kinds.TYPE_BYTES)),
        *(("state", Kinds.TYPE_ENUM, ".shop.State"), ("items", Kinds.TYPE_STRING, None, MANY)),
        ("counts", Kinds.TYPE_MESSAGE, ".shop.Order.CountsEntry", MANY),
        ("at", Kinds.TYPE_MESSAGE, ".google.protobuf.Timestamp"),
        *(("parent", Kinds.TYPE_MESSAGE, ".shop.Order"), ("flag", Kinds.TYPE_BOOL)),
        ("extra", Kinds.TYPE_MESSAGE, ".google.protobuf.Any"),
    ):
        add(message, name, kind, *more)
    message.field[8].proto3_optional, message.field[8].oneof_index = True, 0
    message.oneof_decl.add(name="_flag")
    entry = message.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    add(entry, "key", Kinds.TYPE_INT32)
    add(entry, "value", Kinds.TYPE_INT64)
    add(message.nested_type.add(name="Line"), "text", Kinds.TYPE_STRING)
    add(file.message_type.add(name="Other"), "name", Kinds.TYPE_STRING)
    return file


FULL = {
    "id": 2**64 - 1,
    "price": 2.5,
    "note": b"\0\1",
    "state": "PAID",
    "items": ["lamp", "größe"],
    "counts": {"-1": 5, "7": 2**62},
    "at": "2026-11-21T04:00:00.250Z",
    "parent": {"id": 1, "price": 0.0, "note": b"", "state": "NEW", "items": [], "counts": {}},
    "flag": False,
}


def filled(reader: ProtobufReader) -> Any:
    """The same as a message, made by Google's reader of JSON."""
    _, make, _ = reader._message((0,))
    parent = {"id": 1}
    text = {**FULL, "note": "AAE=", "parent": parent}
    return json_format.ParseDict(text, make())


def test_fields() -> None:
    reader = ProtobufReader([order()])
    message = filled(reader)
    found = reader.read(b"\xff" + message.SerializeToString(), 1)
    assert found == ("shop.Order", FULL)
    # The same as Google's JSON, but for numbers of 64 bits and bytes.
    googles = json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    assert googles.keys() == FULL.keys()
    assert reader.read(b"\x08\1", 0).value == FULL["parent"]
    # Numbers without a name, and those that JSON lacks.
    message.Clear()
    message.state, message.price = 9, float("inf")
    assert reader.read(message.SerializeToString(), 0).value.items() >= {"state": 9, "price": "Infinity"}.items()
    message.at.seconds = 10**15
    assert reader.read(message.SerializeToString(), 0).value["at"] == {"seconds": 10**15}


def test_indexes_lead_to_messages() -> None:
    reader = ProtobufReader([order()])
    assert reader.read(b"\x0a\1x", 0, (1,)) == ("shop.Other", {"name": "x"})
    assert reader.read(b"\x0a\1x", 0, (0, 1)) == ("shop.Order.Line", {"text": "x"})
    for indexes in ((2,), (0, 2), (0, 1, 0)):
        with pytest.raises(MalformedValueError, match="no message at its indexes"):
            reader.read(b"", 0, indexes)
    for name in ("Order.Line", "shop.Order.Line"):
        assert reader.read(b"\x0a\1x", 0, name) == ("shop.Order.Line", {"text": "x"})
    with pytest.raises(MalformedValueError, match="no message of its name"):
        reader.read(b"", 0, "None")
    named = ProtobufReader([order()], "shop.Other")
    assert named.read(b"\x0a\1x", 0).name == "shop.Other"


def test_unusable_schemas() -> None:
    missing = file_of("main.proto", "address.proto")
    unknown = file_of("main.proto", "google/protobuf/none.proto")
    wrong = file_of()
    add(wrong.message_type.add(name="Order"), "to", Kinds.TYPE_MESSAGE, ".shop.None")
    for file in (missing, unknown, wrong):
        with pytest.raises(SchemaError):
            ProtobufReader([file])
    with pytest.raises(SchemaError):
        ProtobufReader([order()], "shop.None")
    for data in (b"", b"\xff", b"\x0a\0"):
        with pytest.raises(SchemaError, match="not a set of descriptors"):
            descriptor_set(data)


def test_malformed_values() -> None:
    reader = ProtobufReader([order()])
    inside = b""
    for _ in range(200):
        inside = b"\x42" + unsigned_varint(len(inside)) + inside
    for data in (b"\x0a", b"\xff", inside):
        with pytest.raises(MalformedValueError, match=r"it is not a shop\.Order"):
            reader.read(data, 0)
