"""RawPackets: captured packets as columns, before their headers are read: formats yield them, the merge sorts them."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.model import BrokerTimes, Problem

NoteValue = Problem | tuple[str, str] | bytes | BrokerTimes
"""Contents of a `Note`."""

UNDESCRIBED_LINK: Final = -1
"""Link type of a pcapng packet whose interface no block describes."""

IGNORED_LINK: Final = -2
"""Link type of a packet that is known not to be IP (live capture): only counted."""


class Interface(msgspec.Struct, frozen=True):
    """A capture's description of an interface."""

    link: int
    """Link type (LINKTYPE_ number of the pcap registry)."""
    number: int
    """Its number in its section (pcapng), 0 in pcap."""
    name: str | None = None
    snaplen: int = 0
    """Snapshot length in bytes, 0: no limit."""
    fcs: int = 0
    """Bytes of frame check sequence at the end of each packet."""
    ticks_base: int = 10
    """Time stamps count units of `ticks_base ** -ticks_exponent` seconds (10 or 2)."""
    ticks_exponent: int = 6
    offset_seconds: int = 0
    """Seconds to be added to each time stamp."""


class RawPackets(NamedTuple):
    """Packets of one or (merged) several captures over one buffer, one row each."""

    buffer: bytes
    start: NDArray[np.int64]
    """Offset in `buffer` of the first byte of the link layer."""
    captured: NDArray[np.int64]
    """Bytes captured, without the frame check sequence."""
    wire: NDArray[np.int64]
    """Bytes on the wire, without the frame check sequence."""
    time_ns: NDArray[np.int64]
    link: NDArray[np.int32]
    """Link type, or UNDESCRIBED_LINK or IGNORED_LINK."""
    interface: NDArray[np.int32]
    """Index into the capture's list of interfaces."""
    capture: NDArray[np.int32]
    number: NDArray[np.int64]
    """1-based number of the packet in its capture."""

    @classmethod
    def build(
        cls,
        buffer: bytes,
        start: NDArray[np.int64],
        captured: NDArray[np.int64],
        wire: NDArray[np.int64],
        time_ns: NDArray[np.int64],
        *,
        link: NDArray[np.int32] | int,
        interface: NDArray[np.int32] | int = 0,
        fcs: NDArray[np.int64] | int = 0,
        capture: int,
        first_number: int,
    ) -> Self:
        """Rows of one capture: constant columns broadcast, the frame check sequence removed."""
        count = len(start)
        if isinstance(fcs, np.ndarray) or fcs:
            wire = np.maximum(wire - fcs, 0)
            captured = np.minimum(captured, wire)
        return cls(
            buffer,
            start,
            captured,
            wire,
            time_ns,
            link if isinstance(link, np.ndarray) else np.full(count, link, np.int32),
            interface if isinstance(interface, np.ndarray) else np.full(count, interface, np.int32),
            np.full(count, capture, np.int32),
            np.arange(first_number, first_number + count, dtype=np.int64),
        )

    @classmethod
    def empty(cls) -> Self:
        """No packets."""
        none = np.empty(0, np.int64)
        return cls.build(b"", none, none, none, none, link=0, capture=0, first_number=1)

    def slice(self, first: int, last: int) -> Self:
        """Rows [first, last) over the same buffer."""
        columns: list[Any] = [column[first:last] for column in self[1:]]
        return type(self)(self.buffer, *columns)

    @classmethod
    def joined(cls, parts: list[Self]) -> Self | None:
        """Consecutive parts over the same buffer as one; None if there is no part."""
        if len(parts) < 2:
            return parts[0] if parts else None
        columns = (np.concatenate(column) for column in zip(*(part[1:] for part in parts), strict=True))
        return cls(parts[0].buffer, *columns)

    @classmethod
    def merge(cls, parts: list[Self], order: NDArray[np.int64] | None = None) -> Self:
        """Rows of all parts over one new buffer; `order`: the permutation to apply to the rows, None: unchanged."""
        pieces: list[bytes] = []
        starts: list[NDArray[np.int64]] = []
        base = 0
        for part in parts:
            # Packets of a part are in ascending order in its buffer: one slice takes the whole run.
            low, high = int(part.start[0]), int(part.start[-1] + part.captured[-1])
            pieces.append(part.buffer[low:high])
            starts.append(part.start + (base - low))
            base += high - low
        others = (np.concatenate(column) for column in zip(*(part[2:] for part in parts), strict=True))
        columns = (np.concatenate(starts), *others)
        return cls(b"".join(pieces), *(columns if order is None else (column[order] for column in columns)))


class Parsed(msgspec.Struct):
    """Results of a format's parser for some bytes."""

    packets: RawPackets | None
    """None: no whole packet."""
    notes: list[tuple[int, NoteValue]]
    """Each with the number of the packet that follows it."""
    consumed: int
    """Number of finished bytes; the rest must be given again, with more data after it."""
    need: int = 1
    """Bytes needed, from `consumed` on, before parsing can succeed."""
    given_up: bool = False
    """The rest of the capture cannot be read."""
