r"""The syntax of `--filter`: text to nodes with their positions. `expression.py` interprets names and constants.

    expression = every { ("or" | "||") every }
    every      = one { ("and" | "&&") one }
    one        = ("not" | "!") one | "(" expression ")" | "has" field | "exists" "(" field ")" | field [comparison]
    comparison = operator constant | ["not"] "in" "(" constant { "," constant } ")"
    operator   = "==" | "!=" | "<" | "<=" | ">" | ">=" | "=~" | "!~"
               | "matches" | "contains" | "startswith" | "endswith"
    constant   = string | number | time | "true" | "false" | "null"

Words are case-insensitive. A string is quoted with `"…"` or `'…'`; a number may be followed directly by a unit (`10ms`,
`4kB`); a time need not be quoted (`2026-11-21T04:00:00Z`).
"""

from __future__ import annotations

import re
from typing import Final, Literal, NoReturn

import msgspec

from kafkasniff.errors import UsageError
from kafkasniff.filters.record_paths import TOKEN

MAX_LENGTH: Final = 16_384
"""Maximum length of an expression: a list of some hundred names fits, and every loop over it is short."""
MAX_DEPTH: Final = 64
"""Maximum nesting of parentheses and negations: parsing, compiling and evaluating recurse for each level."""
MAX_QUOTED: Final = 40
"""Characters of the expression quoted in a message."""


class Name(msgspec.Struct, frozen=True):
    """A field's name or path."""

    text: str
    column: int
    """Column of its first character, from 1."""


class Constant(msgspec.Struct, frozen=True):
    """A constant to compare a field with."""

    kind: Literal["string", "number", "time", "flag", "null"]
    text: str
    """As written: for a string the text between the quotes with escapes; for a number without its unit."""
    column: int
    unit: str = ""


class Comparison(msgspec.Struct, frozen=True):
    """A field compared with one or more constants."""

    field: Name
    operator: Literal[
        "==", "!=", "in", "not in", "<", "<=", ">", ">=", "=~", "!~", "contains", "startswith", "endswith"
    ]
    column: int
    """Column of the operator."""
    constants: tuple[Constant, ...]
    """One, except for `in` and `not in`."""


class Presence(msgspec.Struct, frozen=True):
    """The condition that a field has a value."""

    field: Name


class Every(msgspec.Struct, frozen=True):
    """All parts hold."""

    parts: tuple[Node, ...]


class Some(msgspec.Struct, frozen=True):
    """Any part holds."""

    parts: tuple[Node, ...]


class Negation(msgspec.Struct, frozen=True):
    """The part does not hold."""

    part: Node


Node = Comparison | Presence | Every | Some | Negation


def wrong(column: int, message: str) -> UsageError:
    """An error with its column."""
    return UsageError(f"column {column}: {message}")


_TOKEN: Final = re.compile(
    rf"""
      (?P<space>\s+)
    | (?P<time>\d{{4}}-\d\d-\d\d[Tt]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:[Zz]|[+-]\d\d:?\d\d)?)
    | (?P<number>-?(?:\d+(?:\.\d+)?|\.\d+))(?P<unit>[A-Za-zµ]*)
    | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<record>{TOKEN})
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)
    | (?P<sign>==|!=|<=|>=|=~|!~|&&|\|\||[<>!(),])
    """,
    re.VERBOSE | re.DOTALL,
)
_HINTS: Final = {
    "=": "'=' is not an operator; did you mean '=='?",
    "&": "'&' is not an operator; did you mean '&&'?",
    "|": "'|' is not an operator; did you mean '||'?",
    "[": "indices are not supported: a list matches if any of its elements does",
    '"': "unterminated string",
    "'": "unterminated string",
    ".": "a path has a name on both sides of each '.'",
}
_WORDS: Final = frozenset({"and", "or", "not", "in", "has", "true", "false", "null"})
_SIGNS: Final = {"&&": "and", "||": "or", "!": "not"}
_WORD_OPERATORS: Final = {"matches": "=~", "contains": "contains", "startswith": "startswith", "endswith": "endswith"}
"""They are not keywords: they follow a field, where no name can be."""
_CALLED: Final = re.compile(rf"\.({'|'.join(_WORD_OPERATORS)})\s*\(", re.IGNORECASE)
"""An operator as a method, which people try."""
_COMPARE: Final = frozenset({"==", "!=", "<", "<=", ">", ">=", "=~", "!~"})


class _Token(msgspec.Struct, frozen=True):
    kind: Literal["word", "name", "sign", "string", "number", "time", "end"]
    """word: a keyword in lower case; `&&`, `||` and `!` as their keywords."""
    text: str
    column: int
    unit: str = ""

    def is_word(self, *texts: str) -> bool:
        return self.kind == "word" and self.text in texts

    def is_sign(self, text: str) -> bool:
        return self.kind == "sign" and self.text == text

    def __str__(self) -> str:
        if self.kind == "end":
            return "the end"
        text = self.text + self.unit
        return repr(text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}…")


def _tokens(expression: str) -> list[_Token]:
    tokens: list[_Token] = []
    position = 0
    while position < len(expression):
        match = _TOKEN.match(expression, position)
        column = position + 1
        if match is None:
            sign = expression[position]
            if (called := _CALLED.match(expression, position)) is not None:
                raise _no_function(column + 1, called[1])
            raise wrong(column, _HINTS.get(sign, f"unexpected {sign!r}"))
        position = match.end()
        text = match[0]
        match match.lastgroup:
            case "space":
                continue
            case "unit":
                tokens.append(_Token("number", match["number"], column, match["unit"]))
            case "string":
                tokens.append(_Token("string", text[1:-1], column))
            case "time":
                tokens.append(_Token("time", text, column))
            case "word" if text.lower() in _WORDS:
                tokens.append(_Token("word", text.lower(), column))
            case "word" | "record":
                tokens.append(_Token("name", text, column))
            case _ if text in _SIGNS:
                tokens.append(_Token("word", _SIGNS[text], column))
            case _:
                tokens.append(_Token("sign", text, column))
    tokens.append(_Token("end", "", len(expression) + 1))
    return tokens


def _no_function(column: int, name: str) -> UsageError:
    """An error for `contains(…)` and `FIELD.contains(…)`."""
    return wrong(column, f'{name!r} is an operator, not a function: FIELD {name.lower()} "TEXT"')


def parse(expression: str) -> Node:
    """The nodes of an expression. Raises UsageError with the column."""
    parser = _FilterParser(_checked_tokens(expression))
    if parser.ended:
        raise UsageError("an empty expression")
    node = parser.expression()
    if not parser.ended:
        parser.unexpected("'and', 'or' or the end")
    return node


def parse_names(text: str) -> list[Name]:
    """The names in a comma list. Raises UsageError with the column."""
    return _FilterParser(_checked_tokens(text)).names()


def _checked_tokens(expression: str) -> list[_Token]:
    if len(expression) > MAX_LENGTH:
        raise UsageError(f"longer than {MAX_LENGTH:,} characters")
    try:
        expression.encode()
    except UnicodeEncodeError as error:
        # Arguments that are not UTF-8 hold lone surrogates (PEP 383); manifests keep the expression as text.
        raise wrong(error.start + 1, "not UTF-8") from None
    return _tokens(expression)


class _FilterParser:
    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._next = 0
        self._depth = 0

    @property
    def token(self) -> _Token:
        return self._tokens[self._next]

    @property
    def ended(self) -> bool:
        return self._next == len(self._tokens) - 1

    def _take(self) -> _Token:
        token = self._tokens[self._next]
        self._next += 1
        return token

    def unexpected(self, wanted: str) -> NoReturn:
        raise wrong(self.token.column, f"expected {wanted}, not {self.token}")

    def expression(self) -> Node:
        parts = [self._every()]
        while self.token.is_word("or"):
            self._take()
            parts.append(self._every())
        return parts[0] if len(parts) == 1 else Some(tuple(parts))

    def _every(self) -> Node:
        parts = [self._one()]
        while self.token.is_word("and"):
            self._take()
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else Every(tuple(parts))

    def _one(self) -> Node:
        token = self.token
        if token.is_word("not") or token.is_sign("("):
            if self._depth == MAX_DEPTH:
                raise wrong(token.column, f"more than {MAX_DEPTH} nested parentheses and negations")
            self._depth += 1
            self._take()
            if token.kind == "word":
                node: Node = Negation(self._one())
            else:
                node = self.expression()
                if not self.token.is_sign(")"):
                    self.unexpected("'and', 'or' or ')'")
                self._take()
            self._depth -= 1
            return node
        if token.is_word("has"):
            self._take()
            return Presence(self._name())
        if token.kind == "name" and token.text.lower() == "exists" and self._tokens[self._next + 1].is_sign("("):
            self._next += 2
            found = Presence(self._name())
            if not self.token.is_sign(")"):
                self.unexpected("')'")
            self._take()
            return found
        if token.kind == "name" and self._tokens[self._next + 1].is_sign("("):
            above, dot, name = token.text.rpartition(".")
            if name.lower() in _WORD_OPERATORS:
                raise _no_function(token.column + len(above) + len(dot), name)
        return self._comparison(self._name())

    def _name(self) -> Name:
        token = self.token
        if token.kind != "name":
            self.unexpected("a field")
        self._take()
        return Name(token.text, token.column)

    def names(self) -> list[Name]:
        found = [self._name()]
        while not self.ended:
            if not self.token.is_sign(","):
                self.unexpected("',' or the end")
            self._take()
            found.append(self._name())
        return found

    def _comparison(self, field: Name) -> Node:
        token = self.token
        if token.kind == "sign" and token.text in _COMPARE:
            self._take()
            return Comparison(field, token.text, token.column, (self._constant(),))  # type: ignore[arg-type]  # one of them
        if token.kind == "name" and token.text.lower() in _WORD_OPERATORS:
            self._take()
            operator = _WORD_OPERATORS[token.text.lower()]
            return Comparison(field, operator, token.column, (self._constant(),))  # type: ignore[arg-type]  # one of them
        if token.is_word("in"):
            self._take()
            return Comparison(field, "in", token.column, self._list())
        if token.is_word("not") and self._tokens[self._next + 1].is_word("in"):
            self._next += 2
            return Comparison(field, "not in", token.column, self._list())
        return Presence(field)

    def _list(self) -> tuple[Constant, ...]:
        if not self.token.is_sign("("):
            self.unexpected("a list in parentheses")
        constants: list[Constant] = []
        while True:
            self._take()
            constants.append(self._constant())
            if self.token.is_sign(")"):
                self._take()
                return tuple(constants)
            if not self.token.is_sign(","):
                self.unexpected("',' or ')'")

    def _constant(self) -> Constant:
        token = self.token
        match token.kind:
            case "string" | "number" | "time":
                constant = Constant(token.kind, token.text, token.column, token.unit)
            case "word" if token.text in ("true", "false"):
                constant = Constant("flag", token.text, token.column)
            case "word" if token.text == "null":
                constant = Constant("null", token.text, token.column)
            case "name":
                raise wrong(token.column, f'{token} is not a constant; did you mean "{token.text[:MAX_QUOTED]}"?')
            case _:
                self.unexpected("a constant")
        self._take()
        return constant


_ESCAPE: Final = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "'": "'"}


def unescaped(constant: Constant) -> str:
    r"""The text of a string: `\"`, `\'`, `\\`, `\n`, `\r`, `\t`, `\xNN` and `\uNNNN` are escapes.

    Raises UsageError for any other.
    """

    def character(match: re.Match[str]) -> str:
        if match[3] is None:
            return chr(int(match[1] or match[2], 16))
        if match[3] not in _ESCAPED:
            # After the quote, and the column counts from 1.
            column = constant.column + 1 + match.start()
            raise wrong(column, rf"\{match[3]} is not an escape; a backslash is written \\")
        return _ESCAPED[match[3]]

    return _ESCAPE.sub(character, constant.text)
