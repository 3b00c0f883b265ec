"""The record layer: type, version, length and fragment (RFC 5246, 6.2.1; RFC 8446, 5.1), cut out of one stream.

A `RecordCutter` knows where the next record begins. After missing bytes it still does if the record in which they begin
extends beyond them; otherwise decryption has to find it: `seek` returns candidates.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec

__all__ = [
    "ALERT",
    "APPLICATION_DATA",
    "CHANGE_CIPHER_SPEC",
    "HANDSHAKE",
    "HEADER",
    "HEARTBEAT",
    "MAX_FRAGMENT",
    "Mark",
    "Record",
    "RecordCutter",
    "may_be_header",
]

CHANGE_CIPHER_SPEC: Final = 20
ALERT: Final = 21
HANDSHAKE: Final = 22
APPLICATION_DATA: Final = 23
HEARTBEAT: Final = 24

HEADER: Final = 5
MAX_FRAGMENT: Final = (1 << 14) + 2048
"""Maximum size of a protected fragment in bytes (RFC 5246, 6.2.3); TLS 1.3 allows less."""

_PROTECTED: Final = b"\x17\x03\x03"
"""Beginning of application data records in TLS 1.2 and, whatever they hold, in TLS 1.3."""


class Mark(msgspec.Struct, frozen=True):
    """Up to `end` (a position), bytes were delivered by this packet and became contiguous at that order."""

    end: int
    packet: int
    time_ns: int
    order: int
    released: int


class Record(msgspec.Struct, frozen=True):
    """One record. Ends of its marks are positions in `data`."""

    content_type: int
    version: int
    data: bytes
    """The fragment."""
    marks: tuple[Mark, ...]
    """The packets that delivered the fragment (for an empty one: its header)."""

    @property
    def order(self) -> int:
        """Order of the packet that completed it."""
        return self.marks[-1].order

    @property
    def header(self) -> bytes:
        """Its header as on the wire."""
        return bytes((self.content_type, *self.version.to_bytes(2), *len(self.data).to_bytes(2)))


def may_be_header(head: bytes | bytearray, at: int = 0) -> bool:
    """Whether the bytes at `at` can be (the beginning of) a record's header."""
    part = head[at : at + HEADER]
    if part and not CHANGE_CIPHER_SPEC <= part[0] <= HEARTBEAT:
        return False
    if len(part) > 1 and (part[1] != 3 or (len(part) > 2 and part[2] > 4)):
        return False
    return len(part) < HEADER or int.from_bytes(part[3:5]) <= MAX_FRAGMENT


class RecordCutter:
    """Cuts one stream into records, from a record's beginning on."""

    __slots__ = ("_base", "_data", "_marks", "_skip", "_start", "lost", "passed", "searched")

    def __init__(self) -> None:
        self._data = bytearray()
        self._start = 0
        """Where in `_data` the next record begins, or is searched for."""
        self._base = 0
        """Position in the stream of `_data`'s first byte."""
        self._marks: deque[Mark] = deque()
        self._skip = 0
        """Bytes up to the end of an incomplete record."""
        self.lost = False
        """The beginning of the next record is unknown: use `seek`, not `cut`."""
        self.passed = 0
        """Bytes missing and skipped since then."""
        self.searched = 0
        """Bytes skipped since then."""

    def __len__(self) -> int:
        """Bytes that wait for more."""
        return len(self._data) - self._start

    def add(self, data: bytes, packet: int, time_ns: int, order: int, released: int) -> None:
        """Take a segment."""
        if self._skip:
            step = min(self._skip, len(data))
            self._skip -= step
            data = data[step:]
        if not data:
            return
        if self._start:
            del self._data[: self._start]
            self._base += self._start
            self._start = 0
        self._data += data
        self._marks.append(Mark(self._base + len(self._data), packet, time_ns, order, released))

    def clear(self) -> None:
        """Drop the waiting bytes."""
        self._base += len(self._data)
        self._data = bytearray()
        self._start = 0
        self._marks.clear()

    def cut(self) -> Record | None:
        """The next record; None if it is incomplete or invalid (see `flawed`)."""
        data, start = self._data, self._start
        if len(data) - start < HEADER or self.lost or not may_be_header(data, start):
            return None
        end = start + HEADER + int.from_bytes(data[start + 3 : start + 5])
        return None if len(data) < end else self._take(end)

    @property
    def flawed(self) -> bool:
        """The bytes at the expected beginning of the next record are not a record."""
        return not self.lost and not may_be_header(self._data, self._start)

    def _take(self, end: int) -> Record:
        record = self._record(self._start, end)
        self._start = end
        self._drop_marks()
        return record

    def _record(self, start: int, end: int) -> Record:
        """The record whose header is at `start` and whose fragment ends at `end`."""
        data = self._data
        first = start + HEADER
        zero = self._base + first
        marks: list[Mark] = []
        for mark in self._marks:
            if mark.end > zero or first == end:
                marks.append(msgspec.structs.replace(mark, end=min(mark.end - zero, end - first)))
            if mark.end - zero >= end - first:
                break
        version = int.from_bytes(data[start + 1 : start + 3])
        return Record(data[start], version, bytes(data[first:end]), tuple(marks))

    # -- missing bytes ----------------------------------------------------------------------------------------------

    def gap(self, size: int) -> bool:
        """Bytes are missing after those taken so far. Returns whether a record's end after them is known.

        Then exactly one record was lost, the incomplete one.
        """
        if self.lost:
            self.passed += size + len(self)
            self.clear()
            return False
        if self._skip:
            if size <= self._skip:
                self._skip -= size
                return True
            self._lose(size)
            return False
        pending = len(self)
        if pending >= HEADER:
            left = HEADER + int.from_bytes(self._data[self._start + 3 : self._start + 5]) - pending
            if size <= left:
                self.clear()
                self._skip = left - size
                return True
        self._lose(size + pending)
        return False

    def lose(self) -> None:
        """The next record is not at the expected position."""
        self._lose(0)

    def _lose(self, passed: int) -> None:
        if passed:
            self.clear()
        self._skip = 0
        self.lost = True
        self.passed = passed
        self.searched = 0

    def seek(self) -> Record | None:
        """The next candidate that is complete, to be tried; None: more bytes are needed.

        `found` confirms that it was a record. Without that, the next call searches further.
        """
        data = self._data
        while True:
            at = data.find(_PROTECTED, self._start)
            if at < 0:
                # The beginning of one may be at the end.
                self._pass(max(len(data) - len(_PROTECTED) + 1, self._start))
                return None
            self._pass(at)
            if len(data) - at < HEADER:
                return None
            end = at + HEADER + int.from_bytes(data[at + 3 : at + 5])
            if end > at + HEADER + MAX_FRAGMENT:
                self._pass(at + 1)
                continue
            if end > len(data):
                return None
            record = self._record(at, end)
            self._pass(at + 1)
            return record

    def found(self, record: Record) -> None:
        """The last result of `seek` is a record: the next one begins after it."""
        self.lost = False
        self.passed = 0
        self._start += HEADER - 1 + len(record.data)
        self._drop_marks()

    def _pass(self, start: int) -> None:
        self.passed += start - self._start
        self.searched += start - self._start
        self._start = start
        self._drop_marks()

    def _drop_marks(self) -> None:
        position = self._base + self._start
        while self._marks and self._marks[0].end <= position:
            self._marks.popleft()
