r"""Regular expressions in Python's syntax, in time that grows linearly with the text.

`re` tries one way to match after the other, and an expression such as `(a+)+$` has exponentially many. It searches only
where the number of ways is small, whatever the text. All others run as an automaton, which follows all ways at once:
nondeterministic, with its sets of states remembered (a lazy DFA). It has no memory of what groups matched, so it knows
neither references to groups nor lookaround. There is no library for this with wheels for all platforms (RE2 has none
for musl); and RE2 has another syntax, in which `\w` is ASCII.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable
from re import _compiler, _parser  # type: ignore[attr-defined]  # parsers of expressions; not in typeshed
from typing import Any, Final, Protocol

MAX_STEPS: Final = 1_000
"""Steps for each character of the text that `re` may take at most."""
MAX_STATES: Final = 2_000
"""Maximum size of an automaton: each character that is new to it takes as many steps."""
MAX_REMEMBERED: Final = 10_000
"""Transitions that an automaton remembers before it begins again."""

_UNSUPPORTED: Final = {
    "ASSERT": "lookahead and lookbehind are",
    "ASSERT_NOT": "lookahead and lookbehind are",
    "ATOMIC_GROUP": "an atomic group is",
    "GROUPREF": "a reference to a group is",
    "GROUPREF_EXISTS": "a condition on a group is",
    "POSSESSIVE_REPEAT": "possessive repetition is",
}
_WORD, _ASCII_WORD = re.compile(r"\w"), re.compile(r"\w", re.ASCII)
_TYPES: Final = int(re.ASCII | re.LOCALE | re.UNICODE)
"""Flags that exclude each other."""
_LAST_LINE: Final = "\n$"
"""In place of a newline that ends the text: `$` matches before it, too."""
_END: Final = ""

_Kind = tuple[bool, bool, bool, bool]
"""Whether a character is the edge of the text, a newline, a word character, one in ASCII."""
_EDGE: Final[_Kind] = (True, False, False, False)


class Pattern(Protocol):
    """A regular expression."""

    def found_in(self, text: str) -> bool:
        """Whether the expression matches anywhere in the text."""


def compile_pattern(pattern: str) -> Pattern:
    """A regular expression from the user. Raises ValueError if it is invalid, or not supported."""
    try:
        with warnings.catch_warnings():
            # Warnings about future changes of the syntax do not belong on stderr.
            warnings.simplefilter("ignore", FutureWarning)
            compiled = re.compile(pattern)
            parsed = _parser.parse(pattern)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error.msg}") from None
    except (OverflowError, RecursionError) as error:
        raise ValueError(f"not a regular expression: {str(error).lower()}") from None
    _, width = parsed.getwidth()
    if _ways(parsed) * max(width, 1) <= MAX_STEPS:
        return _Backtracking(compiled)
    return _Automaton(compiled, parsed)


def required_text(pattern: str) -> str:
    """Text that is in every match of a valid expression, as long as possible; empty: none is known."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        parsed = _parser.parse(pattern)
    return "" if parsed.state.flags & re.IGNORECASE else max(_required(parsed), key=len)


def _required(parsed: Iterable[tuple[Any, Any]]) -> list[str]:
    """Texts that are in every match of a part."""
    found = [""]
    for op, value in parsed:
        match str(op):
            case "LITERAL":
                found[-1] += chr(value)
                continue
            case "SUBPATTERN" if not value[1]:
                found += _required(value[-1])
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT" if value[0]:
                found += _required(value[-1])
            case "ATOMIC_GROUP":
                found += _required(value)
        found.append("")
    return found


class _Backtracking:
    """An expression with few ways to match."""

    def __init__(self, compiled: re.Pattern[str]) -> None:
        self._search = compiled.search

    def found_in(self, text: str) -> bool:
        return self._search(text) is not None


def _ways(parsed: Iterable[tuple[Any, Any]]) -> int:
    """At most how many ways there are to match at one place; `MAX_STEPS` + 1: too many."""
    ways = 1
    for op, value in parsed:
        match str(op):
            case "BRANCH":
                ways *= sum(map(_ways, value[1]))
            case "SUBPATTERN":
                ways *= _ways(value[-1])
            case "ASSERT" | "ASSERT_NOT":
                ways *= _ways(value[1])
            case "ATOMIC_GROUP":
                ways *= _ways(value)
            case "GROUPREF_EXISTS":
                ways *= _ways(value[1]) + _ways(value[2] or ())
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                low, high, body = value
                ways *= _repeated(low, high, _ways(body))
        if ways > MAX_STEPS:
            return MAX_STEPS + 1
    return ways


def _repeated(low: int, high: int, ways: int) -> int:
    if high - low > MAX_STEPS:
        return MAX_STEPS + 1
    total, each = 0, 1
    for count in range(high + 1):
        if count >= low:
            total += each
        each *= ways
        if total > MAX_STEPS or (each > MAX_STEPS and count < high):
            return MAX_STEPS + 1
    return total


class _State:
    """A set of states of the automaton between two characters, and what follows from it."""

    __slots__ = ("before", "following", "inner")

    def __init__(self, inner: frozenset[int], before: _Kind) -> None:
        self.inner = inner
        """Those that wait for the next character, before assertions are examined."""
        self.before = before
        """The last character."""
        self.following: dict[str, _State | bool] = {}
        """The state after a character; True: the expression matches. For `_END` whether it does."""


class _Automaton:
    """An expression as an automaton.

    `_nodes` has for each number a test of one character or of the characters before and after (None: no test), and the
    numbers of the nodes that follow. Node 0 is the end: the expression matches.
    """

    def __init__(self, compiled: re.Pattern[str], parsed: Any) -> None:
        self._empty = compiled.search("") is not None
        self._nodes: list[tuple[Callable[[str], Any] | None, Callable[[_Kind, str], bool] | None, list[int]]] = []
        self._node()
        self._first = self._sequence(list(parsed), parsed.state.flags, 0)
        self._states: dict[tuple[frozenset[int], _Kind], _State] = {}
        self._remembered = 0
        self._start = self._state(frozenset((self._first,)), _EDGE)

    def found_in(self, text: str) -> bool:
        if not text:
            return self._empty
        last = text.endswith("\n")
        state = self._start
        for char in text[:-1] if last else text:
            following = state.following.get(char)
            if following is None:
                following = self._follow(state, char)
            if following is True:
                return True
            state = following  # type: ignore[assignment]  # only `_END` has False
        for char in (_LAST_LINE, _END) if last else (_END,):
            following = state.following.get(char)
            if following is None:
                following = self._follow(state, char)
            if isinstance(following, bool):
                return following
            state = following
        raise AssertionError("the end of the text has an answer")

    # -- running ------------------------------------------------------------------------------------------------------

    def _state(self, inner: frozenset[int], before: _Kind) -> _State:
        return self._states.setdefault((inner, before), _State(inner, before))

    def _follow(self, state: _State, char: str) -> _State | bool:
        """What follows a state at a character. Called once for each pair that is remembered."""
        if self._remembered >= MAX_REMEMBERED:
            for one in self._states.values():
                one.following.clear()
            self._states = {(self._start.inner, self._start.before): self._start}
            self._remembered = 0
        self._remembered += 1
        reached, waiting = set(state.inner), list(state.inner)
        after: set[int] = {self._first}
        while waiting:
            number = waiting.pop()
            test, condition, targets = self._nodes[number]
            if number == 0:
                state.following[char] = True
                return True
            if test is not None:
                if char and test(char[0]):
                    after.update(targets)
            elif condition is None or condition(state.before, char):
                waiting += set(targets) - reached
                reached.update(targets)
        found = self._state(frozenset(after), _kind(char)) if char else False
        state.following[char] = found
        return found

    # -- building -----------------------------------------------------------------------------------------------------

    def _node(
        self,
        *targets: int,
        test: Callable[[str], Any] | None = None,
        condition: Callable[[_Kind, str], bool] | None = None,
    ) -> int:
        if len(self._nodes) >= MAX_STATES:
            raise ValueError("this expression repeats too much")
        self._nodes.append((test, condition, list(targets)))
        return len(self._nodes) - 1

    def _sequence(self, parsed: Iterable[tuple[Any, Any]], flags: int, then: int) -> int:
        """The node at which a part begins that is followed by node `then`."""
        for op, value in reversed(list(parsed)):
            then = self._part(op, value, flags, then)
        return then

    def _part(self, op: Any, value: Any, flags: int, then: int) -> int:
        match str(op):
            case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN":
                return self._node(then, test=_one_character(op, value, flags))
            case "BRANCH":
                return self._node(*(self._sequence(one, flags, then) for one in value[1]))
            case "SUBPATTERN":
                _, added, removed, body = value
                if added & _TYPES:
                    flags &= ~_TYPES
                return self._sequence(body, (flags | added) & ~removed, then)
            case "MAX_REPEAT" | "MIN_REPEAT":
                low, high, body = value
                return self._repetition((low, high), body, flags, then)
            case "AT":
                return self._node(then, condition=_condition(str(value), flags))
            case "FAILURE":
                return self._node()
            case name:
                said = _UNSUPPORTED.get(name, f"{name.lower()} is")
                raise ValueError(f"{said} not supported together with this much repetition")

    def _repetition(self, times: tuple[int, int], body: Any, flags: int, then: int) -> int:
        low, high = times
        if high - low > MAX_STATES:
            again = self._node(then)
            self._nodes[again][2].append(self._sequence(body, flags, again))
            then = again
        else:
            for _ in range(high - low):
                then = self._node(self._sequence(body, flags, then), then)
        for _ in range(low):
            then = self._sequence(body, flags, then)
        return then


def _one_character(op: Any, value: Any, flags: int) -> Callable[[str], Any]:
    """A test of one character, as `re` does it."""
    state = _parser.State()
    state.flags = flags
    state.str = ""
    compiled: re.Pattern[str] = _compiler.compile(_parser.SubPattern(state, [(op, value)]), flags)
    return compiled.match


def _kind(char: str) -> _Kind:
    first = char[0]
    return False, first == "\n", _WORD.match(first) is not None, _ASCII_WORD.match(first) is not None


def _condition(name: str, flags: int) -> Callable[[_Kind, str], bool]:
    """A test of the characters before and after a place; without one after it, that is `_END`."""
    lines, word = bool(flags & re.MULTILINE), 3 if flags & re.ASCII else 2
    match name:
        case "AT_BEGINNING" | "AT_BEGINNING_STRING":
            whole = name.endswith("STRING") or not lines
            return lambda before, after: before[0] or (not whole and before[1])
        case "AT_END":
            return lambda before, after: after in (_END, _LAST_LINE) or (lines and after == "\n")
        case "AT_END_STRING":
            return lambda before, after: after == _END
        case "AT_BOUNDARY" | "AT_NON_BOUNDARY":
            wanted = name == "AT_BOUNDARY"
            return lambda before, after: (before[word] != (after != _END and _kind(after)[word])) == wanted
    raise ValueError(f"{name.lower()} is not supported together with this much repetition")
