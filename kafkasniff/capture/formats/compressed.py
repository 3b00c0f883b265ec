"""Streaming decompression of captures: gzip, zstd, LZ4, xz and bzip2; concatenated, truncated and corrupt ones.

The content decides, never the file's name. Magic numbers: RFC 1952 (gzip), RFC 8878 (zstd), the LZ4 frame format, the
.xz file format (2.1.1.1), bzip2's source.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

__all__ = ["MAGIC_SIZE", "MAX_XZ_MEMORY", "MAX_ZSTD_WINDOW", "Inflater", "inflater_for"]

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


def _is_gzip(head: bytes) -> bool:
    return head[:3] == b"\x1f\x8b\x08"


def _is_skippable(head: bytes) -> bool:
    # Skippable frames are common to zstd and LZ4.
    return len(head) >= MAGIC_SIZE and head[0] & 0xF0 == 0x50 and head[1:4] == b"\x2a\x4d\x18"


def _is_zstd(head: bytes) -> bool:
    return head[:4] == b"\x28\xb5\x2f\xfd" or _is_skippable(head)


def _is_lz4(head: bytes) -> bool:
    return head[:4] == b"\x04\x22\x4d\x18" or _is_skippable(head)


def _is_xz(head: bytes) -> bool:
    return head[:4] == b"\xfd7zX"


def _is_bzip2(head: bytes) -> bool:
    return head[:3] == b"BZh" and head[3:4] in (b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"8", b"9")


def _gzip() -> Any:
    from isal import igzip_lib

    return igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)


def _lz4() -> Any:
    import lz4.frame

    return lz4.frame.LZ4FrameDecompressor(return_bytearray=False)


def _zstd() -> Any:
    import zstandard

    return zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW).decompressobj()


def _xz() -> Any:
    import lzma

    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_XZ_MEMORY)


def _bzip2() -> Any:
    import bz2

    return bz2.BZ2Decompressor()


def _gzip_errors() -> tuple[type[Exception], ...]:
    from isal import igzip_lib

    corrupt: Any = igzip_lib.IsalError  # typed as an instance in its stubs
    return (corrupt, EOFError, ValueError)


def _lz4_errors() -> tuple[type[Exception], ...]:
    return (RuntimeError, EOFError, ValueError)


def _zstd_errors() -> tuple[type[Exception], ...]:
    import zstandard

    return (zstandard.ZstdError, ValueError)


def _xz_errors() -> tuple[type[Exception], ...]:
    import lzma

    return (lzma.LZMAError, EOFError, ValueError)


def _bzip2_errors() -> tuple[type[Exception], ...]:
    return (OSError, EOFError, ValueError)


class Inflater:
    """A stream of concatenated members of one compression: compressed bytes in, plain bytes out.

    Memory is bounded: `give` takes a block, then `take` returns pieces of it until it returns b"".
    """

    def __init__(
        self,
        name: str,
        create: Callable[[], Any],
        is_member: Callable[[bytes], bool],
        errors: tuple[type[Exception], ...],
        *,
        bounded: bool,
    ) -> None:
        self.name = name
        """Name of the compression, for messages."""
        self.failure: str | None = None
        """Why no more data follows; None if there is no failure."""
        self.cut = False
        """The failure is that the input ended too early."""
        self._create = create
        self._is_member = is_member
        self._errors = errors
        self._bounded = bounded
        self._member: Any = None
        self._input = b""
        self._position = 0
        self._members = 0

    def give(self, data: bytes) -> None:
        """Add compressed bytes; all output of earlier ones must have been taken."""
        self._input = self._input[self._position :] + data
        self._position = 0

    def take(self) -> bytes:
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
        if not self._is_member(head):
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
    if _is_gzip(head):
        return Inflater("gzip", _gzip, _is_gzip, _gzip_errors(), bounded=True)
    if head[:4] == b"\x04\x22\x4d\x18":
        return Inflater("LZ4", _lz4, _is_lz4, _lz4_errors(), bounded=True)
    if _is_xz(head):
        return Inflater("xz", _xz, _is_xz, _xz_errors(), bounded=True)
    if _is_bzip2(head):
        return Inflater("bzip2", _bzip2, _is_bzip2, _bzip2_errors(), bounded=True)
    if _is_zstd(head):
        return Inflater("zstd", _zstd, _is_zstd, _zstd_errors(), bounded=False)
    return None
