"""Patterns: Python's `re` decides what matches; steps are counted for those that it would search for ages."""

from __future__ import annotations

import re
import warnings
from re import _parser  # type: ignore[attr-defined]  # as in the module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.filters import patterns as module
from kafkasniff.filters.patterns import MAX_STEPS, _Automaton, _Backtracking, compile_pattern
from tests.choice import examples
from tests.steps import steps

ATOMS = [
    *("a", "b", "\\n", "é", "É", ".", "[ab]", "[^a]", "\\w", "\\W", "\\d", "\\s", "\\b", "\\B", "^", "$", "\\A", "\\Z"),
    *("(?i:A)", "(?m:^)", "(?m:$)", "(?a:\\b)", "(?s:.)", "(?a:\\w)", "(?u:\\w)", "(?-i:a)"),
]
REPEATS = ["*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "+?", "{2,3}?"]
EXPRESSIONS = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        inner.map(lambda one: f"({one}|)"),
        st.tuples(inner, st.sampled_from(REPEATS)).map(lambda two: f"(?:{two[0]}){two[1]}"),
    ),
    max_leaves=8,
)
FLAGS = st.sampled_from(["", "(?i)", "(?m)", "(?s)", "(?a)", "(?im)"])


def automaton(pattern: str) -> _Automaton:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _Automaton(re.compile(pattern), _parser.parse(pattern))


@given(FLAGS, EXPRESSIONS, st.lists(st.text("ab\néÉA 1", max_size=6), min_size=3, max_size=6))
@examples(150)
def test_an_automaton_finds_what_re_finds(flags: str, expression: str, texts: list[str]) -> None:
    found = automaton(flags + expression)
    for text in texts:
        assert found.found_in(text) == (re.search(flags + expression, text) is not None), text


@pytest.mark.parametrize(
    "pattern", ["orders", "^c", "a|b", "(?i)x?y{2,3}", "(?=a)b", r"(a|b)\1", "a{0,9}$", "[a-z]{8}"]
)
def test_few_ways_are_left_to_re(pattern: str) -> None:
    assert isinstance(compile_pattern(pattern), _Backtracking)


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+$", "^(a|a)*$", "(a|aa)+$", "(.*a){12}$", "a?" * 30 + "a" * 30 + "$", "(a?){30}a{30}$", "a.*a.*a.*b$"],
)
def test_steps_are_linear(pattern: str) -> None:
    """Each character takes a look-up. `re` takes up to 2 to the power of the length for these."""
    found = compile_pattern(pattern)
    assert isinstance(found, _Automaton)
    text = "a" * 3_000 + "!"
    assert not found.found_in(text)
    assert steps(lambda: found.found_in(text)) < 6 * len(text)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The automaton forgets its sets of states, of which there may be 2 to the power of 16, and finds the same."""
    monkeypatch.setattr(module, "MAX_REMEMBERED", 50)
    pattern = "(a|b)*a" + "(a|b)" * 15 + "c"
    found = automaton(pattern)
    numbers = [format(number * 7919 % 65_536, "016b").replace("0", "a").replace("1", "b") for number in range(60)]
    for text in ("".join(numbers), "".join(numbers) + "c", "b".join(numbers) + "c"):
        assert found.found_in(text) == (text[-1] == "c" and text[-17] == "a")
        assert len(found._states) <= 60


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(", "missing ), unterminated subpattern"),
        (r"(?=.*a).*b", "lookahead and lookbehind are not supported together with this much repetition"),
        (r"(a+)\1", "a reference to a group is not supported together with this much repetition"),
        ("a++b", "possessive repetition is not supported together with this much repetition"),
        ("(?>a*)b", "an atomic group is not supported together with this much repetition"),
        ("(a{1000}){1000}b*", "this expression repeats too much"),
        ("((a{30}){30}){30}", "this expression repeats too much"),
    ],
)
def test_what_is_refused(pattern: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        compile_pattern(pattern)


def test_the_bound_of_steps() -> None:
    def kind(pattern: str) -> Any:
        return type(compile_pattern(pattern))

    assert kind(f"a{{{MAX_STEPS}}}") is _Backtracking
    assert kind(f"a{{{MAX_STEPS + 1}}}") is _Automaton
