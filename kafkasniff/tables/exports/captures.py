"""Which captures an export holds, identified by content instead of name.

A repeated run over the same captures has nothing to do, even if they were moved in between.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from datetime import datetime
from typing import Final, Literal, NamedTuple

import msgspec

from kafkasniff.capture.timeline.locations import CaptureFile, capture_at, open_capture
from kafkasniff.capture.timeline.splits import ReadAt, open_whole
from kafkasniff.errors import CaptureError, UnreachableError, UsageError
from kafkasniff.model import Problem
from kafkasniff.runtime.addresses import Location, is_remote
from kafkasniff.tables.rows.exchanges import capture_name

SAMPLE: Final = 64 << 10
"""Bytes compared at the beginning and at the end of a capture. The first ones hold the times of its first packets,
and the last ones show whether it has grown."""

SMALL_FILE: Final = 1 << 20
"""Size up to which a file is read at once: a request takes as long as reading about this much."""


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
    """What a run has to know of a capture before it reads it."""

    path: str
    capture: ManifestCapture
    flaw: str | None = None
    """Why no packet of it can be read; unknown for one that the export has."""
    grown: bool = False
    """It begins with the bytes of a shorter one in the export."""


class Exported:
    """The captures of an export, as others are compared with them. Picklable: tasks of Spark compare, too."""

    def __init__(self, done: Iterable[ManifestCapture] = (), quarantined: Iterable[ManifestCapture] = ()) -> None:
        # By the first bytes, so that comparing does not take longer with more captures.
        self._done: dict[str | None, list[tuple[int | None, str | None]]] = {}
        self._quarantined = {manifest_capture.key for manifest_capture in quarantined}
        short: dict[int, set[str | None]] = {}
        for manifest_capture in done:
            self._done.setdefault(manifest_capture.head, []).append((manifest_capture.size, manifest_capture.tail))
            if manifest_capture.size and manifest_capture.size < SAMPLE:
                short.setdefault(manifest_capture.size, set()).add(manifest_capture.head)
        self._short = sorted(short.items())

    def has(self, capture: ManifestCapture) -> bool:
        """Whether a capture need not be read: it is in the export, or in quarantine."""
        return (capture.size, capture.tail) in self._done.get(capture.head, ()) or capture.key in self._quarantined

    def examine(self, path: str, capture: ManifestCapture, read_at: ReadAt) -> Look:
        """What is known of a capture. Raises UnreachableError."""
        if self.has(capture):
            return Look(path, capture)
        return Look(path, capture, flaw_of(capture, read_at), self._begin(capture, read_at))

    def _begin(self, capture: ManifestCapture, read_at: ReadAt) -> bool:
        """Whether a capture begins with the bytes of a shorter one."""
        assert capture.size is not None
        try:
            for size, tail in self._done.get(capture.head, ()):
                if size and SAMPLE <= size < capture.size and _digest(read_at(size - SAMPLE, SAMPLE)) == tail:
                    return True
            if not self._short:
                return False
            head = read_at(0, min(SAMPLE, capture.size))
        except OSError:
            return False
        hashed, digest = 0, _hash()
        for size, heads in self._short:
            if size >= capture.size:
                break
            digest.update(head[hashed:size])
            hashed = size
            # The head of a short capture is all of it.
            if digest.hexdigest() in heads:
                return True
        return False


def look_at(path: str, exported: Exported) -> Look:
    """Look at a capture. If a local one cannot be opened, its size is 0, and reading it will report the error.

    Raises CaptureError if a remote one cannot be read.
    """
    if not Location.of(path).is_local:
        return look_at_file(capture_at(path), path, exported)
    name = capture_name("stdin" if path == "-" else path) or ""

    def read_at(offset: int, size: int, /) -> bytes:
        with open(path, "rb") as stream:
            stream.seek(offset)
            return stream.read(size)

    try:
        facts = None if path == "-" else os.stat(path)
        if facts is None or not stat.S_ISREG(facts.st_mode):
            return Look(path, ManifestCapture(name, None))
        capture = identify(name, facts.st_size, read_at)
    except (OSError, ValueError):
        return Look(path, ManifestCapture(name, 0))
    return exported.examine(path, capture, read_at)


def look_at_file(file: CaptureFile, path: str, exported: Exported) -> Look:
    """Look at a file that was found; `path`: to open it. Raises CaptureError and OSError if it cannot be read."""
    read_at = open_kept(file)
    return exported.examine(path, identify(capture_name(file.name) or "", file.size, read_at), read_at)


def open_kept(file: CaptureFile) -> ReadAt:
    """`kept` of a file."""
    return kept(file, open_capture(file))


def kept(file: CaptureFile, read_at: ReadAt) -> ReadAt:
    """Random access to a file that is read by `read_at`, with as few requests as possible if it is remote.

    A local one is read as it comes: reading more than is needed could meet a bad sector.
    """
    return KeptHead(read_at, file.size) if is_remote(file.path) else read_at


class KeptHead:
    """Random access to a file whose first bytes, all bytes of a small one, are read once and kept.

    A request to a remote file system takes some ten milliseconds, whatever its size.
    """

    def __init__(self, read_at: ReadAt, size: int) -> None:
        """`size`: of the file."""
        self._read_at = read_at
        self._keeps = size if size <= SMALL_FILE else SAMPLE
        self._head = b""

    def __call__(self, offset: int, size: int, /) -> bytes:
        """Bytes from an offset."""
        if not self._head and offset + size <= self._keeps:
            self._head = self._read_at(0, self._keeps)
        if offset + size <= len(self._head):
            return self._head[offset : offset + size]
        return self._read_at(offset, size)


def identify(name: str, size: int, read_at: ReadAt) -> ManifestCapture:
    """The manifest entry of a capture. Raises the exceptions of `read_at`."""
    tail = max(size - SAMPLE, 0)
    return ManifestCapture(name, size, _digest(read_at(0, min(SAMPLE, size))), _digest(read_at(tail, size - tail)))


def _hash(data: bytes = b"") -> hashlib.blake2b:
    return hashlib.blake2b(data, digest_size=16)


def _digest(data: bytes) -> str:
    return _hash(data).hexdigest()


def flaw_of(capture: ManifestCapture, read_at: ReadAt) -> str | None:
    """Why a capture is bad; None if it is not. Raises UnreachableError."""
    assert capture.size is not None
    try:
        open_whole(read_at, capture.name, 0, capture.size).close()
    except UnreachableError:
        raise
    except CaptureError as error:
        return str(error)
    return None


def new_captures(looks: Iterable[Look], done: Iterable[ManifestCapture]) -> list[Look]:
    """The captures that are not in the export yet, each once, in order.

    Raises UsageError if one has grown since: its exported rows cannot be taken back.
    """
    found: list[Look] = []
    known = {manifest_capture.key for manifest_capture in done}
    for look in looks:
        key = look.capture.key
        if key is not None:
            if key in known:
                continue
            if look.grown:
                raise UsageError(
                    f"{look.capture.name} was exported when it was shorter: export captures that are no longer "
                    "written to"
                )
            known.add(key)
        found.append(look)
    return found


# -- bad captures ------------------------------------------------------------------------------------------------------
#
# Captures without any packet that could be read: what a run does about them.
#
# A capture is bad if it is empty or does not begin like a capture. One that is cut short or damaged further on is read
# as far as it goes, and one that cannot be opened ends the run.


OnBadCapture = Literal["fail", "skip", "quarantine"]
"""What to do about a bad capture:

- fail: end the run
- skip: report it, and look at it again in the next run
- quarantine: report it, and ignore it in later runs as long as its bytes are the same
"""


class Sorted(NamedTuple):
    """Captures of a run."""

    good: list[Look]
    bad: list[ManifestCapture]
    problems: list[Problem]
    """One for each bad capture."""


def sort_out(looks: Iterable[Look], policy: OnBadCapture, quarantine: Iterable[ManifestCapture] | None) -> Sorted:
    """Sort bad captures out; those in `quarantine`, that of the export, are ignored. None: there is no export yet.

    Raises CaptureError if one is bad and the policy is "fail", or if all are bad and there is no export yet.
    """
    found = Sorted([], [], [])
    quarantined = {manifest_capture.key for manifest_capture in quarantine or ()}
    seen: set[str] = set()
    for look in looks:
        if look.capture.key is not None and look.capture.key in quarantined:
            continue
        if look.flaw is None:
            found.good.append(look)
            continue
        if look.path in seen:
            continue
        seen.add(look.path)
        if policy == "fail":
            raise CaptureError(f"{look.flaw} (--on-bad-capture skip reads the others)")
        found.bad.append(look.capture)
        found.problems.append(Problem("capture-skipped", f"skipped: {look.flaw}", capture=look.capture.name))
    if not found.good and found.bad and quarantine is None:
        raise CaptureError(f"no capture can be read; the first one: {found.problems[0].detail}")
    return found
