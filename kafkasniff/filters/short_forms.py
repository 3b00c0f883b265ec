"""The filter options without an expression: `--api`, `--topic`, `--client-id`, `--host`, `--errors`."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence

from kafkasniff.errors import UsageError
from kafkasniff.filters.tree import Compare, Or, Predicate, any_of
from kafkasniff.kafka.apis import dissectors
from kafkasniff.model import Endpoint

__all__ = ["api_filter", "client_filter", "error_filter", "host_filter", "host_text", "topic_filter"]


def api_filter(names: Sequence[str]) -> Predicate | None:
    """Exchanges of these APIs: names or keys, or comma lists of them. Raises UsageError for an unknown name."""
    keys = []
    for name in (part.strip() for text in names for part in text.split(",")):
        if re.fullmatch(r"\d{1,5}", name):
            # Any number: APIs that are newer than the definitions have keys, too.
            keys.append(int(name))
            continue
        keys.append(dissectors.find_api(name).key)
    return any_of(Compare("api", "==", key) for key in keys)


def topic_filter(patterns: Sequence[str]) -> Predicate | None:
    """Exchanges that name one of these topics; `*`, `?` and `[…]` as in a shell."""
    # Kafka's topic names only contain letters, digits, ".", "_" and "-", so a pattern cannot be a name.
    return any_of(Compare("topic", "glob" if re.search(r"[*?\[]", one) else "==", one) for one in patterns)


def client_filter(patterns: Sequence[str]) -> Predicate | None:
    """Exchanges of clients with one of these ids, as a name or as a pattern: an id may contain any character."""
    return any_of(Or((Compare("client_id", "==", one), Compare("client_id", "glob", one))) for one in patterns)


def error_filter() -> Predicate:
    """Exchanges whose response has an error code."""
    return Compare("error", "!=", 0)


def host_filter(text: str) -> Predicate:
    """Exchanges with this endpoint; see `host_text`. Raises UsageError."""
    return Compare("host", "==", host_text(text))


def host_text(text: str) -> str:
    """`10.0.0.5`, `10.0.0.5:9092`, `::1`, `[::1]` or `[::1]:9092` in the notation used for endpoints.

    Raises UsageError for anything else.
    """
    match = re.fullmatch(r"\[([0-9A-Fa-f:.]+)\](?::(\d{1,5}))?|([0-9.]+):(\d{1,5})|([0-9A-Fa-f:.]+)", text)
    address = match and (match[1] or match[3] or match[5])
    try:
        shown = str(ipaddress.ip_address(address or text))
    except ValueError:
        raise UsageError(f"{text!r} is not an address (10.0.0.5, 10.0.0.5:9092, ::1, [::1]:9092)") from None
    port = match and (match[2] or match[4])
    return str(Endpoint(shown, int(port))) if port else shown
