"""Filters: one tree of predicates over exchanges, built by every filter option, and the selector that applies it.

A predicate is asked about a `Candidate`, an exchange as far as it is known. The answer is three-valued (Kleene): True,
False, or None where the response is not there yet and could still decide. So what the request alone decides is decided
at the request, without any predicate having to say so; what needs the response waits for the end of the exchange. Both
sides of an exchange always share one answer.

`tree.py` is the tree, plain data that other processes can be sent; `short_forms.py` and `expression.py` (the language
of `--filter`: `syntax.py`, `literals.py`, `paths.py`) build it; `closures.py` compiles it where it is applied;
`fields.py` says what can be asked.
"""

from kafkasniff.filters.candidate import Candidate
from kafkasniff.filters.closures import compiled
from kafkasniff.filters.selector import MAX_DECIDED, Selector
from kafkasniff.filters.short_forms import api_filter, client_filter, error_filter, host_filter, topic_filter
from kafkasniff.filters.tree import (
    And,
    Compare,
    Not,
    Operator,
    Or,
    Predicate,
    all_of,
    any_of,
    fields_of,
    needs_records,
    needs_topic_names,
)
from kafkasniff.moments import Moment, parse_duration, parse_moment

__all__ = [
    "MAX_DECIDED",
    "And",
    "Candidate",
    "Compare",
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
