"""Which captures an export holds: by what is in them, not by what they are called.

A run that is made again over the same captures has nothing to do, wherever they were moved to meanwhile.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from typing import Final

import msgspec

from kafkasniff.errors import UsageError
from kafkasniff.rows.exchanges import capture_name

__all__ = ["CaptureFile", "identify", "new_captures"]

SAMPLE: Final = 64 << 10
"""Bytes at the beginning and at the end of a capture that are looked at. The first hold the times of its first packets,
and the last tell whether it has grown."""


class CaptureFile(msgspec.Struct, frozen=True):
    """A capture as the manifest names it."""

    name: str
    size: int | None
    """None for what can be read only once: standard input, a pipe."""
    head: str | None = None
    """BLAKE2b of the first bytes."""
    tail: str | None = None
    """BLAKE2b of the last bytes."""

    @property
    def key(self) -> tuple[int, str, str] | None:
        """The same for the same bytes; None for what can be read only once, and for what cannot be read."""
        if self.size is None or self.head is None or self.tail is None:
            return None
        return self.size, self.head, self.tail


def identify(path: str) -> CaptureFile:
    """Look at a capture. What cannot be opened is for its reader to tell: it has a size of 0 here."""
    name = capture_name("stdin" if path == "-" else path) or ""
    try:
        if path == "-" or not stat.S_ISREG(os.stat(path).st_mode):
            return CaptureFile(name, None)
        with open(path, "rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            head = stream.read(min(SAMPLE, size))
            stream.seek(max(size - SAMPLE, 0))
            tail = stream.read(SAMPLE)
    except (OSError, ValueError):
        return CaptureFile(name, 0)
    return CaptureFile(name, size, _digest(head), _digest(tail))


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def new_captures(paths: Sequence[str], done: Sequence[CaptureFile]) -> list[tuple[str, CaptureFile]]:
    """The captures that are not done yet, each once, in order.

    Raises UsageError where one has grown since: what was exported of it cannot be taken back.
    """
    found: list[tuple[str, CaptureFile]] = []
    known = {one.key for one in done}
    long = {one.head: one for one in done if one.size is not None and one.size >= SAMPLE}
    short = [one for one in done if one.size is not None and 0 < one.size < SAMPLE]
    for path in paths:
        capture = identify(path)
        if capture.key is not None:
            if capture.key in known:
                continue
            # Of a long one the first bytes are known; of short ones there are few.
            begun = [long[capture.head]] if capture.head in long else short
            if any(one.size < capture.size and _begins_like(path, one) for one in begun):  # type: ignore[operator]
                raise UsageError(
                    f"{capture.name} was exported when it was shorter: export captures that are no longer written to"
                )
            known.add(capture.key)
        found.append((path, capture))
    return found


def _begins_like(path: str, shorter: CaptureFile) -> bool:
    """Whether a capture begins with the bytes of one that was shorter."""
    assert shorter.size is not None
    try:
        with open(path, "rb") as stream:
            if _digest(stream.read(min(SAMPLE, shorter.size))) != shorter.head:
                return False
            stream.seek(max(shorter.size - SAMPLE, 0))
            return _digest(stream.read(min(SAMPLE, shorter.size))) == shorter.tail
    except OSError:
        return False
