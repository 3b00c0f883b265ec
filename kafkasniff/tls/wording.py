"""Sentences about TLS connections that cannot be decrypted, and functions that recognise them in problem details.

Tables hold only details, so detectors derive the cause of a failed handshake from them. Both sides use these constants.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = [
    "CLIENT",
    "CLIENT_LEFT",
    "CLIENT_REFUSED",
    "EXPIRED",
    "LEFT_AT_ONCE",
    "NAMED",
    "NOT_YET_VALID",
    "NO_ANSWER",
    "NO_CLIENT_CERTIFICATE",
    "NO_KEYS",
    "OTHER_KEYS",
    "OTHER_NAME",
    "OTHER_SIDE",
    "RESUMED",
    "SERVER_LEFT",
    "SERVER_REFUSED",
    "alert_in",
    "ended_with_alert",
    "flaws_in",
    "is_about_tls",
    "lacks_keys",
]

NAMED: Final = "this is "
"""Precedes the description of a connection (`descriptions.describe`)."""
CLIENT: Final = "the client"
OTHER_SIDE: Final = "the other side"

NO_KEYS: Final = "there are no keys for it"
OTHER_KEYS: Final = "there are keys, but none for it"
RESUMED: Final = "it resumes a session of TLS 1.2, whose secret some clients log only with the first connection"
NO_ANSWER: Final = "no answer of the other side is in the capture"

CLIENT_REFUSED: Final = (
    "the client answered the server's part of the handshake with a record as short as an alert: it refused the "
    "handshake, probably the server's certificate"
)
CLIENT_LEFT: Final = "the client closed the connection after the server's part of the handshake, without an alert"
NO_CLIENT_CERTIFICATE: Final = "the server asked for a certificate, and the client has none"
SERVER_REFUSED: Final = (
    "the server answered the client's part of the handshake with a record as short as an alert: it refused the client"
)
SERVER_LEFT: Final = "the server closed the connection after the client's part of the handshake, without an alert"
LEFT_AT_ONCE: Final = "the client closed the connection before the server could say anything after the handshake"

EXPIRED: Final = "expired on"
NOT_YET_VALID: Final = "not valid before"
OTHER_NAME: Final = "not for this server name but for"

_HANDSHAKE: Final = "the handshake"
_TLS: Final = "TLS"
_WITH_ALERT: Final = "with the alert"
_ALERT: Final = re.compile(rf"({CLIENT}|{OTHER_SIDE}) ended (?:{_HANDSHAKE}|{_TLS}) {_WITH_ALERT} (\w+)")
_FLAW: Final = re.compile(rf"(?:{EXPIRED}|{NOT_YET_VALID}|{OTHER_NAME}) [^;]+")
_IS_TLS: Final = re.compile(rf"{NAMED}(?:TLS|SSL) ")
_WITHOUT_KEYS: Final = re.compile(rf"; (?:{NO_KEYS}|{OTHER_KEYS})")


def ended_with_alert(alert: str, *, by_client: bool, in_handshake: bool) -> str:
    """Who ended what with this alert (`descriptions.alert_name`)."""
    side, what = CLIENT if by_client else OTHER_SIDE, _HANDSHAKE if in_handshake else _TLS
    return f"{side} ended {what} {_WITH_ALERT} {alert}"


def alert_in(detail: str) -> tuple[str, str] | None:
    """`CLIENT` or `OTHER_SIDE`, and the name of the alert that it sent, from `ended_with_alert`; None: no alert."""
    found = _ALERT.search(detail)
    return None if found is None else (found[1], found[2])


def flaws_in(detail: str) -> list[str]:
    """The problem of the certificate, with the date or the names."""
    return _FLAW.findall(detail)


def is_about_tls(cause: str) -> bool:
    """Whether the cause of a problem begins with the description of a TLS connection."""
    return _IS_TLS.match(cause) is not None


def lacks_keys(detail: str) -> bool:
    """Whether the handshake went as far as possible, and only keys are missing."""
    return _WITHOUT_KEYS.search(detail) is not None
