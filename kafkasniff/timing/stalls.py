"""Times in which data of a sender did not arrive: as evidence only packets that it, or its receiver, did send.

Two kinds of evidence, since a capture is made before or after the place where packets get lost:

- *unacknowledged*: the sender retransmits, and nothing more is acknowledged. Receivers acknowledge within 0.5 s even if
  their programs hang (RFC 9293, 3.8.6.3); those with a closed window are excluded.
- *hole*: later data (or the FIN) arrived, earlier data is missing, and the receiver does not acknowledge it either. If
  it does, only the capture lacks it.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

__all__ = ["MAX_STALLS", "MIN_RETRIES", "MIN_STALL_NS", "Stall", "StallKind"]

MAX_STALLS: Final = 32
"""Maximum number of stalls of a half that are remembered, the first."""
MIN_STALL_NS: Final = 500_000_000
"""Shorter ones are ordinary losses."""
MIN_RETRIES: Final = 2
"""Fewer retransmissions do not prove that nothing arrives."""

StallKind = Literal["unacknowledged", "hole"]


class Stall(NamedTuple):
    """One of them. Times are ns since the epoch."""

    since: int
    """When the missing data was first sent, was last acknowledged in part, or when later data arrived."""
    until: int
    """When it arrived; otherwise the last retransmission, or the last packet of a connection with a hole."""
    kind: StallKind
    retries: int
    """Retransmissions in this time."""
    size: int
    """Bytes of the smallest retransmitted segment, or of the hole."""
    passed: int
    """Bytes of the largest segment of this sender that had arrived."""
    heard: int
    """Packets of the receiver in this time."""
    over: bool
    """The data arrived in the end."""
