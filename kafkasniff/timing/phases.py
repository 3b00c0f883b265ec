"""Splits an exchange's time into parts. A pure function of the times of its bytes and of surrounding events.

    response before         request                     response
      … ▆│─── think ───│▆▆▆▆▆▆▆▆▆│─────────────── latency ────────────────│▆▆▆▆▆▆▆▆▆▆▆│
                        request    resent · behind · muted · held · network · wait · broker  response

The parts never overlap, and those from `request` to `response` add up to the exchange's duration. A part that cannot be
separated stays in `broker`, and `may_wait_ns` or `unknown` says so.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from kafkasniff.kafka.connection.waits import Wait, WaitReason

__all__ = ["PARTS", "Marks", "TimeParts", "split"]

PARTS: Final = ("think", "request", "resent", "behind", "muted", "held", "network", "wait", "broker", "response")
"""In the order in which they occur."""


FULL: Final = 0.9
"""A fetch that took this fraction of its allowed wait was waiting: timers of brokers have a resolution of a
millisecond.
"""


class Marks(NamedTuple):
    """Times of an exchange's bytes and surrounding events, in nanoseconds since the epoch."""

    request_first: int
    request_done: int
    response_first: int
    response_done: int
    before_done: int | None = None
    """End of the previous response on its connection; None: there was none."""
    quiet_since: int | None = None
    """End of the previous message on its connection, in either direction; None: there was none."""
    resent_at: int | None = None
    """Bytes of or before the request were lost after the capture point, and last retransmitted at this time."""
    muted_until: int | None = None
    """An earlier response asked the client to wait until this time (KIP-219)."""

    @property
    def duration(self) -> int:
        """From the first byte of the request to the last one of the response."""
        return self.response_done - self.request_first

    @property
    def latency(self) -> int:
        """From the last byte of the request to the first one of the response."""
        return self.response_first - self.request_done


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


def split(marks: Marks, *, network: int | None, wait: Wait | None, throttle_ns: int, at_once: bool) -> TimeParts:
    """Split the time into parts.

    `network`: round trip from the capture point to the broker; `throttle_ns`: of this response; `at_once`: a broker of
    this version responds immediately when it throttles. Times that go backwards, as with clocks of several captures,
    leave everything between request and response unsplit.
    """
    think = throttled = None
    quiet = marks.quiet_since
    if quiet is not None and quiet <= marks.request_first:
        think = marks.request_first - quiet
        throttled = 0 if marks.muted_until is None else max(min(marks.muted_until, marks.request_first) - quiet, 0)
    sent = marks.request_done - marks.request_first
    received = marks.response_done - marks.response_first
    latency = marks.latency
    if sent < 0 or received < 0 or latency < 0:
        return TimeParts(think=think, throttled=throttled or 0)
    at = marks.request_done
    resent = 0 if marks.resent_at is None else min(max(marks.resent_at - at, 0), latency)
    at += resent
    behind = 0 if marks.before_done is None else max(min(marks.before_done, marks.response_first) - at, 0)
    at += behind
    muted = 0 if marks.muted_until is None else max(min(marks.muted_until, marks.response_first) - at, 0)
    left = latency - resent - behind - muted
    # A response that came sooner than its throttle time was not delayed by it.
    held = throttle_ns if throttle_ns and not at_once and left >= throttle_ns else 0
    left -= held
    path = min(network or 0, left)
    left -= path
    asked = waited = 0
    if wait is not None:
        asked = left if wait.limit_ns is None else min(wait.limit_ns, left)
        # A fetch that returned early and without the expected data was ended by something else, or never waited.
        early = wait.reason == "data" and wait.limit_ns is not None and asked < FULL * wait.limit_ns
        waited = asked if wait.sure and not early else 0
    return TimeParts(
        think=think,
        request=sent,
        resent=resent,
        behind=behind,
        muted=muted,
        held=held,
        network=path,
        wait=waited,
        broker=left - waited,
        response=received,
        throttled=throttled or 0,
        may_wait=asked - waited,
        reason=None if wait is None else wait.reason,
    )
