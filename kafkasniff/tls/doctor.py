"""Which TLS connections of captures were decrypted, why the others were not, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Literal

import msgspec

from kafkasniff.model import Connection, Endpoint, Problem
from kafkasniff.tls.descriptions import (
    CLIENT_LEFT,
    CLIENT_REFUSED,
    LEFT_AT_ONCE,
    NAMED,
    NO_ANSWER,
    NO_KEYS,
    OTHER_KEYS,
    RESUMED,
    SERVER_LEFT,
    SERVER_REFUSED,
    alert_in,
    suite,
    version_name,
)
from kafkasniff.tls.negotiation import INCOMPLETE, NO_HELLO

State = Literal["decrypted", "damaged", "encrypted", "failed", "other"]
"""damaged: decryption ended early; encrypted: only secrets are missing; failed: the handshake was not completed, or too
little of it was captured; other: another protocol than Kafka."""
MAX_CASES: Final = 1000
"""Cases that are listed; the connections of further ones are counted."""
MAX_CONNECTIONS: Final = 5
"""Numbers of connections that are named for each case."""

_HANDSHAKE: Final = "See why the handshake failed with `kafkasniff check`."
_PREFIX: Final = (
    "Decryption needs the secrets of the very connections that were captured: begin to log before the client connects. "
)
_CAUSES: Final[tuple[tuple[str, State, str], ...]] = (
    (RESUMED, "encrypted", "Begin the key log before the first connection, use TLS 1.3, or switch off session caches."),
    (OTHER_KEYS, "encrypted", f"{_PREFIX}The key log may be of another program, another host, or another time."),
    (NO_KEYS, "encrypted", "Give a key log with --keylog; `kafkasniff help tls` says how programs write one."),
    (NO_HELLO, "encrypted", "Capture from before the client connects: its hello says which secrets it uses."),
    (NO_ANSWER, "failed", "Capture both directions, or see whether that listener has TLS (`kafkasniff check`)."),
    (INCOMPLETE, "failed", _HANDSHAKE),
    *(
        (part, "failed", _HANDSHAKE)
        for part in (CLIENT_LEFT, CLIENT_REFUSED, SERVER_LEFT, SERVER_REFUSED, LEFT_AT_ONCE)
    ),
)
"""Parts of the reasons why a connection is not decrypted, the more special first."""
_UNSUPPORTED: Final = "Let the client offer TLS 1.3, or TLS 1.2 with another cipher suite."
_DAMAGED: Final = "Packets are missing in the capture: capture with a larger buffer, or nearer to the host."
_OTHER: Final = "It announces another application protocol than Kafka, which has none."


class Case(msgspec.Struct):
    """Connections of one listener in the same state, for the same reason."""

    broker: Endpoint
    state: State
    version: str | None
    cipher: str | None
    server_name: str | None
    reason: str | None
    """Why they are not decrypted; None if they are."""
    advice: str | None
    count: int = 0
    connections: list[int] = msgspec.field(default_factory=list)
    """Numbers of the first ones, as in `decode`."""
    counts: dict[str, int] = {}
    """How often sessions were resumed, and other events of `TlsHandshake.counts`."""


class Doctor:
    """Takes the connections and problems of an `Inspector`."""

    def __init__(self) -> None:
        self._cases: dict[tuple[object, ...], Case] = {}
        self._damaged: dict[int | None, str] = {}
        self.further = 0
        """Connections of cases that are not listed."""
        self.plain = 0
        """Kafka connections without TLS."""

    def feed(self, events: Iterable[object]) -> None:
        """Take events; others than connections and problems are skipped."""
        for event in events:
            if isinstance(event, Problem) and event.kind == "tls-lost":
                self._damaged[event.connection] = event.detail
            elif isinstance(event, Connection):
                self._take(event)

    def _take(self, one: Connection) -> None:
        damage = self._damaged.pop(one.connection, None)
        if one.tls is None and not (one.protocol or "").startswith("TLS"):
            self.plain += one.verdict == "kafka"
            return
        state, reason, advice = _judged(one, damage)
        tls = one.tls
        version = None if tls is None or tls.version is None else version_name(tls.version)
        known = None if tls is None or tls.suite is None else suite(tls.suite)
        cipher = None if tls is None or tls.suite is None else known.name if known else f"0x{tls.suite:04x}"
        name = None if tls is None else tls.server_name
        key = (one.broker, state, version, cipher, name, reason)
        case = self._cases.get(key)
        if case is None:
            if len(self._cases) >= MAX_CASES:
                self.further += 1
                return
            case = self._cases[key] = Case(one.broker, state, version, cipher, name, reason, advice)
        case.count += 1
        for event, times in ({} if tls is None else tls.counts).items():
            case.counts[event] = case.counts.get(event, 0) + times
        if len(case.connections) < MAX_CONNECTIONS:
            case.connections.append(one.connection)

    def cases(self) -> Iterator[Case]:
        """All cases by listener, those with most connections first."""
        yield from sorted(
            self._cases.values(),
            key=lambda case: (case.broker.address, case.broker.port, -case.count, case.reason or ""),
        )


def _judged(one: Connection, damage: str | None) -> tuple[State, str | None, str | None]:
    if one.verdict == "kafka":
        return ("decrypted", None, None) if damage is None else ("damaged", damage, _DAMAGED)
    if one.protocol == "TLS with ALPN":
        return "other", one.protocol, _OTHER
    text = one.verdict_detail.removeprefix(NAMED)
    for part, state, advice in _CAUSES:
        if part in text:
            return state, text[text.index(part) :], advice
    # After the description of the connection and its certificate.
    reason = text.rpartition("; ")[2] or "it is not Kafka's"
    return ("encrypted", reason, _UNSUPPORTED) if alert_in(reason) is None else ("failed", reason, _HANDSHAKE)
