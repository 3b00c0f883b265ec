"""How long an exchange may have taken because its request asks the broker to wait: `wait_us` and `waits_for`."""

from __future__ import annotations

from typing import NamedTuple

from kafkasniff.entities import Mentions
from kafkasniff.kafka.waits import UNLIMITED_NS, WaitReason, reason_of, wait_of
from kafkasniff.model import Exchange

__all__ = ["Asked", "asked_wait"]


class Asked(NamedTuple):
    """A wait that a request asked for."""

    nanoseconds: int | None = None
    """At most so long; None: the request could not be read, or is of no use here."""
    reason: WaitReason | None = None


_NONE = Asked(0)
_UNKNOWN = Asked()


def asked_wait(exchange: Exchange, named: Mentions) -> Asked:
    """The wait of an exchange that names `named`: of its latency, or what it has leave for where nothing answered.

    Without what stood in front of it (`behind_ns`, `muted_ns`).
    """
    request, response = exchange.request, exchange.response
    if request is None or request.body is None:
        return _UNKNOWN
    reason = reason_of(request.api_key)
    if reason is None:
        return _NONE
    fetched = sum(facts.bytes or 0 for facts in named.partitions.values()) if reason == "data" else 0
    errors = 0 if response is None else len(response.errors)
    wait = wait_of(request.api_key, request.body, None if response is None else response.body, fetched, errors)
    if wait is None:
        return _NONE
    latency = exchange.latency_ns
    if response is None or latency is None:
        return Asked(UNLIMITED_NS if wait.limit_ns is None else wait.limit_ns, wait.reason)
    left = max(latency - (exchange.behind_ns or 0) - (exchange.muted_ns or 0), 0)
    return Asked(left if wait.limit_ns is None else min(wait.limit_ns, left), wait.reason)
