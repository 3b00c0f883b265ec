"""Wire text made safe to show: nothing that a peer sent reaches a terminal as anything but visible characters.

Terminal escapes, control characters, bidirectional overrides (CVE-2021-42574), invisible and unassigned characters come
out as backslash escapes; so does the backslash, which keeps the form unambiguous. There is no markup to escape: the
text sink writes plain strings with its own colour codes around them.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

__all__ = ["WORDS", "WORD_WIDTH", "cut", "display_width", "printable", "visible_json", "word"]

WORD_WIDTH: Final = 64
"""Characters of one name (topic, group, client id …) in a line; a Kafka topic name has at most 249."""
KEPT_WORDS: Final = 8192
"""Names whose words are kept; when there are more, all are let go."""
KEPT_ESCAPES: Final = 4096
"""Characters whose form is kept; when there are more, all are let go."""
KEPT_LENGTH: Final = 256
"""Characters of a name whose word is kept: topics and groups are shorter, what is longer is made anew each time."""

# Invisible, yet `str.isprintable` lets them through (Unicode's Default_Ignorable_Code_Point of categories Lo and Mn,
# and the blank Braille pattern): two different names would look the same.
_INVISIBLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
# JSON escapes the control characters of ASCII only. DEL, those of ISO 6429 (U+009B begins a sequence as ESC [ does),
# formats and directions (categories Cf, Zl, Zp) may stand in its strings as they are.
_ACTING: Final = re.compile(
    "[\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u08e2\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001-\U000e007f]"
)
# What ends a name in a line; a name that holds one of these is quoted.
_SEPARATOR: Final = re.compile("[\\s,;=\"'()\\[\\]{}…·]")


# Those for which Python's own escapes are others.
_BLANKS: Final = re.compile("[\t\n\r]")
_LONGEST_ESCAPE: Final = len("\\U00000000")


def _escape(character: str) -> str:
    if character == "\\":
        return "\\\\"
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        # A byte that is no UTF-8 (PEP 383), from `printable(bytes)` or from a file name.
        return f"\\x{code - 0xDC00:02x}"
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


class _Escapes(dict[int, str]):
    """Code point → how it is shown, as far as it was asked for. Bounded in number."""

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
    r"""`value` with all that is not plainly visible as `\xNN`, `\uNNNN` or `\UNNNNNNNN`; bytes are read as UTF-8.

    `backslashes` False leaves those alone, for whole lines, whose names may be escaped already: then doing it again
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
    r"""The same JSON for a terminal: what would act there, or be invisible, as `\uNNNN`; it means the same."""
    text = data.decode()
    if _ACTING.search(text) is None:
        return data
    return _ACTING.sub(lambda found: _json_escape(ord(found[0])), text).encode()


def _json_escape(code: int) -> str:
    if code <= 0xFFFF:
        return f"\\u{code:04x}"
    # A surrogate pair (RFC 8259, section 7).
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


def cut(text: str, width: int, *, unit: str = "") -> str:
    """At most `width` characters of `text`, which is safe already; what is missing is told: `abc… +17`."""
    if len(text) <= width:
        return text
    return f"{text[:width]}… +{len(text) - width}{unit}"


def _word(value: str | bytes, width: int) -> str:
    # Cut before escaping, so that a megabyte of control characters costs nothing, and again behind it: no name may take
    # more room than `width`, or one hostile client id would widen its column for good.
    kept = value[:width]
    text = printable(kept)
    while len(text) > width:
        # So many can be given up at once: what is given up was no longer than this.
        kept = kept[: -max((len(text) - width) // _LONGEST_ESCAPE, 1)]
        text = printable(kept)
    rest = len(value) - len(kept)
    if not text or _SEPARATOR.search(text):
        text = '"' + text.replace('"', '\\"') + '"'
    return f"{text}… +{rest}" if rest else text


class _Words(dict[str | bytes, str]):
    """String from the wire → what `word` makes of it, as far as it was asked for; TypeError for what is no string.

    A dict, since a hit takes half of what `lru_cache` takes. Bounded in strings and in the length of each.
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
    """A name from the wire as one word of a line: safe, quoted where it holds separators or nothing, cut at `width`."""
    if type(value) is str or isinstance(value, str | bytes):  # the first test is the fast one
        return WORDS[value] if width == WORD_WIDTH else _word(value, width)
    if value is None:
        return "null"
    if isinstance(value, dict) and "redacted" in value:
        return f"[{value['redacted']} bytes redacted]"
    return printable(str(value))


def display_width(text: str) -> int:
    """Terminal columns that safe text takes: two per wide East Asian character, none per combining mark."""
    if text.isascii() or text.replace("…", "").isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )
