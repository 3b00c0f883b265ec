"""Control records: the keys and values of the records in control batches.

The key is int16 version + int16 type (`org.apache.kafka.common.record.ControlRecordType`); the value has a schema per
type, in `dissectors/records/control.txt`.

Up to 2.8 (KRaft's early access), LEADER_CHANGE was type 3, and its value had no version; from 3.0 on it is 2, and 3 is
SNAPSHOT_HEADER. The keys do not differ, so the value has to decide.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from typing import Any, Final

from kafkasniff.kafka.schema.context import DecodeContext
from kafkasniff.kafka.schema.data_schemas import data_definitions, data_schema
from kafkasniff.kafka.schema.enums import enum_text
from kafkasniff.kafka.schema.program import program_of
from kafkasniff.native.caller import ControlType, Program
from kafkasniff.native.library import Kernel

__all__ = ["VALUE_SCHEMAS", "control_record", "control_types", "control_value"]

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

_LEADER_CHANGE: Final = 2
_SNAPSHOT_HEADER: Final = 3
_NO_VERSION: Final = bytes(2)

_KEY: Final = struct.Struct(">hh")


def control_record(
    key: bytes | None, value: bytes | None, context: DecodeContext, position: int
) -> dict[str, Any] | None:
    """The content of a control record: `{"version", "type", "name", "value"}`; None if the key is too short.

    `version` and `type` are the key's; `name` is None for an unknown type; `value` is None if it cannot be decoded (the
    record's own `value` has its bytes). Fields that a newer version appends to the key are ignored, as in Kafka's
    `ControlRecordType.parseTypeId`. Problems go to `context`, at `position`.
    """
    if key is None or len(key) < _KEY.size:
        context.problem("control-record", f"a control record with a key of {len(key or b'')} bytes", position)
        return None
    version, control_type = _KEY.unpack_from(key)
    meant, read = control_type, None
    if control_type == _SNAPSHOT_HEADER and value is not None:
        read = _early_leader_change(value, context)
        meant = control_type if read is None else _LEADER_CHANGE
    return {
        "version": version,
        "type": control_type,
        "name": enum_text("control_record_type", meant),
        "value": control_value(control_type, value, context, position) if read is None else read,
    }


def _early_leader_change(value: bytes, context: DecodeContext) -> dict[str, Any] | None:
    """Fields of a value of type 3 that is exactly a LEADER_CHANGE of 2.8, and not a SNAPSHOT_HEADER; else None.

    Without the version the two differ in length and in the following fields: a header has 11 bytes, unless it has tags
    that do not exist yet.
    """
    early, later = DecodeContext(context.options), DecodeContext(context.options)
    read = control_value(_LEADER_CHANGE, _NO_VERSION + value, early, 0)
    if read is None or early.problems:
        return None
    if control_value(_SNAPSHOT_HEADER, value, later, 0) is not None and not later.problems:
        return None
    del read["version"]  # it is not on the wire
    return read


def control_value(
    control_type: int, value: bytes | None, context: DecodeContext, position: int
) -> dict[str, Any] | None:
    """Fields of a control record's value by the schema of its type, `version` first; None if it cannot be decoded.

    All begin with an int16 version: EndTxnMarker before its fields, the others as their first field. A newer
    EndTxnMarker is decoded as version 0, whose field it must keep (`EndTransactionMarker.deserialize`).
    """
    name = VALUE_SCHEMAS.get(control_type)
    if name is None or value is None:
        return None
    version = int.from_bytes(value[:2], "big", signed=True)
    schema = data_schema(name, 0 if name == _END_TXN_MARKER else version)
    if schema is None:
        context.problem("control-record", f"unknown version {version} of {name}", position)
        return None
    # Decoded in a context of its own: offsets of its problems are not offsets in the message.
    inside = DecodeContext(context.options)
    start = 2 if name == _END_TXN_MARKER else 0
    read = schema.read(value, start, len(value), inside)
    for problem in inside.problems:
        context.problem("control-record", f"{name}: {problem.detail}", position)
    if not read.complete:
        return None
    if read.position < len(value) and (start == 0 or version == 0):
        left = len(value) - read.position
        context.problem("control-record", f"{left} surplus bytes after a {name}", position)
    return {"version": version, **read.body}


@functools.cache
def control_types(kernel: Kernel) -> Sequence[ControlType]:
    """What the kernel reads control records by; Python reads unknown types, and reports what is wrong."""
    found: list[ControlType] = []
    for number, name in VALUE_SCHEMAS.items():
        fronted = name == _END_TXN_MARKER
        text = enum_text("control_record_type", number)
        assert text is not None
        versions = data_definitions()[name].message.versions
        for version in (0,) if fronted else range(versions.low, versions.high + 1):
            schema = data_schema(name, version)
            assert schema is not None
            found.append(ControlType(number, version, fronted, text.encode(), Program(kernel, program_of(schema.root))))
    return found
