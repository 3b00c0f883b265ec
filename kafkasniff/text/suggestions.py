"""What somebody may have meant who mistyped a name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["closest", "suggestion"]


def closest(word: str, words: Iterable[str]) -> str | None:
    """The word that begins with `word` or is closest to it; case, `-` and `_` don't matter. None: none is close."""
    by_form = {_form(one): one for one in words}
    form = _form(word)
    close = [one for one in by_form if form and one.startswith(form)] or difflib.get_close_matches(form, by_form, n=1)
    return by_form[close[0]] if close else None


def suggestion(word: str, words: Iterable[str], otherwise: str = "") -> str:
    """`; did you mean …?` if one of the words is close, else `; ` and `otherwise`, if that is not empty."""
    close = closest(word, words)
    if close is not None:
        return f"; did you mean {close}?"
    return f"; {otherwise}" if otherwise else ""


def _form(word: str) -> str:
    return word.lower().replace("_", "").replace("-", "")
