"""One exchange's time, told apart. A pure function of the times at which its bytes passed by, and what was around it.

    response before         request                     response
      … ▆│─── think ───│▆▆▆▆▆▆▆▆▆│─────────────── latency ────────────────│▆▆▆▆▆▆▆▆▆▆▆│
                        request    resent · behind · muted · held · network · wait · broker  response

The parts never overlap, and those from `request` to `response` add up to the exchange's duration. Where a part cannot
be told from its neighbour, it stays in `broker`, and `may_wait_ns` or `unknown` says so.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from kafkasniff.kafka.waits import Wait, WaitReason

__all__ = ["PARTS", "Marks", "Parts", "split"]

PARTS: Final = ("think", "request", "resent", "behind", "muted", "held", "network", "wait", "broker", "response")
"""In the order in which they happen."""


FULL: Final = 0.9
"""A fetch that took this part of the wait that it allows was waiting: timers of brokers tick by the millisecond."""


class Marks(NamedTuple):
    """When what passed by, in nanoseconds since the epoch."""

    request_first: int
    request_done: int
    response_first: int
    response_done: int
    before_done: int | None = None
    """The last response before it on its connection was done; None: there was none."""
    quiet_since: int | None = None
    """The last message before it on its connection was done, of either side; None: there was none."""
    resent_at: int | None = None
    """Bytes of the request, or in front of it, were lost behind the capture point, and last sent again then."""
    muted_until: int | None = None
    """An earlier response told the client to wait until then (KIP-219)."""


class Parts(msgspec.Struct, frozen=True, gc=False):
    """Where the time of one exchange went, in nanoseconds; None: it cannot be told."""

    think: int | None = None
    """Nothing was on its way on the connection: the client's own time, with the way to the client and back."""
    request: int | None = None
    """From the packet with the request's first byte to the one that completed it."""
    resent: int | None = None
    """The broker did not have all of it: bytes were lost on the way, until they were sent again."""
    behind: int | None = None
    """The broker was still answering earlier requests of the connection, which it takes one after the other."""
    muted: int | None = None
    """The broker did not read from the connection, since an earlier response was throttled (KIP-219)."""
    held: int | None = None
    """The broker held the response back for its throttle time, as brokers before Kafka 2.0 did."""
    network: int | None = None
    """The way from the capture point to the broker and back: the least that was seen by then. 0: not known."""
    wait: int | None = None
    """The broker waited because the request asked it to."""
    broker: int | None = None
    """What is left of the latency: the broker's queues, work, disk and replicas."""
    response: int | None = None
    """From the packet with the response's first byte to the one that completed it."""
    throttled: int = 0
    """Of `think`: an earlier response had told the client to wait."""
    may_wait: int = 0
    """Of `broker`: it may have been a wait that the request asked for; at most so much of it."""
    reason: WaitReason | None = None
    """What `wait` or `may_wait` is for."""


def split(marks: Marks, *, network: int | None, wait: Wait | None, throttle_ns: int, at_once: bool) -> Parts:
    """Tell the parts apart.

    `network`: round trip from the capture point to the broker; `throttle_ns`: of this response; `at_once`: a broker
    that throttles answers at once, by the version. Times that go backwards, as clocks of several captures may, leave
    all that lies between requests and responses untold.
    """
    think = throttled = None
    quiet = marks.quiet_since
    if quiet is not None and quiet <= marks.request_first:
        think = marks.request_first - quiet
        throttled = 0 if marks.muted_until is None else max(min(marks.muted_until, marks.request_first) - quiet, 0)
    sent = marks.request_done - marks.request_first
    received = marks.response_done - marks.response_first
    latency = marks.response_first - marks.request_done
    if sent < 0 or received < 0 or latency < 0:
        return Parts(think=think, throttled=throttled or 0)
    at = marks.request_done
    resent = 0 if marks.resent_at is None else min(max(marks.resent_at - at, 0), latency)
    at += resent
    behind = 0 if marks.before_done is None else max(min(marks.before_done, marks.response_first) - at, 0)
    at += behind
    muted = 0 if marks.muted_until is None else max(min(marks.muted_until, marks.response_first) - at, 0)
    left = latency - resent - behind - muted
    # A response that came sooner than its throttle time was not held back for it.
    held = throttle_ns if throttle_ns and not at_once and left >= throttle_ns else 0
    left -= held
    way = min(network or 0, left)
    left -= way
    asked = waited = 0
    if wait is not None:
        asked = left if wait.limit_ns is None else min(wait.limit_ns, left)
        # A fetch that came back early and without what it waited for was ended by something else, or never waited.
        early = wait.reason == "data" and wait.limit_ns is not None and asked < FULL * wait.limit_ns
        waited = asked if wait.sure and not early else 0
    return Parts(
        think=think,
        request=sent,
        resent=resent,
        behind=behind,
        muted=muted,
        held=held,
        network=way,
        wait=waited,
        broker=left - waited,
        response=received,
        throttled=throttled or 0,
        may_wait=asked - waited,
        reason=None if wait is None else wait.reason,
    )
