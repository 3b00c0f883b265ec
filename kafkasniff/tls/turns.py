"""When the two ends of a TLS connection spoke, which encryption does not hide.

A *turn* of a stream is what it sends until the other one answers. The time from its last byte to the first byte of the
answer estimates a latency: pipelined requests are one turn, and a long poll looks like a slow answer.
"""

from __future__ import annotations

import itertools
from typing import Final

from kafkasniff.model import NO_TIME, TlsTurns
from kafkasniff.tls.items import Segment

__all__ = ["MAX_BUCKETS", "Turns"]

_BITS: Final = 4
"""Each power of two of a time in nanoseconds has this many bits' worth of buckets: they are at most 3% off."""
_BOTH: Final = 3
MAX_BUCKETS: Final = 2 * 64 << _BITS
"""Maximum number of buckets of both streams."""
ALERT: Final = 40
"""Bytes of the largest record that may be an alert, such as the close_notify of Java's TLS 1.3 (`failing`)."""
BUCKET_BYTES: Final = 100
"""Bytes of memory of a bucket."""


class Turns:
    """Takes the segments of both streams in order."""

    __slots__ = (
        "_counts",
        "_first",
        "_longest",
        "_lossy",
        "_sealed",
        "_settled",
        "_since",
        "_size",
        "_skips",
        "_speaker",
    )

    def __init__(self) -> None:
        self._first = NO_TIME
        """Time of the first segment."""
        self._settled = NO_TIME
        """When both streams were under their keys; NO_TIME: unknown, or not yet."""
        self._sealed = 0
        """A bit for each stream that has sent a record under its keys."""
        self._lossy = False
        """Bytes were missing."""
        self._skips = False
        """The server's next data belong to the handshake."""
        self._speaker = -1
        """Direction of the last segment; -1: unknown."""
        self._since = NO_TIME
        """Its time."""
        self._size = 0
        """Bytes of the turn so far."""
        self._longest = [0, 0]
        """Nanoseconds until the latest answer to each stream."""
        self._counts: dict[int, int] = {}
        """Number of answers by twice the bucket, plus the direction of what they answer."""

    def take(self, item: Segment) -> None:
        """Take a segment. Hot: called for each one of a TLS connection."""
        direction, time = item.direction, item.time_ns
        if self._first == NO_TIME:
            self._first = time
        if self._speaker == direction:
            self._size += len(item.data)
            if len(item.data) <= ALERT:
                return  # nothing asks so briefly, and a client that gives up says so much later
        else:
            asked = self._speaker >= 0 and self._size > ALERT
            skips, self._skips = self._skips, False
            if asked and skips and len(item.data) > ALERT:
                return  # tickets, for which the client did not wait
            if asked and not skips and NO_TIME not in (time, self._since):
                self._answered(self._speaker, max(time - self._since, 0))
            self._speaker, self._size = direction, len(item.data)
        self._since = time

    def _answered(self, direction: int, took: int) -> None:
        shift = max(took.bit_length() - _BITS - 1, 0)
        bucket = (shift << _BITS) + (took >> shift)
        key = 2 * bucket + direction
        self._counts[key] = self._counts.get(key, 0) + 1
        self._longest[direction] = max(self._longest[direction], took)

    def lose(self) -> None:
        """Bytes of a stream are missing: the following ones do not answer earlier ones."""
        self._speaker = -1
        self._lossy = True

    def seal(self, direction: int, time_ns: int, size: int, client: int | None, *, tickets: bool) -> None:
        """A record of a stream is under its keys, or the following ones are. Once both are, the handshake is over.

        `size`: bytes of the record; `client`: direction of the stream with the hello, if it was captured; `tickets`:
        the server's next data answer the handshake (TLS 1.3).
        """
        if self._sealed == _BOTH:
            if self._skips and self._speaker == direction:
                self._size += size  # sent with the end of the handshake, maybe in one packet
            return
        self._sealed |= 1 << direction
        if self._sealed != _BOTH or client is None:
            return
        if not self._lossy:
            self._settled = time_ns
        self._skips = tickets
        self._speaker = client if tickets else -1
        self._since, self._size = time_ns, 0
        self._longest, self._counts = [0, 0], {}

    @property
    def memory(self) -> int:
        """Approximate bytes of memory."""
        return len(self._counts) * BUCKET_BYTES

    @property
    def handshake_ns(self) -> int | None:
        """Duration of the handshake; None: it was not completed, or not captured as a whole."""
        if NO_TIME in (self._first, self._settled):
            return None
        return max(self._settled - self._first, 0)

    def summary(self, client: int, last_ns: int, *, midway: bool) -> TlsTurns:
        """The answers to the client's stream after the handshake.

        `last_ns`: time of the connection's last packet; `midway`: the handshake was before the capture.
        """
        if not midway and self._sealed != _BOTH:
            return TlsTurns()
        counts = sorted((key >> 1, count) for key, count in self._counts.items() if key & 1 == client)
        answers, longest = sum(count for _, count in counts), self._longest[client]
        unanswered = None
        # A client that leaves says so in an alert.
        asks = self._speaker == client and self._size > ALERT
        if asks and NO_TIME not in (self._since, last_ns):
            unanswered = max(last_ns - self._since, 0)
        if not answers:
            return TlsTurns(unanswered_ns=unanswered)
        p50, p99 = (min(_quantile(counts, -(-answers * part // 100)), longest) for part in (50, 99))
        return TlsTurns(answers, p50, p99, longest, unanswered)


def _quantile(counts: list[tuple[int, int]], rank: int) -> int:
    """The middle of the bucket with the value of that rank, counted from 1."""
    totals = itertools.accumulate(count for _, count in counts)
    bucket = next(bucket for (bucket, _), total in zip(counts, totals, strict=True) if total >= rank)
    shift = max((bucket >> _BITS) - 1, 0)
    low = bucket - (shift << _BITS) << shift
    return low + ((1 << shift) - 1 >> 1)
