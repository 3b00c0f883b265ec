"""A tree of predicates, compiled once to nested closures. User text is never executed as Python.

Evaluated for a candidate they return True, False, or None if a value that may still arrive could decide.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from fnmatch import translate
from typing import Any, Final

from kafkasniff.filters.candidate import Candidate
from kafkasniff.filters.fields import Values, values_of
from kafkasniff.filters.patterns import compile_pattern
from kafkasniff.filters.time_parsing import Moment
from kafkasniff.filters.tree import And, Compare, Not, Or, Predicate
from kafkasniff.kafka.apis.entities import text

__all__ = ["MAX_SEARCHED", "Test", "compiled", "holds_of"]

MAX_SEARCHED: Final = 1 << 16
"""Characters (for bytes: bytes) of one value that a pattern is matched against: a value may be as long as a message."""

Test = Callable[[Candidate], bool | None]
_Holds = Callable[[Any], bool]

_ORDER: Final = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def compiled(predicate: Predicate) -> Test:
    """Compiles a predicate. Raises KeyError for an unknown field, ValueError for an invalid pattern."""
    match predicate:
        case Compare():
            return _comparison(predicate)
        case And(parts):
            return _joined(tuple(map(compiled, parts)), False)
        case Or(parts):
            return _joined(tuple(map(compiled, parts)), True)
        case Not(part):
            return _not(compiled(part))


def _joined(tests: tuple[Test, ...], decides: bool) -> Test:
    """All tests where False decides, any of them where True does."""

    def joined(candidate: Candidate) -> bool | None:
        answer: bool | None = not decides
        for test in tests:
            one = test(candidate)
            if one is decides:
                return decides
            if one is None:
                answer = None
        return answer

    return joined


def _not(test: Test) -> Test:
    def complement(candidate: Candidate) -> bool | None:
        one = test(candidate)
        return None if one is None else not one

    return complement


# -- comparisons -------------------------------------------------------------------------------------------------------


def _comparison(compare: Compare) -> Test:
    root, values = values_of(compare.field)
    value = compare.value
    if isinstance(value, Moment):
        return _timed(root, values, compare.operator, value)
    quantified = _no_value if compare.operator in ("!=", "not in", "!~") else _any_value
    return quantified(root, values, holds_of(compare.operator, value))


def _any_value(root: str, values: Values, holds: _Holds) -> Test:
    def test(candidate: Candidate) -> bool | None:
        for value in values(candidate):
            if holds(value):
                return True
        return None if root in candidate.unknown else False

    return test


def _no_value(root: str, values: Values, holds: _Holds) -> Test:
    """True if there are values and `holds` is true of none."""

    def test(candidate: Candidate) -> bool | None:
        found = False
        for value in values(candidate):
            if holds(value):
                return False
            found = True
        return None if root in candidate.unknown else found

    return test


def _timed(root: str, values: Values, name: str, moment: Moment) -> Test:
    """A comparison with a time relative to the first packet; until that is known, it is as without a value."""
    quantified = _no_value if name == "!=" else _any_value

    def test(candidate: Candidate) -> bool | None:
        wanted = moment.resolve(candidate.start_ns)
        if wanted is None:
            return None if root in candidate.unknown else False
        return quantified(root, values, holds_of(name, wanted))(candidate)

    return test


def holds_of(name: str, wanted: Any) -> _Holds:
    """Whether a comparison holds for one value; it is false for a value of another type, which bodies may have."""
    match name:
        case "exists":
            return lambda value: True
        case "==" | "!=":
            return _one_of((wanted,))
        case "in" | "not in":
            return _one_of(wanted)
        case "=~" | "!~":
            return _found_by(compile_pattern(wanted).found_in)
        case "contains" | "startswith" | "endswith":
            return _part(name, wanted)
        case "glob":
            # It begins at the first character, and each part of the text is found once (atomic groups).
            matches = re.compile(translate(wanted)).match
            return _found_by(lambda value: matches(value) is not None)
    compare = _ORDER[name]

    def ordered(value: Any) -> bool:
        kind = type(value)
        return (kind is int or kind is float) and bool(compare(value, wanted))

    return ordered


def _one_of(wanted: Iterable[Any]) -> _Holds:
    # Python's True equals 1, the wire's does not; unhashable values are never looked up.
    flags = frozenset(one for one in wanted if isinstance(one, bool))
    others = frozenset(one for one in wanted if not isinstance(one, bool))

    def equal(value: Any) -> bool:
        kind = type(value)
        if kind is str or kind is int or kind is float:
            return value in others
        if kind is bytes:
            return text(value) in others
        return kind is bool and value in flags

    return equal


def _found_by(found_in: Callable[[str], bool]) -> _Holds:
    def found(value: Any) -> bool:
        kind = type(value)
        if kind is str or kind is bytes:
            shown = text(value[:MAX_SEARCHED])
            return shown is not None and found_in(shown)
        return False

    return found


def _part(name: str, wanted: str) -> _Holds:
    """Whether text contains another one, or begins or ends with it."""
    data = wanted.encode("utf-8", "surrogatepass")
    # Bytes that are not UTF-8 are shown as `\\xff`, and so they may be asked for.
    as_shown = "\\x" in wanted

    def holds(value: Any) -> bool:
        if type(value) is str:
            return bool(in_text(value, wanted))
        if type(value) is not bytes:
            return False
        return bool(in_bytes(value, data)) or (as_shown and bool(in_text(text(value) or "", wanted)))

    in_text: Callable[[str, str], bool]
    in_bytes: Callable[[bytes, bytes], bool]
    match name:
        case "contains":
            in_text, in_bytes = operator.contains, operator.contains
        case "startswith":
            in_text, in_bytes = str.startswith, bytes.startswith
        case _:
            in_text, in_bytes = str.endswith, bytes.endswith
    return holds
