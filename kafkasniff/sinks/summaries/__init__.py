"""What a line says about a message besides its head: the few fields that matter for its API.

Each summary is a function from a body to a phrase; APIs without one of their own get `general`. Bodies may end early
and may hold nulls anywhere, so every field is looked up as if it could be missing. Errors are told in one way for all.
"""

from __future__ import annotations

from typing import Final

from kafkasniff.kafka.named_apis import METADATA
from kafkasniff.model import Message
from kafkasniff.sinks.names import nested_field
from kafkasniff.sinks.paint import Paint
from kafkasniff.sinks.summaries import cluster, data, groups, kraft, sasl
from kafkasniff.sinks.summaries.general import general
from kafkasniff.sinks.summaries.phrases import Summarise, error_phrase
from kafkasniff.sinks.summaries.usual import UNUSUAL, USUAL_REQUESTS, USUAL_RESPONSES

__all__ = ["full_summary", "summary"]

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
    body, key = message.body, message.api_key
    if body is None or key is None:
        return ""
    if message.type == "request":
        usual = USUAL_REQUESTS.get(key)
    elif message.errors or body.get("throttle_time_ms"):
        usual = None
    else:
        usual = USUAL_RESPONSES.get(key)
    if usual is not None:
        try:
            told = usual(body)
        except UNUSUAL:
            told = None
        if told is not None:
            return told
    return full_summary(message, paint)


def full_summary(message: Message, paint: Paint) -> str:
    """The same without the short way for bodies of the usual shape."""
    body, key = message.body, message.api_key
    if body is None or key is None:
        return ""
    if message.type == "request":
        if key == METADATA and message.api_version == 0 and not body.get("topics"):
            # Only v0 asks for all topics by naming none.
            return "all topics"
        summarise = _REQUESTS.get(key)
        if summarise is not None:
            return summarise(body)
        return general(message) if nested_field(message) is None else kraft.envelope(message, paint, summary)
    summarise = _RESPONSES.get(key)
    if summarise is None and nested_field(message) is not None:
        return kraft.envelope(message, paint, summary)
    text = general(message) if summarise is None else summarise(body)
    if message.errors:
        errors = error_phrase(message, paint)
        text = f"{errors}; {text}" if text else errors
    throttle = body.get("throttle_time_ms")
    if throttle:
        text = f"{text or 'ok'}, {paint.warn}throttled {throttle} ms{paint.reset}"
    return text or "ok"
