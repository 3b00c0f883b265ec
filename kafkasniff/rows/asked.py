"""What a request asks the broker to wait for, and who sends it: `sender`, `wait_us` and `waits_for`."""

from __future__ import annotations

from typing import Final, NamedTuple

from kafkasniff.kafka.waits import UNLIMITED_NS, Role, WaitReason, asked_limit_ns, planned_role, wait_plan
from kafkasniff.model import Exchange

__all__ = ["UNKNOWN", "Asked", "asked_wait"]


class Asked(NamedTuple):
    """A request's sender, and the wait that it asked for."""

    sender: Role | None = None
    microseconds: int | None = None
    """At most so long; None: the request could not be read, or is of no use here."""
    reason: WaitReason | None = None


UNKNOWN: Final = Asked()
_NOTHING: Final = Asked(None, 0)


def asked_wait(exchange: Exchange) -> Asked | tuple[Role | None, int | None, WaitReason | None]:
    """The sender, and the wait of the exchange's latency, or what it has leave for where nothing answered. Hot.

    Without what stood in front of it (`behind_ns`, `muted_ns`). The answer is an `Asked`, or its values.
    """
    request = exchange.request
    body = None if request is None else request.body
    if request is None or body is None:
        return UNKNOWN
    plan = wait_plan(request.api_key)
    if plan is None:
        # Most APIs.
        return _NOTHING
    sender = planned_role(plan, body) if plan.replica_ids else None
    reason = plan.reason
    if reason is None:
        return sender, 0, None
    limit = asked_limit_ns(plan, body)
    if limit == 0:
        return sender, 0, None
    latency = exchange.latency_ns
    if exchange.response is None or latency is None:
        wait = UNLIMITED_NS if limit is None else limit
    else:
        wait = latency - (exchange.behind_ns or 0) - (exchange.muted_ns or 0)
        wait = max(wait, 0)
        if limit is not None and limit < wait:
            wait = limit
    return sender, wait // 1000, reason
