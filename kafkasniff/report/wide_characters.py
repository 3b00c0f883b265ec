"""Stand-ins, while a picture is drawn, for characters that a chart may contain but Vega cannot handle.

Vega shortens labels by UTF-16 code units, so it can cut an emoji in half, and then rendering the picture fails.
Characters that XML or JSON cannot hold fail, too. Characters of the private use area (U+E000 to U+F8FF) are one unit
each and never occur in text that was made safe to show. So each replaces one such character while the picture is drawn,
and is replaced by it afterwards.
"""

from __future__ import annotations

import re
from typing import Any, Final

from kafkasniff.text.printable import printable

__all__ = ["StandIns"]

_FIRST: Final = 0xE000
_LAST: Final = 0xF8FF
_NOT_KNOWN: Final = "\ufffd"
"""Used when no stand-ins are left."""
_REPLACED: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\uf8ff\ufffe\uffff\U00010000-\U0010ffff]")
_STANDING_IN: Final = re.compile("[\ue000-\uf8ff]")


class StandIns:
    """The stand-ins of one picture."""

    def __init__(self) -> None:
        self._by_character: dict[str, str] = {}
        self._characters: dict[str, str] = {}

    def replaced(self, value: Any) -> Any:
        """A specification, or a part of one, with stand-ins in all of its strings except field names."""
        if isinstance(value, str):
            return _REPLACED.sub(self._stand_in, value)
        if isinstance(value, dict):
            return {name: self.replaced(one) for name, one in value.items()}
        if isinstance(value, list):
            return [self.replaced(one) for one in value]
        return value

    def restored(self, text: str) -> str:
        """A picture with the original characters, or with escapes of those that cannot be shown."""
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
