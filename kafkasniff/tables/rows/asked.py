"""The wait that a request asks the broker for, and the request's sender: `sender`, `wait_us` and `waits_for`."""

from __future__ import annotations

from typing import Final, NamedTuple, get_args

from kafkasniff.kafka.connection.waits import UNLIMITED_NS, Role, WaitReason, asked_limit_ns, planned_role, wait_plan
from kafkasniff.model import Exchange

__all__ = ["UNKNOWN", "RequestedWait", "asked_wait"]


class RequestedWait(NamedTuple):
    """A request's sender, and the wait that it asked for."""

    sender: Role | None = None
    microseconds: int | None = None
    """The longest wait; None: the request could not be read, or has no such wait."""
    reason: WaitReason | None = None


UNKNOWN: Final = RequestedWait()
_NO_WAIT: Final[dict[Role | None, RequestedWait]] = {
    sender: RequestedWait(sender, 0) for sender in (None, *get_args(Role))
}


def asked_wait(exchange: Exchange) -> RequestedWait:
    """The sender, and the wait within the exchange's latency, or the allowed wait if nothing answered. Hot.

    Time that the request spent queued after earlier ones of its connection (`behind_ns`, `muted_ns`) does not count.
    """
    request = exchange.request
    body = None if request is None else request.body
    if request is None or body is None:
        return UNKNOWN
    plan = wait_plan(request.api_key)
    if plan is None:
        # Most APIs.
        return _NO_WAIT[None]
    sender = planned_role(plan, body) if plan.replica_ids else None
    if plan.limits and body.keys().isdisjoint(plan.limits):
        return RequestedWait(sender)  # the request is cut before them
    reason = plan.reason
    limit = None if reason is None else asked_limit_ns(plan, body)
    if reason is None or limit == 0:
        return _NO_WAIT[sender]
    latency = exchange.latency_ns
    if exchange.response is None or latency is None:
        wait = UNLIMITED_NS if limit is None else limit
    else:
        wait = latency - (exchange.behind_ns or 0) - (exchange.muted_ns or 0)
        wait = max(wait, 0)
        if limit is not None and limit < wait:
            wait = limit
    return RequestedWait(sender, wait // 1000, reason)
