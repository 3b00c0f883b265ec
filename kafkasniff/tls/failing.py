"""Why a handshake without keys failed, judged by alerts, sizes and the order of closes.

Up to TLS 1.2 nearly all of a handshake is in clear. In TLS 1.3 everything after the ServerHello is encrypted, but a
record's size is visible: an alert has two bytes (RFC 8446, 6), and an empty Certificate message, from a client that was
asked and has none, has eight (4.4.2). A server that accepted the client's Finished sends tickets or data next, which
are larger.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kafkasniff.tls.half import Half
from kafkasniff.tls.record import APPLICATION_DATA, Record
from kafkasniff.tls.wording import (
    CLIENT_LEFT,
    CLIENT_REFUSED,
    LEFT_AT_ONCE,
    NO_CLIENT_CERTIFICATE,
    SERVER_LEFT,
    SERVER_REFUSED,
)

__all__ = ["is_settled", "why_failed"]

_TAGS: Final = (16, 8)
"""Bytes of the tags of cipher suites of TLS 1.3 (RFC 8446, B.4); CCM_8 has the short one."""
_PADDING: Final = (0, 16)
"""Bytes of padding: Java adds 16 except to application data (SSLEngineOutputRecord), others none."""
_ALERT: Final = frozenset(2 + 1 + tag + padding for tag in _TAGS for padding in _PADDING)
"""Bytes of an encrypted alert, with the byte for its type."""
_FINISHED: Final = (36, 52)
"""Bytes of a Finished message, with a hash of SHA-256 or SHA-384. Java puts it into the Certificate's record."""
_EMPTY_CERTIFICATE: Final = frozenset(8 + 1 + tag + padding for tag in _TAGS for padding in _PADDING) | frozenset(
    8 + finished + 1 + _TAGS[0] + padding for finished in _FINISHED for padding in _PADDING
)


def is_settled(client: Half, server: Half) -> bool:
    """For TLS 1.3: whether the handshake succeeded, judged by sizes. The records of both sides are in their queues."""
    first = next(_encrypted(client.queue), None)
    return first is not None and any(len(one.data) not in _ALERT for one in _behind(server, first))


def why_failed(client: Half, server: Half, *, is_13: bool, by_client: bool, closed_ns: int) -> str | None:
    """Why a handshake ended early; None if it may have completed, or nothing shows the reason.

    `by_client`: the client's FIN or RST came first; `closed_ns`: when the first one came.
    """
    if not (client.whole and server.whole):
        return None
    if not is_13:
        # Its Finished would be in the queue, since there are no keys.
        return CLIENT_LEFT if by_client and client.epoch.phase == "clear" else None
    sent = list(_encrypted(client.queue))
    if not sent:
        return CLIENT_LEFT if by_client and server.queue else None
    if len(sent) == 1 and len(sent[0].data) in _ALERT:
        return CLIENT_REFUSED
    answers = list(_behind(server, sent[0]))
    if any(len(one.data) not in _ALERT for one in answers):
        return None
    if by_client and not any(one.marks[-1].time_ns < closed_ns for one in answers):
        return LEFT_AT_ONCE  # a server's reply to a leaving client is a close_notify
    why = SERVER_REFUSED if answers else SERVER_LEFT
    if len(sent[0].data) in _EMPTY_CERTIFICATE:
        return f"{why}; {NO_CLIENT_CERTIFICATE}"
    return why


def _behind(half: Half, record: Record) -> Iterator[Record]:
    """Encrypted records of a stream that came after one of the other's."""
    return (one for one in _encrypted(half.queue) if one.order > record.order)


def _encrypted(queue: Iterable[object]) -> Iterator[Record]:
    return (one for one in queue if isinstance(one, Record) and one.content_type == APPLICATION_DATA)
