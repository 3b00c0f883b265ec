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
from typing import Final

from kafkasniff.kafka.context import DecodeContext
from kafkasniff.model import Body, Direction

__all__ = ["Interpreter", "interpreter"]

Interpreter = Callable[[Body, int, DecodeContext], None]
"""Takes a body, its version and the message's context."""

_INTERPRETERS: Final[dict[tuple[int, Direction], tuple[str, ...]]] = {
    (1, "response"): ("metadata_records:fetch_response",),
    (3, "response"): ("operations:metadata",),
    (11, "request"): ("group_protocol:join_group_request",),
    (11, "response"): ("group_protocol:join_group_response",),
    (14, "request"): ("group_protocol:sync_group_request",),
    (14, "response"): ("group_protocol:sync_group_response",),
    (15, "response"): ("group_protocol:describe_groups_response", "operations:describe_groups"),
    (17, "request"): ("sasl_messages:handshake_request",),
    (17, "response"): ("sasl_messages:handshake_response",),
    (36, "request"): ("sasl_messages:authenticate_request",),
    (36, "response"): ("sasl_messages:authenticate_response",),
    (58, "request"): ("envelope:envelope_request",),
    (58, "response"): ("envelope:envelope_response",),
    (60, "response"): ("operations:describe_cluster",),
    (69, "response"): ("operations:consumer_group_describe",),
    (72, "request"): ("telemetry:push_telemetry_request",),
    (75, "response"): ("operations:describe_topic_partitions",),
    (77, "response"): ("operations:share_group_describe",),
    (89, "response"): ("operations:streams_group_describe",),
}
"""By API key and direction, `module:function` within this package: imported when the first such message comes, and
called one after the other. What reads the records of any API comes after them (`any_records`)."""


_OPERATIONS: Final = "operations:"


def interpreter(api_key: int, direction: Direction, version: int | None = None) -> Interpreter | None:
    """What reads the bytes inside such messages, of one version or of any; None for those that have none."""
    places = _INTERPRETERS.get((api_key, direction), ())
    if version is not None:
        places = tuple(one for one in places if not one.startswith(_OPERATIONS) or _has_operations(api_key, version))
    found = tuple(map(_function, places))
    if _has_records(api_key, direction):
        from kafkasniff.kafka.embedded.any_records import read_records  # noqa: PLC0415 - as the interpreters themselves

        found = (*found, functools.partial(read_records, api_key, direction))
    if len(found) < 2:
        return found[0] if found else None

    def interpret(body: Body, version: int, context: DecodeContext) -> None:
        for one in found:
            one(body, version, context)

    return interpret


def _has_operations(api_key: int, version: int) -> bool:
    """Whether responses of this version have sets of operations."""
    from kafkasniff.kafka.embedded.operations import operation_places  # noqa: PLC0415 - as the interpreters themselves

    return bool(operation_places(api_key, version))


def _has_records(api_key: int, direction: Direction) -> bool:
    """Whether such messages of any version have `records` fields."""
    from kafkasniff.kafka.dissectors import api  # noqa: PLC0415 - likewise

    definition = api(api_key)
    if definition is None:
        return False
    message = definition.definition.request if direction == "request" else definition.definition.response
    return message.has_records


def _function(place: str) -> Interpreter:
    module, function = place.split(":")
    found: Interpreter = getattr(importlib.import_module(f"{__name__}.{module}"), function)
    return found
