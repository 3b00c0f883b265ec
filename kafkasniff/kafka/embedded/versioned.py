"""Bytes with an int16 version in front, written by a client for other clients."""

from __future__ import annotations

from typing import Final

from kafkasniff.kafka.context import DecodeContext
from kafkasniff.kafka.dissectors import data_definitions, data_schema
from kafkasniff.model import Body

__all__ = ["exact", "read_versioned"]

_VERSION_SIZE: Final = 2


def read_versioned(data: bytes, name: str, form: str, context: DecodeContext, place: str) -> Body | None:
    """Read an int16 version and the `data` block `name` in it: `{"format": form, "version", "value"}`.

    A version above the known ones is read as the newest, whose fields it must keep, and more may follow then, as in
    `org.apache.kafka.clients.consumer.internals.ConsumerProtocol`. Where the bytes do not add up, a problem says so,
    with `place` in it, and `value` has the fields before; None where there is not even a version.
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
    walk = schema.read(data, _VERSION_SIZE, len(data), inside)
    for problem in inside.problems:
        context.problem("group-protocol", f"{place}: {problem.detail}")
    left = len(data) - walk.position
    if walk.complete and left and version <= versions.high:
        context.problem("group-protocol", f"{place}: {left} bytes are left over behind {name} version {version}")
    return {"format": form, "version": version, "value": walk.body}


def exact(data: bytes, name: str, version: int, context: DecodeContext, *, more: bool = False) -> Body | None:
    """The `data` block `name` in a version, where the bytes are just that (`more`: or begin with it); else None."""
    schema = data_schema(name, version)
    assert schema is not None
    inside = DecodeContext(context.options)
    walk = schema.read(data, 0, len(data), inside)
    if not walk.complete or inside.problems or (walk.position != len(data) and not more):
        return None
    return walk.body
