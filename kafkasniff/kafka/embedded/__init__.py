"""What lies inside the bytes of messages: group protocols, envelopes, metrics, records of Kafka's own topics.

A message that has such bytes has an interpreter. It gets the decoded body, of which fields may be missing where the
message broke off, and puts what it read beside the bytes as `_<field>`; a wire value is never replaced, but by
`{"redacted": N}` where it contains a secret. Fields of secret bytes are redacted already when it is called:
`context.revealed(value)` gives their bytes. What is wrong inside goes to `context.problem`; nothing is raised.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kafkasniff.kafka.cluster_metadata import may_hold_topic
from kafkasniff.kafka.context import DecodeContext
from kafkasniff.kafka.definition import MessageDefinition
from kafkasniff.kafka.dissectors import api
from kafkasniff.model import Body, Direction

__all__ = ["Interpreter", "asks_connection", "interpreter", "may_have_floats", "notes_for_later"]

Interpreter = Callable[[Body, int, DecodeContext], None]
"""Takes a body, its version and the message's context."""


_DIRECTIONS: Final[tuple[Direction, ...]] = ("request", "response")
OPERATION_BITS: Final = "acl_operation_bits"
"""The table of fields with sets of operations."""


class _Reader(NamedTuple):
    """What reads the bytes of one API's messages in one direction."""

    place: str
    """`module:function` within this package."""
    connection: bool = False
    """It asks what was said on the connection before, or notes what later messages are read by."""
    notes: bool = False
    """It notes something, so that the body is read even where bodies are not wanted."""
    floats: bool = False
    """What it adds may hold floats."""


_READERS: Final[dict[tuple[int, Direction], tuple[_Reader, ...]]] = {
    (11, "request"): (_Reader("group_protocol:join_group_request", connection=True, notes=True),),
    (11, "response"): (_Reader("group_protocol:join_group_response", connection=True, notes=True),),
    (14, "request"): (_Reader("group_protocol:sync_group_request", connection=True),),
    (14, "response"): (_Reader("group_protocol:sync_group_response", connection=True),),
    (15, "response"): (_Reader("group_protocol:describe_groups_response"),),
    (17, "request"): (_Reader("sasl_messages:handshake_request", connection=True, notes=True),),
    (17, "response"): (_Reader("sasl_messages:handshake_response", connection=True, notes=True),),
    (36, "request"): (_Reader("sasl_messages:authenticate_request", connection=True, notes=True),),
    (36, "response"): (_Reader("sasl_messages:authenticate_response", connection=True, notes=True),),
    (58, "request"): (_Reader("envelope:principal"),),
    (72, "request"): (_Reader("telemetry:push_telemetry_request", floats=True),),
}
"""By API key and direction: imported when the first such message comes, and called in this order, behind what reads a
nested message. What reads sets of operations and records comes after them; definitions say which messages have any."""


def interpreter(api_key: int, direction: Direction, version: int | None = None) -> Interpreter | None:
    """What reads the bytes inside such messages, of one version or of any; None for those that have none."""
    message = _definition(api_key, direction)
    found: list[Interpreter] = []
    if message is not None and message.nested is not None:
        found.append(functools.partial(_function(f"envelope:open_{message.nested[1]}"), message.nested[0]))
    found += [_function(one.place) for one in _READERS.get((api_key, direction), ())]
    if direction == "response" and message is not None and _has_operations(message, api_key, version):
        found.append(functools.partial(_function("operations:add_names"), api_key))
    if message is not None and message.has_records:
        if may_hold_topic(api_key, direction):
            found.append(functools.partial(_function("metadata_records:read_topic"), api_key, direction))
        found.append(functools.partial(_function("any_records:read_records"), api_key, direction))
    if len(found) < 2:
        return found[0] if found else None

    def interpret(body: Body, version: int, context: DecodeContext) -> None:
        for one in found:
            one(body, version, context)

    return interpret


def asks_connection(api_key: int) -> bool:
    """Whether messages of an API are read by what was said on their connection, or say what others are read by."""
    return _is_nesting(api_key) or any(one.connection for one in _readers(api_key))


def notes_for_later(api_key: int) -> bool:
    """Whether the bodies of an API say how later messages of the connection are read."""
    return any(one.notes for one in _readers(api_key))


@functools.lru_cache(maxsize=1024)  # keys come from the wire
def may_have_floats(api_key: int) -> bool:
    """Whether bodies of an API may hold floats, in their fields or in what is read inside of bytes. Hot."""
    messages = [message for way in _DIRECTIONS if (message := _definition(api_key, way)) is not None]
    return any(message.has_floats for message in messages) or any(one.floats for one in _readers(api_key))


def _readers(api_key: int) -> list[_Reader]:
    return [one for way in _DIRECTIONS for one in _READERS.get((api_key, way), ())]


def _is_nesting(api_key: int) -> bool:
    """Whether such messages hold others: a response is read by the request that was inside of the request."""
    return any(
        message is not None and message.nested is not None
        for message in (_definition(api_key, way) for way in _DIRECTIONS)
    )


def _definition(api_key: int, direction: Direction) -> MessageDefinition | None:
    found = api(api_key)
    if found is None:
        return None
    return found.definition.request if direction == "request" else found.definition.response


def _has_operations(message: MessageDefinition, api_key: int, version: int | None) -> bool:
    """Whether responses of this version, or of any, have sets of operations."""
    if not message.has_enum(OPERATION_BITS):
        return False
    from kafkasniff.kafka.embedded.operations import operation_places  # noqa: PLC0415 - as the interpreters themselves

    return version is None or bool(operation_places(api_key, version))


def _function(place: str) -> Callable[..., Any]:
    module, function = place.split(":")
    found: Callable[..., Any] = getattr(importlib.import_module(f"{__name__}.{module}"), function)
    return found
