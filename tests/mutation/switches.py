"""Switches of planted faults. A copy of it becomes a module of the package in which they are planted."""

from __future__ import annotations

import atexit
import os
import posix  # Not `os`, whose functions tests replace.
from typing import Any

FOLDER = ""
COUNT = 0
KERNEL = False
"""Whether there are faults in the kernel."""

REACHED: set[int] = set()
"""Faults whose code has run since it was cleared."""
ON: frozenset[int] = frozenset()


def planted(number: int) -> bool:
    if number not in REACHED:
        REACHED.add(number)
        _note([number])
    return number in ON


def switch_on(numbers: frozenset[int]) -> None:
    global ON  # noqa: PLW0603 - the state of this process
    ON = numbers
    if KERNEL:
        for number, place in enumerate(_kernel("kafkasniff_planted")):
            if place != (number in numbers):
                _kernel("kafkasniff_planted")[number] = number in numbers


def note_kernel() -> None:
    """Note which faults of the kernel were reached since the last call."""
    places = _kernel("kafkasniff_reached")
    _note([number for number, place in enumerate(places) if place])
    places[:] = [0] * COUNT


def _note(numbers: list[int]) -> None:
    """For the process that runs the tests, which may be another one."""
    try:
        file = posix.open(f"{FOLDER}/reached", posix.O_WRONLY | posix.O_APPEND)
    except OSError:
        return  # Nothing is recorded, or this process is confined.
    posix.write(file, "".join(f"{number}\n" for number in numbers).encode())
    posix.close(file)


def _kernel(name: str) -> Any:
    import ctypes  # Only here: tests look at what is imported.

    library = ctypes.CDLL(f"{FOLDER}/tree/kafkasniff/native/kernel.so")
    return (ctypes.c_uint8 * COUNT).in_dll(library, name)


if os.path.exists(f"{FOLDER}/on"):
    with open(f"{FOLDER}/on", encoding="ascii") as _file:
        _numbers = frozenset(map(int, _file.read().split()))
    if _numbers:
        switch_on(_numbers)
    if KERNEL and os.path.exists(f"{FOLDER}/reached"):
        atexit.register(note_kernel)
