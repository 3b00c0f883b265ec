"""Cursor: the position of a merge of several captures in one of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kafkasniff.capture.formats.raw import Interface, NoteValue, RawPackets
from kafkasniff.capture.formats.reader import BROKEN_KINDS, CaptureReader
from kafkasniff.errors import CaptureError
from kafkasniff.model import NO_TIME, Problem

__all__ = ["Cursor"]

PROBE_SIZE: Final = 64 << 10
"""Bytes read at a time to find a capture's first packet."""


class Cursor:
    """Packets of one capture that are read and not yet merged, each with its key: the running maximum of the times."""

    def __init__(
        self, capture: int, name: str, reader: CaptureReader, reopen: Callable[[], CaptureReader] | None
    ) -> None:
        """`reopen` opens the capture again from its start; None if that is impossible (a pipe)."""
        self.capture = capture
        self.name = name
        self.first_key: int = NO_TIME
        """No packet of the capture has a lower key; known after `probe`."""
        self.ended = False
        self.broken = False
        """The capture turned out to be damaged."""
        self._reader: CaptureReader | None = reader
        self._reopen = reopen
        self._packets: RawPackets | None = None
        self._keys: NDArray[np.int64] = np.empty(0, np.int64)
        self._key: int = NO_TIME
        self._number = 1
        """Key of the first packet that is not merged yet."""
        self._notes: deque[tuple[int, NoteValue]] = deque()
        self._interfaces: Callable[[int], Interface] = reader.interface
        self._read_before = 0

    @property
    def bytes_read(self) -> int:
        """Bytes of the file read so far."""
        return self._reader.stream.bytes_read if self._reader is not None else self._read_before

    @property
    def empty(self) -> bool:
        """No packet is waiting to be merged."""
        return self._packets is None

    @property
    def last_key(self) -> int:
        """Key of the last packet that is waiting."""
        return int(self._keys[-1])

    def interface(self, index: int) -> Interface:
        """The interface that packets refer to by this index."""
        return self._interfaces(index)

    def probe(self) -> None:
        """Find `first_key`, and close the capture until it is needed: hundreds of files must not be open at once."""
        if self._reopen is None or self._reader is None:
            return
        while (parsed := self._reader.read(PROBE_SIZE)) is not None:
            if parsed.packets is not None:
                self.first_key = int(parsed.packets.time_ns[0])
                break
        self.close()
        self._read_before = 0

    def fill(self, size: int) -> None:
        """Read until a packet is waiting or the capture has ended."""
        if self._reader is None and not self.ended:
            self._open()
        while self._packets is None and not self.ended:
            parsed = self._reader.read(size) if self._reader is not None else None
            if parsed is None:
                self.ended = True
                self.close()
                return
            for _, value in parsed.notes:
                if isinstance(value, Problem) and value.kind in BROKEN_KINDS:
                    self.broken = True
            self._notes.extend(parsed.notes)
            if parsed.packets is not None:
                self._packets = parsed.packets
                self._keys = np.maximum.accumulate(np.maximum(parsed.packets.time_ns, self._key))
                self._key = self.last_key

    def _open(self) -> None:
        assert self._reopen is not None
        try:
            self._reader = self._reopen()
        except CaptureError as error:
            # It existed when the run began.
            self._notes.append((1, Problem("capture-broken", str(error), capture=self.name)))
            self.broken = True
            self.ended = True
            return
        self._interfaces = self._reader.interface

    def up_to(self, key: int, capture: int) -> int:
        """The number of waiting packets up to (key, capture)."""
        return int(np.searchsorted(self._keys, key, side="right" if self.capture <= capture else "left"))

    def take(self, count: int) -> tuple[RawPackets, NDArray[np.int64], list[tuple[int, NoteValue]]]:
        """The first `count` waiting packets, their keys, and the notes among them, each with the row it precedes."""
        assert self._packets is not None
        packets, keys = self._packets, self._keys
        if count < len(keys):
            self._packets, self._keys = packets.slice(count, len(keys)), keys[count:]
            packets, keys = packets.slice(0, count), keys[:count]
        else:
            self._packets = None
        notes = []
        while self._notes and self._notes[0][0] < self._number + count:
            number, value = self._notes.popleft()
            notes.append((number - self._number, value))
        self._number += count
        return packets, keys, notes

    def rest(self) -> list[NoteValue]:
        """Notes after the last packet, at the end."""
        values = [value for _, value in self._notes]
        self._notes.clear()
        return values

    def close(self) -> None:
        """Release the file."""
        if self._reader is not None:
            self._read_before = self._reader.stream.bytes_read
            self._reader.close()
            self._reader = None
