"""Splits the time of exchanges into parts. A pure function of the times of their bytes and of surrounding events.

    response before         request                     response
      … ▆│─── think ───│▆▆▆▆▆▆▆▆▆│─────────────── latency ────────────────│▆▆▆▆▆▆▆▆▆▆▆│
                        request    resent · behind · muted · held · network · wait · broker  response

The parts never overlap, and those from `request` to `response` add up to the exchange's duration. A part that cannot be
separated stays in `broker`, and `may_wait_ns` or `unknown` says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Self, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.kafka.connection.waits import Wait, WaitReason
from kafkasniff.model import NO_TIME
from kafkasniff.native.links import UNKNOWN

__all__ = ["PARTS", "UNLIMITED", "Bools", "Ints", "Marks", "PartColumns", "TimeParts", "Waits", "split"]

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

PARTS: Final = ("think", "request", "resent", "behind", "muted", "held", "network", "wait", "broker", "response")
"""In the order in which they occur."""


FULL: Final = 0.9
"""A fetch that took this fraction of its allowed wait was waiting: timers of brokers have a resolution of a
millisecond.
"""
UNLIMITED: Final = np.iinfo(np.int64).max
_REASONS: Final[tuple[WaitReason, ...]] = get_args(WaitReason)
_DATA: Final = _REASONS.index("data")


class Marks(NamedTuple):
    """Times of the bytes of exchanges and of surrounding events, in nanoseconds since the epoch; `NO_TIME`: none."""

    request_first: Ints
    request_done: Ints
    response_first: Ints
    response_done: Ints
    before_done: Ints
    """End of the previous response on its connection."""
    quiet_since: Ints
    """End of the previous message on its connection, in either direction."""
    resent_at: Ints
    """Bytes of or before the request were lost after the capture point, and last retransmitted at this time."""
    muted_until: Ints
    """An earlier response asked the client to wait until this time (KIP-219)."""

    @property
    def duration(self) -> Ints:
        """From the first byte of the request to the last one of the response."""
        return self.response_done - self.request_first

    @property
    def latency(self) -> Ints:
        """From the last byte of the request to the first one of the response."""
        return self.response_first - self.request_done


class Waits(NamedTuple):
    """The waits that requests ask for (`waits.Wait`)."""

    reason: NDArray[np.int8]
    """Its index among the reasons, or `UNKNOWN`: none."""
    limit_ns: Ints
    """`UNLIMITED`: the request sets no limit."""
    sure: Bools

    @classmethod
    def none(cls, count: int) -> Self:
        """No waits."""
        return cls(np.full(count, UNKNOWN, np.int8), np.zeros(count, np.int64), np.zeros(count, bool))

    @classmethod
    def of(cls, waits: Sequence[Wait | None]) -> Self:
        """Those of exchanges one by one."""
        made = cls.none(len(waits))
        for place, wait in enumerate(waits):
            if wait is not None:
                made.put(place, wait.reason, UNLIMITED if wait.limit_ns is None else wait.limit_ns, wait.sure)
        return made

    def put(self, rows: Ints | int, reason: WaitReason, limit_ns: Ints | int, sure: Bools | bool) -> None:
        """Set the waits of some exchanges."""
        self.reason[rows], self.limit_ns[rows], self.sure[rows] = _REASONS.index(reason), limit_ns, sure

    def one(self, row: int) -> Wait | None:
        """The wait of one exchange."""
        if self.reason[row] == UNKNOWN:
            return None
        limit = int(self.limit_ns[row])
        return Wait(_REASONS[self.reason[row]], None if limit == UNLIMITED else limit, bool(self.sure[row]))


class TimeParts(msgspec.Struct, frozen=True, gc=False):
    """The parts of one exchange's time, in nanoseconds; None: unknown."""

    think: int | None = None
    """Nothing was in flight on the connection: the client's own time, with the path to the client and back."""
    request: int | None = None
    """From the packet with the request's first byte to the one that completed it."""
    resent: int | None = None
    """The broker did not have all of it: bytes were lost, until they were retransmitted."""
    behind: int | None = None
    """The broker was still answering earlier requests of the connection, which it processes one by one."""
    muted: int | None = None
    """The broker did not read from the connection, since an earlier response was throttled (KIP-219)."""
    held: int | None = None
    """The broker delayed the response by its throttle time, as brokers before Kafka 2.0 did."""
    network: int | None = None
    """The path from the capture point to the broker and back: the lowest value so far. 0: unknown."""
    wait: int | None = None
    """The broker waited because the request asked it to."""
    broker: int | None = None
    """The rest of the latency: the broker's queues, work, disk and replicas."""
    response: int | None = None
    """From the packet with the response's first byte to the one that completed it."""
    throttled: int = 0
    """Part of `think`: an earlier response had asked the client to wait."""
    may_wait: int = 0
    """Part of `broker`: at most this much may have been a wait that the request asked for."""
    reason: WaitReason | None = None
    """The reason of `wait` or `may_wait`."""


class PartColumns(NamedTuple):
    """`TimeParts` of exchanges; `UNKNOWN`: unknown."""

    think: Ints
    request: Ints
    resent: Ints
    behind: Ints
    muted: Ints
    held: Ints
    network: Ints
    wait: Ints
    broker: Ints
    response: Ints
    throttled: Ints
    may_wait: Ints

    def one(self, row: int, wait: Wait | None) -> TimeParts:
        """The parts of one exchange, which asked for `wait`."""
        values = {name: int(column[row]) for name, column in self._asdict().items()}
        parts: dict[str, Any] = {name: None if value == UNKNOWN else value for name, value in values.items()}
        return TimeParts(**parts, reason=wait.reason if parts["broker"] is not None and wait is not None else None)


def split(
    marks: Marks, *, network: Ints, waits: Waits, throttle_ns: Ints, at_once: Bools, timed: Bools | None = None
) -> PartColumns:
    """Split the time into parts.

    `network`: round trip from the capture point to the broker, or `UNKNOWN`; `throttle_ns`: of this response;
    `at_once`: a broker of this version responds immediately when it throttles; `timed`: exchanges whose four times are
    known, by default all. Times that go backwards, as with clocks of several captures, leave everything between request
    and response unsplit.
    """
    first, done, response_first, response_done, before_done, quiet, resent_at, muted_until = marks
    known = (quiet != NO_TIME) & (quiet <= first)
    throttled = np.where(known & (muted_until != NO_TIME), np.maximum(np.minimum(muted_until, first) - quiet, 0), 0)
    think = np.where(known, first - quiet, UNKNOWN)
    sent, received, latency = done - first, response_done - response_first, marks.latency
    whole = (sent >= 0) & (received >= 0) & (latency >= 0)
    if timed is not None:
        whole &= timed
        think, throttled = np.where(timed, think, UNKNOWN), np.where(timed, throttled, 0)
    left = np.where(whole, latency, 0)
    end = done + left

    def until(time: Ints) -> Ints:
        """How long it takes from where the parts have come to a time, within the latency."""
        return np.where(time == NO_TIME, 0, np.maximum(np.minimum(time, end) - (end - left), 0))

    resent = until(resent_at)
    left = left - resent
    behind = until(before_done)
    left = left - behind
    muted = until(muted_until)
    left = left - muted
    # A response that came sooner than its throttle time was not delayed by it.
    held = np.where(~at_once & (left >= throttle_ns), throttle_ns, 0)
    left = left - held
    path = np.minimum(np.maximum(network, 0), left)
    left = left - path
    asked = np.where(waits.reason == UNKNOWN, 0, np.minimum(waits.limit_ns, left))
    # A fetch that returned early and without the expected data was ended by something else, or never waited.
    early = (waits.reason == _DATA) & (waits.limit_ns != UNLIMITED) & (asked < FULL * waits.limit_ns)
    waited = np.where(waits.sure & ~early, asked, 0)
    parts = (sent, resent, behind, muted, held, path, waited, left - waited, received)
    known_parts = (np.where(whole, part, UNKNOWN) for part in parts)
    return PartColumns._make((think, *known_parts, throttled, np.where(whole, asked - waited, 0)))
