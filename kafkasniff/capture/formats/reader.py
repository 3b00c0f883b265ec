"""CaptureReader: one capture file or pipe, from its bytes to its packets, in its own order."""

from __future__ import annotations

import io
import os
import re
import select
import stat
from typing import Any, BinaryIO, Final, Protocol

import msgspec

from kafkasniff.capture.formats.broker_files import is_segment, is_state_file
from kafkasniff.capture.formats.converters import MAGIC_SIZE, Converter, converter_for, inflater_for, undecided
from kafkasniff.capture.formats.logs import log_of
from kafkasniff.capture.formats.pcap import HEADER_SIZE, Interface, Parsed, PcapParser, PcapState, is_pcap
from kafkasniff.capture.formats.pcapng import PcapngParser, PcapngState, byte_order, is_pcapng
from kafkasniff.errors import CaptureError
from kafkasniff.model import BrokerTimes, Problem
from kafkasniff.runtime.threads import wait_readable

# Sources of a capture's bytes: regular files, pipes, and converted ones of both; always in order, in pieces.

PIPE_READ: Final = 1 << 20
"""Bytes requested from a pipe at a time: the most that Linux lets a pipe hold without privileges."""

COMPRESSED_READ: Final = 256 << 10
"""Compressed bytes read at a time; not the chunk size, which must not affect how much is lost at a corrupt place."""

EMPTY: Final = "is empty; was the capture stopped before its first packet was written?"
"""Message for an empty capture, after its name."""


class Failure(msgspec.Struct, frozen=True):
    """Why a stream ended early, or what it lacks."""

    kind: str
    """Kind of the problem: `capture-cut`, `capture-broken` or `request-log`."""
    reason: str
    """To be read after the capture's name."""
    early: bool = True
    """Nothing after it was read."""
    times: BrokerTimes | None = None
    """Those of a request log."""


class ByteStream(Protocol):
    """Plain bytes of a capture, in order."""

    failure: Failure | None
    """Set when the stream ended too early."""
    reopens: bool
    """It can be closed and reopened from the start (a regular file)."""

    @property
    def bytes_read(self) -> int:
        """Bytes of the file or pipe read so far (compressed ones if it is compressed)."""

    def extend(self, tail: bytes, need: int, size: int) -> bytes:
        """`tail`, the end of earlier data, and the data that follows: about `size` bytes, at least `need`.

        Returns just `tail` at the end. A pipe returns the available bytes as soon as they are `need`.
        """

    def close(self) -> None:
        """Release the file, if it was opened here."""


class RegularFile:
    """A plain file, read by position: the tail is read again rather than joined, so nothing is copied."""

    def __init__(self, descriptor: int) -> None:
        self.failure: Failure | None = None
        self.bytes_read = 0
        self.reopens = True
        self._descriptor = descriptor

    def extend(self, tail: bytes, need: int, size: int) -> bytes:
        """See `ByteStream`."""
        kept = len(tail)
        wanted = kept + max(size, need - kept)
        try:
            data = os.pread(self._descriptor, wanted, self.bytes_read - kept)
            if kept and len(data) == kept:
                # The end, or an unreadable place: a read that reaches it returns the bytes before it.
                data += os.pread(self._descriptor, wanted - kept, self.bytes_read)
        except OSError as error:
            self.failure = Failure("capture-broken", f"reading it failed: {error.strerror}")
            return tail
        if len(data) < kept:
            self.failure = Failure("capture-cut", "it was truncated while it was read")
            return tail
        self.bytes_read += len(data) - kept
        return data

    def close(self) -> None:
        """See `ByteStream`."""
        os.close(self._descriptor)


class Pipe:
    """A pipe or any other binary stream: available bytes are returned immediately."""

    def __init__(self, stream: BinaryIO, *, owned: bool) -> None:
        self.failure: Failure | None = None
        self.bytes_read = 0
        self.reopens = False
        self._stream = stream
        self._owned = owned
        self._returned = b""
        self._read: Any = getattr(stream, "read1", stream.read)
        self._waiting: select.poll | None = None
        self._may_wait = self._may_wait_later = False
        try:
            descriptor = stream.fileno()
        except (OSError, AttributeError, ValueError):
            return  # an object in memory: all its bytes are available
        self._waiting = select.poll()
        self._waiting.register(descriptor, select.POLLIN)
        self._descriptor = descriptor
        # Data in a buffer does not make the descriptor readable. Only the first read from a `BufferedReader` can find
        # some, left by its owner: `read1` leaves none.
        self._may_wait = isinstance(stream, io.FileIO)
        self._may_wait_later = self._may_wait or isinstance(stream, io.BufferedReader)

    def some(self, most: int) -> bytes:
        """Between 1 and `most` bytes; b"" at the end."""
        if self._returned:
            data, self._returned = self._returned[:most], self._returned[most:]
            return data
        if self.failure is not None:
            return b""
        try:
            if self._may_wait:
                # A signal that comes just before the read itself would not end it.
                wait_readable(self._descriptor)
            data = self._read(min(most, PIPE_READ)) or b""
            self._may_wait = self._may_wait_later
        except (OSError, ValueError) as error:
            self.failure = Failure("capture-broken", f"reading it failed: {error}")
            return b""
        self.bytes_read += len(data)
        return data

    def extend(self, tail: bytes, need: int, size: int) -> bytes:
        """See `ByteStream`."""
        pieces = [tail]
        have = len(tail)
        most = max(need, have + size)
        while have < most and (data := self.some(most - have)):
            pieces.append(data)
            have += len(data)
            if have >= need and not self.ready():
                break
        return b"".join(pieces) if len(pieces) > 1 else tail

    def put_back(self, head: bytes) -> None:
        """Bytes that were read for inspection; they come first in the next read."""
        self._returned = head

    def ready(self) -> bool:
        """Whether reading now would not block."""
        if self._returned:
            return True
        if self._waiting is None:
            return False
        return any(event & select.POLLIN for _, event in self._waiting.poll(0))

    def close(self) -> None:
        """See `ByteStream`."""
        if self._owned:
            self._stream.close()


class Compressed:
    """The capture that a converter makes of a file or pipe."""

    def __init__(self, source: ByteStream, head: bytes, converter: Converter) -> None:
        self.failure: Failure | None = None
        self.reopens = source.reopens
        self._source = source
        self._converter = converter
        self._given = head
        self._ended = False

    @property
    def bytes_read(self) -> int:
        """See `ByteStream`."""
        return self._source.bytes_read

    def extend(self, tail: bytes, need: int, size: int) -> bytes:
        """See `ByteStream`."""
        pieces = [tail]
        have = len(tail)
        most = max(need, have + size)
        while have < most:
            data = self._converter.pull()
            if data:
                pieces.append(data)
                have += len(data)
            elif self._converter.failure is not None or self._ended or (have >= need and self._must_wait()):
                break
            else:
                self._feed()
        if self.failure is None:
            self.failure = _end_of(self._converter)
        return b"".join(pieces) if len(pieces) > 1 else tail

    def _must_wait(self) -> bool:
        return not self._given and isinstance(self._source, Pipe) and not self._source.ready()

    def _feed(self) -> None:
        """Feed one more block of the source to the inflater."""
        data, self._given = self._given, b""
        if not data:
            if isinstance(self._source, Pipe):
                data = self._source.some(COMPRESSED_READ)
            else:
                data = self._source.extend(b"", 1, COMPRESSED_READ)
        if data:
            self._converter.push(data)
            return
        self._ended = True
        self.failure = self._source.failure
        self._converter.finish()

    def close(self) -> None:
        """See `ByteStream`."""
        self._source.close()


def _end_of(converter: Converter) -> Failure | None:
    if converter.failure is not None:
        return Failure("capture-cut" if converter.cut else "capture-broken", converter.failure)
    said = [reason for reason in (converter.damaged, converter.omitted) if reason is not None]
    kind = "request-log" if converter.damaged is None else "capture-broken"
    return Failure(kind, "; ".join(said), early=False, times=converter.times) if said else None


def _plain_or_compressed(source: RegularFile | Pipe, name: str) -> ByteStream:
    """Look at the first bytes and stack a decompressor on the source if they need it."""
    head = source.extend(b"", MAGIC_SIZE, COMPRESSED_READ)
    while undecided(head):
        # A pipe may have more.
        before, head = head, source.extend(head, len(head) + 1, COMPRESSED_READ)
        if len(head) == len(before):
            break
    if source.failure is not None:
        reason = source.failure.reason
        source.close()
        raise CaptureError(f"{name}: cannot be read ({reason})")
    if not head:
        source.close()
        raise CaptureError(f"{name}: {EMPTY}")
    converter = converter_for(head, name)
    if converter is not None:
        return Compressed(source, head, converter)
    if isinstance(source, RegularFile):
        source.bytes_read = 0
        return source
    source.put_back(head)
    return source


def open_path(path: str) -> ByteStream:
    """Open a capture by its path. Raises CaptureError if it cannot be opened or is empty."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise CaptureError(f"{path}: cannot be opened ({reason})") from None
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISDIR(mode):
        os.close(descriptor)
        raise CaptureError(f"{path}: is a folder; name the capture files in it")
    if stat.S_ISREG(mode):
        return _plain_or_compressed(RegularFile(descriptor), path)
    return _plain_or_compressed(Pipe(io.FileIO(descriptor), owned=True), path)


def open_pipe(stream: BinaryIO) -> ByteStream:
    """Use standard input, which its owner closes, as a capture. Raises CaptureError if it is empty."""
    return _plain_or_compressed(Pipe(stream, owned=False), "stdin")


# Whether a file is a capture, by its first bytes or by its name.

HEAD_BYTES: Final = 64 << 10
"""Bytes of a file that decide, in compressed form if it is compressed."""

_NAME: Final = re.compile(r"\.(pcapng|pcap|cap)\d*(\.(gz|zst|lz4|xz|bz2))?\Z", re.IGNORECASE)
"""The end of a name; tcpdump adds a number when it rotates."""


def begins_capture(head: bytes) -> bool:
    """Whether a file that begins with these bytes (HEAD_BYTES of them, or all) is a capture, compressed or not."""
    inflater = inflater_for(head) if len(head) >= MAGIC_SIZE else None
    if inflater is not None:
        inflater.push(head)
        head = inflater.pull()
    if is_segment(head) or is_state_file(head) or log_of(head) is not None:
        return True
    return len(head) >= HEADER_SIZE and (is_pcap(head) or is_pcapng(head))


def named_like_capture(name: str) -> bool:
    """Whether a file should be a capture, by its name."""
    return _NAME.search(name) is not None


# From bytes to packets.

FIRST_READ: Final = 64 << 10
"""Bytes requested with the file header."""

BROKEN_KINDS: Final = frozenset(("capture-cut", "capture-broken"))
"""Kinds of problems that show that a capture itself is damaged."""
_BESIDE: Final = (".index", ".timeindex", ".txnindex")
"""Names of what a broker keeps next to a log segment, without records."""


Parser = PcapParser | PcapngParser
State = PcapState | PcapngState


def parser_at(head: bytes, name: str, capture: int) -> tuple[Parser, int] | None:
    """The parser for a file that begins with `head`, and the offset of its first record; None: neither format."""
    if is_pcap(head) and len(head) >= HEADER_SIZE:
        return PcapParser(head[:HEADER_SIZE], name, capture), HEADER_SIZE
    if is_pcapng(head) and byte_order(head) is not None:
        return PcapngParser(head, name, capture), 0
    return None


def parser_from(state: State, name: str, capture: int) -> Parser:
    """A parser that continues from `state`."""
    if isinstance(state, PcapState):
        return PcapParser.resumed(state, name, capture)
    return PcapngParser.resumed(state, name, capture)


class CaptureReader:
    """Packets of one capture. Raises CaptureError if it is not a capture at all; then the stream is closed."""

    def __init__(self, stream: ByteStream, name: str, capture: int) -> None:
        self.name = name
        self.stream = stream
        self._need = 1
        self._fresh = True
        self._done = False
        head = stream.extend(b"", HEADER_SIZE, FIRST_READ)
        found = parser_at(head, name, capture)
        if found is None:
            failure = stream.failure
            stream.close()
            if failure is not None:
                raise CaptureError(f"{name}: is not a readable capture: {failure.reason}")
            if len(head) >= 4 and (is_pcap(head) or is_pcapng(head)):
                raise CaptureError(f"{name}: is truncated or corrupt within its file header; capture it again")
            advice = "its records are in the .log file" if name.endswith(_BESIDE) else "editcap may convert it"
            raise CaptureError(f"{name}: is not a capture (neither pcap nor pcapng); {advice}")
        self._parser, self._base = found
        self._tail = head[self._base :]

    def interface(self, index: int) -> Interface:
        """The interface that packets of the capture refer to by this index."""
        return self._parser.interfaces[index]

    def read(self, size: int) -> Parsed | None:
        """Packets and notes of about the next `size` bytes; None at the end."""
        while not self._done:
            if self._fresh:
                # Bytes read with the file header: a pipe may have no more for now.
                self._fresh = False
                data, ended = self._tail, False
            else:
                data = self.stream.extend(self._tail, self._need, size)
                ended = len(data) == len(self._tail)
            parsed = self._parser.parse(data, self._base, ended=ended)
            self._base += parsed.consumed
            self._tail = data[parsed.consumed :]
            self._need = parsed.need
            if ended or parsed.given_up:
                self._finish(parsed)
            if parsed.packets is not None or parsed.notes:
                return parsed
        return None

    def _finish(self, parsed: Parsed) -> None:
        self._done = True
        packets = self._parser.packets
        left = 0 if parsed.given_up else len(self._tail)
        problem = end_problem(self.name, self.stream.failure, packets=packets, position=self._base, left=left)
        if problem is not None:
            parsed.notes.append((packets + 1, problem))
        if self.stream.failure is not None and self.stream.failure.times is not None:
            parsed.notes.append((packets + 1, self.stream.failure.times))

    def close(self) -> None:
        """Release the file."""
        self.stream.close()


def end_problem(name: str, failure: Failure | None, *, packets: int, position: int, left: int) -> Problem | None:
    """The report on a capture's end: why its bytes ended, or that `left` of them are an incomplete packet.

    `packets` were read up to the byte at `position`.
    """
    if failure is not None:
        kind = failure.kind
        reason = failure.reason
        if failure.early:
            reason += f"; nothing after packet {packets} (byte {position}) can be read"
    elif left:
        kind = "capture-cut"
        reason = f"it ends within packet {packets + 1} (at byte {position}, {left} bytes of it left)"
    else:
        return None
    return Problem(kind, f"{name}: {reason}", capture=name, packet=packets or None)
