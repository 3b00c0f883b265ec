"""Bytes with an int16 version in front, written by a client for other clients."""

from __future__ import annotations

from typing import Final

import msgspec

from kafkasniff.kafka.context import DecodeContext
from kafkasniff.kafka.dissectors import data_definitions, data_schema
from kafkasniff.kafka.layout import Struct
from kafkasniff.kafka.walker import Walk, walk
from kafkasniff.model import Body

__all__ = ["exact", "read_versioned"]

_VERSION_SIZE: Final = 2


def read_versioned(
    data: bytes, name: str, form: str, context: DecodeContext, place: str, *, may_lack: bool = False
) -> Body | None:
    """Read an int16 version and the `data` block `name` in it: `{"format": form, "version", "value"}`.

    A version above the known ones is read as the newest, whose fields it must keep, and more may follow then, as in
    `org.apache.kafka.clients.consumer.internals.ConsumerProtocol`. Where the bytes do not add up, a problem says so,
    with `place` in it, and `value` has the fields before; None where there is not even a version.
    `may_lack`: bytes that end after any field are no problem, and `value` has the fields that are there.
    """
    versions = data_definitions()[name].message.versions
    version = int.from_bytes(data[:_VERSION_SIZE], "big", signed=True)
    if len(data) < _VERSION_SIZE or version < versions.low:
        told = f"version {version}" if len(data) >= _VERSION_SIZE else f"{len(data)} bytes"
        context.problem("group-protocol", f"{place}: {told} where {name} should be")
        return None
    schema = data_schema(name, min(version, versions.high))
    assert schema is not None
    # Read apart: what is odd about it has no place of its own in the message.
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
        context.problem("group-protocol", f"{place}: {left} bytes are left over behind {name} version {version}")
    return {"format": form, "version": version, "value": found.body}


def _first_fields(root: Struct, data: bytes, context: DecodeContext) -> Walk | None:
    """Read the bytes after the version as the first fields of `root`; None where they do not end after a field."""
    for count in range(len(root.fields)):
        inside = DecodeContext(context.options)
        found = walk(msgspec.structs.replace(root, fields=root.fields[:count]), data, _VERSION_SIZE, len(data), inside)
        if found.complete and found.position == len(data) and not inside.problems:
            return found
    return None


def exact(data: bytes, name: str, version: int, context: DecodeContext, *, more: bool = False) -> Body | None:
    """The `data` block `name` in a version, where the bytes are just that (`more`: or begin with it); else None."""
    schema = data_schema(name, version)
    assert schema is not None
    inside = DecodeContext(context.options)
    found = schema.read(data, 0, len(data), inside)
    if not found.complete or inside.problems or (found.position != len(data) and not more):
        return None
    return found.body
