"""Problems of bodies that the walker and the native kernel both report: their kinds and texts, defined once.

The kernel reports a problem as its number, its place and up to three numbers; `kernel/walk_notes.zig` (`Problem`) has
the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from kafkasniff.kafka.schema.context import DecodeContext
from kafkasniff.native.calls import Noted

__all__ = [
    "CUT_NUMBER",
    "CUT_TAG",
    "CUT_VALUE",
    "LONG_ARRAY",
    "LONG_TAG_SECTION",
    "LONG_VARINT",
    "NEGATIVE_COUNT",
    "NEGATIVE_LENGTH",
    "NOT_TEXT",
    "NULL_VALUE",
    "NUMBERED",
    "ODD_BOOLEAN",
    "ODD_MARK",
    "ODD_TAGGED_MARK",
    "TRAILING",
    "Template",
    "add_noted",
    "walk_ended",
]


class Template(msgspec.Struct, frozen=True):
    """A problem of a field."""

    kind: str
    words: str
    """Text after the path; `{}` for each number. Bytes after a body have no path."""
    ends: bool = False
    """Decoding ends there."""

    def detail(self, path: str, *numbers: int) -> str:
        """The sentence; surplus numbers are ignored."""
        return f"{path}: {self.words.format(*numbers)}"


CUT_NUMBER: Final = Template("body-truncated", "{} bytes needed, {} left", ends=True)
CUT_VALUE: Final = Template("body-truncated", "{} bytes, {} left", ends=True)
CUT_TAG: Final = Template("body-truncated", "tag {} has {} bytes, {} left", ends=True)
LONG_VARINT: Final = Template("varint-too-long", "a varint has at most 5 bytes", ends=True)
NEGATIVE_LENGTH: Final = Template("length-negative", "{} bytes", ends=True)
NEGATIVE_COUNT: Final = Template("length-negative", "{} elements", ends=True)
LONG_ARRAY: Final = Template("array-too-long", "{} elements of at least {} bytes, {} bytes left", ends=True)
LONG_TAG_SECTION: Final = Template("array-too-long", "{} tagged fields in {} bytes", ends=True)
NULL_VALUE: Final = Template("null-not-allowed", "null, which this version does not allow")
ODD_BOOLEAN: Final = Template("bool-not-0-or-1", "{}")
ODD_MARK: Final = Template("struct-mark-odd", "{} instead of 1 (present) or -1 (null)")
ODD_TAGGED_MARK: Final = Template("struct-mark-odd", "{} instead of 1 (present) or 0 (null)")
NOT_TEXT: Final = Template("string-not-utf8", "{} bytes that are not UTF-8")

TRAILING: Final = Template("trailing-bytes", "{} bytes follow the body of {} version {}")

NUMBERED: Final = (
    *(CUT_NUMBER, CUT_VALUE, CUT_TAG, LONG_VARINT, NEGATIVE_LENGTH, NEGATIVE_COUNT, LONG_ARRAY, LONG_TAG_SECTION),
    *(NULL_VALUE, ODD_BOOLEAN, ODD_MARK, ODD_TAGGED_MARK, NOT_TEXT, TRAILING),
)
"""By the kernel's numbers, from 1 on."""


def add_noted(context: DecodeContext, noted: Iterable[Noted]) -> None:
    """Add the kernel's problems of a body."""
    for number, path, position, numbers in noted:
        template = NUMBERED[number - 1]
        context.problem(template.kind, template.detail(path, *numbers), position, always=template.ends)


def walk_ended(noted: list[Noted]) -> bool:
    """Whether the kernel's last problem ended its walk."""
    return bool(noted) and NUMBERED[noted[-1].number - 1].ends
