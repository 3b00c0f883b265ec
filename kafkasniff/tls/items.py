"""Items of streams that pass through TLS, for one connection at a time.

The bytes of a stream come as `Segment`s in stream order. Everything else is a separate event (`Gap`, `Closed` …). Every
item has the `order` of the packet at which it became known, so that the two streams of a
connection, and different connections, can be merged back into capture order.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from kafkasniff.model import NO_TIME


class Segment(msgspec.Struct, frozen=True, gc=False):
    """Bytes of the stream of `direction`, without a hole after the ones before."""

    order: int
    """Order of the packet that made the segment contiguous with the previous bytes; it never decreases within a stream.

    After a gap there is no such packet: then it is that of the packet at which the gap was declared.
    """
    direction: int
    data: bytes
    packet: int
    """The packet that delivered the segment (see `model.PACKET_SHIFT`)."""
    time_ns: int
    """time_ns of that packet."""
    released: int
    """time_ns of the packet of `order`. It differs from `time_ns` if segments were held back.

    After a gap it is the time at which all bytes from the gap up to here were present.
    """


class Started(msgspec.Struct, frozen=True, gc=False):
    """The SYN of a stream was seen: the first delivered byte is its first one."""

    order: int
    direction: int
    client: bool
    """The side that sends this stream opened the connection."""


class Gap(msgspec.Struct, frozen=True, gc=False):
    """Bytes missing in the stream of `direction`, before its next segment."""

    order: int
    direction: int
    size: int
    packet: int
    """The packet at which the gap was declared."""
    time_ns: int
    snapped: bool = False
    """The bytes were on the wire, but the snap length of the capture cut them off."""
    resumed_ns: int = NO_TIME
    """time_ns of the packet that delivered the bytes after the gap (snapped: of the truncated segment)."""
    exact: bool = True
    """Exactly `size` bytes are missing before the next segment; False: an unknown number (of clear bytes, if the
    missing bytes were encrypted)."""
    unheard: bool = False
    """No packet of the stream's sender was captured: the bytes are those that its peer acknowledged."""


class Late(msgspec.Struct, frozen=True, gc=False):
    """A segment of the stream of `direction` whose bytes counted as missing: they lie within an earlier gap."""

    order: int
    direction: int
    data: bytes
    packet: int
    time_ns: int


class Hole(msgspec.Struct, frozen=True, gc=False):
    """From here on segments of the stream of `direction` are held back after a hole; with `open` False no longer.

    A hole is not a gap yet: the packet with its bytes may arrive. Several consecutive holes count as one.
    """

    order: int
    direction: int
    open: bool


class Retransmit(msgspec.Struct, frozen=True, gc=False):
    """A segment that repeats bytes of the stream of `direction`."""

    order: int
    direction: int


class TcpProblem(msgspec.Struct, frozen=True, gc=False):
    """A noteworthy observation about the TCP connection."""

    order: int
    direction: int
    kind: str
    detail: str
    packet: int
    time_ns: int
    bytes: int | None = None


class Wrapped(msgspec.Struct, frozen=True, gc=False):
    """Bytes of the stream of `direction` that a layer in between removed; negative: that it delivers later."""

    direction: int
    size: int


class Rejected(msgspec.Struct, frozen=True, gc=False):
    """A layer in between cannot read the rest of the connection."""

    order: int
    direction: int
    kind: str
    detail: str
    packet: int
    time_ns: int
    likely: bool
    """It may well be Kafka that could not be decoded."""


class Closed(msgspec.Struct, frozen=True, gc=False):
    """The end of the connection; nothing follows."""

    order: int
    reason: Literal["fin", "rst", "reused", "idle", "end"]
    """fin, rst: closed on the wire; reused: a new connection took its 4-tuple; idle: silent for too long; end: the
    capture ended."""
    packet: int
    time_ns: int
    packets: int = 0
    """Packets of either direction that belong to the connection."""
    by: int | None = None
    """Direction of the stream with the first accepted FIN or RST."""
    by_ns: int = NO_TIME
    """time_ns of that packet."""
    repeated: tuple[int, int] = (0, 0)
    """Captured bytes that each stream already had: retransmitted, or in a packet that was captured twice."""
    ignored: tuple[int, int] = (0, 0)
    """Captured bytes that are not part of each stream: outside its window, after its end, before its first byte."""


Item = Segment | Started | Gap | Late | Hole | Retransmit | TcpProblem | Wrapped | Rejected | Closed
