"""Writes messages from a layout and random values, together with the expected result of decoding them.

The inverse of the decoders, and independent of them: it shares the layout, but neither formats nor code.
"""

from __future__ import annotations

import base64
import random
from typing import Any

from kafkasniff.kafka.schema.layout import Field, Struct
from tests.craft.kafka_bytes import unsigned_varint

NUMBERS = {"int8": (1, True), "int16": (2, True), "error": (2, True), "uint16": (2, False), "int32": (4, True)}
NUMBERS |= {"uint32": (4, False), "int64": (8, True)}
FLOATS = {0.0: "0000000000000000", 1.5: "3ff8000000000000", -1024.25: "c090010000000000", 1e300: "7e37e43c8800759c"}
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
    """`body(layout)` gives (bytes, expected body); error codes are noted in `errors` as (code, path)."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rng = plan.rng
        self.errors: list[tuple[int, str]] = []

    def body(self, root: Struct) -> tuple[bytes, dict[str, Any]]:
        return self.struct(root, "", 0)

    def struct(self, struct: Struct, path: str, depth: int) -> tuple[bytes, dict[str, Any]]:
        out = b""
        value: dict[str, Any] = {}
        for field in struct.fields:
            raw, value[field.name] = self.field(field, f"{path}.{field.name}" if path else field.name, depth)
            out += raw
        if struct.flexible:
            out += self.tags(struct, value, path, depth)
        return out, value

    def tags(self, struct: Struct, value: dict[str, Any], path: str, depth: int) -> bytes:
        entries: list[tuple[int, bytes]] = []
        for field in struct.tagged:
            if self.plan.flip(self.plan.tagged):
                place = f"{path}.{field.name}" if path else field.name
                raw, value[field.name] = self.field(field, place, depth)
                assert field.tag is not None
                entries.append((field.tag, raw))
        if self.plan.flip(self.plan.unknown) and depth < 3:
            taken = {field.tag for field in struct.tagged}
            tag = self.rng.choice([tag for tag in (7, 130, 70000) if tag not in taken])
            raw = self.rng.randbytes(self.rng.choice([0, 1, 5, 200]))
            entries.append((tag, raw))
            value["_unknown_tags"] = [{"tag": tag, "base64": base64.b64encode(raw).decode()}]
        entries.sort()
        return unsigned_varint(len(entries)) + b"".join(
            unsigned_varint(tag) + unsigned_varint(len(raw)) + raw for tag, raw in entries
        )

    def field(self, field: Field, path: str, depth: int) -> tuple[bytes, Any]:
        if field.array:
            return self.array(field, path, depth)
        if field.struct is not None:
            if not field.nullable:
                return self.struct(field.struct, path, depth)
            if self.plan.flip(self.plan.nulls):
                return (b"\xff" if field.tag is None else b"\x00"), None
            raw, value = self.struct(field.struct, path, depth)
            return b"\x01" + raw, value
        return self.scalar(field, path, field.nullable)

    def array(self, field: Field, path: str, depth: int) -> tuple[bytes, Any]:
        if field.nullable and self.plan.flip(self.plan.nulls):
            return (b"\x00" if field.compact else b"\xff\xff\xff\xff"), None
        count = self.plan.length(depth)
        out = unsigned_varint(count + 1) if field.compact else count.to_bytes(4, "big")
        values = []
        for index in range(count):
            place = f"{path}[{index}]"
            if field.struct is not None:
                raw, value = self.struct(field.struct, place, depth + 1)
            else:
                raw, value = self.scalar(field, place, False)
            out += raw
            values.append(value)
        return out, values

    def scalar(self, field: Field, path: str, nullable: bool) -> tuple[bytes, Any]:
        kind = field.type
        if kind in NUMBERS:
            size, signed = NUMBERS[kind]
            raw = self.rng.choice(
                [bytes(size), b"\xff" * size, b"\x7f" + b"\xff" * (size - 1), self.rng.randbytes(size)]
            )
            value = int.from_bytes(raw, "big", signed=signed)
            if kind == "error" and value:
                self.errors.append((value, path))
            return raw, value
        if kind == "bool":
            flag = self.rng.random() < 0.5
            return (b"\x01" if flag else b"\x00"), flag
        if kind == "float64":
            number = self.rng.choice(list(FLOATS))
            return bytes.fromhex(FLOATS[number]), number
        if kind == "uuid":
            raw = self.rng.choice([bytes(16), self.rng.randbytes(16)])
            return raw, base64.b64encode(raw, b"-_").decode().rstrip("=")
        if nullable and self.plan.flip(self.plan.nulls):
            null_size = 2 if kind == "string" else 4
            return (b"\x00" if field.compact else b"\xff" * null_size), None
        value: Any
        if kind == "string":
            value = self.rng.choice(WORDS)
            raw = value.encode()
        elif kind == "records":
            # An empty set of batches: the records' own tests cover the content of batches.
            raw, value = b"", {"batches": [], "truncated_bytes": 0}
            if field.unaligned:
                value = {"leading_bytes": 0, **value}
        else:
            raw = value = self.rng.randbytes(self.rng.choice([0, 1, 20, 126, 127, 300]))
        length = (
            unsigned_varint(len(raw) + 1) if field.compact else len(raw).to_bytes(2 if kind == "string" else 4, "big")
        )
        return length + raw, value
