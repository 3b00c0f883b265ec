"""Common parts of the parsers of both capture formats: pieces of a file, and recovery from corrupt places."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kafkasniff.capture.formats.raw import Interface, NoteValue, Parsed, RawPackets
from kafkasniff.capture.formats.resync import FIRST_REACH, LARGEST_REACH, RESYNC_LIMIT, Search, find_chain
from kafkasniff.model import Problem

__all__ = ["FileParser"]


class FileParser(ABC):
    """Packets and notes of one file, from pieces of it. A file is a sequence of records."""

    noun: ClassVar[str]
    """The format's name for a record."""
    before_first: ClassVar[int | None]
    """Packet number for problems that occur before the first packet."""

    def __init__(self, name: str, capture: int, header_size: int) -> None:
        """`header_size`: bytes needed to recognize a record."""
        self.packets = 0
        """Packets found so far."""
        self.interfaces: list[Interface] = []
        """All interfaces so far."""
        self._name = name
        self._capture = capture
        self._header_size = header_size
        self._lost_at: int | None = None
        """File offset of the corrupt place; the search for the next record begins there."""
        self.found_at = 0
        """File offset at which the last search found the next record."""
        self._parts: list[RawPackets] = []
        self._notes: list[tuple[int, NoteValue]] = []

    @property
    def lost(self) -> bool:
        """Whether the next record after a corrupt place is being searched."""
        return self._lost_at is not None

    def lose(self, position: int) -> None:
        """Start a search at this file offset, because the start of the next record is unknown."""
        self._lost_at = position

    def parse(self, data: bytes, base: int, *, ended: bool) -> Parsed:
        """Records in `data`, which starts at offset `base` of the file and at the start of a record."""
        self._parts, self._notes = [], []
        position = 0
        reach = LARGEST_REACH
        while True:
            if self._lost_at is not None:
                search = self._search(data, position, ended=ended)
                skipped = base + search.position - self._lost_at
                given_up = not search.found and (ended or skipped > RESYNC_LIMIT)
                if not search.found and not given_up:
                    return self._parsed(search.position, search.need)
                rest = "the rest of the file cannot be read" if given_up else "reading continues after them"
                where = f"no {self.noun} at byte {self._lost_at} (after packet {self.packets})"
                self._problem("capture-broken", f"{where}; {skipped} bytes skipped, {rest}", skipped)
                self._lost_at = None
                self.found_at = base + search.position
                if given_up:
                    return self._parsed(len(data), given_up=True)
                position = search.position
                reach = FIRST_REACH
            border = min(position + reach, len(data))
            begin = position
            position, need = self._scan(data, position, border, ended=ended)
            if need and border < len(data):
                if reach < LARGEST_REACH or position == begin:
                    reach *= 2
                continue
            # A record that seems cut by the end of the file may have a corrupt length, with intact ones after it.
            if need and not (ended and position < len(data) and self._search(data, position + 1, ended=True).found):
                return self._parsed(position, need)
            self._lost_at = base + position
            position += 1

    def _parsed(self, consumed: int, need: int = 1, *, given_up: bool = False) -> Parsed:
        packets, notes = RawPackets.joined(self._parts), self._notes
        self._parts, self._notes = [], []
        return Parsed(packets, notes, consumed, need, given_up)

    def _problem(self, kind: str, text: str, size: int | None = None) -> None:
        last = self.packets or self.before_first
        problem = Problem(kind, f"{self._name}: {text}", capture=self._name, packet=last, bytes=size)
        self._notes.append((self.packets + 1, problem))

    def _search(self, data: bytes, position: int, *, ended: bool) -> Search:
        header = self._header_size
        return find_chain(data, position, ended=ended, header=header, candidates=self._candidates, step=self._step)

    @abstractmethod
    def _scan(self, data: bytes, position: int, end: int, *, ended: bool) -> tuple[int, int]:
        """Read the records in `data[position:end]`: where they end, bytes needed to continue (0: one is corrupt)."""

    @abstractmethod
    def _candidates(self, data: bytes, first: int, last: int) -> NDArray[np.int64]:
        """Positions in [first, last) whose bytes look like a record's header."""

    @abstractmethod
    def _step(self, data: bytes, position: int, first: int) -> int:
        """A record as capture programs usually write it, in the form of `resync.Step`."""
