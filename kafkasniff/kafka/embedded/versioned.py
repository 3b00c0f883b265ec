"""Bytes with a leading int16 version, written by a client for other clients."""

from __future__ import annotations

from typing import Final

import msgspec

from kafkasniff.kafka.schema.context import DecodeContext
from kafkasniff.kafka.schema.data_schemas import data_definitions, data_schema
from kafkasniff.kafka.schema.layout import Struct
from kafkasniff.kafka.schema.walker import Walk, walk
from kafkasniff.model import Body

__all__ = ["exact", "read_versioned"]

_VERSION_SIZE: Final = 2


def read_versioned(
    data: bytes, name: str, form: str, context: DecodeContext, place: str, *, may_lack: bool = False
) -> Body | None:
    """Read an int16 version and the `data` block `name` in it: `{"format": form, "version", "value"}`.

    A version above the known ones is decoded as the newest, whose fields it must keep, and more bytes may follow, as in
    `org.apache.kafka.clients.consumer.internals.ConsumerProtocol`. If the bytes do not add up, a problem with `place`
    is reported, and `value` has the fields before it; None if there is not even a version. `may_lack`: bytes that end
    after any field are not a problem, and `value` has the fields that are present.
    """
    versions = data_definitions()[name].message.versions
    version = int.from_bytes(data[:_VERSION_SIZE], "big", signed=True)
    if len(data) < _VERSION_SIZE or version < versions.low:
        given = f"version {version}" if len(data) >= _VERSION_SIZE else f"{len(data)} bytes"
        context.problem("group-protocol", f"{place}: {given} where {name} should be")
        return None
    schema = data_schema(name, min(version, versions.high))
    assert schema is not None
    # Decoded in a context of its own: offsets of its problems are not offsets in the message.
    inside = DecodeContext(context.options)
    found = schema.read(data, _VERSION_SIZE, len(data), inside)
    if may_lack and not found.complete:
        first_fields = _first_fields(schema.root, data, context)
        if first_fields is not None:
            return {"format": form, "version": version, "value": first_fields.body}
    for problem in inside.problems:
        context.problem("group-protocol", f"{place}: {problem.detail}")
    left = len(data) - found.position
    if found.complete and left and version <= versions.high:
        context.problem("group-protocol", f"{place}: {left} surplus bytes after {name} version {version}")
    return {"format": form, "version": version, "value": found.body}


def _first_fields(root: Struct, data: bytes, context: DecodeContext) -> Walk | None:
    """Decode the bytes after the version as the first fields of `root`; None if they do not end after a field."""
    for count in range(len(root.fields)):
        inside = DecodeContext(context.options)
        found = walk(msgspec.structs.replace(root, fields=root.fields[:count]), data, _VERSION_SIZE, len(data), inside)
        if found.complete and found.position == len(data) and not inside.problems:
            return found
    return None


def exact(data: bytes, name: str, version: int, context: DecodeContext, *, more: bool = False) -> Body | None:
    """The `data` block `name` in a version, if the bytes are exactly that (`more`: or begin with it); else None."""
    schema = data_schema(name, version)
    assert schema is not None
    inside = DecodeContext(context.options)
    found = schema.read(data, 0, len(data), inside)
    if not found.complete or inside.problems or (found.position != len(data) and not more):
        return None
    return found.body
