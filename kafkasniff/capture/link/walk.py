"""Walk: reads the headers of a batch's packets layer by layer, each layer for all packets that have it at once.

A `LayerSpan` is a set of packets at the same layer. A layer's function reads that layer's header for the whole span by
columns and passes the packets on to the next layer; most batches are one span at each layer, so nothing is copied for
them. Tunnels are ordinary layers: their payload is a new span, one level deeper.
"""

from __future__ import annotations

import enum
from typing import Any, Final, NamedTuple, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

__all__ = ["MAX_DEPTH", "Columns", "Fragments", "Layer", "LayerSpan", "LinkWalk"]

MAX_DEPTH: Final = 8
"""Maximum tunnel depth; deeper packets count as malformed."""

Columns = dict[str, NDArray[Any]]
"""Columns of TCP rows: those of `PacketBatch` that come from headers, and `rows`."""


class Layer(enum.Enum):
    """The layer at a span's position."""

    ETHERNET = enum.auto()
    VLAN = enum.auto()
    """The tag after its Ethernet type."""
    MPLS = enum.auto()
    PPPOE = enum.auto()
    PPP = enum.auto()
    IP = enum.auto()
    """IPv4 or IPv6, depending on the version."""
    GRE = enum.auto()
    UDP = enum.auto()


class LayerSpan(NamedTuple):
    """Packets that are at the same layer, one row each."""

    rows: NDArray[np.int64]
    """Index of the packet in the batch."""
    at: NDArray[np.int64]
    """Offset in the buffer of the layer's first byte."""
    end: NDArray[np.int64]
    """Offset after the last captured byte."""
    wire_end: NDArray[np.int64]
    """Offset after the last byte on the wire, as if it had been captured."""
    depth: int = 0
    """Number of enclosing tunnels."""

    def pick(self, mask: NDArray[np.bool_]) -> Self:
        """The packets where `mask` holds."""
        if mask.all():
            return self
        return self._replace(rows=self.rows[mask], at=self.at[mask], end=self.end[mask], wire_end=self.wire_end[mask])

    def skip(self, size: NDArray[np.int64] | int) -> Self:
        """The same packets, `size` bytes further."""
        return self._replace(at=self.at + size)

    def deeper(self) -> Self:
        """The same packets, inside one more tunnel."""
        return self._replace(depth=self.depth + 1)


class Fragments(msgspec.Struct, frozen=True):
    """IP fragments, one row each; they leave the walk and return as datagrams."""

    span: LayerSpan
    """At the fragment's payload."""
    header: NDArray[np.int64]
    """Offset of the IP header."""
    unfragmented: NDArray[np.int64]
    """Offset after the headers that the datagram keeps (IPv6: where the fragment header begins)."""
    next_at: NDArray[np.int64]
    """IPv6: offset of the byte that means "fragment header follows"."""
    protocol: NDArray[np.int64]
    offset: NDArray[np.int64]
    """Offset of the payload within the datagram's, in bytes."""
    more: NDArray[np.bool_]
    """More fragments follow."""
    ident: NDArray[np.int64]
    version: int


class LinkWalk:
    """The state of one batch: its buffer, the spans still to be read, and the results."""

    def __init__(self, buffer: bytes) -> None:
        self.buffer = buffer
        self.pending: list[tuple[Layer, LayerSpan]] = []
        self.segments: list[Columns] = []
        self.fragments: list[Fragments] = []
        self.cut: list[NDArray[np.int64]] = []
        """Rows of packets whose captured bytes end before a header that they had on the wire."""
        self.malformed: list[NDArray[np.int64]] = []
        """Rows of packets with headers that contradict themselves."""
        self._bytes = np.frombuffer(buffer, np.uint8)

    def append(self, data: bytes) -> int:
        """Append reassembled datagrams to the buffer; returns their offsets."""
        start = len(self.buffer)
        self.buffer += data
        self._bytes = np.frombuffer(self.buffer, np.uint8)
        return start

    def push(self, layer: Layer, span: LayerSpan) -> None:
        """These packets continue at this layer."""
        if not len(span.rows):
            return
        if span.depth > MAX_DEPTH:
            self.malformed.append(span.rows)
            return
        self.pending.append((layer, span))

    def need(self, span: LayerSpan, size: int) -> LayerSpan:
        """The packets that have `size` more captured bytes; the others are counted as cut or as malformed."""
        enough = span.end - span.at >= size
        if enough.all():
            return span
        short = span.pick(~enough)
        on_wire = short.wire_end - short.at >= size
        self.cut.append(short.rows[on_wire])
        self.malformed.append(short.rows[~on_wire])
        return span.pick(enough)

    def reject(self, span: LayerSpan, bad: NDArray[np.bool_]) -> LayerSpan:
        """The packets that are not `bad`; those are counted as malformed."""
        if not bad.any():
            return span
        self.malformed.append(span.rows[bad])
        return span.pick(~bad)

    # Reading by columns: all places must be within the buffer (see `need`).

    def byte(self, places: NDArray[np.int64]) -> NDArray[np.uint8]:
        """The byte at each place."""
        # mode="clip" is NumPy's fast path: no buffered output.
        return self._bytes.take(places, mode="clip")

    def short(self, places: NDArray[np.int64]) -> NDArray[np.uint16]:
        """The big-endian 16 bits at each place."""
        return self.byte(places).astype(np.uint16) << np.uint16(8) | self.byte(places + 1)

    def word(self, places: NDArray[np.int64]) -> NDArray[np.uint32]:
        """The big-endian 32 bits at each place."""
        return self.short(places).astype(np.uint32) << np.uint32(16) | self.short(places + 2)

    def records(self, places: NDArray[np.int64], layout: np.dtype[Any]) -> NDArray[Any]:
        """The header of this layout at each place."""
        if not len(places):
            return np.empty(0, layout)
        # A gather of opaque items is a plain copy of bytes each, several times faster than one of structured items.
        size = layout.itemsize
        return np.ndarray((len(self.buffer) - size + 1,), f"V{size}", self.buffer, strides=(1,))[places].view(layout)
