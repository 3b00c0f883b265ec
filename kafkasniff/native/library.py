"""The shared library with the native kernel, loaded by ctypes, and the structures of its calls.

The library is `kernel.so` or `kernel.dylib` next to this file. A library in a zip cannot be loaded. For a package
`NAME.zip` it is next to the zip instead, in the folder `NAME-native/PLATFORM`: `kafkasniff.spark.shipping` makes Spark
unpack such a folder for its workers.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from kafkasniff.errors import MissingKernelError

# -- structures of calls (`kernel/call.zig` has the same) --------------------------------------------------------------


DONE: Final = 0
ODD: Final = 1
"""Python has to decode these bytes."""
NO_ROOM: Final = 2
COMPRESSED: Final = 3
"""The requested batches have to be decompressed."""
ASKS: Final = 5
"""The caller has to answer first (`names.LineNames`)."""

FORMS: Final = {"auto": 0, "base64": 1, "hex": 2}
RECORDS: Final = {"full": 0, "batches": 1 << 2, "skip": 2 << 2}
PACKED_RECORDS: Final = {**RECORDS, "metadata": RECORDS["batches"], "columns": 3 << 2}
SHOW_SECRETS: Final = 1 << 4
PACK: Final = 1 << 5
PAYLOAD: Final = {"shown": 0, "dropped": 1 << 6, "hashed": 2 << 6}
JSON_RECORDS: Final = 1 << 8
"""Bits of `Call.wants`."""


class Hiding(NamedTuple):
    """How payload is shown in JSON (`payload.Payload`)."""

    form: Literal["shown", "dropped", "hashed"] = "shown"
    salt: bytes = b""
    """Key of hashes, at most 64 bytes."""
    person: bytes = b""
    """Their personalization, at most 16 bytes."""


class CompressedBatch(ctypes.Structure):
    """A compressed batch of records."""

    _fields_ = (
        ("position", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("codec", ctypes.c_uint8),
        ("magic", ctypes.c_uint8),
        ("spare", ctypes.c_uint16),
        ("count", ctypes.c_uint32),
        ("records", ctypes.c_char_p),
        ("size", ctypes.c_uint64),
    )


class Control(ctypes.Structure):
    """What a type of control records says."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_size", ctypes.c_uint64),
        ("program", ctypes.c_void_p),
        ("type", ctypes.c_int16),
        ("version", ctypes.c_int16),
        ("fronted", ctypes.c_uint32),
    )


class Call(ctypes.Structure):
    """Memory for results, the request, and the results."""

    _fields_ = (
        ("output", ctypes.c_void_p),
        ("output_size", ctypes.c_uint64),
        ("notes", ctypes.c_void_p),
        ("notes_size", ctypes.c_uint64),
        ("batches", ctypes.POINTER(CompressedBatch)),
        ("batches_size", ctypes.c_uint64),
        ("batches_given", ctypes.c_uint64),
        ("headers", ctypes.c_char_p),
        ("headers_size", ctypes.c_uint64),
        ("marks", ctypes.c_char_p),
        ("marks_size", ctypes.c_uint64),
        ("salt", ctypes.c_char_p),
        ("salt_size", ctypes.c_uint64),
        ("controls", ctypes.c_void_p),
        ("controls_size", ctypes.c_uint64),
        ("person", ctypes.c_char * 16),
        ("wants", ctypes.c_uint32),
        ("spare", ctypes.c_uint32),
        ("program", ctypes.c_void_p),
        ("start", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("max_records", ctypes.c_uint64),
        ("written", ctypes.c_uint64),
        ("notes_written", ctypes.c_uint64),
        ("batches_wanted", ctypes.c_uint64),
        ("records", ctypes.c_uint64),
        ("truncated", ctypes.c_uint64),
        ("after", ctypes.c_uint64),
        ("looked_at", ctypes.c_uint64),
        ("controls_wanted", ctypes.c_uint64),
    )


class Base(ctypes.Structure):
    """Base values for the records of a batch."""

    _fields_ = (
        ("offset", ctypes.c_int64),
        ("timestamp", ctypes.c_int64),
        ("append", ctypes.c_int64),
        ("appends", ctypes.c_uint64),
        ("wire", ctypes.c_uint64),
    )


class Item(ctypes.Structure):
    """One of several messages."""

    _fields_ = (
        ("program", ctypes.c_void_p),
        ("start", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("output_end", ctypes.c_uint64),
        ("notes_end", ctypes.c_uint64),
        ("after", ctypes.c_uint64),
        ("status", ctypes.c_int32),
        ("records", ctypes.c_uint32),
        ("truncated", ctypes.c_uint32),
        ("looked_at", ctypes.c_uint16),
        ("extensions", ctypes.c_uint16),
    )


class SummaryCall(ctypes.Structure):
    """Memory for summaries, and names (`names.NativeNames`); `kernel/summary.zig` has the same structure."""

    _fields_ = (
        ("output", ctypes.c_void_p),
        ("output_size", ctypes.c_uint64),
        ("names", ctypes.c_void_p),
        ("paint", ctypes.c_void_p),
        ("written", ctypes.c_uint64),
    )


class Noted(NamedTuple):
    """A problem of a body."""

    number: int
    """Its number: `kernel/walk_notes.zig`, `Problem`."""
    path: str
    position: int
    """Position in the data."""
    numbers: tuple[int, int, int]


def address_of(text: bytes, kept: list[bytes]) -> int:
    """The address of a text, which is valid while it is kept."""
    kept.append(text)
    address = ctypes.cast(ctypes.c_char_p(text), ctypes.c_void_p).value
    assert address is not None
    return address


# -- the library -------------------------------------------------------------------------------------------------------


ABI: Final = 26
"""Version of the structures and functions; the library states its own."""

FILE: Final = "kernel.dylib" if sys.platform == "darwin" else "kernel.so"

PLATFORM: Final = f"{sys.platform}-{os.uname().machine}" if os.name == "posix" else sys.platform
"""System and machine, such as `linux-x86_64` or `darwin-arm64`: the folder of a shipped library."""

# Links are not followed: Spark's zip may be a link to a cache, and the unpacked folder is next to the link.
_HERE: Final = Path(__file__).absolute().parent
_SOURCES: Final = _HERE.parent / "kernel"


_PANIC: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64)


def _end(line: str) -> None:
    os.write(2, f"kafkasniff: {line}\n".encode())
    os._exit(os.EX_SOFTWARE)


class Kernel:
    """The functions of the library; `kernel/kernel.zig` documents them."""

    streams_new: Any
    streams_free: Any
    streams_take: Any
    streams_finish: Any
    streams_let_go: Any
    streams_view: Any
    streams_release: Any
    streams_item: Any
    streams_keep: Any
    streams_gather: Any
    streams_save: Any
    streams_load: Any
    streams_clock: Any
    streams_drop: Any
    streams_holdings: Any
    streams_links: Any
    streams_needed: Any
    streams_layout: Any

    def __init__(self, library: ctypes.CDLL, identity: str) -> None:
        self.identity = identity
        """Its sources and its compiler."""
        self.at_hand: Callable[[], str] | None = None
        """Says what it reads at the moment."""
        self.last_words: Callable[[str], None] = _end
        """Called with a line if a check of the kernel fails, which ends the process."""
        self._on_panic = _PANIC(self._panic)
        library.kafkasniff_on_panic(self._on_panic)
        pointer, number = ctypes.c_void_p, ctypes.c_uint64
        self.check = library.kafkasniff_check
        self.check.argtypes = (ctypes.c_char_p, number)
        self.check.restype = ctypes.c_int32
        self.body = library.kafkasniff_body
        self.body.argtypes = (ctypes.POINTER(Call), pointer, ctypes.c_char_p, number, number)
        self.body.restype = ctypes.c_int32
        # Without releasing the interpreter's lock: bodies take a microsecond.
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
        self.check_summary = library.kafkasniff_check_summary
        self.check_summary.argtypes = (ctypes.c_char_p, number)
        self.check_summary.restype = ctypes.c_int32
        self.pcap_records = library.kafkasniff_pcap_records
        self.pcap_records.argtypes = (pointer,)
        self.pcap_records.restype = None
        self.pcapng_blocks = library.kafkasniff_pcapng_blocks
        self.pcapng_blocks.argtypes = (pointer,)
        self.pcapng_blocks.restype = None
        self.headers = library.kafkasniff_headers
        self.headers.argtypes = (pointer,)
        self.headers.restype = None
        self.ring = library.kafkasniff_ring
        self.ring.argtypes = (ctypes.c_char_p, number, ctypes.c_uint32, ctypes.c_uint32, pointer, number)
        self.ring.restype = number
        self.columns_measure = library.kafkasniff_columns_measure
        self.columns_measure.argtypes = (pointer,)
        self.columns_measure.restype = None
        self.columns_write = library.kafkasniff_columns_write
        self.columns_write.argtypes = (pointer,)
        self.columns_write.restype = ctypes.c_int32
        self.lines = library.kafkasniff_lines
        self.lines.argtypes = (pointer,)
        self.lines.restype = ctypes.c_int32
        # It is called for single small messages, for which releasing the interpreter's lock costs more than the call.
        self.chosen = ctypes.PyDLL(None, handle=library._handle).kafkasniff_chosen
        self.chosen.argtypes = (pointer, pointer, number, number, pointer, number)
        self.chosen.restype = ctypes.c_int64
        self.exchanges = library.kafkasniff_exchanges
        self.exchanges.argtypes = (pointer,)
        self.exchanges.restype = ctypes.c_int32
        self.text_lines = library.kafkasniff_text_lines
        self.text_lines.argtypes = (pointer,)
        self.text_lines.restype = ctypes.c_int32
        self.text_columns = library.kafkasniff_text_columns
        self.text_columns.argtypes = (pointer,)
        self.text_columns.restype = None
        self.blank = library.kafkasniff_blank
        self.blank.argtypes = (pointer,)
        self.blank.restype = None
        self.may_show = library.kafkasniff_may_show
        self.may_show.argtypes = (pointer, ctypes.c_char_p, number, number, number)
        self.may_show.restype = ctypes.c_int32
        self.patch = library.kafkasniff_patch
        self.patch.argtypes = (pointer,)
        self.patch.restype = None
        # Stream engines (`native.streams`). They are called once for each batch or question; answers need the
        # interpreter anyway.
        streams: dict[str, tuple[Any, ...]] = {
            "new": (pointer, pointer, pointer),
            "free": (number, pointer),
            "take": (None, pointer, pointer),
            "finish": (None, pointer, ctypes.c_uint32),
            "let_go": (None, pointer, pointer, number),
            "view": (None, pointer, pointer),
            "release": (None, pointer),
            "keep": (None, pointer, pointer, number, pointer, pointer, ctypes.c_bool),
            "item": (None, pointer, pointer),
            "gather": (None, pointer, ctypes.c_char_p),
            "save": (pointer, pointer, ctypes.c_uint32, pointer),
            "load": (ctypes.c_int64, pointer, ctypes.c_char_p, number, pointer),
            "clock": (None, pointer, pointer, ctypes.c_bool),
            "drop": (None, pointer, ctypes.c_uint32),
            "holdings": (number, pointer, pointer),
            "links": (None, pointer),
            "needed": (None, pointer, pointer, number, pointer),
            "layout": (ctypes.c_char_p,),
        }
        for name, (result, *arguments) in streams.items():
            function = getattr(library, f"kafkasniff_streams_{name}")
            function.restype, function.argtypes = result, arguments
            setattr(self, f"streams_{name}", function)

    def _panic(self, message: int, size: int) -> None:
        text = ctypes.string_at(message, size).decode("ascii", "replace")
        if self.at_hand is not None:
            text += f", at {self.at_hand()}"
        self.last_words(f"internal error of the native kernel: {text}; please report it")


class _Found(NamedTuple):
    kernel: Kernel | None
    note: str
    """Text for `--version`: the kernel, or why there is none."""
    advice: str = "install kafkasniff again with pip (docs/packaging.md)"
    """What to do if there is none."""


def kernel() -> Kernel:
    """The kernel. Raises MissingKernelError if it is missing or does not match these sources."""
    found = _find()
    if found.kernel is None:
        raise MissingKernelError(f"{found.note}; {found.advice}")
    return found.kernel


def kernel_note() -> str:
    """The kernel in use, or why there is none."""
    return _find().note


def library_path() -> Path:
    """The path of the library, if there is one."""
    package = _zip()
    if package is None:
        return _HERE / FILE
    return package.with_name(f"{package.stem}-native") / PLATFORM / FILE


def _zip() -> Path | None:
    """The zip with this package, if it is in one."""
    path = _HERE.parents[1]
    return path if path.is_file() else None


@functools.cache
def _find() -> _Found:
    path = library_path()
    if not path.exists():
        if _zip() is not None:
            advice = "ship a wheel of that platform, too (docs/spark.md)"
            return _Found(None, f"no native kernel: none was shipped for {PLATFORM}", advice)
        return _Found(None, "no native kernel: not built for this installation")
    try:
        library = ctypes.CDLL(str(path))
        identity = library.kafkasniff_identity
    except (OSError, AttributeError) as error:
        return _Found(None, f"no native kernel: it cannot be loaded: {error}")
    identity.restype = ctypes.c_char_p
    facts = dict(word.split("=", 1) for word in identity().decode().split() if "=" in word)
    if facts.get("abi") != str(ABI):
        return _Found(None, f"no native kernel: its interface is {facts.get('abi')}, not {ABI}")
    sources = _source_checksum()
    if sources is not None and sources != facts.get("sources"):
        return _Found(None, "no native kernel: built from other sources")
    return _Found(Kernel(library, identity().decode()), f"native kernel {facts.get('sources')}, zig {facts.get('zig')}")


def _source_checksum() -> str | None:
    """Checksum of the sources in this package, as computed by `hatch_build.py`; None if there are none."""
    sources = _sources()
    if not sources:
        return None
    # A checksum detects an outdated library as well as a digest does; hashlib takes 4 ms to import.
    found = 0
    for name, text in sorted(sources.items()):
        found = zlib.crc32(f"{name} {len(text)}\n".encode() + text, found)
    return f"{found:08x}"


def _sources() -> dict[str, bytes]:
    """The kernel's sources by name."""
    package = _zip()
    if package is None:
        return {path.name: path.read_bytes() for path in _SOURCES.glob("*.zig")}
    import zipfile  # noqa: PLC0415 - only where there is a zip: every start would pay for it

    inside = f"{_SOURCES.relative_to(package).as_posix()}/"
    with zipfile.ZipFile(package) as archive:
        names = [name for name in archive.namelist() if name.startswith(inside) and name.endswith(".zig")]
        return {name.removeprefix(inside): archive.read(name) for name in names}
