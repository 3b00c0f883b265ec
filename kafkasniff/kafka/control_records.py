"""Control records: the keys and values of the records in control batches.

The key is int16 version + int16 type (`org.apache.kafka.common.record.ControlRecordType`); the value has a schema per
type, in `dissectors/records/control.txt`.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from kafkasniff.kafka.context import DecodeContext
from kafkasniff.kafka.dissectors import data_schema
from kafkasniff.kafka.enums import enum_text

__all__ = ["VALUE_SCHEMAS", "control_record", "control_value"]

_END_TXN_MARKER: Final = "EndTxnMarker"
VALUE_SCHEMAS: Final = {
    0: _END_TXN_MARKER,
    1: _END_TXN_MARKER,
    2: "LeaderChangeMessage",
    3: "SnapshotHeaderRecord",
    4: "SnapshotFooterRecord",
    5: "KRaftVersionRecord",
    6: "VotersRecord",
}
"""Names of the schemas of the values, by type."""

_KEY: Final = struct.Struct(">hh")


def control_record(
    key: bytes | None, value: bytes | None, context: DecodeContext, position: int
) -> dict[str, Any] | None:
    """What a control record says: `{"version", "type", "name", "value"}`; None where the key is too short to tell.

    `version` is the key's; `name` is None for a type that is not known; `value` is None where it cannot be decoded (the
    record's own `value` has its bytes). Fields that a newer version appends to the key are not looked at, as Kafka's
    `ControlRecordType.parseTypeId` does not either. Problems go to `context`, at `position`.
    """
    if key is None or len(key) < _KEY.size:
        context.problem("control-record", f"a control record with a key of {len(key or b'')} bytes", position)
        return None
    version, control_type = _KEY.unpack_from(key)
    return {
        "version": version,
        "type": control_type,
        "name": enum_text("control_record_type", control_type),
        "value": control_value(control_type, value, context, position),
    }


def control_value(
    control_type: int, value: bytes | None, context: DecodeContext, position: int
) -> dict[str, Any] | None:
    """Fields of a control record's value by the schema of its type, `version` first; None where that cannot be done.

    All begin with an int16 version: EndTxnMarker in front of its fields, the others as their first field. A newer
    EndTxnMarker is read as version 0, whose field it must keep (`EndTransactionMarker.deserialize`).
    """
    name = VALUE_SCHEMAS.get(control_type)
    if name is None or value is None:
        return None
    version = int.from_bytes(value[:2], "big", signed=True)
    schema = data_schema(name, 0 if name == _END_TXN_MARKER else version)
    if schema is None:
        context.problem("control-record", f"version {version} of {name} is not known", position)
        return None
    # Read apart: what is odd about it has no place of its own in the message.
    inside = DecodeContext(context.options)
    start = 2 if name == _END_TXN_MARKER else 0
    read = schema.read(value, start, len(value), inside)
    for problem in inside.problems:
        context.problem("control-record", f"{name}: {problem.detail}", position)
    if not read.complete:
        return None
    if read.position < len(value) and (start == 0 or version == 0):
        left = len(value) - read.position
        context.problem("control-record", f"{left} bytes are left over behind a {name}", position)
    return {"version": version, **read.body}
