"""Characters that a chart's text can have and Vega cannot be given: others stand for them while a picture is drawn.

Vega shortens labels by UTF-16 code units, so it can cut an emoji in half, and then the picture fails as a whole. What
XML or JSON cannot hold fails, too. Characters of the private use area (U+E000 to U+F8FF) are one unit each and are in
no text that was made safe to show, so each takes the place of one such character, and gives it back in the picture.
"""

from __future__ import annotations

import re
from typing import Any, Final

from kafkasniff.sinks.printable import printable

__all__ = ["StandIns"]

_FIRST: Final = 0xE000
_LAST: Final = 0xF8FF
_NOT_KNOWN: Final = "\ufffd"
"""For what there are no stand-ins left of."""
_REPLACED: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\uf8ff\ufffe\uffff\U00010000-\U0010ffff]")
_STANDING_IN: Final = re.compile("[\ue000-\uf8ff]")


class StandIns:
    """Of one picture."""

    def __init__(self) -> None:
        self._by_character: dict[str, str] = {}
        self._characters: dict[str, str] = {}

    def replaced(self, value: Any) -> Any:
        """A specification, or a part of one, with stand-ins in all of its strings but names of fields."""
        if isinstance(value, str):
            return _REPLACED.sub(self._stand_in, value)
        if isinstance(value, dict):
            return {name: self.replaced(one) for name, one in value.items()}
        if isinstance(value, list):
            return [self.replaced(one) for one in value]
        return value

    def restored(self, text: str) -> str:
        """A picture with the characters themselves, or escapes of those that cannot be shown."""
        return _STANDING_IN.sub(lambda found: self._characters.get(found[0], _NOT_KNOWN), text)

    def _stand_in(self, found: re.Match[str]) -> str:
        character = found[0]
        known = self._by_character.get(character)
        if known is None:
            code = _FIRST + len(self._by_character)
            if code > _LAST:
                return _NOT_KNOWN
            known = self._by_character[character] = chr(code)
            self._characters[known] = printable(character)
        return known
