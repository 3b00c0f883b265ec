"""Log segments of brokers as captures: each batch becomes the Fetch response that would carry it.

A segment (`00000000000000000000.log`, also a snapshot of KRaft, `….checkpoint`) is a sequence of record batches as they
travel, by `org.apache.kafka.common.record.FileRecords`. Topic and partition are the name of its folder. Addresses are
those for documentation (RFC 5737), the client id is the name of the file, and the time of a message is the newest
timestamp of its batch.
"""

from __future__ import annotations

import re
import struct
import zlib
from pathlib import PurePath
from typing import Final

import numpy as np

from kafkasniff.capture.formats.made_packets import FILE_HEADER, LATEST_NS, Conversation, Converter

__all__ = ["SEGMENT_HEAD", "SegmentPackets", "is_segment"]

SEGMENT_HEAD: Final = 27
"""Bytes that decide whether a file is a segment: those up to the first timestamp of a batch."""
MAX_BATCH: Final = 100 << 20
"""Largest batch; what claims to be larger is damaged. The limit of a message, too."""
PIECE: Final = 64 << 10
"""Bytes of a damaged place that are passed on at a time."""
REACH: Final = 1 << 20
"""Largest batch that is found after a damaged place. So many bytes are read before the search."""
MAX_TRIES: Final = 64
"""Checksums that are computed for a piece of a damaged place."""

_PREFIX: Final = struct.Struct(">qi")
"""Base offset, and the number of bytes that follow."""
_MAGIC_AT: Final = 16
_ATTRIBUTES: Final = struct.Struct(">Hi")
"""Attributes and last offset delta of a batch of magic 2."""
_CHECKSUM_AT: Final = 17
_ATTRIBUTES_AT: Final = 21
"""Where the range of the checksum begins, too."""
_UNKNOWN_BITS: Final = 0xFF80
_SMALLEST: Final = {0: 14, 1: 22, 2: 49}
"""Smallest number of bytes after the prefix, by magic."""
_TIMESTAMP_AT: Final = {1: 18, 2: 35}
"""Where the newest timestamp is, by magic."""
_PLACE: Final = re.compile(r"(?P<topic>.+)-(?P<partition>\d{1,9})")

_CLIENT: Final = bytes((192, 0, 2, 1))
_BROKER: Final = bytes((192, 0, 2, 2))
_BROKER_PORT: Final = 9092
_FIRST_PORT: Final = 10_000
"""Each file is a connection: its port follows from the path."""
_FETCH: Final = 1
_VERSION: Final = 11
"""The last version with names of topics in a fixed encoding."""


def is_segment(head: bytes | bytearray) -> bool:
    """Whether a file that begins with these bytes (SEGMENT_HEAD suffice) is a log segment."""
    if len(head) < SEGMENT_HEAD:
        return False
    offset, size = _PREFIX.unpack_from(head)
    magic = head[_MAGIC_AT]
    if offset < 0 or magic not in _SMALLEST or not _SMALLEST[magic] <= size <= MAX_BATCH:
        return False
    if magic < 2:
        # Entries of time indexes begin with milliseconds since 1970.
        return bool(offset < 1 << 40)
    attributes, last_delta = _ATTRIBUTES.unpack_from(head, _ATTRIBUTES_AT)
    return offset < 1 << 56 and not attributes & _UNKNOWN_BITS and last_delta >= 0


class SegmentPackets(Converter):
    """Turns the bytes of a segment into those of a pcap file."""

    def __init__(self, path: str) -> None:
        """`path`: of the segment; topic and partition are the name of its folder, else its own name."""
        file = PurePath(path)
        found = _PLACE.fullmatch(file.parent.name)
        topic, partition = (found["topic"], int(found["partition"])) if found else (file.name, 0)
        self._topic = _string(topic.encode("utf-8", "surrogateescape")[:249])
        port = _FIRST_PORT + zlib.crc32(path.encode("utf-8", "surrogateescape")) % 55_000
        self._conversation = Conversation((_CLIENT, port), (_BROKER, _BROKER_PORT))
        self._partition = struct.pack(">i", partition)
        self._client_id = _string(file.name.encode("utf-8", "surrogateescape")[:1000])
        self._input = bytearray()
        self._position = 0
        self._begun = self._ended = False
        self._taken = self._damaged_bytes = self._next_whole = 0
        self._first_damaged: int | None = None
        self._fetches = 0
        self._offset = 0
        self._time_ns = 0

    def give(self, data: bytes) -> None:
        """More bytes of the segment."""
        del self._input[: self._position]
        self._position = 0
        self._input += data

    def finish(self) -> None:
        """The segment has ended; what is left can be taken."""
        self._ended = True

    def take(self) -> bytes:
        """The next bytes of the capture; none: more of the segment is needed, or it has ended."""
        if not self._begun:
            self._begun = True
            return FILE_HEADER
        while True:
            size = self._next_size()
            if not size:
                if self._ended and self._damaged_bytes:
                    where = f"the first at byte {self._first_damaged}"
                    self.damaged = f"{self._damaged_bytes} bytes in it do not form batches, {where}"
                return b""
            piece = bytes(self._input[self._position : self._position + size])
            self._advance(size)
            if piece.strip(b"\0"):
                return self._exchange(piece)
            # A segment that is preallocated ends with zeros.

    def _advance(self, size: int) -> None:
        self._position += size
        self._taken += size

    def _next_size(self) -> int:
        """Bytes of the next batch, or of what is there instead; 0: none, for now."""
        there = len(self._input) - self._position
        if there >= SEGMENT_HEAD and is_segment(self._input[self._position : self._position + SEGMENT_HEAD]):
            size = _size_at(self._input, self._position)
            if size <= there and (self._is_whole(self._position) or self._search(size) == size):
                # Only its own bytes are damaged, if any.
                return size
            if size > there and not self._ended:
                return 0
        elif not self._ended and there < REACH + 2 * PIECE:
            # The answer must not depend on how many bytes have come.
            return 0
        return self._damaged(there) if there else 0

    def _damaged(self, there: int) -> int:
        """Bytes up to the next whole batch, at most PIECE; 0: only an incomplete batch is left."""
        size = self._search(min(there, PIECE))
        left = self._input[self._position : self._position + size]
        if not left.strip(b"\0"):
            return size
        if self._ended and (there < SEGMENT_HEAD or is_segment(left)) and not self._continues(there):
            self.cut = True
            self.failure = f"its last batch is incomplete ({there} bytes of it)"
            self._advance(there)
            return 0
        self._damaged_bytes += size
        if self._first_damaged is None:
            self._first_damaged = self._taken
        return size

    def _continues(self, there: int) -> bool:
        """Whether a whole batch is in the `there` bytes that are left."""
        if self._next_whole <= self._taken:
            pieces = range(0, there, PIECE)
            found = (start + self._search(min(PIECE, there - start), start) for start in pieces)
            ends = (min(start + PIECE, there) for start in pieces)
            self._next_whole = self._taken + next((at for at, end in zip(found, ends, strict=True) if at < end), 0)
        return self._next_whole > self._taken

    def _search(self, size: int, start: int = 0) -> int:
        """Bytes from `start` up to the next whole batch with the right checksum, at most `size`."""
        position = self._position + start
        found = np.array(self._input[position : position + size + _MAGIC_AT], np.uint8)
        likely = np.flatnonzero((found[:-_MAGIC_AT] == 0) & (found[_MAGIC_AT:] == 2))
        places = likely[likely + start > 0][:MAX_TRIES].tolist()
        return next((place for place in places if self._is_whole(position + place)), size)

    def _is_whole(self, position: int) -> bool:
        if not is_segment(self._input[position : position + SEGMENT_HEAD]):
            return False
        end = position + _size_at(self._input, position)
        if end > len(self._input) or end - position > REACH:
            return False
        from kafkasniff.kafka.records.batches import crc32c

        (checksum,) = struct.unpack_from(">I", self._input, position + _CHECKSUM_AT)
        return bool(crc32c(bytes(self._input[position + _ATTRIBUTES_AT : end])) == checksum)

    def _exchange(self, batch: bytes) -> bytes:
        """The packets of a Fetch and of its response with a batch."""
        if is_segment(batch):
            self._offset = _PREFIX.unpack_from(batch)[0]
            place = _TIMESTAMP_AT.get(batch[_MAGIC_AT])
            if place is not None and len(batch) >= place + 8:
                (time_ms,) = struct.unpack_from(">q", batch, place)
                self._time_ns = min(time_ms * 1_000_000, LATEST_NS) if time_ms >= 0 else self._time_ns
        self._fetches = number = (self._fetches + 1) & 0x7FFF_FFFF
        head = struct.pack(">hhi", _FETCH, _VERSION, number) + self._client_id
        asked = struct.pack(">iiiibiii", -1, 0, 0, MAX_BATCH, 0, 0, -1, 1) + self._topic + struct.pack(">i", 1)
        asked += self._partition + struct.pack(">iqqi", -1, self._offset, -1, MAX_BATCH)
        answer = struct.pack(">iihii", number, 0, 0, 0, 1) + self._topic + struct.pack(">i", 1)
        answer += self._partition + struct.pack(">hqqqiii", 0, -1, -1, -1, -1, -1, len(batch)) + batch
        request = self._conversation.message("request", head + asked + struct.pack(">ih", 0, 0), self._time_ns)
        return request + self._conversation.message("response", answer, self._time_ns)


def _size_at(data: bytearray, position: int) -> int:
    return _PREFIX.size + int(_PREFIX.unpack_from(data, position)[1])


def _string(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text
