"""Interpreters: the decoders of structures embedded in messages, by API and direction.

A message with such bytes has an interpreter. It gets the decoded body, from which fields may be missing if the message
was truncated, and adds its result next to the bytes as `_<field>`; values from the wire are never replaced, except by
`{"redacted": N}` if they contain a secret. Fields of secret bytes are redacted before it is called:
`context.revealed(value)` returns their bytes. Errors inside go to `context.problem`; nothing is raised.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, Final

import msgspec

from kafkasniff.kafka.apis.cluster_metadata import may_hold_topic
from kafkasniff.kafka.apis.dissectors import message_of
from kafkasniff.kafka.schema.context import DecodeContext, Interpreter
from kafkasniff.kafka.schema.definition import MessageDefinition
from kafkasniff.kafka.schema.enums import OPERATION_BITS
from kafkasniff.model import Body, Direction

__all__ = ["asks_connection", "interpreter", "may_have_floats", "notes_for_later"]

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
        found.append(functools.partial(_function("embedded.operations:add_names"), api_key))
    if message is not None and message.has_records:
        if may_hold_topic(api_key, direction):
            found.append(functools.partial(_function("embedded.metadata_records:read_topic"), api_key, direction))
        found.append(functools.partial(_function("embedded.any_records:read_records"), api_key, direction))
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
    # Imported when needed, as the interpreters are.
    from kafkasniff.kafka.embedded.operations import operation_places  # noqa: PLC0415

    return version is None or bool(operation_places(api_key, version))


def _function(place: str) -> Callable[..., Any]:
    module, function = place.split(":")
    found: Callable[..., Any] = getattr(importlib.import_module(f"kafkasniff.kafka.{module}"), function)
    return found
