"""The summary at the end of a message's line: the few fields that matter for its API.

The summary of an API is a template (`dissectors/summaries.txt`); APIs without one get `general`. Errors, throttling and
nested messages are shown in the same way for all.
"""

from __future__ import annotations

from kafkasniff.model import Message
from kafkasniff.sinks.summaries.phrases import error_phrase
from kafkasniff.sinks.summaries.templates import envelope, general, render_of
from kafkasniff.sinks.tree import nested_field
from kafkasniff.text.printable import Paint

__all__ = ["summary"]


def summary(message: Message, paint: Paint) -> str:
    """The end of a message's line, escaped; "" if there is nothing to show. Hot."""
    body, key = message.body, message.api_key
    if body is None or key is None:
        return ""
    render = render_of(key, message.type)
    if render is not None:
        text = render(body, message.api_version or 0)
    elif nested_field(message) is not None:
        return envelope(message, paint, summary)
    else:
        text = general(message)
    if message.type == "request":
        return text
    if message.errors:
        errors = error_phrase(message, paint)
        text = f"{errors}; {text}" if text else errors
    throttle = body.get("throttle_time_ms")
    if throttle:
        text = f"{text or 'ok'}, {paint.warn}throttled {throttle} ms{paint.reset}"
    return text or "ok"
