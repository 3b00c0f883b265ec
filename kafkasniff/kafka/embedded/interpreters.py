"""Interpreters: the decoders of structures embedded in messages, by API and direction.

A message with such bytes has an interpreter. It gets the decoded body, from which fields may be missing if the message
was truncated, and adds its result next to the bytes as `_<field>`; values from the wire are never replaced, except by
`{"redacted": N}` if they contain a secret. Fields of secret bytes are redacted before it is called:
`context.revealed(value)` returns their bytes. Errors inside go to `context.problem`; nothing is raised.

Sets of authorized operations (KIP-430) are decoded here: bit n of an int32 represents the AclOperation of code n. The
definitions determine which fields hold such sets: those with the table `OPERATION_BITS`. Responses have them if the
request asked for them; else they hold -2147483648 and nothing is added.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from kafkasniff.kafka.apis.cluster_metadata import may_hold_topic
from kafkasniff.kafka.apis.dissectors import api, message_of
from kafkasniff.kafka.schema.codes import OPERATION_BITS, enum_text
from kafkasniff.kafka.schema.context import DecodeContext, Interpreter
from kafkasniff.kafka.schema.definition import MessageDefinition, Struct
from kafkasniff.model import Body, Direction

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


_DIRECTIONS: Final[tuple[Direction, ...]] = ("request", "response")


class _Interpreter(msgspec.Struct, frozen=True):
    """The interpreter of one API's messages in one direction."""

    place: str
    """`module:function` within `kafkasniff.kafka`."""
    connection: bool = False
    """It uses facts from earlier messages of the connection, or records facts for later ones."""
    notes: bool = False
    """It records facts, so the body is decoded even if bodies are not wanted."""
    floats: bool = False
    """Its result may contain floats."""


_READERS: Final[dict[tuple[int, Direction], tuple[_Interpreter, ...]]] = {
    (11, "request"): (_Interpreter("embedded.group_protocol:join_group_request", connection=True, notes=True),),
    (11, "response"): (_Interpreter("embedded.group_protocol:join_group_response", connection=True, notes=True),),
    (14, "request"): (_Interpreter("embedded.group_protocol:sync_group_request", connection=True),),
    (14, "response"): (_Interpreter("embedded.group_protocol:sync_group_response", connection=True),),
    (15, "response"): (_Interpreter("embedded.group_protocol:describe_groups_response"),),
    (17, "request"): (_Interpreter("embedded.sasl_messages:handshake_request", connection=True, notes=True),),
    (17, "response"): (_Interpreter("embedded.sasl_messages:handshake_response", connection=True, notes=True),),
    (36, "request"): (_Interpreter("embedded.sasl_messages:authenticate_request", connection=True, notes=True),),
    (36, "response"): (_Interpreter("embedded.sasl_messages:authenticate_response", connection=True, notes=True),),
    (58, "request"): (_Interpreter("messages.envelope:principal"),),
    (72, "request"): (_Interpreter("embedded.telemetry:push_telemetry_request", floats=True),),
}
"""By API key and direction: imported for the first such message, and called in this order, after nested messages are
decoded. Interpreters of operation sets and records follow; definitions say which messages have any."""


def interpreter(api_key: int, direction: Direction, version: int | None = None) -> Interpreter | None:
    """The interpreter for such messages, of one version or of any; None if they have none."""
    message = message_of(api_key, direction)
    found: list[Interpreter] = []
    if message is not None and message.nested is not None:
        found.append(functools.partial(_function(f"messages.envelope:open_{message.nested[1]}"), message.nested[0]))
    found += [_function(one.place) for one in _READERS.get((api_key, direction), ())]
    if direction == "response" and message is not None and _has_operations(message, api_key, version):
        found.append(functools.partial(add_names, api_key))
    if message is not None and message.has_records:
        if may_hold_topic(api_key, direction):
            found.append(functools.partial(_function("embedded.internal_topics:read_topic"), api_key, direction))
        found.append(functools.partial(_function("embedded.internal_topics:read_records"), api_key, direction))
    if len(found) < 2:
        return found[0] if found else None

    def interpret(body: Body, version: int, context: DecodeContext) -> None:
        for one in found:
            one(body, version, context)

    return interpret


def asks_connection(api_key: int) -> bool:
    """Whether decoding messages of an API uses or records facts of their connection."""
    return _is_nesting(api_key) or any(one.connection for one in _readers(api_key))


def notes_for_later(api_key: int) -> bool:
    """Whether later messages of the connection depend on the bodies of an API."""
    return any(one.notes for one in _readers(api_key))


@functools.lru_cache(maxsize=1024)  # keys come from the wire
def may_have_floats(api_key: int) -> bool:
    """Whether bodies of an API may contain floats, in their fields or in embedded structures. Hot."""
    messages = [message for direction in _DIRECTIONS if (message := message_of(api_key, direction)) is not None]
    return any(message.has_floats for message in messages) or any(one.floats for one in _readers(api_key))


def _readers(api_key: int) -> list[_Interpreter]:
    return [one for direction in _DIRECTIONS for one in _READERS.get((api_key, direction), ())]


def _is_nesting(api_key: int) -> bool:
    """Whether such messages contain others: a nested response is decoded by the request nested in the request."""
    return any(
        message is not None and message.nested is not None
        for message in (message_of(api_key, direction) for direction in _DIRECTIONS)
    )


def _has_operations(message: MessageDefinition, api_key: int, version: int | None) -> bool:
    """Whether responses of this version, or of any, have sets of operations."""
    if not message.has_enum(OPERATION_BITS):
        return False
    return version is None or bool(operation_places(api_key, version))


def _function(place: str) -> Callable[..., Any]:
    module, function = place.split(":")
    found: Callable[..., Any] = getattr(importlib.import_module(f"kafkasniff.kafka.{module}"), function)
    return found
