"""Protobuf files as text: the same values as by descriptors, and invalid text."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from kafkasniff.values.proto_text import parse_proto
from kafkasniff.values.protobuf import ProtobufReader, descriptor_file
from kafkasniff.values.schemas import MAX_SCHEMA, SchemaError
from tests.values.test_protobuf import FULL, filled, order

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
    assert (
        found.value.items()
        >= {"line": {"text": "x"}, "kind": "SOME", "road": "r", "by_name": {"k": {"text": ""}}}.items()
    )
    assert reader.read(b"\x0a\1x\x1a\1e", 0, (1,)).value == {"name": "x", "message": "", "enum": "e"}
    assert reader.read(b"", 0, (0, 1)).name == "shop.Order.Line"


def _parent() -> dict[str, Any]:
    found = FULL["parent"]
    assert isinstance(found, dict)
    return found


def test_proto2() -> None:
    text = """message M { required int32 a = 1; optional group Inside = 2 { optional string s = 3 [default = "x;"]; }
                          repeated int32 many = 4 [packed = true]; extensions 100 to 199; }
              extend M { optional int32 more = 100; }"""
    reader = ProtobufReader([descriptor_file(text, "value")])
    assert reader.read(b"\x08\1\x13\x1a\1y\x14\x22\2\1\2", 0).value == {"a": 1, "inside": {"s": "y"}, "many": [1, 2]}


def test_files_that_registries_know() -> None:
    text = """syntax = "proto3"; import "confluent/meta.proto"; import "confluent/type/decimal.proto";
              import "google/protobuf/any.proto";
              message M { option (confluent.message_meta).doc = "x"; confluent.type.Decimal price = 1
                          [(confluent.field_meta) = { params: [{ key: "precision", value: "8" }] }]; }"""
    reader = ProtobufReader([descriptor_file(text, "value")])
    found = reader.read(b"\x0a\7\x0a\1\7\x10\x08\x18\2", 0)
    assert found.value == {"price": {"value": b"\7", "precision": 8, "scale": 2}}


def test_a_descriptor_and_text_are_told_apart() -> None:
    assert descriptor_file(b64encode(order().SerializeToString()).decode(), "value").message_type[0].name == "Order"
    assert descriptor_file("message M {}", "value").message_type[0].name == "M"
    assert parse_proto("", "value").name == "value"


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
