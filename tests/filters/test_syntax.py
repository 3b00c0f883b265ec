"""Parsing of expressions: precedence, escapes and the bound on depth."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkasniff.errors import UsageError
from kafkasniff.filters import Compare
from kafkasniff.filters.expression import parse_filter
from kafkasniff.filters.syntax import MAX_DEPTH, MAX_LENGTH
from tests.filters.expressions import exchange, holds
from tests.sinks.messages import message


def test_escapes() -> None:
    assert parse_filter(r'topic == "a\"b\\c\n\x41\u00e9"') == Compare("topic", "==", 'a"b\\c\nAé')
    assert parse_filter(r"topic == 'it\'s'") == Compare("topic", "==", "it's")
    assert parse_filter(r'topic =~ "\d\.\"\\"') == Compare("topic", "=~", r"\d\.\"\\")
    assert holds(r'topic =~ "\""', exchange(message(body={"topic_data": [{"name": 'a"b'}]}), None)) is True


TRUE, FALSE = "connection == 3", "connection == 4"


def structures() -> st.SearchStrategy[str]:
    """Boolean expressions in words that Python shares, with no more parentheses than are drawn."""
    return st.recursive(
        st.sampled_from([TRUE, FALSE]),
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(" ".join),
            inner.map("({})".format),
            inner.map("not {}".format),
        ),
        max_leaves=12,
    )


@given(structures(), st.booleans())
@example(f"{TRUE} or {TRUE} and {FALSE}", False)
@example(f"not {TRUE} or {TRUE}", True)
@example(f"not {FALSE} and {FALSE}", False)
def test_precedence_as_in_python(structure: str, signs: bool) -> None:
    expected = eval(structure.replace(TRUE, "True").replace(FALSE, "False"))  # our own two words
    if signs:
        structure = structure.replace("and", "&&").replace("or", "||").replace("not", "!")
    assert holds(structure) is expected


@pytest.mark.parametrize(("opening", "closing"), [("(", ")"), ("not ", ""), ("!", ""), ("!(", ")")])
def test_depth_is_bounded(opening: str, closing: str) -> None:
    deep = MAX_DEPTH // len(opening.strip().replace("not", "!"))
    assert holds(f"{opening * deep}api == 0{closing * deep}") in (True, False)
    with pytest.raises(UsageError, match="more than 64 nested parentheses and negations"):
        parse_filter(f"{opening * (deep + 1)}api == 0{closing * (deep + 1)}")


def test_breadth_is_bounded_by_the_length_only() -> None:
    many = " or ".join(["api == 1"] * 1300)
    assert holds(many) is False
    numbers = ",".join(str(number) for number in range(10, 4000))
    assert len(numbers) > MAX_LENGTH
    assert holds(f"connection in ({numbers[:16_000].rpartition(',')[0]})") is False
