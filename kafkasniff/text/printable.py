"""Wire text that is safe to show, wrapped and coloured for terminals; what a mistyped word may mean.

Nothing that a peer sent reaches a terminal except as visible characters. Terminal escapes, control characters,
bidirectional overrides (CVE-2021-42574), invisible and unassigned characters become backslash escapes; so does the
backslash, which keeps the result unambiguous. There is no markup to escape: the text sink writes plain strings with its
own colour codes around them.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

WORD_WIDTH: Final = 64
"""Maximum length of a name (topic, group, client id …) in a line; Kafka's topic names have at most 249 characters."""
KEPT_WORDS: Final = 8192
"""Maximum number of cached words; at the limit the cache is cleared."""
KEPT_ESCAPES: Final = 4096
"""Maximum number of cached characters; at the limit the cache is cleared."""
KEPT_LENGTH: Final = 256
"""Maximum length of a cached name: topics and groups are shorter; longer names are escaped each time."""

# Invisible, yet `str.isprintable` accepts them (Unicode's Default_Ignorable_Code_Point of categories Lo and Mn, and the
# blank Braille pattern): two different names would look the same.
_INVISIBLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
# JSON escapes only the control characters of ASCII. Its strings may contain DEL, those of ISO 6429 (U+009B begins a
# sequence like ESC [), formats and directions (categories Cf, Zl, Zp) unescaped.
_ACTING: Final = re.compile(
    "[\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u08e2\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001-\U000e007f]"
)
# Characters that end a name in a line; a name that contains one of these is quoted.
_SEPARATOR: Final = re.compile("[\\s,;=\"'()\\[\\]{}…·]")


# Characters with other escapes in Python.
_BLANKS: Final = re.compile("[\t\n\r]")
_LONGEST_ESCAPE: Final = len("\\U00000000")


def _escape(character: str) -> str:
    if character == "\\":
        return "\\\\"
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        # A byte that is not UTF-8 (PEP 383), from `printable(bytes)` or from a file name.
        return f"\\x{code - 0xDC00:02x}"
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


class _Escapes(dict[int, str]):
    """Code point → its displayed form, computed on first use. Bounded in number."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if not (character.isprintable() and character != "\\" and _INVISIBLE.match(character) is None):
            character = _escape(character)
        if len(self) >= KEPT_ESCAPES:
            self.clear()
        self[code] = character
        return character


_ESCAPES: Final = _Escapes()


def printable(value: str | bytes, *, backslashes: bool = True) -> str:
    r"""`value` with everything not plainly visible as `\xNN`, `\uNNNN` or `\UNNNNNNNN`; bytes are decoded as UTF-8.

    `backslashes` False keeps backslashes, for whole lines, whose names may be escaped already: then escaping again
    changes nothing.
    """
    text = value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
    if not backslashes:
        return "\\".join(map(printable, text.split("\\")))
    if text.isascii():
        if text.isprintable() and "\\" not in text:
            return text
    elif text.isprintable() and "\\" not in text and _INVISIBLE.search(text) is None:
        return text
    if text.isascii() and _BLANKS.search(text) is None:
        # Python's own escapes are the same here, some hundred times as fast: payload may be zeros.
        return text.encode("unicode_escape").decode("ascii")
    return text.translate(_ESCAPES)


def visible_json(data: bytes) -> bytes:
    r"""Equivalent JSON for a terminal: characters that would act there, or be invisible, as `\uNNNN`."""
    text = data.decode()
    if _ACTING.search(text) is None:
        return data
    return _ACTING.sub(lambda match: _json_escape(ord(match[0])), text).encode()


def _json_escape(code: int) -> str:
    if code <= 0xFFFF:
        return f"\\u{code:04x}"
    # A surrogate pair (RFC 8259, section 7).
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


def cut(text: str, width: int) -> str:
    """At most `width` characters of escaped `text`, with the number of those omitted: `abc… +17`."""
    if len(text) <= width:
        return text
    return f"{text[:width]}… +{len(text) - width}"


def _word(value: str | bytes, width: int) -> str:
    # Cut before escaping, so that a megabyte of control characters costs nothing, and again afterwards: no name may be
    # wider than `width`, or one hostile client id would widen its column permanently.
    kept = value[:width]
    text = printable(kept)
    while len(text) > width:
        # These can be dropped at once: none was longer than this when escaped.
        kept = kept[: -max((len(text) - width) // _LONGEST_ESCAPE, 1)]
        text = printable(kept)
    rest = len(value) - len(kept)
    if not text or _SEPARATOR.search(text):
        text = '"' + text.replace('"', '\\"') + '"'
    return f"{text}… +{rest}" if rest else text


class _Words(dict[str | bytes, str]):
    """String from the wire → its `word`, computed on first use; TypeError for anything but strings.

    A dict, since a hit takes half the time of `lru_cache`. Bounded in number and in the length of each.
    """

    def __missing__(self, name: str | bytes) -> str:
        text = _word(name, WORD_WIDTH)
        if len(name) <= KEPT_LENGTH:
            if len(self) >= KEPT_WORDS:
                self.clear()
            self[name] = text
        return text


WORDS: Final = _Words()
"""For hot callers: `WORDS[name]` is `word(name)`."""


def word(value: object, width: int = WORD_WIDTH) -> str:
    """A name from the wire as one word of a line: escaped, quoted if it has separators or is empty, cut at `width`."""
    if type(value) is str or isinstance(value, str | bytes):  # the first test is the fast one
        return WORDS[value] if width == WORD_WIDTH else _word(value, width)
    if value is None:
        return "null"
    if isinstance(value, dict) and "redacted" in value:
        return f"[{value['redacted']} bytes redacted]"
    return printable(str(value))


def display_width(text: str) -> int:
    """Terminal columns of escaped text: two per wide East Asian character, none per combining mark."""
    if text.isascii() or text.replace("…", "").isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )


def shown_characters(first: int) -> bytes:
    """How each of 256 characters is shown: 0 escaped, 1 in one column, 2 in two, 3 in none (`kernel/tree.zig`)."""
    characters = map(chr, range(first, first + 256))
    return bytes(
        (display_width(character) or 3) if printable(character) == character else 0 for character in characters
    )


def clipped(text: str, width: int) -> str:
    """Escaped text of at most `width` columns; an ellipsis replaces the rest."""
    if display_width(text) <= width:
        return text
    text = text[: width - 1]
    while display_width(text) > width - 1:
        text = text[:-1]
    return f"{text}…"


_CODE: Final = re.compile(r"\x1b\[[0-9;]*m")
_WORD: Final = re.compile(r"([^ ]+|^)( *)")


def wrapped(line: str, width: int, indent: int = 0) -> Iterator[str]:
    """Parts of a line that fit. Later ones are indented as the first is, and by `indent` more.

    Words stay whole: only a single one, such as a long name, may be wider than `width`. Codes of colours have no width.
    """
    plain = _plain(line)
    after = " " * (len(plain) - len(plain.lstrip(" ")) + indent)
    shown = ""
    for word, gap in _WORD.findall(line):
        if shown.strip() and display_width(_plain(shown + word)) > width:
            yield shown.rstrip(" ")
            shown = after
        shown += word + gap
    yield shown.rstrip(" ")


def _plain(line: str) -> str:
    """The line without codes of colours."""
    return _CODE.sub("", line)


def closest(word: str, words: Iterable[str]) -> str | None:
    """The word that begins with `word` or is closest to it; case, `-` and `_` don't matter. None: none is close."""
    by_form = {_form(one): one for one in words}
    form = _form(word)
    close = [one for one in by_form if form and one.startswith(form)] or difflib.get_close_matches(form, by_form, n=1)
    if close:
        return by_form[close[0]]
    by_part = {part: one for one in by_form.values() for part in re.split("[-_]", one.lower())}
    close = difflib.get_close_matches(form, by_part, n=1, cutoff=0.8)
    return by_part[close[0]] if close else None


def suggestion(word: str, words: Iterable[str], otherwise: str = "") -> str:
    """`; did you mean …?` if one of the words is close, else `; ` and `otherwise`, if that is not empty."""
    close = closest(word, words)
    if close is not None:
        return f"; did you mean {close}?"
    return f"; {otherwise}" if otherwise else ""


def _form(word: str) -> str:
    return word.lower().replace("_", "").replace("-", "")


class Paint(NamedTuple):
    """Codes before and after a word; empty strings without colours."""

    error: str = ""
    """Error names."""
    warn: str = ""
    """Problems."""
    api: str = ""
    request: str = ""
    """The arrow of a request."""
    response: str = ""
    name: str = ""
    """Field names in the tree."""
    note: str = ""
    """Annotations of values: enum names, dates."""
    dim: str = ""
    reset: str = ""


PLAIN: Final = Paint()
# Only SGR codes of the eight basic colours: they follow the terminal's own palette, light or dark.
COLOUR: Final = Paint(
    error="\x1b[1;31m",
    warn="\x1b[33m",
    api="\x1b[1m",
    request="\x1b[36m",
    response="\x1b[32m",
    name="\x1b[36m",
    note="\x1b[33m",
    dim="\x1b[2m",
    reset="\x1b[0m",
)
