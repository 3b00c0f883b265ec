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
from kafkasniff.tls.items import Closed
from kafkasniff.tls.negotiation import Negotiation
from kafkasniff.tls.record import APPLICATION_DATA, Record
from kafkasniff.tls.wording import (
    CLIENT_LEFT,
    CLIENT_REFUSED,
    LEFT_AT_ONCE,
    NO_ANSWER,
    NO_CLIENT_CERTIFICATE,
    NO_KEYS,
    OTHER_KEYS,
    RESUMED,
    SERVER_LEFT,
    SERVER_REFUSED,
)

__all__ = [
    "INCOMPLETE",
    "NO_HELLO",
    "is_settled",
    "may_report_more",
    "why_failed",
    "why_incomplete",
    "why_without_keys",
]

INCOMPLETE: Final = "it ended before its handshake was complete"
NO_HELLO: Final = "its ClientHello was not captured"

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
    return first is not None and any(len(one.data) not in _ALERT for one in _following(server, first))


def may_report_more(talk: Negotiation, halves: tuple[Half, Half]) -> bool:
    """Whether the next records may show why a connection ends: a stream has sent nothing under its keys yet.

    A client that does not trust a certificate may send a cleartext alert after the ServerHello, even in TLS 1.3; a
    server of TLS 1.2 that requires another client certificate does so after the client's ChangeCipherSpec. In TLS
    1.3 the handshake succeeded once the server has continued after the client's part of it.
    """
    if any(half.epoch.phase != "tls12" and not (half.queue or half.cutter.lost or half.dead) for half in halves):
        return True
    if talk.client is None or not talk.is_13 or not all(half.whole for half in halves):
        return False
    return not is_settled(halves[talk.client], halves[1 - talk.client])


def why_without_keys(talk: Negotiation, *, given: bool) -> str:
    """Why a connection cannot be decrypted that has the hellos it needs; `given`: there are keys, but not for it."""
    if not given:
        return f"{NO_KEYS} (--keylog FILE)"
    if talk.resumed:
        return f"{OTHER_KEYS}: {RESUMED}"
    return OTHER_KEYS


def why_incomplete(talk: Negotiation) -> str | None:
    """Which hello a connection lacks at its end; None: it has both."""
    if talk.hello is None:
        return NO_HELLO
    return None if talk.server is not None else f"{NO_ANSWER}: a listener without TLS just closes the connection"


def why_failed(talk: Negotiation, halves: tuple[Half, Half], close: Closed) -> str | None:
    """Why a handshake ended early, for a connection that was closed on the wire.

    None if it may have completed, or nothing shows the reason.
    """
    if close.reason not in {"fin", "rst"} or talk.client is None or talk.agreed is None:
        return None
    client, server = halves[talk.client], halves[1 - talk.client]
    is_13, by_client, closed_ns = talk.is_13, close.by == talk.client, close.by_ns
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
    answers = list(_following(server, sent[0]))
    if any(len(one.data) not in _ALERT for one in answers):
        return None
    if by_client and not any(one.marks[-1].time_ns < closed_ns for one in answers):
        return LEFT_AT_ONCE  # a server's reply to a leaving client is a close_notify
    why = SERVER_REFUSED if answers else SERVER_LEFT
    if len(sent[0].data) in _EMPTY_CERTIFICATE:
        return f"{why}; {NO_CLIENT_CERTIFICATE}"
    return why


def _following(half: Half, record: Record) -> Iterator[Record]:
    """Encrypted records of a stream that came after one of the other's."""
    return (one for one in _encrypted(half.queue) if one.order > record.order)


def _encrypted(queue: Iterable[object]) -> Iterator[Record]:
    return (one for one in queue if isinstance(one, Record) and one.content_type == APPLICATION_DATA)
