"""What a line says about a message besides its head: the few fields that matter for its API.

Each summary is a function from a body to a phrase; APIs without one of their own get `general`. Bodies may end early
and may hold nulls anywhere, so every field is looked up as if it could be missing. Errors are told in one way for all.
"""

from __future__ import annotations

from typing import Final

from kafkasniff.model import Message
from kafkasniff.sinks.paint import Paint
from kafkasniff.sinks.summaries import cluster, data, groups, kraft, sasl
from kafkasniff.sinks.summaries.general import general
from kafkasniff.sinks.summaries.phrases import Summarise, error_phrase

__all__ = ["summary"]

_REQUESTS: Final[dict[int, Summarise]] = {
    **data.REQUESTS,
    **groups.REQUESTS,
    **cluster.REQUESTS,
    **kraft.REQUESTS,
    **sasl.REQUESTS,
}
_RESPONSES: Final[dict[int, Summarise]] = {
    **data.RESPONSES,
    **groups.RESPONSES,
    **cluster.RESPONSES,
    **kraft.RESPONSES,
    **sasl.RESPONSES,
}


def summary(message: Message, paint: Paint) -> str:
    """The end of a message's line, safe to print; "" where there is nothing to tell. Hot."""
    body = message.body
    key = message.api_key
    if body is None or key is None:
        return ""
    if key == kraft.ENVELOPE:
        return kraft.envelope(message, paint, summary)
    if message.type == "request":
        if key == 3 and message.api_version == 0 and not body.get("topics"):
            # Only v0 asks for all topics by naming none.
            return "all topics"
        summarise = _REQUESTS.get(key)
        return general(message) if summarise is None else summarise(body)
    summarise = _RESPONSES.get(key)
    text = general(message) if summarise is None else summarise(body)
    if message.errors:
        errors = error_phrase(message, paint)
        text = f"{errors}; {text}" if text else errors
    throttle = body.get("throttle_time_ms")
    if throttle:
        text = f"{text or 'ok'}, {paint.warn}throttled {throttle} ms{paint.reset}"
    return text or "ok"
