"""The framings of serializers: where they name the schema, and where the data begins."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from kafkasniff.kafka.record_facts.schema_registry import MAX_ID, MAX_INDEXES, message_indexes
from kafkasniff.values.framing import data_of, framing_of
from kafkasniff.values.schemas import MAX_VALUE, MalformedValueError, SchemaKind
from tests.values.avro_bytes import long

GUID = bytes(range(16))
TEXT = "00010203-0405-0607-0809-0a0b0c0d0e0f"


def found(data: bytes, *headers: tuple[str, bytes | None], kind: SchemaKind = "AVRO", **fields: Any) -> Any:
    """Format, key, certainty, data and indexes of a value."""
    record = {"headers": [{"key": key, "value": value} for key, value in headers], **fields}
    framing = framing_of(record, "_value", data)
    if framing is None:
        return None
    whole, start, indexes = data_of(framing, kind, data)
    return framing.format, framing.key, framing.sure, whole[start:], indexes


def test_confluent() -> None:
    assert found(b"\0\0\0\1\2data") == ("schema-registry", 258, False, b"data", (0,))
    assert found(b"\0\0\0\1\2data", _value={})[2] is True
    assert found(b"\0\0\0\1\2data", _key={})[2] is False
    assert found(b"\0\0\0\1\2\0data", kind="PROTOBUF")[3:] == (b"data", (0,))
    assert found(b"\0\0\0\1\2" + long(2) + long(1) + long(300) + b"x", kind="PROTOBUF")[3:] == (b"x", (1, 300))
    for data in (
        b"",
        b"\0",
        b"\0\0\0\0\1",
        b"\0\0\0\1\2",
        b"\1\0\0\1\2data",
        b"\0" + (MAX_ID + 1).to_bytes(4, "big") + b"x",
    ):
        assert found(data) is None
    with pytest.raises(MalformedValueError, match="indexes"):
        found(b"\0\0\0\1\2\3", kind="PROTOBUF")


def test_headers_take_precedence() -> None:
    by_id, by_guid = ("__value_schema_id", b"\0\0\0\0\7"), ("__value_schema_id", b"\1" + GUID)
    for data in (b"data", b"\0\0\0\1\2data"):
        assert found(data, ("x", None), by_id) == ("schema-registry", 7, True, data, (0,))
        assert found(data, by_id, by_guid) == ("schema-registry", TEXT, True, data, (0,))
        assert found(data, ("apicurio.value.globalId", bytes(7) + b"\5")) == ("apicurio", 5, True, data, (0,))
    # For Protobuf, they have the indexes, too.
    inner = ("__value_schema_id", b"\1" + GUID + long(2) + long(1) + long(3))
    assert found(b"data", inner, kind="PROTOBUF") == ("schema-registry", TEXT, True, b"data", (1, 3))
    for other in (("__key_schema_id", b"\0\0\0\0\7"), ("__value_schema_id", b"\0\0"), ("__value_schema_id", None),
                  ("apicurio.value.contentId", b"\7"), ("apicurio.key.contentId", bytes(7) + b"\5")):  # fmt: skip
        assert found(b"data", other) is None


def test_apicurio_and_glue() -> None:
    assert found(b"\0" + bytes(7) + b"\7data") == ("apicurio", 7, False, b"data", (0,))
    assert found(b"\0" + bytes(7) + b"\7") is None
    assert found(b"\0" * 20) is None
    # Protobuf names its message, before the data or in a header.
    assert found(b"\0" + bytes(7) + b"\7\6\x0a\4Itemdata", kind="PROTOBUF")[3:] == (b"data", "Item")
    named = (("apicurio.value.contentId", bytes(7) + b"\5"), ("apicurio.protobuf.type", b"Item"))
    assert found(b"data", *named, kind="PROTOBUF")[3:] == (b"data", "Item")
    assert found(b"", named[0], kind="PROTOBUF")[3:] == (b"", (0,))
    for data in (b"\7\x0a\4Item", b"\6\x12\4Item", b"\2\x0a\0", b"\0"):
        with pytest.raises(MalformedValueError, match="the name of its type"):
            found(b"\0" + bytes(7) + b"\7" + data, kind="PROTOBUF")
    assert found(b"\3\0" + GUID + b"data") == ("aws-glue", TEXT, False, b"data", (0,))
    assert found(b"\3\5" + GUID + zlib.compress(b"data")) == ("aws-glue", TEXT, False, b"data", (0,))
    assert found(b"\3\1" + GUID + b"data") is None
    assert found(b"\3\0" + GUID) is None
    for data in (b"no zlib", zlib.compress(b"x")[:-1], zlib.compress(bytes(MAX_VALUE + 1))):
        with pytest.raises(MalformedValueError, match=r"damaged|truncated"):
            found(b"\3\5" + GUID + data)


def test_message_indexes() -> None:
    assert message_indexes(b"\0rest", 0) == ((0,), 1)
    assert message_indexes(b"x" + long(1) + long(5), 1) == ((5,), 3)
    deepest = long(MAX_INDEXES) + long(1) * MAX_INDEXES
    assert message_indexes(deepest, 0) == ((1,) * MAX_INDEXES, len(deepest))
    for data in (b"", b"\1", b"\2", b"\2\1", b"\x80", b"\x80\x80\x80\x80\x01", long(MAX_INDEXES + 1) + long(1) * 40):
        assert message_indexes(data, 0) is None
