"""Which queued record of a connection is processed next, and whether its keys are there."""

from __future__ import annotations

from kafkasniff.tls.half import Half, Loss
from kafkasniff.tls.keylog import KeyLog
from kafkasniff.tls.negotiation import MAX_FOREIGN, Negotiation
from kafkasniff.tls.protection import Epoch
from kafkasniff.tls.record import APPLICATION_DATA, CHANGE_CIPHER_SPEC, Record

__all__ = ["has_keys", "is_clear", "next_ready", "skips"]


def next_ready(talk: Negotiation, halves: tuple[Half, Half], keys: KeyLog, order: int) -> Half | None:
    """The stream whose first record was complete earliest, of those whose first record can be processed."""
    ready = None
    for half in halves:
        first = half.queue[0] if half.queue else None
        if first is None or (ready is not None and ready.queue[0].order <= first.order):
            continue
        if _is_ready(talk, half, first, keys, order):
            ready = half
    return ready


def _is_ready(talk: Negotiation, half: Half, entry: Record | Loss, keys: KeyLog, order: int) -> bool:
    if isinstance(entry, Loss):
        return True
    kind = entry.content_type
    if half.epoch.phase == "clear":
        if kind == CHANGE_CIPHER_SPEC:
            return talk.retried or talk.agreed is not None
        # In TLS 1.2 nothing else may be in clear; in TLS 1.3 this waits for the ServerHello.
        return kind != APPLICATION_DATA or (talk.agreed is not None and not talk.is_13)
    return is_clear(half, entry) or has_keys(talk, half, keys, order)


def is_clear(half: Half, record: Record) -> bool:
    """Whether a record is unprotected, like its stream."""
    phase = half.epoch.phase
    return phase == "clear" or (phase != "tls12" and record.content_type != APPLICATION_DATA)


def has_keys(talk: Negotiation, half: Half, keys: KeyLog, order: int) -> bool:
    """Whether there are keys for the present records of a stream."""
    return half.opener(keys, order, client=talk.is_client(half)) is not None


def skips(talk: Negotiation, half: Half, keys: KeyLog, order: int) -> bool:
    """Whether records without known keys can be skipped, since the following ones can be opened.

    If so, the stream enters the epoch of its data. An endpoint logs the secrets of the handshake before those of the
    data, or not at all.
    """
    if not (half.cutter.lost or half.epoch.phase == "handshake"):
        return False
    if not half.can_search(keys, order, client=talk.is_client(half)):
        return False
    if not half.cutter.lost:
        half.enter(Epoch("application"))
        half.skippable = MAX_FOREIGN
    return True
