"""Files that captures are written to: one that appears when it is complete, and rotated ones of a live capture."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from kafkasniff.capture.formats.pcap import Interface
from kafkasniff.capture.write.capture_writer import WrittenBlocks, section, statistics_block
from kafkasniff.errors import OutputError, UsageError
from kafkasniff.runtime.threads import ClosedAtExit

FILE_MODE: Final = 0o600
"""Mode of created files: they hold captured data, which only their owner should read."""

KEPT: Final = 8 << 20
"""Bytes at the end that are kept in memory: mostly recent data is overwritten."""


class PatchedFile(ClosedAtExit):
    """Written to a temporary file, and renamed by `commit`; the context manager removes it otherwise.

    Raises OutputError if it cannot be written.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        target = Path(path)
        self._aside = target.with_name(f".{target.name}.{os.getpid()}.partial")
        self._tail = bytearray()
        self._base = 0
        """Offset of the tail in the file: data before it is on the disk."""
        self._descriptor: int | None = None
        try:
            if target.exists() and not target.is_file():
                raise OutputError(f"cannot write {path}: it exists and is not a file")
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
            self._descriptor = os.open(self._aside, flags, FILE_MODE)
        except (OSError, ValueError) as error:
            raise self._failed(error) from error

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._base + len(self._tail)

    @property
    def settled(self) -> int:
        """Bytes that are on the disk; the rest is in memory."""
        return self._base

    @property
    def tail(self) -> bytearray:
        """The bytes in memory, which may be overwritten in place until the next `settle`."""
        return self._tail

    def append(self, data: bytes | bytearray) -> int:
        """Append; returns the offset of the first byte."""
        at = self.size
        self._tail += data
        return at

    def patch(self, at: int, data: bytes | bytearray) -> None:
        """Overwrite data at an offset; it must not cross the border between disk and memory."""
        if at >= self._base:
            self._tail[at - self._base : at - self._base + len(data)] = data
            return
        assert self._descriptor is not None
        try:
            if os.pwrite(self._descriptor, data, at) != len(data):
                raise OSError(0, "it was only partially written")
        except OSError as error:
            raise self._failed(error) from error

    def read(self, at: int, size: int) -> bytes:
        """The data at an offset."""
        if at >= self._base:
            return bytes(self._tail[at - self._base : at - self._base + size])
        assert self._descriptor is not None
        try:
            return os.pread(self._descriptor, size, at)
        except OSError as error:
            raise self._failed(error) from error

    def settle(self, *, everything: bool = False) -> None:
        """Write data in memory to the disk if it is large, or in any case."""
        if self._descriptor is None or not (everything or len(self._tail) > KEPT):
            return
        view = memoryview(self._tail)
        written = 0
        try:
            while written < len(view):
                written += os.pwrite(self._descriptor, view[written:], self._base + written)
        except OSError as error:
            raise self._failed(error) from error
        finally:
            view.release()
        self._base += len(self._tail)
        self._tail = bytearray()

    def commit(self) -> None:
        """The file is complete: give it its name."""
        self.settle(everything=True)
        assert self._descriptor is not None
        descriptor, self._descriptor = self._descriptor, None
        try:
            os.close(descriptor)
            os.replace(self._aside, self.path)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(self._aside)
            raise self._failed(error) from error

    def close(self) -> None:
        """Remove it unless it is complete."""
        if self._descriptor is None:
            return
        descriptor, self._descriptor = self._descriptor, None
        with contextlib.suppress(OSError):
            os.close(descriptor)
        with contextlib.suppress(OSError):
            os.unlink(self._aside)

    def _failed(self, error: Exception) -> OutputError:
        reason = error.strerror if isinstance(error, OSError) else None
        return OutputError(f"cannot write {self.path}: {reason or error}")


def replace_file(path: str, pieces: Iterable[bytes]) -> None:
    """Write a file at once, or leave it as it is. Raises OutputError."""
    with PatchedFile(path) as file:
        for piece in pieces:
            file.append(piece)
            file.settle()
        file.commit()


# Files of a live capture: named and rotated like those of tcpdump's -C, -G and -W, always complete for readers.
#
# A block is appended by one write with its neighbours; a part that a full disk truncated is removed again. Each file is
# a complete capture: its counts of lost packets are those since the previous file.

Counts = list[tuple[int, int]]
"""Packets received and packets lost since the capture began, for each interface."""


class Rotation(msgspec.Struct, frozen=True):
    """When a file ends and how the next one is named. Raises UsageError for invalid combinations."""

    size: int | None = None
    """Bytes: a packet opens a new file when the file is larger than this."""
    seconds: float | None = None
    """Seconds that a file is written to; the name then contains a time (strftime)."""
    files: int | None = None
    """At most this many of the run's files are kept."""

    def check(self, name: str) -> None:
        """Whether files named `name` can be rotated so."""
        if self.files is not None and self.size is None and self.seconds is None:
            raise UsageError("-W needs -C or -G, which start a new file")
        if self.seconds is not None and time.strftime(name, time.gmtime(0)) == time.strftime(name, time.gmtime(1e9)):
            raise UsageError(f"-G needs a time in the name of the files: {name}-%Y%m%dT%H%M%S")


class CaptureFiles(ClosedAtExit):
    """The consecutive files of one run; a context manager.

    - `counts`: the kernel's counts so far
    - `failed`: called once, with a message for the user, when the disk is full; nothing is written then
    - `clock`: seconds since the epoch, for names and times

    Raises UsageError for an invalid rotation, OutputError if the first file cannot be created.
    """

    def __init__(
        self,
        name: str,
        interfaces: Sequence[Interface],
        rotation: Rotation,
        *,
        bpf: str | None = None,
        counts: Callable[[], Counts],
        failed: Callable[[str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        rotation.check(name)
        self._name = name
        self._rotation = rotation
        self._head = section(interfaces, bpf=bpf)
        self._counts = counts
        self._failed = failed
        self._clock = clock
        self._reported = [(0, 0)] * len(interfaces)
        """Counts that previous files contain."""
        self._files: deque[str] = deque()
        """Existing files of this run, oldest first."""
        self._descriptor: int | None = None
        self._number = 0
        """Number of the file, among those of one time."""
        self.broken = False
        """Some packets could not be written."""
        self.packets = 0
        """Packets written."""
        self.made = 0
        """Files created."""
        self._begun_ns = self._size = 0
        self._due: float | None = None
        begun = clock()
        self._base = self._named(begun)
        try:
            self._open(begun)
        except OSError as error:
            raise OutputError(f"cannot write {self._path()}: {error.strerror or error}") from error
        self.first = self._path()
        """Name of the first file."""

    def write(self, blocks: WrittenBlocks) -> None:
        """Append packets; opens as many files as they need."""
        if self.broken or not len(blocks.sizes):
            return
        try:
            self._rotate_in_time()
            self._write(blocks)
        except OSError as error:
            self._give_up(error)

    def close(self) -> None:
        """End the last file."""
        if self._descriptor is None:
            return
        try:
            self._end()
        except OSError as error:
            self._give_up(error)

    # -- rotation ----------------------------------------------------------------------------------------------------

    def _named(self, moment: float) -> str:
        return self._name if self._rotation.seconds is None else time.strftime(self._name, time.localtime(moment))

    def _path(self) -> str:
        rotation = self._rotation
        if rotation.size is None:
            return self._base
        if rotation.files in {None, 1}:
            return f"{self._base}{self._number or ''}"
        # Leading zeros, as in tcpdump: as many digits as the highest number has (and none if 0 is the only one).
        assert rotation.files is not None
        return f"{self._base}{self._number:0{len(str(rotation.files - 1))}}"

    def _rotate_in_time(self) -> None:
        now = self._clock()
        if self._due is None or now < self._due:
            return
        base = self._named(now)
        if base == self._base:
            # The name's time is coarser than the rotation: the file is continued rather than overwritten.
            assert self._rotation.seconds is not None
            self._due = now + self._rotation.seconds
            return
        self._end()
        self._base, self._number = base, 0
        self._open(now)

    def _write(self, blocks: WrittenBlocks) -> None:
        limit = self._rotation.size
        data = memoryview(blocks.data)
        if limit is None:
            self._append(data, len(blocks.sizes))
            return
        ends = np.concatenate(([0], np.cumsum(blocks.sizes)))
        place, done, count = 0, 0, len(blocks.sizes)
        while True:
            # A packet is written if the previous file is not yet larger than the limit.
            room = limit - self._size + done
            last = max(place, min(int(np.searchsorted(ends, room, "right")), count))
            if last > place:
                self._append(data[done : ends[last]], last - place)
                place, done = last, int(ends[last])
            if place == count:
                return
            self._end()
            ring = self._rotation.files if self._rotation.seconds is None else None
            self._number = self._number + 1 if ring is None else (self._number + 1) % ring
            self._open(self._clock())

    # -- one file ----------------------------------------------------------------------------------------------------

    def _open(self, now: float) -> None:
        path = self._path()
        flags = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            mode = os.lstat(path).st_mode
            if stat.S_ISFIFO(mode) and self._rotation == Rotation():
                # Someone reads along, such as Wireshark.
                self._descriptor = os.open(path, flags)
            elif not stat.S_ISREG(mode):
                raise OSError(0, "it exists and is not a file")
            else:
                # Not overwritten: readers of the old file can finish it, and the new one belongs to this run alone.
                os.unlink(path)
        except FileNotFoundError:
            pass
        if self._descriptor is None:
            self._descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL | os.O_APPEND, FILE_MODE)
        self._size, self._begun_ns = 0, int(now * 1e9)
        if self._rotation.seconds is not None and (self._due is None or now >= self._due):
            self._due = now + self._rotation.seconds
        self.made += 1
        self._append(memoryview(self._head), 0)
        with contextlib.suppress(ValueError):
            self._files.remove(path)
        self._files.append(path)
        while self._rotation.files is not None and len(self._files) > self._rotation.files:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._files.popleft())

    def _append(self, data: memoryview, packets: int) -> None:
        assert self._descriptor is not None
        written = 0
        try:
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
        except OSError:
            # No truncated packet remains.
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
            raise
        self._size += written
        self.packets += packets

    def _end(self) -> None:
        """Write the counts, and close the file."""
        assert self._descriptor is not None
        counts, reported = self._counts(), self._reported
        self._reported = counts
        ended = int(self._clock() * 1e9)
        blocks = [
            statistics_block(number, self._begun_ns, ended, now[0] - before[0], now[1] - before[1])
            for number, (now, before) in enumerate(zip(counts, reported, strict=True))
        ]
        self._append(memoryview(b"".join(blocks)), 0)
        descriptor, self._descriptor = self._descriptor, None
        os.close(descriptor)

    def _give_up(self, error: OSError) -> None:
        self.broken = True
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._failed(f"cannot write {self._path()}: {error.strerror or error}; the following packets are not kept")
