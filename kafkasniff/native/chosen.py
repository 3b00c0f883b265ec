"""The bytes of some of a body's fields, copied by the kernel (`kernel/chosen.zig`)."""

from __future__ import annotations

import ctypes
from typing import Final

from kafkasniff.native.caller import Program
from kafkasniff.native.library import Kernel

__all__ = ["CHOSEN", "INSIDE", "ChosenFields"]

INSIDE: Final = 1
"""Role of a struct, or of an array of structs, with chosen fields."""
CHOSEN: Final = 2
"""Role of a field that is copied."""


class ChosenFields:
    """Copies fields of bodies: those that have the role CHOSEN in `program`, at most `most` bytes."""

    def __init__(self, kernel: Kernel, program: bytes, most: int) -> None:
        self._function = kernel.chosen
        self._program = Program(kernel, program)
        self._output = ctypes.create_string_buffer(most)
        self._arguments = ctypes.addressof(self._output), most

    def of(self, address: int, size: int, start: int) -> bytes | None:
        """The copy for the body that begins at `start` of the `size` bytes at `address`.

        Returns None if the body is invalid or the copy too large.
        """
        used: int = self._function(self._program.address, address, size, start, *self._arguments)
        return None if used < 0 else self._output.raw[:used]
