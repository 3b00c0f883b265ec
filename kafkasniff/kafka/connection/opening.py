"""The opening of a connection: greeting and authentication, until anything else is answered.

A broker that refuses a client closes the connection, mostly without an error: there is no error code for a listener
with another protocol, or for a request before authentication. The messages up to then narrow down the reason. Sources:
SaslServerAuthenticator, SslTransportLayer, SocketServer, KafkaApis.
"""

from __future__ import annotations

from typing import Final, Protocol

from kafkasniff.kafka.apis.dissectors import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE, api
from kafkasniff.kafka.apis.releases import dropped_in
from kafkasniff.model import NO_TIME, Body, Problem

MAX_WAIT_NS: Final = 10_000_000_000
"""If a connection is closed later than this after the last message, that message was not the reason: brokers close
silent connections after minutes, proxies give up on finding a broker within seconds."""
MAX_REFUSAL_NS: Final = 1_000_000_000
"""The same for a request that a broker will not answer. It delays that by 100 ms
(connection.failed.authentication.delay.ms); a longer delay may be a waiting request and a broker that stops."""
MAX_APIS: Final = 256
"""APIs remembered of an answer to ApiVersions; Kafka has 95."""
MAX_NAMED: Final = 8
"""Total length of a broker's mechanisms that are named."""
MAX_NAMES: Final = 200

MAX_SIZE: Final = 1 << 29
"""Larger length prefixes are not shown: they are text, which could be a secret."""
LARGE: Final = 1 << 20
"""Smallest request that a broker may be configured to refuse: socket.request.max.bytes is at least message.max.bytes,
which is 1 MiB by default."""
LARGE_BEFORE_AUTHENTICATION: Final = 512 << 10
"""The default of sasl.server.max.receive.size (BrokerSecurityConfigs)."""

GREETING: Final = API_VERSIONS
"""First requests of clients."""
AUTHENTICATION: Final = frozenset({SASL_HANDSHAKE, SASL_AUTHENTICATE})

UNSUPPORTED_SASL_MECHANISM: Final = 33
ILLEGAL_SASL_STATE: Final = 34
UNSUPPORTED_VERSION: Final = 35
SASL_AUTHENTICATION_FAILED: Final = 58


class AskedRequest(Protocol):
    """A request whose response is outstanding."""

    @property
    def api_key(self) -> int:
        """Its API."""

    @property
    def api_version(self) -> int:
        """Its version."""

    @property
    def time_ns(self) -> int:
        """time_ns of the packet that completed it."""


class Opening:
    """Facts about the messages of a connection so far."""

    __slots__ = ("_authenticated", "_handshake", "_last_ns", "_refused", "_token", "_versions", "heard")

    def __init__(self) -> None:
        self.heard = False
        """The broker has sent something."""
        self._versions: dict[int, tuple[int, int]] = {}
        """Key → lowest and highest version, from the broker's answer."""
        self._refused = False
        """The last answer was that the client's version of ApiVersions is unknown."""
        self._handshake = False
        self._authenticated = False
        self._token: bool | None = None
        """The last messages are raw tokens; True if the last one was the client's."""
        self._last_ns = NO_TIME
        """Time of the last answer or token."""

    def answered(self, request: AskedRequest, body: Body | None, time_ns: int) -> bool:
        """Process a response. False: the opening is over, and this object of no further use."""
        self.heard = True
        self._last_ns, self._token = time_ns, None
        self._refused = False
        if body is None:
            return False
        error = body.get("error_code")
        if request.api_key == GREETING:
            self._refused = error == UNSUPPORTED_VERSION
            entries = body.get("api_keys") or ()
            self._versions = {
                entry["api_key"]: (entry["min_version"], entry["max_version"])
                for entry in entries[:MAX_APIS]
                if {"api_key", "min_version", "max_version"} <= entry.keys()
            }
            return error in (0, UNSUPPORTED_VERSION)
        if request.api_key == SASL_HANDSHAKE:
            self._handshake = True
            return error == 0
        if request.api_key == SASL_AUTHENTICATE:
            self._authenticated = True
            return error == 0
        return False

    def token(self, *, is_request: bool, time_ns: int) -> None:
        """Process a raw token of authentication."""
        self.heard = self.heard or not is_request
        self._token, self._last_ns = is_request, time_ns
        self._handshake = self._authenticated = True

    def why_closed(self, waiting: AskedRequest | None, closed_ns: int) -> str | None:
        """Why the broker closed the connection, as text; None if unknown.

        `waiting`: the first request without a response; `closed_ns`: when the broker closed.
        """
        last = self._last_ns if waiting is None else waiting.time_ns
        if NO_TIME in (last, closed_ns) or not 0 <= closed_ns - last <= MAX_WAIT_NS:
            return None
        if waiting is not None:
            if waiting.api_key != API_VERSIONS and closed_ns - last > MAX_REFUSAL_NS:
                return None
            found = self._why_not_answered(waiting)
            return None if found is None else f"the broker closed the connection {found}"
        if self._token:
            return (
                "the broker closed the connection instead of answering the client's token: probably it did not accept "
                "the credentials"
            )
        if self._token is None and self.heard and not self._handshake and not self._authenticated:
            return (
                "the broker closed the connection after its answer to ApiVersions, before any other request: probably "
                "a limit of connections, a broker that stops, or something in between (a proxy, a firewall)"
            )
        return None

    def why_left(self) -> str | None:
        """Why the client may have disconnected, whichever side closed the connection; None if unknown."""
        if not self._refused:
            return None
        return (
            "the broker does not know the version of ApiVersions that the client sent, and the client did not retry "
            "with one that it knows: probably the client is too new for the broker"
        )

    def _why_not_answered(self, waiting: AskedRequest) -> str | None:
        key, version = waiting.api_key, waiting.api_version
        known = api(key)
        what = f"{known.name if known is not None else f'API {key}'} v{version}"
        if self._versions:
            spoken = self._versions.get(key)
            if spoken is None:
                return f"at {what}: its answer to ApiVersions does not have this API"
            if not spoken[0] <= version <= spoken[1]:
                return f"at {what}: its answer to ApiVersions has only versions {spoken[0]} to {spoken[1]} of it"
        if key == SASL_AUTHENTICATE and not self._handshake:
            return f"at {what}, which needs a SaslHandshake before it: SASL in the wrong order"
        if key == SASL_AUTHENTICATE:
            return f"at {what}: probably it did not accept the credentials"
        if key == SASL_HANDSHAKE:
            return f"at {what}: probably it is older than 0.10, which introduced it"
        if self._handshake or self._authenticated:
            return None
        if key == API_VERSIONS:
            return (
                f"without an answer to {what}: probably the listener expects TLS, there is a limit of connections "
                "(max.connections, max.connections.per.ip) or a proxy without a broker, or the broker is older than "
                "0.10, which introduced ApiVersions; or it is a broker that stops"
            )
        causes = "the listener wants SASL authentication first (security.protocol SASL_PLAINTEXT or SASL_SSL)"
        if not self.heard:
            dropped = dropped_in(key, version)
            if dropped is None:
                causes += ", or TLS, or the broker does not support this version"
            else:
                causes = f"the broker is Kafka {dropped[0]} or newer, which dropped this version; or {causes}, or TLS"
        return f"at {what}, before any authentication: probably {causes}; or it is a broker that stops"


def too_large(size: int, *, opened: bool) -> str | None:
    """Why the broker closed the connection in the middle of a request of `size` bytes; None if that is not the reason.

    `opened`: something other than greeting and authentication was answered before.
    """
    if size < (LARGE if opened else LARGE_BEFORE_AUTHENTICATION):
        return None
    return (
        f"the broker closed the connection while it received a request of {size:,} bytes: probably that is more than "
        "it accepts (socket.request.max.bytes; before authentication sasl.server.max.receive.size)"
    )


def refusal(api_key: int, body: Body | None) -> Problem | None:
    """The problem of a response of AUTHENTICATION that reports a failed authentication; None if it did not fail."""
    error = None if body is None else body.get("error_code")
    if error == UNSUPPORTED_SASL_MECHANISM:
        taken = (body or {}).get("mechanisms") or ()
        names = ", ".join(name for name in taken[:MAX_NAMED] if isinstance(name, str))[:MAX_NAMES]
        detail = f"the listener does not support the client's mechanism; it takes {names or 'none'}"
    elif error == ILLEGAL_SASL_STATE and api_key == SASL_HANDSHAKE:
        detail = "the listener has no SASL (security.protocol PLAINTEXT or SSL), or SASL was completed already"
    elif error == ILLEGAL_SASL_STATE:
        detail = (
            "SASL in the wrong order, or on a listener without it: SaslAuthenticate follows a SaslHandshake, and is "
            "not sent after completion"
        )
    elif error == SASL_AUTHENTICATION_FAILED:
        detail = "the broker did not accept the credentials"
    else:
        return None
    return Problem("sasl-refused", detail)
