"""Writes messages from a layout and random values. It shares the layout with the decoders, but no code."""

from __future__ import annotations

import random

from kafkasniff.kafka.schema.definition import Field, Struct
from tests.craft.kafka_bytes import unsigned_varint

SIZES = {"int8": 1, "int16": 2, "error": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8}
FLOATS = ["0000000000000000", "3ff8000000000000", "c090010000000000", "7e37e43c8800759c"]
"""0.0, 1.5, -1024.25 and 1e300."""
WORDS = ["", "a", "orders", "größe", "日本語", "x" * 127, "y" * 128, "client.id", "\x00\x1b[31m"]


class Plan:
    """Choices where the layout leaves one."""

    def __init__(
        self,
        rng: random.Random,
        *,
        nulls: bool | None = None,
        tagged: bool | None = None,
        unknown_tags: bool | None = None,
        count: int | None = None,
    ) -> None:
        self.rng = rng
        self.nulls = nulls
        self.tagged = tagged
        self.unknown = unknown_tags
        self.count = count

    def flip(self, fixed: bool | None) -> bool:
        return self.rng.random() < 0.5 if fixed is None else fixed

    def length(self, depth: int) -> int:
        if self.count is not None:
            return self.count if depth < 4 or self.count == 0 else 1
        return self.rng.choice([0, 1, 1, 2, 3]) if depth < 3 else self.rng.choice([0, 1])


class Encoder:
    """`body(layout)` makes a message."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rng = plan.rng

    def body(self, root: Struct) -> bytes:
        return self.struct(root, 0)

    def struct(self, struct: Struct, depth: int) -> bytes:
        out = b"".join(self.field(field, depth) for field in struct.fields)
        return out + self.tags(struct, depth) if struct.flexible else out

    def tags(self, struct: Struct, depth: int) -> bytes:
        entries: list[tuple[int, bytes]] = []
        for field in struct.tagged:
            if self.plan.flip(self.plan.tagged):
                assert field.tag is not None
                entries.append((field.tag, self.field(field, depth)))
        if self.plan.flip(self.plan.unknown) and depth < 3:
            taken = {field.tag for field in struct.tagged}
            tag = self.rng.choice([tag for tag in (7, 130, 70000) if tag not in taken])
            entries.append((tag, self.rng.randbytes(self.rng.choice([0, 1, 5, 200]))))
        return unsigned_varint(len(entries)) + b"".join(
            unsigned_varint(tag) + unsigned_varint(len(raw)) + raw for tag, raw in sorted(entries)
        )

    def field(self, field: Field, depth: int) -> bytes:
        if field.array:
            return self.array(field, depth)
        if field.struct is not None:
            if not field.nullable:
                return self.struct(field.struct, depth)
            if self.plan.flip(self.plan.nulls):
                return b"\xff" if field.tag is None else b"\x00"
            return b"\x01" + self.struct(field.struct, depth)
        return self.scalar(field, field.nullable)

    def array(self, field: Field, depth: int) -> bytes:
        if field.nullable and self.plan.flip(self.plan.nulls):
            return b"\x00" if field.compact else b"\xff\xff\xff\xff"
        count = self.plan.length(depth)
        out = unsigned_varint(count + 1) if field.compact else count.to_bytes(4, "big")
        for _ in range(count):
            out += self.scalar(field, False) if field.struct is None else self.struct(field.struct, depth + 1)
        return out

    def scalar(self, field: Field, nullable: bool) -> bytes:
        if field.type in SIZES:
            size = SIZES[field.type]
            some = self.rng.randbytes(size)
            return self.rng.choice([bytes(size), b"\xff" * size, b"\x7f" + b"\xff" * (size - 1), some])
        if field.type == "bool":
            return self.rng.choice([b"\x00", b"\x01"])
        if field.type == "float64":
            return bytes.fromhex(self.rng.choice(FLOATS))
        if field.type == "uuid":
            return self.rng.choice([bytes(16), self.rng.randbytes(16)])
        if nullable and self.plan.flip(self.plan.nulls):
            return null(field)
        if field.type == "string":
            return sized(field, self.rng.choice(WORDS).encode())
        # An empty set of batches: the records' own tests cover the content of batches.
        size = 0 if field.type == "records" else self.rng.choice([0, 1, 20, 126, 127, 300])
        return sized(field, self.rng.randbytes(size))


def null(field: Field) -> bytes:
    return b"\x00" if field.compact else b"\xff" * (2 if field.type == "string" else 4)


def sized(field: Field, data: bytes) -> bytes:
    """The content of a field with its length."""
    if field.compact:
        return unsigned_varint(len(data) + 1) + data
    return len(data).to_bytes(2 if field.type == "string" else 4, "big") + data
