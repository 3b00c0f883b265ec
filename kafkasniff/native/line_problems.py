"""How the kernel words problems of bodies in their lines; `kernel/line_problems.zig` has the same structures."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from kafkasniff.native.calls import address_of

_TEXT: Final = [("text", np.uint64), ("size", np.uint64)]
_WORDING: Final = np.dtype([("kind", _TEXT), ("words", _TEXT), ("misread", np.uint64)])
CAREFUL: Final = np.dtype([("trailing", _TEXT), ("marks", _TEXT)])


class Wording(NamedTuple):
    """A problem of bodies."""

    kind: bytes
    words: bytes
    """What follows the path; `{}` stands for each number."""
    misread: bool
    """A wrong length may have caused it, so that secrets may be in other fields."""


class Careful(NamedTuple):
    """What the problems of a version's bodies need besides, in one direction."""

    trailing: bytes = b""
    """The words for bytes after a body."""
    marks: tuple[bytes, ...] = ()
    """If a body that may be misread has one of these, Python judges it. An empty one: in any case."""

    def row(self, kept: list[bytes]) -> tuple[tuple[int, int], tuple[int, int]]:
        """As a row of `CAREFUL`, valid while the texts are kept."""
        marks = b"".join(bytes((len(mark),)) + mark for mark in self.marks)
        return (address_of(self.trailing, kept), len(self.trailing)), (address_of(marks, kept), len(marks))


class LineWordings(ctypes.Structure):
    """The wordings of all problems, by their numbers in the kernel."""

    _fields_ = (("words", ctypes.c_void_p), ("size", ctypes.c_uint64))

    @classmethod
    def of(cls, wordings: Iterable[Wording]) -> LineWordings:
        """Those of the problems 1, 2, ..."""
        kept: list[bytes] = []
        rows = np.array(
            [
                ((address_of(kind, kept), len(kind)), (address_of(words, kept), len(words)), misread)
                for kind, words, misread in wordings
            ],
            _WORDING,
        )
        made = cls(rows.ctypes.data, len(rows))
        made.kept = rows, kept
        return made
