"""Rows of the table `connections`, and the authentication of connections, as their messages show it."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any, Final, Literal

import pyarrow as pa

from kafkasniff.kafka.apis.dissectors import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from kafkasniff.kafka.apis.entities import text
from kafkasniff.kafka.schema.codes import error_name
from kafkasniff.model import Connection, Exchange, SaslToken, TlsHandshake
from kafkasniff.tables.rows.exchanges import capture_name, microseconds
from kafkasniff.tables.rows.problems import WaitingRows
from kafkasniff.tables.rows.staged import STAGED
from kafkasniff.tls.descriptions import suite, version_name

# -- authentication ----------------------------------------------------------------------------------------------------
#
# SASL is KIP-43 (SaslHandshake), KIP-152 (SaslAuthenticate) and RFC 4616, 5802, 7628. A broker serves no other request
# before authentication has succeeded, so an answered one proves it, whatever was lost.

MAX_OPEN: Final = 1 << 18
"""Maximum number of open connections whose authentication is kept; the oldest is forgotten first."""

Outcome = Literal["none", "begun", "succeeded", "failed"]
"""none: no SASL was seen; begun: its end was not seen."""

_ONE_ROUND: Final = frozenset({"PLAIN", "OAUTHBEARER", "AWS_MSK_IAM"})
"""Mechanisms in which an answer without an error is the end."""


class Login:
    """The SASL authentication of one connection; after re-authentication (KIP-368) the last one."""

    __slots__ = (
        "credentials",
        "exchange",
        "mechanism",
        "outcome",
        "principal",
        "reason",
        "served",
        "token",
    )

    def __init__(self) -> None:
        self.mechanism: str | None = None
        self.principal: str | None = None
        """The user, by name alone."""
        self.token = False
        """The user name is the id of a delegation token (KIP-48)."""
        self.outcome: Outcome = "none"
        self.reason: str | None = None
        """Why it failed: the error, and the broker's words."""
        self.exchange: int | None = None
        """Ordinal of the exchange that decided, or of the last one of it."""
        self.credentials = False
        """Credentials of the mechanism were sent."""
        self.served = False
        """The broker has answered other requests than those that anyone may send."""

    def feed(self, exchange: Exchange) -> None:
        """Take an exchange of the connection."""
        request, response = exchange.request, exchange.response
        seen = request or response
        key = None if seen is None else seen.api_key
        if key in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
            asked = {} if request is None or request.body is None else request.body
            answered = None if response is None else response.body
            follow = self._handshake if key == SASL_HANDSHAKE else self._authenticate
            follow(exchange.exchange_id, asked, answered)
        elif key != API_VERSIONS and request is not None and response is not None:
            self.serve()

    def serve(self) -> None:
        """The broker answered a request that it serves only after authentication."""
        self.served = True
        if self.outcome == "begun":
            self.outcome = "succeeded"

    def feed_token(self, token: SaslToken) -> None:
        """Take a raw token (SaslHandshake v0, or GSSAPI as of 0.9)."""
        if self.outcome in ("none", "failed"):
            self.outcome = "begun"
        self.mechanism = token.mechanism or self.mechanism
        if token.direction == "request":
            self.credentials = True
        self._identify(token.meaning)

    def _handshake(self, number: int, asked: dict[str, Any], answered: dict[str, Any] | None) -> None:
        mechanism = asked.get("mechanism")
        if isinstance(mechanism, str):
            # A new attempt, perhaps of a client that tries one mechanism after the other.
            self.mechanism, self.outcome, self.reason = mechanism, "begun", None
        if answered is None:
            return
        self.exchange = number
        if answered.get("error_code"):
            self._fail(answered["error_code"], None)

    def _authenticate(self, number: int, asked: dict[str, Any], answered: dict[str, Any] | None) -> None:
        if self.outcome in ("none", "failed"):
            self.outcome, self.reason = "begun", None
        self.exchange = number
        sent = asked.get("_auth_bytes")
        if asked:
            self.credentials = True
        self._identify(sent)
        if answered is None:
            return
        received = answered.get("_auth_bytes") or {}
        if answered.get("error_code"):
            self._fail(answered["error_code"], answered.get("error_message"))
        elif received.get("error"):
            self.outcome, self.reason = "failed", str(received["error"])
        elif received.get("message") == "server-final" or (self.mechanism in _ONE_ROUND and sent):
            self.outcome = "succeeded"

    def _identify(self, meaning: dict[str, Any] | None) -> None:
        """Take what a message of the mechanism says of the user."""
        if meaning is None:
            return
        self.mechanism = self.mechanism or meaning.get("mechanism")
        name = meaning.get("authzid") or meaning.get("username")
        if isinstance(name, str):
            self.principal = name
            self.token = bool(meaning.get("token_auth"))

    def _fail(self, code: int, words: object) -> None:
        name = error_name(code) or f"error {code}"
        self.outcome = "failed"
        self.reason = f"{name}: {words}" if isinstance(words, str) and words else name


class Logins:
    """The authentication of open connections, by their number. Feed it events in their order."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[int, Login] = {}

    def feed(self, event: Exchange | SaslToken) -> None:
        """Take an exchange or a raw token."""
        if type(event) is Exchange:
            self.of(event.connection).feed(event)
        elif type(event) is SaslToken and event.connection is not None:
            self.of(event.connection).feed_token(event)

    def of(self, connection: int) -> Login:
        """The authentication of an open connection."""
        login = self._found.get(connection)
        if login is None:
            if len(self._found) >= MAX_OPEN:
                del self._found[next(iter(self._found))]
            login = self._found[connection] = Login()
        return login

    def pop(self, connection: int) -> Login:
        """The authentication of a connection that is over."""
        return self._found.pop(connection, None) or Login()

    def absorb(self, others: Iterable[Logins], wanted: Container[int]) -> None:
        """Take over the authentication that others know, of these connections only."""
        every = (self, *others)
        self._found = {number: login for logins in every for number, login in logins._found.items() if number in wanted}


# -- rows --------------------------------------------------------------------------------------------------------------

_NO_LOGIN: Final = Login()
_TURNS: Final = (
    *("tls_handshake_us", "tls_answers", "tls_answer_p50_us", "tls_answer_p99_us", "tls_answer_max_us"),
    "tls_unanswered_us",
)


def connection_row(connection: Connection, login: Login = _NO_LOGIN) -> dict[str, Any]:
    """One row of `connections`, values by column in the order of `CONNECTIONS`; `broker_id` is not known yet."""
    tls = connection.tls
    known = None if tls is None or tls.suite is None else suite(tls.suite)
    client, broker = connection.client_stream, connection.broker_stream
    return {
        "capture": capture_name(connection.capture),
        "connection_id": connection.connection_id,
        "time": microseconds(connection.time_ns),
        "time_ns": connection.time_ns,
        "end_time": microseconds(connection.end_time_ns),
        "end_time_ns": connection.end_time_ns,
        "client_ip": connection.client.address,
        "client_port": connection.client.port,
        "broker_ip": connection.broker.address,
        "broker_port": connection.broker.port,
        "broker_id": None,
        "software_name": connection.software_name,
        "software_version": connection.software_version,
        "client_ids": [text(one) for one in connection.client_ids],
        "verdict": connection.verdict,
        "ended": connection.ended,
        "syn_seen": connection.syn_seen,
        "packets": connection.packets,
        "requests": connection.requests,
        "responses": connection.responses,
        "unanswered": connection.unanswered,
        "sasl_mechanism": connection.sasl_mechanism or login.mechanism,
        "client_bytes": connection.client_bytes,
        "broker_bytes": connection.broker_bytes,
        "bytes_decoded": connection.bytes_decoded,
        "bytes_skipped": connection.client_bytes + connection.broker_bytes - connection.bytes_decoded,
        "bytes_lost": connection.bytes_lost,
        "retransmits": connection.retransmits,
        "problems": connection.problems,
        "bytes_pending": client.pending + broker.pending,
        "bytes_repeated": client.repeated + broker.repeated,
        "bytes_ignored": client.ignored + broker.ignored,
        "protocol": connection.protocol,
        "captured": connection.captured,
        "authentication": authentication(connection, login),
        "authentication_error": login.reason if login.outcome == "failed" else None,
        "authentication_exchange": login.exchange,
        "principal": login.principal,
        "by_token": login.token,
        "credentials": login.credentials,
        "tls": tls is not None,
        "tls_version": None if tls is None or tls.version is None else version_name(tls.version),
        "tls_cipher": known.name if known else None if tls is None or tls.suite is None else f"0x{tls.suite:04x}",
        "tls_server_name": None if tls is None else tls.server_name,
        "tls_resumed": tls is not None and tls.resumed,
        "tls_certificate": None if tls is None else tls.certificate,
        "tls_client_certificate": None if tls is None else tls.client_certificate,
        "tls_lacks_client_certificate": tls is not None and tls.lacks_certificate,
        **_turns(tls),
    }


def _turns(tls: TlsHandshake | None) -> dict[str, int | None]:
    if tls is None:
        return dict.fromkeys(_TURNS)
    turns = tls.turns
    times = (turns.p50_ns, turns.p99_ns, turns.longest_ns, turns.unanswered_ns)
    handshake, *rest = (microseconds(one) for one in (tls.handshake_ns, *times))
    return dict(zip(_TURNS, (handshake, turns.answers, *rest), strict=True))


def authentication(connection: Connection, login: Login) -> str:
    """The value of that column."""
    if login.outcome != "none":
        return login.outcome
    if connection.tls is not None and connection.protocol != "Kafka over TLS":
        return "hidden"
    if not connection.syn_seen:
        # SASL may have been before the capture.
        return "unknown"
    return "none" if login.served else "unserved"


class ConnectionRows:
    """Rows of `connections` that wait to become a record batch."""

    def __init__(self) -> None:
        self._rows = WaitingRows(STAGED["connections"])

    def __len__(self) -> int:
        return len(self._rows)

    def append(self, connection: Connection, login: Login = _NO_LOGIN) -> None:
        """Add the row of a connection that has ended."""
        self._rows.append(connection_row(connection, login))

    def take(self) -> pa.RecordBatch:
        """Return the waiting rows as one record batch and forget them."""
        return self._rows.take()
