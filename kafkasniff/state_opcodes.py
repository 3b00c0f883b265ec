"""Which instructions a state's pickle consists of: those that pickle itself writes, and no others.

pickle's reader obeys more than its writer ever says. An instruction of five bytes has it make a table of 2**33 entries
(LONG_BINPUT), which with the writer's own (MEMOIZE) grows by one entry for each byte; others call what they name or
read decimal digits. So the instructions are walked through before anything is made of them. Those of a pickle that is
cut off are not obeyed either: a bytearray whose bytes are missing is freed while it is being filled.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from pickle import (
    ADDITEMS,
    APPEND,
    APPENDS,
    BINBYTES,
    BINBYTES8,
    BINFLOAT,
    BINGET,
    BININT,
    BININT1,
    BININT2,
    BINUNICODE,
    BINUNICODE8,
    BUILD,
    BYTEARRAY8,
    EMPTY_DICT,
    EMPTY_LIST,
    EMPTY_SET,
    EMPTY_TUPLE,
    FRAME,
    FROZENSET,
    LONG1,
    LONG4,
    LONG_BINGET,
    MARK,
    MEMOIZE,
    NEWFALSE,
    NEWOBJ,
    NEWOBJ_EX,
    NEWTRUE,
    NONE,
    POP,
    POP_MARK,
    PROTO,
    REDUCE,
    SETITEM,
    SETITEMS,
    SHORT_BINBYTES,
    SHORT_BINUNICODE,
    STACK_GLOBAL,
    STOP,
    TUPLE,
    TUPLE1,
    TUPLE2,
    TUPLE3,
)
from typing import Final

__all__ = ["refusal"]

_BARE: Final = (
    *(MARK, POP, POP_MARK, NONE, NEWTRUE, NEWFALSE, MEMOIZE, STACK_GLOBAL, REDUCE, BUILD, NEWOBJ, NEWOBJ_EX),
    *(EMPTY_LIST, EMPTY_DICT, EMPTY_SET, EMPTY_TUPLE, TUPLE, TUPLE1, TUPLE2, TUPLE3, FROZENSET),
    *(APPEND, APPENDS, SETITEM, SETITEMS, ADDITEMS),
)
"""Instructions that nothing follows."""
_FIXED: Final = {PROTO: 1, BININT1: 1, BINGET: 1, BININT2: 2, BININT: 4, LONG_BINGET: 4, BINFLOAT: 8, FRAME: 8}
"""Those that so many bytes follow. What a FRAME holds is instructions again."""
_COUNTED: Final = {
    **dict.fromkeys((LONG1, SHORT_BINBYTES, SHORT_BINUNICODE), "<B"),
    **dict.fromkeys((LONG4, BINBYTES, BINUNICODE), "<I"),
    **dict.fromkeys((BINBYTES8, BINUNICODE8, BYTEARRAY8), "<Q"),
}
"""Those that a length of this form and so many bytes follow."""

_LENGTHS: Final = {ord(code): struct.Struct(form) for code, form in _COUNTED.items()}


def _class(codes: Iterable[bytes]) -> bytes:
    return b"[" + re.escape(b"".join(codes)) + b"]"


_RUN: Final = re.compile(
    b"(?:"
    + b"|".join(
        (
            _class(_BARE),
            *(
                _class(code for code, follow in _FIXED.items() if follow == size) + b".{%d}" % size
                for size in sorted(set(_FIXED.values()))
            ),
        )
    )
    + b")*+",
    re.DOTALL,
)
"""Instructions whose length is known: most of them, and much sooner found so than one by one."""


def refusal(data: bytes, position: int = 0) -> str | None:
    """Why the pickle at `data[position:]` is none that a state can be; None where it may be one.

    Work and memory of who reads it then are in proportion to its bytes, but for objects that were made to be hard to
    put into sets and dictionaries.
    """
    size = len(data)
    run, lengths = _RUN.match, _LENGTHS
    while position < size:
        found = run(data, position)
        assert found is not None, "an empty run is one"
        position = found.end()
        if position >= size:
            break
        code = data[position]
        length = lengths.get(code)
        if length is None:
            if code == STOP[0]:
                return None
            if position + _FIXED.get(data[position : position + 1], -1) >= size:
                break
            return f"instruction {code:#04x} at byte {position}"
        behind = position + 1 + length.size
        if behind > size:
            break
        position = behind + length.unpack_from(data, position + 1)[0]
    return "it is cut off"
