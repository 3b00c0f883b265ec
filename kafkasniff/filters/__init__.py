"""Filters: all filter options build one tree of predicates over exchanges; the selector applies it.

A predicate is evaluated for a `Candidate`, an exchange as far as it is known. The result is three-valued (Kleene):
True, False, or None if the response is still missing and could decide. So a predicate that the request alone decides is
decided at the request, without declaring it; others wait for the end of the exchange. Both sides of an exchange always
share one result.

`tree.py` is the tree, plain data that can be sent to other processes; `expression.py` (the language of `--filter`, with
`syntax.py`) builds it; `closures.py` compiles it where it is applied; `fields.py` and `record_paths.py` define the
fields.
"""

from kafkasniff.filters.closures import MAX_DECIDED, HeldRequest, Selector, compiled
from kafkasniff.filters.record_paths import Candidate
from kafkasniff.filters.tree import (
    And,
    Compare,
    Moment,
    Not,
    Operator,
    Or,
    Predicate,
    all_of,
    any_of,
    api_filter,
    client_filter,
    error_filter,
    fields_of,
    host_filter,
    needs_records,
    needs_topic_names,
    parse_duration,
    parse_moment,
    topic_filter,
)

__all__ = [
    "MAX_DECIDED",
    "And",
    "Candidate",
    "Compare",
    "HeldRequest",
    "Moment",
    "Not",
    "Operator",
    "Or",
    "Predicate",
    "Selector",
    "all_of",
    "any_of",
    "api_filter",
    "client_filter",
    "compiled",
    "error_filter",
    "fields_of",
    "host_filter",
    "needs_records",
    "needs_topic_names",
    "parse_duration",
    "parse_moment",
    "topic_filter",
]
