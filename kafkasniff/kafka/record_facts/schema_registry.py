"""Schema ids that serializers of a schema registry write before keys and values, or into record headers.

The framing (Confluent's wire format) is a zero byte and an int32 schema id, big-endian, before the serialized bytes.
Newer serializers can write the id into the record headers `__key_schema_id` and `__value_schema_id` instead: a zero
byte and an int32 id, or a one byte and a GUID of 16 bytes. Protobuf's serializers continue both forms with the indexes
of the message in its file (`message_indexes`).

Nothing on the wire says that a key or value is framed, and numbers begin with zero bytes too. So keys and values of one
partition of one message are judged as a whole, separately: all that are not null have to begin like a framing with a
schema id of `MIN_ID` to `MAX_ID`, with at most `MAX_SCHEMAS` different ids among them, and not all may be as long as a
number or a UUID (`_NUMBER_SIZES`), as big-endian integers, pairs of them, and timestamps are. If the first and the last
record of every batch have none, no other record is examined. Headers are judged separately. Topics whose names begin
with two underscores are Kafka's own, with their own formats.
"""

from __future__ import annotations

from typing import Any, Final

from kafkasniff.model import Body

__all__ = [
    "GUID_SIZE",
    "HEADERS",
    "ID_SIZE",
    "MAX_ID",
    "MAX_SCHEMAS",
    "MIN_ID",
    "add_from_header",
    "add_schema_ids",
    "guid_text",
    "message_indexes",
]

MIN_ID: Final = 1
MAX_ID: Final = 0xFFFFFF
"""Registries count ids up from 1 (Confluent's cloud: from 100,001): a larger number is a coincidence."""
MAX_SCHEMAS: Final = 4
"""Maximum number of schemas of one partition in one message: versions of one subject, or few subjects."""

ID_SIZE: Final = 5
"""The zero byte and the schema id."""
_NUMBER_SIZES: Final = frozenset({8, 16})
"""int64, two of them or a UUID."""
GUID_SIZE: Final = 17
"""The one byte and the GUID."""
MAX_INDEXES: Final = 32
"""Levels of nested messages of Protobuf."""
_INDEX_BITS: Final = 21
HEADERS: Final = {"__key_schema_id": "_key", "__value_schema_id": "_value"}
"""Record headers with a schema's id, and the field that it belongs to."""
_FIELDS: Final = (("key", "_key"), ("value", "_value"))


def add_schema_ids(records: Body, topic: str | bytes | None = None) -> None:
    """Add `_key` and `_value` to the records of a `records` value: `{"format": "schema-registry", "schema_id": 17}`.

    `topic` is the topic's name, None if unknown. Hot: nearly always two records decide.
    """
    batches = records["batches"]
    for field, target in _FIELDS:
        for batch in batches:
            found = batch.get("records")
            if found:
                data = found[0][field]
                if data is None:
                    data = found[-1][field]
                if data is not None:
                    # A value with secrets is no longer bytes.
                    if data.__class__ is bytes and data[:1] == b"\0" and not _is_internal(topic):
                        _add(batches, field, target)
                    break


def _is_internal(topic: str | bytes | None) -> bool:
    return isinstance(topic, str) and topic.startswith("__")


def _add(batches: list[dict[str, Any]], field: str, target: str) -> None:
    """Add the schema ids, if all values of a field are framed."""
    found = (record for batch in batches if not batch.get("control") for record in batch.get("records") or ())
    present = [record for record in found if record[field] is not None]
    ids: list[int] = []
    sizes: set[int] = set()
    for record in present:
        data = record[field]
        if not isinstance(data, bytes) or len(data) <= ID_SIZE or data[0]:
            return
        number = int.from_bytes(data[1:ID_SIZE], "big")
        if not MIN_ID <= number <= MAX_ID:
            return
        ids.append(number)
        sizes.add(len(data))
    if len(set(ids)) > MAX_SCHEMAS or sizes <= _NUMBER_SIZES:
        return
    for record, number in zip(present, ids, strict=True):
        # A header takes precedence, as in the deserializers.
        record.setdefault(target, {"format": "schema-registry", "schema_id": number})


def add_from_header(record: dict[str, Any], header: dict[str, Any]) -> None:
    """Add the id of a header in `HEADERS`; among several of one name the last counts, as in the deserializers."""
    target, data = HEADERS[header["key"]], header["value"]
    if data is None:
        return
    if len(data) >= GUID_SIZE and data[0] == 1 and _ends_with_indexes(data, GUID_SIZE):
        record[target] = {"format": "schema-registry", "schema_guid": guid_text(data[1:GUID_SIZE])}
    elif len(data) >= ID_SIZE and data[0] == 0 and _ends_with_indexes(data, ID_SIZE):
        record[target] = {"format": "schema-registry", "schema_id": int.from_bytes(data[1:ID_SIZE], "big")}


def _ends_with_indexes(data: bytes, at: int) -> bool:
    if len(data) == at:
        return True
    found = message_indexes(data, at)
    return found is not None and found[1] == len(data)


def message_indexes(data: bytes, at: int) -> tuple[tuple[int, ...], int] | None:
    """The indexes of a Protobuf message in its file and in its outer messages, and the position after them.

    They are zigzag varints: the number of indexes, 0 for the first message, and each of them. None if there are none.
    """
    found: list[int] = []
    left = -1
    while left:
        number = shift = 0
        while True:
            if at >= len(data) or shift > _INDEX_BITS:
                return None
            number |= (data[at] & 0x7F) << shift
            shift += 7
            at += 1
            if data[at - 1] < 0x80:
                break
        if number & 1:
            return None
        if left < 0:
            left = number >> 1
            if not left:
                return (0,), at
            if left > MAX_INDEXES:
                return None
        else:
            found.append(number >> 1)
            left -= 1
    return tuple(found), at


def guid_text(data: bytes) -> str:
    """In the notation of registries (RFC 9562, section 4)."""
    text = data.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
