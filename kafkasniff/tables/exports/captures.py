"""Which captures an export holds, identified by content instead of name.

A repeated run over the same captures has nothing to do, even if they were moved in between.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from kafkasniff.capture.timeline.locations import CaptureFile, capture_at, open_capture
from kafkasniff.errors import UsageError
from kafkasniff.runtime.addresses import Location
from kafkasniff.tables.rows.exchanges import capture_name

__all__ = ["KeptHead", "Look", "ManifestCapture", "identify", "look_at", "look_at_file", "new_captures"]

SAMPLE: Final = 64 << 10
"""Bytes compared at the beginning and at the end of a capture. The first ones hold the times of its first packets,
and the last ones show whether it has grown."""


class ManifestCapture(msgspec.Struct, frozen=True):
    """A capture in the manifest."""

    name: str
    size: int | None
    """None for input that can be read only once: standard input, a pipe, an interface."""
    head: str | None = None
    """BLAKE2b of the first bytes."""
    tail: str | None = None
    """BLAKE2b of the last bytes."""
    begun: datetime | msgspec.UnsetType = msgspec.UNSET
    """When a capture from the interface `name` began, UTC."""

    @property
    def key(self) -> tuple[int, str, str] | None:
        """Equal for equal bytes; None for input that can be read only once or cannot be read."""
        if self.size is None or self.head is None or self.tail is None:
            return None
        return self.size, self.head, self.tail


class Look(NamedTuple):
    """A capture, and how to read it."""

    path: str
    capture: ManifestCapture
    read_at: Callable[[int, int], bytes] | None = None
    """(offset, size) → bytes; None for input that can be read only once or cannot be opened."""


def look_at(path: str) -> Look:
    """Look at a capture. If a local one cannot be opened, its size is 0 and its reader reports the error.

    Raises CaptureError if a remote one cannot be read.
    """
    if not Location.of(path).is_local:
        return look_at_file(capture_at(path), path)
    name = capture_name("stdin" if path == "-" else path) or ""

    def read_at(offset: int, size: int) -> bytes:
        with open(path, "rb") as stream:
            stream.seek(offset)
            return stream.read(size)

    try:
        facts = None if path == "-" else os.stat(path)
        if facts is None or not stat.S_ISREG(facts.st_mode):
            return Look(path, ManifestCapture(name, None))
        return Look(path, identify(name, facts.st_size, read_at), read_at)
    except (OSError, ValueError):
        return Look(path, ManifestCapture(name, 0))


def look_at_file(file: CaptureFile, path: str) -> Look:
    """Look at a file that was found; `path`: to open it. Raises CaptureError and OSError if it cannot be read."""
    read_at = KeptHead(open_capture(file))
    return Look(path, identify(capture_name(file.name) or "", file.size, read_at), read_at)


class KeptHead:
    """Random access to a file whose first bytes are read several times, and kept until `forget`.

    A request to a remote file system takes some ten milliseconds, whatever its size.
    """

    def __init__(self, read_at: Callable[[int, int], bytes]) -> None:
        self._read_at = read_at
        self._head = b""

    def __call__(self, offset: int, size: int, /) -> bytes:
        """Bytes from an offset."""
        if not offset and len(self._head) < size <= SAMPLE:
            self._head = self._read_at(0, size)
        if offset + size <= len(self._head):
            return self._head[offset : offset + size]
        return self._read_at(offset, size)

    def forget(self) -> None:
        """Release the first bytes: a run may look at a hundred thousand captures."""
        self._head = b""


def identify(name: str, size: int, read_at: Callable[[int, int], bytes]) -> ManifestCapture:
    """The manifest entry of a capture. Raises the exceptions of `read_at`."""
    tail = max(size - SAMPLE, 0)
    return ManifestCapture(name, size, _digest(read_at(0, min(SAMPLE, size))), _digest(read_at(tail, size - tail)))


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def new_captures(looks: Iterable[Look], done: Sequence[ManifestCapture]) -> list[tuple[str, ManifestCapture]]:
    """The captures that are not in the export yet, each once, in order.

    Raises UsageError if one has grown since: its exported rows cannot be taken back.
    """
    found: list[tuple[str, ManifestCapture]] = []
    known = {one.key for one in done}
    long = {one.head: one for one in done if one.size is not None and one.size >= SAMPLE}
    short = [one for one in done if one.size is not None and 0 < one.size < SAMPLE]
    for path, capture, read_at in looks:
        if capture.key is not None:
            if capture.key in known:
                continue
            # The first bytes of long captures are recorded; and there are few short ones.
            begun = [long[capture.head]] if capture.head in long else short
            shorter = [one for one in begun if (one.size or 0) < (capture.size or 0)]
            if any(_begins_like(read_at, one) for one in shorter):
                raise UsageError(
                    f"{capture.name} was exported when it was shorter: export captures that are no longer written to"
                )
            known.add(capture.key)
        found.append((path, capture))
    return found


def _begins_like(read_at: Callable[[int, int], bytes] | None, shorter: ManifestCapture) -> bool:
    """Whether a capture begins with the bytes of a shorter one."""
    assert shorter.size is not None
    if read_at is None:
        return False
    try:
        if _digest(read_at(0, min(SAMPLE, shorter.size))) != shorter.head:
            return False
        return _digest(read_at(max(shorter.size - SAMPLE, 0), min(SAMPLE, shorter.size))) == shorter.tail
    except OSError:
        return False
