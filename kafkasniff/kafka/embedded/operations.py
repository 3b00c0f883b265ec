"""Sets of authorized operations (KIP-430): bit n of an int32 represents the AclOperation of code n.

The definitions determine which fields hold such sets: those with the table `OPERATION_BITS`. Responses have them if the
request asked for them; else they hold -2147483648 and nothing is added.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, Final

from kafkasniff.kafka.apis.dissectors import api
from kafkasniff.kafka.schema.context import DecodeContext, Interpreter
from kafkasniff.kafka.schema.enums import OPERATION_BITS, enum_text
from kafkasniff.kafka.schema.layout import Struct
from kafkasniff.model import Body

__all__ = ["add_names", "names_only", "operation_names", "operation_places"]

NOT_ASKED_FOR: Final = -0x80000000
"""`org.apache.kafka.common.requests.MetadataResponse.AUTHORIZED_OPERATIONS_OMITTED` and the other responses' alike."""

Place = tuple[tuple[str, ...], str]
"""The arrays on the path from the body, and the field in their elements."""


@functools.lru_cache(maxsize=1024)
def operation_names(bits: int) -> tuple[str, ...]:
    """Names of the operations in a set, by ascending bit; `bit 20` for an unnamed one."""
    found = []
    for bit in range(32):
        mask = 1 << bit
        if bits & mask:
            # The sign bit alone means "not requested"; in a set it is an unnamed bit.
            found.append((enum_text(OPERATION_BITS, mask) if bit < 31 else None) or f"bit {bit}")
    return tuple(found)


@functools.cache
def operation_places(api_key: int, version: int) -> tuple[Place, ...]:
    """Where a response has sets of operations; () for an unknown version."""
    found = api(api_key)
    if found is None or version not in found.versions:
        return ()
    return tuple(_places(found.response(version).root, ()))


def _places(struct: Struct, arrays: tuple[str, ...]) -> list[Place]:
    found: list[Place] = [(arrays, field.name) for field in struct.fields if field.enum == OPERATION_BITS]
    for field in struct.fields:
        if field.struct is not None and field.array:
            found += _places(field.struct, (*arrays, field.name))
    return found


def add_names(api_key: int, body: Body, version: int, _context: DecodeContext) -> None:
    """Add `_<field>` next to the sets of a response. Hot: a Metadata response can name 100,000 topics."""
    for arrays, name in operation_places(api_key, version):
        structs: Iterable[dict[str, Any]] = (body,)
        for depth, array in enumerate(arrays):
            outer = structs
            structs = body.get(array) or () if depth == 0 else [one for each in outer for one in each.get(array) or ()]
        for struct in structs:
            bits = struct.get(name)
            if bits is not None and bits != NOT_ASKED_FOR:
                struct[f"_{name}"] = list(operation_names(bits))


def names_only(interpret: Interpreter | None) -> bool:
    """Whether an interpreter, if there is one, adds only names of operations."""
    return interpret is None or (isinstance(interpret, functools.partial) and interpret.func is add_names)
