"""How long the records of a connection wait for a hello or for keys, and the reason for giving up.

Key logs grow while a live capture runs, and the other side's hello or alert may still come. Waiting is useless once
neither can happen, and it ends when too much waits.
"""

from __future__ import annotations

from typing import Final

from kafkasniff.tls.failing import INCOMPLETE, may_report_more, why_incomplete, why_without_keys
from kafkasniff.tls.half import Half
from kafkasniff.tls.keylog import KeyLog
from kafkasniff.tls.negotiation import Negotiation
from kafkasniff.tls.readiness import has_keys, skips

__all__ = ["MAX_FLIGHT", "MAX_WAITING", "MAX_WAITING_RECORDS", "reason_at_end", "why_useless"]

MAX_WAITING: Final = 1 << 20
"""Maximum number of bytes of a connection that wait for a secret or for the other side's hello."""
MAX_WAITING_RECORDS: Final = 16_384
"""Maximum number of waiting records and losses: empty ones take five bytes on the wire and some hundreds in memory."""
MAX_FLIGHT: Final = 1 << 16
"""Maximum number of bytes that wait without keys for the other side's part of the handshake, its chain included."""


def why_useless(
    talk: Negotiation, halves: tuple[Half, Half], keys: KeyLog, order: int, *, ended: bool = False
) -> str | None:
    """Why a connection cannot be decrypted, if waiting is useless or too much waits; None: keep waiting.

    `ended`: the connection is over. Records that could be opened were opened then, perhaps by a process that had the
    keys before this state was transferred; that they are missing here proves nothing.
    """
    waiting = 0
    for half in halves:
        if half.dead:
            continue
        waiting += half.waiting
        if half.negotiated is None or half.epoch.phase in ("clear", "open"):
            continue
        if has_keys(talk, half, keys, order):
            continue
        refused = half.refused()
        if refused is not None:
            return refused
        if skips(talk, half, keys, order) or ended or keys.may_come(order):
            continue
        if _all_waiting(halves) <= MAX_FLIGHT and may_report_more(talk, halves):
            continue
        return _no_keys(talk, keys, order)
    if waiting > MAX_WAITING or sum(len(half.queue) for half in halves) > MAX_WAITING_RECORDS:
        return reason_at_end(talk, halves, keys, order) if talk.agreed is None else _no_keys(talk, keys, order)
    return None


def reason_at_end(talk: Negotiation, halves: tuple[Half, Half], keys: KeyLog, order: int) -> str:
    """Why nothing of a connection was decrypted, judged when no more records follow."""
    return why_incomplete(talk) or (_no_keys(talk, keys, order) if _all_waiting(halves) else INCOMPLETE)


def _no_keys(talk: Negotiation, keys: KeyLog, order: int) -> str:
    return why_without_keys(talk, given=keys.given(order))


def _all_waiting(halves: tuple[Half, Half]) -> int:
    return sum(half.waiting for half in halves)
