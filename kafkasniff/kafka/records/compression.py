"""Decompression of record batches and message sets, bounded while it runs.

The codecs are those of `org.apache.kafka.common.record.CompressionType`. Compressed bytes come from the wire, so stated
sizes are not trusted: output is produced in steps and counted against a limit, and at most one step is allocated before
the count is checked. The output is bounded twice: by the caller's remaining budget, and in proportion to the value's
own size. Codec libraries are imported on first use.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any, Final, Literal

import msgspec

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
"""Names by codec number, bits 0-2 of the attributes."""

MAX_ZSTD_WINDOW: Final = 1 << 27
"""Bytes of zstd window: what level 22 uses (windowLog 27) and libzstd's own default limit; Kafka allows all levels."""

MAX_FRAMES: Final = 4096
"""Concatenated gzip members, lz4 or zstd frames in one value: writers make one or few, and each costs a new decoder."""

MAX_BLOCKS: Final = 1 << 20
"""Snappy blocks of a xerial stream: blocks of 32 KiB make 32 GiB of them, empty ones would only cost time."""

MAX_RATIO: Final = 1032
"""Maximum ratio of output to input: the highest that deflate can reach (258 bytes for two bits), so that neither gzip
nor lz4 (255) nor snappy (21) is ever refused. zstd reaches 32,768, if a single byte is repeated."""

MAX_UNRATED: Final = 32 << 20
"""Output allowed whatever its ratio: twice a batch of 16 MiB of zeros, which zstd compresses to 530 bytes. By default
brokers accept 1 MiB compressed (message.max.bytes), and producers send requests of as much."""

_STEP: Final = 1 << 20
"""Maximum bytes of output that lz4 and zstd allocate at once."""
_JOINED: Final = 4 << 20
"""Bytes of output that are joined in one step."""
_FIRST_FEED: Final = 1 << 20
_FEED: Final = 1 << 16
"""Bytes of input given at once, so that the rest after a frame's end is not copied whole for each of many frames.

Usually there is one frame, so the first step is larger."""
_KEPT_ZSTD: Final = 10 << 20
"""Memory up to which a zstd context is kept for reuse, in bytes: most of it is the largest window so far."""
_SNAPPY_MAX_RATIO: Final = 64
"""A snappy element of two bytes or more yields at most 64 bytes, so a larger stated length is invalid."""

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = 16
_GZIP_MAGIC: Final = b"\x1f\x8b"
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"


class Decompressed(msgspec.Struct, frozen=True):
    """Result of a decompression."""

    data: bytes
    """The decompressed bytes; empty after a failure."""
    produced: int
    """Bytes that were decompressed, even if they were discarded."""
    failure: Literal["decompression-bound", "decompression-failed"] | None = None
    """Kind of the problem; None for success."""
    detail: str = ""
    """Description of the failure, or of an oddity that was tolerated."""


class _Corrupt(Exception):  # noqa: N818  (never leaves this module)
    """The bytes do not match their codec's format."""


class _Bound(Exception):  # noqa: N818  (never leaves this module)
    """More output than the limit."""


class _Output:
    """Chunks of output, counted against a limit."""

    __slots__ = ("chunks", "limit", "note", "produced")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.chunks: list[bytes] = []
        self.produced = 0
        self.note = ""

    def room(self) -> int:
        """Bytes that may still follow, plus one to detect an excess."""
        return self.limit - self.produced + 1

    def add(self, chunk: bytes) -> None:
        self.produced += len(chunk)
        if self.produced > self.limit:
            raise _Bound
        self.chunks.append(chunk)

    def taken(self) -> bytes:
        """All chunks joined, leaving none: large ones go into a growing buffer, one by one.

        Joining them at once would take their memory twice.
        """
        chunks = self.chunks
        if len(chunks) == 1:
            return chunks[0]
        if self.produced <= _JOINED:
            return b"".join(chunks)
        whole = BytesIO()
        chunks.reverse()
        while chunks:
            whole.write(chunks.pop())
        return whole.getvalue()


def codec_name(codec: int) -> str:
    """Name of a codec number; `unknown-5` and the like for numbers that Kafka has not assigned."""
    return CODECS[codec] if codec < len(CODECS) else f"unknown-{codec}"


def allowance(size: int) -> int:
    """Bytes that a value of `size` bytes may decompress to, by its ratio."""
    return max(MAX_UNRATED, MAX_RATIO * size)


def decompress(codec: int, data: bytes | memoryview, limit: int, *, magic: int = 2) -> Decompressed:
    """Decompress `data`, to at most `limit` bytes (0 or more) and its `allowance`. Never raises for bad data.

    `magic`: that of the batch or message with the value; in magic 0 lz4's header checksum is not checked (see `_lz4`).
    An unassigned codec number is a failure.
    """
    allowed = allowance(len(data))
    output = _Output(max(min(limit, allowed), 0))
    try:
        match codec:
            case 0:
                output.add(bytes(data))
            case 1:
                _gzip(data, output)
            case 2:
                _snappy(data, output)
            case 3:
                _lz4(_repaired_lz4_header(bytes(data)) if magic == 0 else data, output)
            case 4:
                _zstd(data, output)
            case _:
                return Decompressed(b"", 0, "decompression-failed", f"unknown codec {codec}")
    except _Bound:
        ratio = output.produced / len(data) if data else 0.0
        detail = f"{len(data)} bytes of {CODECS[codec]} decompress to more than the "
        if limit <= allowed:
            detail += f"{limit} bytes that are left of the limit for one message (see --memory)"
        else:
            detail += f"{allowed} bytes allowed for their size"
        if ratio >= 1:
            detail += f" (at least {ratio:.0f} times their size)"
        return Decompressed(b"", output.produced, "decompression-bound", detail)
    except _Corrupt as error:
        return Decompressed(b"", output.produced, "decompression-failed", f"{CODECS[codec]}: {error}")
    return Decompressed(output.taken(), output.produced, None, output.note)


def _gzip(data: bytes | memoryview, output: _Output) -> None:
    """Members as in RFC 1952, concatenated; bytes after the last are ignored, as in Java's GZIPInputStream."""
    from isal import isal_zlib

    view = memoryview(data)
    position = 0
    for _ in range(MAX_FRAMES):
        decoder = isal_zlib.decompressobj(31)
        while not decoder.eof:
            if position >= len(data):
                raise _Corrupt("the stream is truncated")
            piece = view[position : position + (_FEED if position else _FIRST_FEED)]
            try:
                chunk = decoder.decompress(piece, output.room())
            except isal_zlib.error as error:  # type: ignore[misc]  # isal's stub types it as an instance
                raise _Corrupt(str(error)) from None
            position += len(piece)
            output.add(chunk)
        position -= len(decoder.unused_data)
        if position >= len(data):
            return
        if data[position : position + 2] != _GZIP_MAGIC:
            output.note = f"{len(data) - position} bytes after the end of the gzip stream"
            return
    raise _Corrupt(f"more than {MAX_FRAMES} members")


def _snappy(data: bytes | memoryview, output: _Output) -> None:
    """Snappy, raw (librdkafka, Sarama …) or in xerial's framing (snappy-java's SnappyOutputStream, as Kafka uses it).

    The framing is a header of 16 bytes (magic, version, oldest compatible version), then blocks of int32 length + raw
    snappy. Streams may be concatenated: then a header appears in place of a length.
    """
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        _snappy_block(data, output)
        return
    position = 0
    blocks = 0
    while position < len(data):
        if data[position : position + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
            position += _XERIAL_HEADER
            if position > len(data):
                raise _Corrupt("the xerial header is truncated")
            continue
        length = int.from_bytes(data[position : position + 4], "big", signed=True)
        position += 4
        if length < 0 or position + length > len(data):
            raise _Corrupt(f"a block of {length} bytes, but {max(len(data) - position, 0)} are left")
        blocks += 1
        if blocks > MAX_BLOCKS:
            raise _Corrupt(f"more than {MAX_BLOCKS} blocks")
        _snappy_block(data[position : position + length], output)
        position += length


def _snappy_block(block: bytes | memoryview, output: _Output) -> None:
    import cramjam

    stated = 0
    for index, byte in enumerate(block[:5]):
        stated |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            break
    else:
        raise _Corrupt("a block without a length")
    if stated > len(block) * _SNAPPY_MAX_RATIO:
        raise _Corrupt(f"{len(block)} bytes cannot decompress to the stated {stated}")
    if stated >= output.room():
        raise _Bound
    try:
        chunk = bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise _Corrupt(str(error)) from None
    output.add(chunk)


def _lz4(data: bytes | memoryview, output: _Output) -> None:
    """Frames of the lz4 frame format, concatenated."""
    import lz4.frame

    view = memoryview(data)
    position = 0
    # Room for the usual batch at once, without reserving a megabyte for each of many small ones.
    step = min(_STEP, max(_FEED, 8 * len(data)))
    for _ in range(MAX_FRAMES):
        decoder = lz4.frame.LZ4FrameDecompressor()
        while not decoder.eof:
            if decoder.needs_input:
                if position >= len(data):
                    raise _Corrupt("the frame is truncated")
                piece = view[position : position + (_FEED if position else _FIRST_FEED)]
                position += len(piece)
            else:
                piece = view[:0]
            try:
                chunk = decoder.decompress(piece, min(step, output.room()))
            except (RuntimeError, ValueError) as error:
                raise _Corrupt(str(error)) from None
            output.add(chunk)
        position -= len(decoder.unused_data or b"")
        if position >= len(data):
            return
        if data[position : position + 4] != _LZ4_MAGIC:
            output.note = f"{len(data) - position} bytes after the end of the lz4 frame"
            return
    raise _Corrupt(f"more than {MAX_FRAMES} frames")


def _repaired_lz4_header(data: bytes) -> bytes:
    """An lz4 frame of magic 0 with the header checksum that lz4 itself expects.

    Kafka before 0.10 computed that byte over the frame's magic number too (KIP-57), and its readers of magic 0 have
    ignored it ever since (`Lz4BlockInputStream`, ignoreFlagDescriptorChecksum). So it is recomputed here.
    """
    if len(data) < 7 or data[:4] != _LZ4_MAGIC:
        return data
    flags = data[4]
    end = 6 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    if len(data) <= end:
        return data
    checksum = (_xxh32_short(data[4:end]) >> 8) & 0xFF
    return data if data[end] == checksum else data[:end] + bytes((checksum,)) + data[end + 1 :]


def _xxh32_short(data: bytes) -> int:
    """XXH32 with seed 0 of fewer than 16 bytes (xxHash specification, steps 1 special case, 4-7)."""
    prime1, prime2, prime3, prime4, prime5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
    mask = 0xFFFFFFFF
    value = (prime5 + len(data)) & mask
    words = len(data) // 4 * 4
    for index in range(0, words, 4):
        value = (value + int.from_bytes(data[index : index + 4], "little") * prime3) & mask
        value = ((value << 17 | value >> 15) & mask) * prime4 & mask
    for byte in data[words:]:
        value = (value + byte * prime5) & mask
        value = ((value << 11 | value >> 21) & mask) * prime1 & mask
    value = (value ^ value >> 15) * prime2 & mask
    value = (value ^ value >> 13) * prime3 & mask
    return value ^ value >> 16


_free_zstd: Final[list[Any]] = []
"""Unused zstd contexts: threads decompress at the same time."""


def _zstd(data: bytes | memoryview, output: _Output) -> None:
    """Frames as in RFC 8878, concatenated, with or without content sizes."""
    import zstandard

    position = 0
    for _ in range(MAX_FRAMES):
        position = _zstd_frame_end(data, position)
        if position >= len(data):
            break
    else:
        raise _Corrupt(f"more than {MAX_FRAMES} frames")
    try:
        context = _free_zstd.pop()
    except IndexError:
        context = zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW)
    reader = context.stream_reader(data, read_across_frames=True)
    # Room for the usual batch at once, as for lz4.
    step = min(_STEP, max(_FEED, 8 * len(data)))
    while True:
        size = min(step, output.room())
        try:
            chunk = reader.read(size)
        except zstandard.ZstdError as error:
            raise _Corrupt(str(error)) from None
        output.add(chunk)
        # The reader continues across frames until it has this many bytes, or reaches the end.
        if len(chunk) < size:
            break
    # Not after an error: its state is useless then.
    if context.memory_size() <= _KEPT_ZSTD:
        _free_zstd.append(context)


def _zstd_frame_end(data: bytes | memoryview, position: int) -> int:
    """End of the frame at `position`, by its block headers: the streaming reader accepts a truncated frame."""
    import zstandard

    head = data[position : position + 18]
    if head[1:4] == b"\x2a\x4d\x18" and head[0] >> 4 == 5:  # skippable frame: 0x184D2A5?, int32 size
        end = position + 8 + int.from_bytes(head[4:8], "little")
        if end > len(data) or len(head) < 8:
            raise _Corrupt("the frame is truncated")
        return end
    if head[:4] != _ZSTD_MAGIC:
        raise _Corrupt(f"no frame at byte {position}")
    try:
        at = position + zstandard.frame_header_size(head)
    except zstandard.ZstdError as error:
        raise _Corrupt(str(error)) from None
    size = len(data)
    last = False
    while not last:
        if at + 3 > size:
            raise _Corrupt("the frame is truncated")
        block = data[at] | data[at + 1] << 8 | data[at + 2] << 16
        last = bool(block & 1)
        # An RLE block (type 1) has one byte, repeated as often as its size field says.
        at += 3 + (1 if block & 6 == 2 else block >> 3)
    if head[4] & 0x04:  # content checksum
        at += 4
    if at > size:
        raise _Corrupt("the frame is truncated")
    return at
