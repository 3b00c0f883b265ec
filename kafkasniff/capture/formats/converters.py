"""Converters turn other files into captures: compressed captures, files of brokers, logs.

The content of a file decides, never its name.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kafkasniff.capture.formats.broker_files import (
    SEGMENT_HEAD,
    Converter,
    SegmentPackets,
    StatePackets,
    is_segment,
    is_state_file,
)
from kafkasniff.capture.formats.logs import LOG_HEAD, is_text, log_of

__all__ = ["MAGIC_SIZE", "Converter", "converter_for", "inflater_for", "undecided"]

# Streaming decompression: gzip, zstd, LZ4, xz and bzip2; concatenated, truncated and corrupt ones.
# Magic numbers: RFC 1952 (gzip), RFC 8878 (zstd), the LZ4 frame format, the .xz file format (2.1.1.1), bzip2's source.

MAGIC_SIZE: Final = 4
"""Bytes needed to identify a compression."""

ZSTD_SLICE: Final = 1 << 10
"""Compressed bytes given to zstd at a time. Its output cannot be bounded directly; a block of 4 bytes expands to at
most 128 KiB, so hostile input makes at most 32 MiB of a slice.
"""

MAX_ZSTD_WINDOW: Final = 1 << 27
"""Maximum zstd window in bytes, the default limit of its own programs; a few bytes may request 2 GiB."""

MAX_XZ_MEMORY: Final = 1 << 27
"""Maximum memory in bytes for decompressing xz. `xz -9` needs 65 MiB; a few bytes may request 4 GiB."""

SLICE: Final = 16 << 10
"""Compressed bytes given to all others at a time: the data after a member's end is copied, and there may be many
members.
"""

MAX_OUTPUT: Final = 1 << 20
"""Maximum size in bytes that all others return at a time; also the maximum loss before a corrupt place."""


_Decompressor = tuple[Callable[[], Any], tuple[type[Exception], ...]]
"""What creates a decompressor of one member, and the errors that it raises for corrupt data."""


def _gzip() -> _Decompressor:
    from isal import igzip_lib

    corrupt: Any = igzip_lib.IsalError  # typed as an instance in its stubs
    create = functools.partial(igzip_lib.IgzipDecompressor, flag=igzip_lib.DECOMP_GZIP)
    return create, (corrupt, EOFError, ValueError)


def _lz4() -> _Decompressor:
    import lz4.frame

    create = functools.partial(lz4.frame.LZ4FrameDecompressor, return_bytearray=False)
    return create, (RuntimeError, EOFError, ValueError)


def _zstd() -> _Decompressor:
    import zstandard

    create = zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW).decompressobj
    return create, (zstandard.ZstdError, ValueError)


def _xz() -> _Decompressor:
    import lzma

    create = functools.partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, memlimit=MAX_XZ_MEMORY)
    return create, (lzma.LZMAError, EOFError, ValueError)


def _bzip2() -> _Decompressor:
    import bz2

    return bz2.BZ2Decompressor, (OSError, EOFError, ValueError)


class _Compression(NamedTuple):
    name: str
    """For messages."""
    magic: re.Pattern[bytes]
    """The beginning of a file."""
    member: re.Pattern[bytes]
    """The beginning of each member."""
    decompressor: Callable[[], _Decompressor]


# Skippable frames are common to zstd and LZ4; a file that begins with one is read as zstd.
_SKIPPABLE: Final = rb"[\x50-\x5f]\x2a\x4d\x18"
_ZSTD: Final = re.compile(rb"\x28\xb5\x2f\xfd|" + _SKIPPABLE)
_LZ4: Final = rb"\x04\x22\x4d\x18"
_GZIP: Final = re.compile(rb"\x1f\x8b\x08")
_XZ: Final = re.compile(rb"\xfd7zX")
_BZIP2: Final = re.compile(rb"BZh[1-9]")

_COMPRESSIONS: Final = (
    _Compression("gzip", _GZIP, _GZIP, _gzip),
    _Compression("LZ4", re.compile(_LZ4), re.compile(_LZ4 + b"|" + _SKIPPABLE), _lz4),
    _Compression("xz", _XZ, _XZ, _xz),
    _Compression("bzip2", _BZIP2, _BZIP2, _bzip2),
    _Compression("zstd", _ZSTD, _ZSTD, _zstd),
)


class Inflater:
    """A stream of concatenated members of one compression: compressed bytes in, plain bytes out.

    Memory is bounded: `push` takes a block, then `pull` returns pieces of it until it returns b"".
    """

    def __init__(self, compression: _Compression) -> None:
        self.name = compression.name
        """Name of the compression, for messages."""
        self.failure: str | None = None
        """Why no more data follows; None if there is no failure."""
        self.cut = False
        """The failure is that the input ended too early."""
        self._starts_member = compression.member.match
        self._create, self._errors = compression.decompressor()
        self._bounded = compression.decompressor is not _zstd
        """The decompressor can limit its output."""
        self._member: Any = None
        self._input = b""
        self._position = 0
        self._members = 0

    def push(self, data: bytes) -> None:
        """Add compressed bytes; all output of earlier ones must have been taken."""
        self._input = self._input[self._position :] + data
        self._position = 0

    def pull(self) -> bytes:
        """The next plain bytes; b"" if more input is needed, or after a failure."""
        while self.failure is None:
            if self._member is None and not self._begin():
                return b""
            try:
                plain = self._inflate()
            except self._errors as error:
                self.failure = f"its {self.name} data is corrupt ({str(error) or type(error).__name__})"
                return b""
            if plain is None:
                return b""
            if plain:
                return plain
        return b""

    def finish(self) -> None:
        """The input has ended: an incomplete member is a failure."""
        if self.failure is None and (self._member is not None or self._position < len(self._input)):
            self.failure = f"its {self.name} data is truncated"
            self.cut = True

    def _begin(self) -> bool:
        """Open the next member, if it has any bytes."""
        head = self._input[self._position : self._position + MAGIC_SIZE]
        if self._members and not head.strip(b"\0") and not self._input[self._position :].strip(b"\0"):
            # Padding with zeros after the last member is legal for gzip (tapes) and harmless elsewhere.
            self._input, self._position = b"", 0
            return False
        if len(head) < MAGIC_SIZE:
            return False
        if not self._starts_member(head):
            self.failure = f"something that is not {self.name} follows its {self.name} data"
            return False
        self._member = self._create()
        self._members += 1
        return True

    def _inflate(self) -> bytes | None:
        """One step of the open member; None if it needs more input, b"" if it ended or produced nothing."""
        member = self._member
        if self._bounded:
            # The member keeps unused input, and is called again without new input.
            given = b""
            if member.needs_input:
                if self._position >= len(self._input):
                    return None
                given = self._input[self._position : self._position + SLICE]
                self._position += len(given)
            plain: bytes = member.decompress(given, MAX_OUTPUT)
            if member.eof:
                self._position -= len(member.unused_data or b"")
                self._member = None
            return plain
        if self._position >= len(self._input):
            return None
        piece = self._input[self._position : self._position + ZSTD_SLICE]
        plain = member.decompress(piece)
        self._position += len(piece)
        if member.eof:
            self._position -= len(member.unused_data)
            self._member = None
        return plain


def inflater_for(head: bytes) -> Inflater | None:
    """The inflater for data that begins with `head` (MAGIC_SIZE bytes or more); None if it is not compressed."""
    return next((Inflater(compression) for compression in _COMPRESSIONS if compression.magic.match(head)), None)


class _Inflated(Converter):
    """Decompresses a file, and converts what was compressed."""

    def __init__(self, inflater: Inflater, name: str) -> None:
        super().__init__()
        self._inflater = inflater
        self._name = name
        self._head = b""
        """The first bytes, until they show what they are."""
        self._inner: Converter | None = None
        self._decided = self._inner_ended = False

    def push(self, data: bytes) -> None:
        """See `Converter`."""
        self._inflater.push(data)

    def finish(self) -> None:
        """See `Converter`."""
        self._inflater.finish()
        super().finish()

    def pull(self) -> bytes:
        """See `Converter`: what the compressed file is decides how the capture begins."""
        return self._packets()

    def _packets(self) -> bytes:
        while True:
            if self._inner is not None and (data := self._inner.pull()):
                return data
            plain = self._inflater.pull()
            over = not plain and (self._ended or self._inflater.failure is not None)
            if not self._decided:
                self._head += plain
                if undecided(self._head) and not over:
                    if plain:
                        continue
                    return b""
                self._decided = True
                self._inner = _converter_of_plain(self._head, self._name)
                plain, self._head = self._head, b""
            if self._inner is None or not (plain or over):
                if over and not plain:
                    self.failure, self.cut = self._inflater.failure, self._inflater.cut
                return plain
            if plain:
                self._inner.push(plain)
            elif not self._inner_ended:
                self._inner_ended = True
                self._inner.finish()
            else:
                ended: Inflater | Converter = self._inner if self._inflater.failure is None else self._inflater
                self.failure, self.cut = ended.failure, ended.cut
                self.damaged, self.omitted = self._inner.damaged, self._inner.omitted
                self.times = self._inner.times
                return b""


def undecided(head: bytes) -> bool:
    """Whether more bytes than these first ones are needed to see what a file is, if it has more."""
    if len(head) < MAGIC_SIZE:
        return True
    if head[0] == 0:
        # No capture begins like this.
        return len(head) < SEGMENT_HEAD
    known = is_state_file(head) or log_of(head) is not None or inflater_for(head) is not None
    return len(head) < LOG_HEAD and is_text(head) and not known


def converter_for(head: bytes, name: str) -> Converter | None:
    """What turns a file that begins with `head` (HEAD_SIZE bytes, or all) into a capture; None: it is one."""
    inflater = inflater_for(head) if len(head) >= MAGIC_SIZE else None
    return _converter_of_plain(head, name) if inflater is None else _Inflated(inflater, name)


def _converter_of_plain(head: bytes, name: str) -> Converter | None:
    if is_state_file(head):
        return StatePackets(name)
    if is_segment(head):
        return SegmentPackets(name)
    return log_of(head, name)
