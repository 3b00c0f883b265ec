"""From a layout to a program: the flat table of ops with which the native kernel walks a message.

A program is a head, its ops in wire order (a struct before its fields, those of its tag section last), and a pool with
the fields' names in JSON notation (`"name":`). All numbers are in native byte order: a program never leaves its
process. `kernel/program.zig` has the same structures; it has no other knowledge of the protocol.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import repeat
from struct import Struct as Packing
from typing import Final

import msgspec

from kafkasniff.kafka.schema.codes import OPERATION_BITS
from kafkasniff.kafka.schema.definition import Field, Struct, element_size, topic_fields

KINDS: Final = (
    *("bool", "int8", "int16", "uint16", "int32", "uint32", "int64", "float64"),
    *("uuid", "string", "bytes", "records", "error", "struct"),
)
"""Types by their numbers."""

FLAGS: Final = (
    *("array", "nullable", "compact", "flexible", "tagged", "secret", "watched", "config"),
    *("unaligned", "payload", "nests", "topic_id", "topic_name", "session", "set"),
)
"""Flags of an op, from the lowest bit. watched: a string or a topic id next to records, which are decoded if it names
one of the brokers' own topics. topic_name: next to a topic id. session: facts about a fetch session. set: authorized
operations, whose names are added."""

SESSION_FIELDS: Final = frozenset({"error_code", "session_id", "session_epoch"})
"""Flags in a body with a `session_id`, which lead to the added fields."""

PAIRING: Final = ("none", "silences", "mechanism", "code", "throttle")
"""Roles in the programs of pairing (`kernel/stream_roles.zig`), by number."""

SECRETS: Final = 1
WHOLE_RECORDS: Final = 2
PAYLOAD: Final = 4
"""Traits of a program: all or some of its fields are secret; its records must not end within a batch; all or some of
its fields are payload."""

_HEAD: Final = Packing("=IIIII")
_MAGIC: Final = int.from_bytes(b"KSP1", "little")
_OP: Final = Packing("=BBHHHIIIII")


class Op(msgspec.Struct, frozen=True):
    """A field, or the root."""

    name: str
    """Empty for the root."""
    kind: str
    """One of `KINDS`."""
    flags: tuple[str, ...]
    """A subset of `FLAGS`, in their order."""
    depth: int
    fields: int = 0
    """For a struct: number of fields in its body, and in its tag section."""
    tagged: int = 0
    tag: int = 0
    size: int = 0
    """Minimum size of a value, or of an array's element, in bytes."""
    next: int = 0
    """Index of the op after this one and everything nested in it."""


def ops_of(root: Struct) -> tuple[Op, ...]:
    """The ops of a layout; the first is the root."""
    ops = list(_struct(root, Op("", "struct", ("flexible",) if root.flexible else (), 0, size=root.size)))
    following = _following(ops)
    return tuple(msgspec.structs.replace(op, next=after) for op, after in zip(ops, following, strict=True))


def _following(ops: list[Op]) -> list[int]:
    """For each op, the index of the next one that is not deeper."""
    following = [len(ops)] * len(ops)
    waiting: list[int] = []
    for index, op in enumerate(ops):
        while waiting and ops[waiting[-1]].depth >= op.depth:
            following[waiting.pop()] = index
        waiting.append(index)
    return following


def _struct(struct: Struct, op: Op) -> Iterator[Op]:
    yield msgspec.structs.replace(op, fields=len(struct.fields), tagged=len(struct.tagged))
    topic, topic_id = topic_fields((*struct.fields, *struct.tagged))
    by_session = not op.depth and any(field.name == "session_id" for field in struct.fields)
    for field in (*struct.fields, *struct.tagged):
        roles = {
            "topic_id": topic_id is not None and field.name == topic_id,
            "topic_name": topic_id is not None and field.name == topic,
            "session": by_session and field.name in SESSION_FIELDS,
        }
        yield from _field(field, struct, op.depth + 1, roles)


def _field(field: Field, parent: Struct, depth: int, roles: dict[str, bool]) -> Iterator[Op]:
    inner = field.struct
    holds = {
        "array": field.array,
        "nullable": field.nullable,
        "compact": field.compact and (field.array or field.type in {"string", "bytes", "records"}),
        "flexible": inner is not None and inner.flexible,
        "tagged": field.tag is not None,
        "secret": field.secret == "value",
        "watched": parent.records and (field.type == "string" or roles["topic_id"]),
        "config": field.secret == "config",
        "unaligned": field.unaligned,
        "payload": field.payload,
        "nests": field.nests is not None,
        "set": field.enum == OPERATION_BITS,
        **roles,
    }
    flags = tuple(name for name in FLAGS if holds[name])
    op = Op(field.name, field.type, flags, depth, tag=field.tag or 0, size=element_size(field))
    if inner is None:
        yield op
    else:
        yield from _struct(inner, op)


def program_of(root: Struct, *, whole_records: bool = False, roles: Sequence[int] | None = None) -> bytes:
    """The program of a layout; `whole_records`: its records must not end within a batch; `roles`: of its ops."""
    ops = ops_of(root)
    pool = bytearray()
    places: dict[str, tuple[int, int]] = {"": (0, 0)}
    for op in ops:
        if op.name not in places:
            literal = f'"{op.name}":'.encode()
            places[op.name] = len(pool), len(literal)
            pool += literal
    start = _HEAD.size + _OP.size * len(ops)
    traits = root.secrets * SECRETS | whole_records * WHOLE_RECORDS | root.payload * PAYLOAD
    parts = [_HEAD.pack(_MAGIC, start + len(pool), len(ops), start, traits)]
    for op, role in zip(ops, repeat(0) if roles is None else roles, strict=roles is not None):
        flags = sum(1 << FLAGS.index(name) for name in op.flags)
        numbers = op.fields, op.tagged, *places[op.name], op.tag, op.size, op.next
        parts.append(_OP.pack(KINDS.index(op.kind), role, flags, *numbers))
    return b"".join([*parts, bytes(pool)])


def pairing_program(root: Struct, *, reads_code: bool = False) -> bytes | None:
    """The program of the beginning of a body, up to the last field that pairing reads, with their roles; None without.

    `reads_code`: pairing reads the error code, too.
    """
    names = [_pairing_role(field, reads_code=reads_code) for field in root.fields]
    most = max((index for index, name in enumerate(names, 1) if name), default=0)
    if not most:
        return None
    beginning = msgspec.structs.replace(root, fields=root.fields[:most], tagged=())
    roles = {field.name: PAIRING.index(name) for field, name in zip(beginning.fields, names, strict=False) if name}
    return program_of(beginning, roles=[roles.get(op.name, 0) * (op.depth == 1) for op in ops_of(beginning)])


def _pairing_role(field: Field, *, reads_code: bool) -> str:
    if field.silences:
        return "silences"
    if field.tokens:
        return "mechanism"
    if field.name == "throttle_time_ms":
        return "throttle"
    return "code" if reads_code and (field.type, field.array) == ("error", False) else ""


def listing(root: Struct, title: str) -> str:
    """A readable program: one op per line, with its index, what it reads, and its flags."""
    ops = ops_of(root)
    lines = [f"# {title}: {len(ops)} ops, {len(program_of(root))} bytes, {sys.byteorder}-endian"]
    for index, op in enumerate(ops):
        words = [f"{index:4}  {'  ' * op.depth}{op.name or '(body)'}", op.kind]
        if op.kind == "struct":
            words.append(f"fields={op.fields}")
            if op.tagged:
                words.append(f"tagged={op.tagged}")
            words.append(f"next={op.next}")
        if "tagged" in op.flags:
            words.append(f"tag={op.tag}")
        words += [f"least={op.size}", *op.flags]
        lines.append(" ".join(words))
    return "\n".join([*lines, ""])
