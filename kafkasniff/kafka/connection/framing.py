"""Frames: int32 size + message."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["MAX_FRAME", "Frame"]

MAX_FRAME: Final = 100 << 20
"""Default bound on a frame's size: `socket.request.max.bytes` of the broker, whose default this is."""


class Frame(NamedTuple):
    """One frame. The message is `data[start:end]`."""

    order: int
    """Order of the packet that completed it (if incomplete: at which it was known to stay so)."""
    direction: int
    data: bytes
    start: int
    end: int
    size: int
    """The length prefix; larger than `end - start` if bytes are missing at the end."""
    first_packet: int
    """Lowest of the packets that delivered its bytes (streams.PACKET_SHIFT)."""
    last_packet: int
    first_time: int
    """time_ns of the packet that delivered its first byte."""
    time_ns: int
    """time_ns of the packet that completed it; if incomplete: of the packet after the gap, if it ends there, else of
    the last one with bytes of it."""
    last_seen: int
    """The packet that made it complete, which differs from `last_packet` if segments were held back."""
