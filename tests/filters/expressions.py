"""Exchanges, real and made up, and expressions to evaluate for them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from kafkasniff.filters import Candidate, compiled
from kafkasniff.filters.expression import parse_filter
from kafkasniff.filters.fields import FIELDS
from kafkasniff.filters.tree import Predicate
from kafkasniff.model import ErrorCode, Exchange, Message, Problem
from tests.sinks.messages import message

FAILED = (
    ErrorCode(6, "NOT_LEADER_OR_FOLLOWER", "responses[0].partition_responses[0].error_code"),
    ErrorCode(3, "UNKNOWN_TOPIC_OR_PARTITION", "responses[0].partition_responses[1].error_code"),
)


def exchange(request: Message | None, response: Message | None, **fields: Any) -> Exchange:
    return Exchange(17, 3, "answered" if response else "unanswered", request, response, **fields)


ANSWERED = exchange(message(), message("response"), software_name="rdkafka", software_version="2.6.0", retransmits=2)

REFUSED = exchange(message(), message("response", errors=FAILED))

UNANSWERED = exchange(message(), None, problems=(Problem("request-unanswered", "x"),))

ORPHAN = exchange(
    None, message("response", api_key=None, api=None, api_version=None, client_id=None, body=None, latency_ns=None)
)


def ask(predicate: Predicate, of: Exchange, **options: Any) -> bool | None:
    return compiled(predicate)(Candidate(request=of.request, response=of.response, ended=of, **options))


def ask_of(
    predicate: Predicate, request: Message | None = None, response: Message | None = None, **options: Any
) -> Any:
    """The answer for these messages, or for a usual exchange."""
    if request is None and response is None:
        request, response = message(), message("response")
    return compiled(predicate)(Candidate(request=request, response=response, **options))


def holds(expression: str, of: Exchange = ANSWERED) -> bool | None:
    return ask(parse_filter(expression), of)


ATOMS = (
    *(f"has {name}" for name in sorted(FIELDS)),
    *(f"{name} == null" for name in sorted(FIELDS)),
    *(f"{name} != {value}" for name, value in (("api", 3), ("error", 0), ("topic", "'a'"), ("member_id", "''"))),
    *(f"{name} > 5" for name, field in FIELDS.items() if field.kind in {"number", "duration", "size"}),
    *(f"{name} !~ 'e'" for name, field in FIELDS.items() if field.kind in {"text", "host", "status"}),
    *(
        f"{name} =~ '(?i)e'"
        for name, field in FIELDS.items()
        if field.kind in {"text", "host", "status", "api", "error"}
    ),
    'error == "NONE"',
    'api in ("Fetch", "Metadata")',
    "api_version not in (0, 1, 4)",
    "time < 2026-11-21T07:28:16.7Z",
    'time >= "+100ms"',
    'host == "127.0.0.1"',
    "request.topics",
    "has request.topics.name",
    'response.error_code == "NONE"',
    'response.topics.partitions.error_code != "NONE"',
    "response.throttle_time_ms < 1",
    "request.validate_only == true",
    "request.validate_only != false",
    "request._anything.at.all == 1",
    "record.key == 'key-1'",
    "record.value contains 'a'",
    "record.header['trace'] startswith '0'",
    "record.value.$.id >= 0",
    "record.timestamp > 2026-01-01T00:00:00Z",
    "not topic endswith 's'",
    "exists(record.offset)",
)


def expressions() -> st.SearchStrategy[str]:
    return st.recursive(
        st.sampled_from(ATOMS),
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from([" and ", " or "]), inner).map(lambda parts: f"({''.join(parts)})"),
            inner.map("not ({})".format),
        ),
        max_leaves=6,
    )


def at(value: Any, *path: str) -> list[Any]:
    """The values at a path of a JSON object, with lists flattened."""
    found = [value]
    for name in path:
        found = [one.get(name) for one in found if isinstance(one, dict)]
        while any(isinstance(one, list) for one in found):
            found = [more for one in found for more in (one if isinstance(one, list) else [one])]
    return [one for one in found if one is not None]
