"""What lies inside the bytes of messages: group protocols, envelopes, metrics, records of Kafka's own topics.

A message that has such bytes has an interpreter. It gets the decoded body, of which fields may be missing where the
message broke off, and puts what it read beside the bytes as `_<field>`; a wire value is never replaced, but by
`{"redacted": N}` where it contains a secret. What is wrong inside goes to `context.problem`; nothing is raised.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Final

from kafkasniff.kafka.context import DecodeContext
from kafkasniff.model import Body, Direction

__all__ = ["Interpreter", "interpreter"]

Interpreter = Callable[[Body, int, DecodeContext], None]
"""Takes a body, its version and the message's context."""

_INTERPRETERS: Final[dict[tuple[int, Direction], str]] = {}
"""By API key and direction, `module:function` within this package: imported when the first such message comes."""


def interpreter(api_key: int, direction: Direction) -> Interpreter | None:
    """What reads the bytes inside such messages; None for those that have none."""
    place = _INTERPRETERS.get((api_key, direction))
    if place is None:
        return None
    module, function = place.split(":")
    found: Interpreter = getattr(importlib.import_module(f"{__name__}.{module}"), function)
    return found
