"""The grammar of `dissectors/summaries.txt`, which documents it: text to the nodes of templates."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from kafkasniff.errors import DefinitionError
from kafkasniff.sinks.summaries.phrases import SHOWN

if TYPE_CHECKING:
    from collections.abc import Mapping

Path = tuple[str, ...]
"""Path of field names, from the struct of the template inwards."""


class Text(msgspec.Struct, frozen=True):
    """Literal text of the template."""

    text: str


class Test(msgspec.Struct, frozen=True):
    """A condition."""

    path: Path
    """`("@version",)`: the version of the message."""
    kind: Literal["some", "none", "=", "!=", ">=", "has", "lacks"]
    operand: int | Path | None = None
    """A number, null, or another field."""


class Value(msgspec.Struct, frozen=True):
    """The value of a field."""

    path: Path
    form: Literal["", "name", "amount"] = ""
    test: Test | None = None


class Count(msgspec.Struct, frozen=True):
    """Number of elements of an array, or of nested arrays."""

    path: Path
    noun: str
    test: Test | None = None


class Words(msgspec.Struct, frozen=True):
    """The first elements of an array of scalars."""

    path: Path
    shown: int


class Each(msgspec.Struct, frozen=True):
    """A text for each struct of an array; empty ones do not count."""

    path: Path
    """One or two arrays."""
    body: Sequence
    good: bool
    separator: str
    shown: int
    """0: all of them."""
    noun: str
    """Noun for the elements that are not shown; empty: `more`."""
    prefer: str


class Partitions(msgspec.Struct, frozen=True):
    """Topics with the numbers of their partitions."""

    path: Path
    index: str


class Label(msgspec.Struct, frozen=True):
    """The name of a topic, with `index` the name of the enclosing topic and the number of the partition."""

    index: str


class FunctionCall(msgspec.Struct, frozen=True):
    """The result of a function of `interpreter.FUNCTIONS` for the struct."""

    name: str


class Option(msgspec.Struct, frozen=True):
    """One of several alternatives."""

    tests: tuple[Test, ...]
    body: Sequence


class Choice(msgspec.Struct, frozen=True):
    """The first alternative with a result."""

    options: tuple[Option, ...]


class Parts(msgspec.Struct, frozen=True):
    """The non-empty ones of several parts, joined by ", "."""

    parts: tuple[Sequence, ...]
    phrase: str = ""
    """The name of a phrase; empty for a template."""


Node = Text | Value | Count | Words | Each | Partitions | Label | FunctionCall | Choice | Parts
Sequence = tuple[Node, ...]

MAX_DEPTH: Final = 16
"""Maximum nesting of phrases and braces; a deeper one is a phrase that contains itself."""

_PATH: Final = r"_?[a-z][a-z0-9_]*(?:\._?[a-z][a-z0-9_]*)*"
_TEST: Final = re.compile(rf"(?P<not>!)?(?P<has>has )?(?P<path>@version|{_PATH})(?:(?P<op>>=|!=|=)(?P<operand>-?\w+))?")
_VALUE: Final = re.compile(
    rf"(?P<path>{_PATH})(?P<some>\?)?(?:(?P<op>>=|!=|=)(?P<operand>-?\w+))?(?:\|(?P<form>name|amount))?"
)
_COUNT: Final = re.compile(rf"count (?P<path>{_PATH})(?P<some>\?)?(?: (?P<noun>\w+))?")
_LIST: Final = re.compile(rf"list (?P<path>{_PATH})(?: (?P<shown>[1-9]))?")
_EACH: Final = re.compile(
    rf"each (?P<good>good )?(?P<path>{_PATH})(?: \"(?P<separator>[^\"]*)\")?(?P<all> all)?(?P<noun> partitions)?"
    rf"(?: prefer (?P<prefer>{_PATH}))?: "
)
_PARTITIONS: Final = re.compile(rf"partitions (?P<path>{_PATH})(?: (?P<index>\w+))?")
_LABEL: Final = re.compile(r"@(?P<index>[a-z_]+)?")
_CALL: Final = re.compile(r"(?P<name>[a-z_]+)\(\)")
_PHRASE: Final = re.compile(r">(?P<name>[a-z_]+)")
_END: Final = re.compile(r"\}")


def parse(lines: tuple[str, ...], phrases: Mapping[str, tuple[str, ...]], place: str) -> Parts:
    """The template of these lines; raises DefinitionError, prefixed with `place`."""
    return _SummaryParser(phrases, place).parts(lines, 0)


def is_never_empty(body: Sequence) -> bool:
    """Whether a text is never empty, whatever the struct contains."""
    return any(isinstance(node, Text | Label) for node in body)


class _SummaryParser:
    def __init__(self, phrases: Mapping[str, tuple[str, ...]], place: str) -> None:
        self._phrases = phrases
        self._place = place
        self._line = ""
        self._at = 0

    def parts(self, lines: tuple[str, ...], depth: int, phrase: str = "") -> Parts:
        """The parts of a template or a phrase."""
        outer = self._line, self._at
        found = []
        for line in lines:
            self._line, self._at = line, 0
            body, tests = self._sequence("", depth)
            if self._at < len(line):
                raise self._error(f"{line[self._at]!r} closes nothing")
            if tests:
                raise self._error("a condition must be within [ ]")
            found.append(body)
        self._line, self._at = outer
        return Parts(tuple(found), phrase)

    def _error(self, detail: str) -> DefinitionError:
        return DefinitionError(f"{self._place}: {detail}: {self._line[: self._at]}<here>{self._line[self._at :]}")

    def _sequence(self, end: str, depth: int) -> tuple[Sequence, tuple[Test, ...]]:
        """Nodes up to one of the characters in `end`, or a closing one; with the conditions among them."""
        if depth > MAX_DEPTH:
            raise self._error("nested too deeply, or a recursive phrase")
        nodes: list[Node] = []
        tests: list[Test] = []
        while self._at < len(self._line):
            character = self._line[self._at]
            if character in "]}" or character in end:
                break
            self._at += 1
            if character == "[":
                nodes.append(self._choice(depth + 1))
            elif character == "{":
                self._hole(nodes, tests, depth + 1)
            else:
                begin = self._at - 1
                while self._at < len(self._line) and self._line[self._at] not in "[]{}" + end:
                    self._at += 1
                nodes.append(Text(self._line[begin : self._at]))
        return tuple(nodes), tuple(tests)

    def _choice(self, depth: int) -> Choice:
        options = []
        while True:
            body, tests = self._sequence("|", depth)
            options.append(Option(tests, body))
            if self._at >= len(self._line) or self._line[self._at] not in "|]":
                raise self._error("missing ]")
            self._at += 1
            if self._line[self._at - 1] == "]":
                return Choice(tuple(options))

    def _match(self, pattern: re.Pattern[str], *, closed: bool = True) -> re.Match[str] | None:
        """Consume a match at this position, `closed`: including the closing brace."""
        match = pattern.match(self._line, self._at)
        if match is None or (closed and _END.match(self._line, match.end()) is None):
            return None
        self._at = match.end() + closed
        return match

    def _hole(self, nodes: list[Node], tests: list[Test], depth: int) -> None:
        if self._line.startswith("?", self._at):
            self._at += 1
            match = self._match(_TEST)
            if match is None:
                raise self._error("not a condition")
            tests.append(self._test(match))
        elif match := self._match(_PHRASE):
            lines = self._phrases.get(match["name"])
            if lines is None:
                raise self._error(f"there is no phrase {match['name']}")
            nodes.append(self.parts(lines, depth, match["name"]))
        elif match := self._match(_CALL):
            nodes.append(FunctionCall(match["name"]))
        elif match := self._match(_LABEL):
            nodes.append(Label(match["index"] or ""))
        elif match := self._match(_EACH, closed=False):
            nodes.append(self._each(match, depth))
        elif match := self._match(_COUNT):
            path = _path(match["path"])
            test = Test(path, "some") if match["some"] else None
            nodes.append(Count(path, match["noun"] or "", test))
            tests += [test] if test else []
        elif match := self._match(_LIST):
            nodes.append(Words(_path(match["path"]), int(match["shown"] or SHOWN)))
        elif match := self._match(_PARTITIONS):
            path = _path(match["path"])
            if len(path) < 2:
                raise self._error("partitions are those of topics: {partitions topics.partitions}")
            nodes.append(Partitions(path, match["index"] or ""))
        elif match := self._match(_VALUE):
            test = self._value_test(match)
            nodes.append(Value(_path(match["path"]), match["form"] or "", test))  # type: ignore[arg-type] # by the pattern
            tests += [test] if test else []
        else:
            raise self._error("not a value, a list or a condition")

    def _each(self, match: re.Match[str], depth: int) -> Each:
        path = _path(match["path"])
        if len(path) > 2:
            raise self._error("at most two nested arrays")
        body, tests = self._sequence("", depth)
        if tests:
            raise self._error("a condition must be within [ ]")
        if not self._line.startswith("}", self._at):
            raise self._error("missing }")
        self._at += 1
        return Each(
            path,
            body,
            good=match["good"] is not None,
            separator=match["separator"] or ", ",
            shown=0 if match["all"] else SHOWN,
            noun=(match["noun"] or "").strip().removesuffix("s"),
            prefer=match["prefer"] or "",
        )

    def _test(self, match: re.Match[str]) -> Test:
        path = _path(match["path"])
        if match["op"]:
            if match["not"] or match["has"]:
                raise self._error("one condition at a time")
            return Test(path, match["op"], _operand(match["operand"]))  # type: ignore[arg-type] # by the pattern
        if match["has"]:
            return Test(path, "lacks" if match["not"] else "has")
        return Test(path, "none" if match["not"] else "some")

    def _value_test(self, match: re.Match[str]) -> Test | None:
        path = _path(match["path"])
        if match["op"]:
            return Test(path, match["op"], _operand(match["operand"]))  # type: ignore[arg-type] # by the pattern
        return Test(path, "some") if match["some"] else None


def _path(text: str) -> Path:
    return tuple(text.split("."))


def _operand(text: str) -> int | Path | None:
    if text == "null":
        return None
    return int(text) if text.lstrip("-").isdecimal() else _path(text)
