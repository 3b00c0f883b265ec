"""The shared library with the native kernel: `kernel.so` or `kernel.dylib` beside this file, loaded by ctypes."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import zlib
from pathlib import Path
from typing import Final, NamedTuple

from kafkasniff.native.calls import Base, Call, Item

__all__ = ["ABI", "Kernel", "kernel", "kernel_note"]

ABI: Final = 3
"""Version of the structures and functions; the library states its own."""

SWITCH: Final = "KAFKASNIFF_KERNEL"
"""Environment variable that turns the kernel off where it is 0."""

FILE: Final = "kernel.dylib" if sys.platform == "darwin" else "kernel.so"

_HERE: Final = Path(__file__).resolve().parent
_SOURCES: Final = _HERE.parent / "kernel"


class Kernel:
    """The functions of the library; `kernel/kernel.zig` documents them."""

    def __init__(self, library: ctypes.CDLL, identity: str) -> None:
        self.identity = identity
        """What it was compiled from, and by what."""
        pointer, number = ctypes.c_void_p, ctypes.c_uint64
        self.check = library.kafkasniff_check
        self.check.argtypes = (ctypes.c_char_p, number)
        self.check.restype = ctypes.c_int32
        self.body = library.kafkasniff_body
        self.body.argtypes = (ctypes.POINTER(Call), pointer, ctypes.c_char_p, number, number)
        self.body.restype = ctypes.c_int32
        # Without giving up the interpreter's lock: bodies take a microsecond.
        self.pack = ctypes.PyDLL(None, handle=library._handle).kafkasniff_pack
        self.pack.argtypes = (pointer, ctypes.c_char_p)
        self.pack.restype = ctypes.c_int64
        self.records = library.kafkasniff_records
        self.records.argtypes = (ctypes.POINTER(Call), ctypes.c_char_p, number, number)
        self.records.restype = ctypes.c_int32
        self.record_list = library.kafkasniff_record_list
        self.record_list.argtypes = (
            *(ctypes.POINTER(Call), ctypes.c_char_p, number, number),
            ctypes.POINTER(Base),
        )
        self.record_list.restype = ctypes.c_int32
        self.bodies = library.kafkasniff_bodies
        self.bodies.argtypes = (ctypes.POINTER(Call), ctypes.c_char_p, number, ctypes.POINTER(Item), number)
        self.bodies.restype = number
        self.columns_measure = library.kafkasniff_columns_measure
        self.columns_measure.argtypes = (pointer,)
        self.columns_measure.restype = None
        self.columns_write = library.kafkasniff_columns_write
        self.columns_write.argtypes = (pointer,)
        self.columns_write.restype = ctypes.c_int32


class _Found(NamedTuple):
    kernel: Kernel | None
    note: str
    """For `--version`: what is there, or why it is not."""


def kernel() -> Kernel | None:
    """The kernel; None where it is not there, is turned off, or does not belong to these sources."""
    return _find(os.environ.get(SWITCH)).kernel


def kernel_note() -> str:
    """Which kernel is used, or why none is."""
    return _find(os.environ.get(SWITCH)).note


@functools.lru_cache(maxsize=4)
def _find(switch: str | None) -> _Found:
    if switch == "0":
        return _Found(None, f"no native kernel: {SWITCH}=0")
    path = _HERE / FILE
    if not path.exists():
        return _Found(None, "no native kernel: not built for this installation")
    try:
        library = ctypes.CDLL(str(path))
        tell = library.kafkasniff_identity
    except (OSError, AttributeError) as error:
        return _Found(None, f"no native kernel: it cannot be loaded: {error}")
    tell.restype = ctypes.c_char_p
    facts = dict(word.split("=", 1) for word in tell().decode().split() if "=" in word)
    if facts.get("abi") != str(ABI):
        return _Found(None, f"no native kernel: its interface is {facts.get('abi')}, not {ABI}; install again")
    sources = _source_checksum()
    if sources is not None and sources != facts.get("sources"):
        return _Found(None, "no native kernel: built from other sources; install again")
    return _Found(Kernel(library, tell().decode()), f"native kernel {facts.get('sources')}, zig {facts.get('zig')}")


def _source_checksum() -> str | None:
    """Of the sources beside this package, as `hatch_build.py` computes it; None where there are none."""
    paths = sorted(_SOURCES.glob("*.zig"))
    if not paths:
        return None
    # A checksum finds a library that is out of date as well as a digest does; hashlib takes 4 ms to import.
    found = 0
    for path in paths:
        text = path.read_bytes()
        found = zlib.crc32(f"{path.name} {len(text)}\n".encode() + text, found)
    return f"{found:08x}"
