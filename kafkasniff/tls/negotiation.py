"""The handshake of one TLS connection: its messages, the keys that result, what waits for them, and why it failed.

The `Doctor` reports which connections of captures were decrypted, why the others were not, and what to do about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Literal

import msgspec

from kafkasniff.model import Connection, Endpoint, Problem, TlsHandshake
from kafkasniff.tls.descriptions import (
    CLIENT_LEFT,
    CLIENT_REFUSED,
    LEFT_AT_ONCE,
    NAMED,
    NO_ANSWER,
    NO_CLIENT_CERTIFICATE,
    NO_KEYS,
    OTHER_KEYS,
    RESUMED,
    SERVER_LEFT,
    SERVER_REFUSED,
    alert_in,
    describe,
    suite,
    version_name,
)
from kafkasniff.tls.half import Epoch, Half, Loss, Negotiated
from kafkasniff.tls.items import Closed
from kafkasniff.tls.keylog import KeyLog
from kafkasniff.tls.record import (
    APPLICATION_DATA,
    CERTIFICATE,
    CHANGE_CIPHER_SPEC,
    CLIENT_HELLO,
    ENCRYPTED_EXTENSIONS,
    END_OF_EARLY_DATA,
    FINISHED,
    KEY_UPDATE,
    SERVER_HELLO,
    TLS13,
    ClientHello,
    Record,
    ServerHello,
    certificate_of,
    certificate_of_13,
    client_hello,
    encrypted_extensions,
    resumes,
    server_hello,
)

MAX_FOREIGN: Final = 64
"""Maximum number of records under other keys before the first that can be opened: early data that a server rejected, or
a handshake whose secrets are not in the key log.
"""


class Negotiation:
    """Takes the handshake messages of both streams, and switches the streams to the epochs that they announce."""

    __slots__ = (
        "_alpn",
        "_certificate",
        "_halves",
        "_hidden",
        "agreed",
        "client",
        "counts",
        "hello",
        "lacks_certificate",
        "retried",
        "server",
    )

    def __init__(self, halves: tuple[Half, Half]) -> None:
        self._halves = halves
        self.client: int | None = None
        """Direction of the stream with the ClientHello."""
        self.hello: ClientHello | None = None
        self.server: ServerHello | None = None
        self.retried = False
        """The server asked for another ClientHello, as of TLS 1.3 only."""
        self.agreed: Negotiated | None = None
        """The result of the two hellos."""
        self.lacks_certificate = False
        """The client was asked for a certificate and has none, as is visible up to TLS 1.2."""
        self._certificate: bytes | None = None
        self._hidden: dict[int, bytes] = {}
        """By direction, certificates that explain no failure: the client's, and the decrypted ones of TLS 1.3."""
        self._alpn: str | None = None
        self.counts: dict[str, int] = {}
        """What happened beside the handshake: `TlsHandshake.counts`. A resumed export does not have it."""

    def _count(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1

    def is_client(self, half: Half) -> bool:
        """Whether this is the client's stream."""
        return half.direction == self.client

    @property
    def is_13(self) -> bool:
        """TLS 1.3 was agreed on."""
        return self.agreed is not None and self.agreed.version == TLS13

    @property
    def resumed(self) -> bool:
        """It resumes a session of TLS 1.2: the server showed no certificate (RFC 5246, 7.3)."""
        return self.agreed is not None and not self.is_13 and self._certificate is None

    def describe(self, time_ns: int) -> str:
        """A description of what is visible of the connection at a time."""
        return describe(self.hello, self.server, self._certificate, self._alpn, time_ns)

    @property
    def handshake(self) -> TlsHandshake:
        """The visible part of the handshake."""
        hello, server = self.hello, self.server
        return TlsHandshake(
            version=None if server is None else server.version,
            suite=None if server is None else server.suite,
            offered=None if hello is None else hello.version,
            server_name=None if hello is None else hello.server_name,
            alpn=self._alpn,
            certificate=self._certificate or (self._hidden.get(1 - self.client) if self.client is not None else None),
            client_certificate=self._hidden.get(self.client) if self.client is not None else None,
            resumed=self.resumed,
            lacks_certificate=self.lacks_certificate,
            counts={**self.counts, **({"resumed": 1} if self.resumed else {})},
        )

    def message(self, half: Half, kind: int, body: bytes, *, clear: bool) -> str | None:
        """Take a message; `clear`: it was not protected. Returns what is wrong with a hello."""
        if kind == CLIENT_HELLO and self.client in (None, half.direction):
            self.client = half.direction
            self.hello = client_hello(body)
            if self.hello is None:
                return "its ClientHello is invalid"
            if not clear:
                self.server = self.agreed = None
                self._count("renegotiations")
            self._agree()
        elif kind == SERVER_HELLO and self.client in (None, 1 - half.direction):
            self.client = 1 - half.direction
            server = server_hello(body)
            if server is None:
                return "its ServerHello is invalid"
            if server.retry:
                self.retried = True
            else:
                self.server = server
                self._alpn = server.alpn
                self._agree()
                if self.is_13 and resumes(body):
                    self._count("resumed")
        elif kind == CERTIFICATE and clear and not self.is_client(half):
            self._certificate = certificate_of(body)
        elif kind == CERTIFICATE and clear:
            self._keep(half, found := certificate_of(body))
            self.lacks_certificate = found is None
        elif not clear and half.epoch.phase not in ("clear", "tls12"):
            self._message13(half, kind, body)
        return None

    def change_cipher(self, half: Half) -> None:
        """ChangeCipherSpec, which has no meaning in TLS 1.3 (RFC 8446, D.4)."""
        if self.agreed is not None and not self.is_13:
            half.enter(Epoch("tls12"), self.agreed)

    def _agree(self) -> None:
        """Both hellos have been seen."""
        hello, server = self.hello, self.server
        if hello is None or server is None or self.agreed is not None:
            return
        agreed = self.agreed = Negotiated(
            hello.random,
            server.random,
            server.version,
            server.suite,
            server.compression,
            server.encrypt_then_mac,
            server.session_id,
        )
        for half in self._halves:
            if half.epoch.phase != "clear":
                continue
            half.negotiated = agreed
            if self.is_13:
                early = hello.early_data and self.is_client(half)
                half.enter(Epoch("open" if early else "handshake"), agreed)

    def _keep(self, half: Half, certificate: bytes | None) -> None:
        if certificate is not None:
            self._hidden[half.direction] = certificate

    def _message13(self, half: Half, kind: int, body: bytes) -> None:
        phase = half.epoch.phase
        if kind == CERTIFICATE:
            self._keep(half, certificate_of_13(body))
        if kind == ENCRYPTED_EXTENSIONS and not self.is_client(half):
            self._alpn, early = encrypted_extensions(body)
            client = self._halves[1 - half.direction]
            if client.epoch.phase == "open":
                self._count("early_data_accepted" if early else "early_data_refused")
                client.skippable = 0 if early else MAX_FOREIGN
                client.enter(Epoch("early" if early else "handshake"))
        elif kind == END_OF_EARLY_DATA and phase == "early":
            half.enter(Epoch("handshake"))
        elif kind == FINISHED and phase == "handshake":
            half.enter(Epoch("application"))
        elif kind == KEY_UPDATE and phase == "application":
            self._count("key_updates")
            half.enter(Epoch("application", half.epoch.generation + 1))


# Which queued record of a connection is processed next, and whether its keys are there.


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


# Why a handshake without keys failed, judged by alerts, sizes and the order of closes.
#
# Up to TLS 1.2 nearly all of a handshake is in clear. In TLS 1.3 everything after the ServerHello is encrypted, but a
# record's size is visible: an alert has two bytes (RFC 8446, 6), and an empty Certificate message, from a client that
# was asked and has none, has eight (4.4.2). A server that accepted the client's Finished sends tickets or data next,
# which are larger.

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
    return first is not None and any(len(record.data) not in _ALERT for record in _following(server, first))


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
    if any(len(record.data) not in _ALERT for record in answers):
        return None
    if by_client and not any(record.marks[-1].time_ns < closed_ns for record in answers):
        return LEFT_AT_ONCE  # a server's reply to a leaving client is a close_notify
    why = SERVER_REFUSED if answers else SERVER_LEFT
    if len(sent[0].data) in _EMPTY_CERTIFICATE:
        return f"{why}; {NO_CLIENT_CERTIFICATE}"
    return why


def _following(half: Half, record: Record) -> Iterator[Record]:
    """Encrypted records of a stream that came after one of the other's."""
    return (one for one in _encrypted(half.queue) if one.order > record.order)


def _encrypted(queue: Iterable[object]) -> Iterator[Record]:
    return (record for record in queue if isinstance(record, Record) and record.content_type == APPLICATION_DATA)


# How long the records of a connection wait for a hello or for keys, and the reason for giving up.
#
# Key logs grow while a live capture runs, and the other side's hello or alert may still come. Waiting is useless once
# neither can happen, and it ends when too much waits.

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
