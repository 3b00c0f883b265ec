"""The opening of a connection: greeting and authentication, for as long as nothing else was answered.

A broker that will have nothing to do with a client closes the connection, mostly without a word: there is no error code
for a listener that speaks another protocol, or for a request that comes before authentication. What was said until then
narrows down what the reason may be. Sources: SaslServerAuthenticator, SslTransportLayer, SocketServer, KafkaApis.
"""

from __future__ import annotations

from typing import Final

from kafkasniff.kafka.dissectors import api
from kafkasniff.kafka.exchange import Pending
from kafkasniff.kafka.named_apis import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from kafkasniff.kafka.releases import dropped_in
from kafkasniff.model import Body, Problem
from kafkasniff.streams import NO_TIME

__all__ = ["AUTHENTICATION", "GREETING", "MAX_SIZE", "MAX_WAIT_NS", "Opening", "refusal", "too_large"]

MAX_WAIT_NS: Final = 10_000_000_000
"""A connection that is closed later than this after what was said last was not closed because of it: brokers close what
is silent after minutes, proxies give up within seconds to find one."""
MAX_REFUSAL_NS: Final = 1_000_000_000
"""The same for a request that a broker will not answer. It waits 100 ms with that
(connection.failed.authentication.delay.ms); what takes longer may be a request that waits, and a broker that stops."""
MAX_APIS: Final = 256
"""APIs that are remembered of an answer to ApiVersions; Kafka has 95."""
MAX_NAMED: Final = 8
"""Mechanisms of a broker that are named, of at most so many characters in all."""
MAX_NAMES: Final = 200

MAX_SIZE: Final = 1 << 29
"""What stands in the place of a frame's length is not told from here on: text, which could be a secret, is more."""
LARGE: Final = 1 << 20
"""Bytes of a request that a broker may be set to find too large: socket.request.max.bytes is no less than
message.max.bytes, which is 1 MiB by default."""
LARGE_BEFORE_AUTHENTICATION: Final = 512 << 10
"""The default of sasl.server.max.receive.size (BrokerSecurityConfigs)."""

GREETING: Final = API_VERSIONS
"""What clients say first."""
AUTHENTICATION: Final = frozenset({SASL_HANDSHAKE, SASL_AUTHENTICATE})

UNSUPPORTED_SASL_MECHANISM: Final = 33
ILLEGAL_SASL_STATE: Final = 34
UNSUPPORTED_VERSION: Final = 35
SASL_AUTHENTICATION_FAILED: Final = 58


class Opening:
    """What was said on a connection so far."""

    __slots__ = ("_authenticated", "_handshake", "_last_ns", "_refused", "_token", "_versions", "heard")

    def __init__(self) -> None:
        self.heard = False
        """The broker has said something."""
        self._versions: dict[int, tuple[int, int]] = {}
        """Key → lowest and highest version that the broker takes, as it said."""
        self._refused = False
        """The last answer was that the client's version of ApiVersions is not known."""
        self._handshake = False
        self._authenticated = False
        self._token: bool | None = None
        """What came last are raw tokens; True where it was the client's."""
        self._last_ns = NO_TIME
        """Of the last answer or token."""

    def answered(self, request: Pending, body: Body | None, time_ns: int) -> bool:
        """Take a response. False: the connection is open by now, and this of no use any more."""
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
        """Take a raw token of authentication."""
        self.heard = self.heard or not is_request
        self._token, self._last_ns = is_request, time_ns
        self._handshake = self._authenticated = True

    def why_closed(self, waiting: Pending | None, closed_ns: int) -> str | None:
        """Why the broker closed the connection, in words; None where nothing tells.

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
                "the broker closed the connection where its answer to the client's token should be: probably it did "
                "not accept the credentials"
            )
        if self._token is None and self.heard and not self._handshake and not self._authenticated:
            return (
                "the broker closed the connection behind its answer to ApiVersions, before anything was asked: "
                "probably a limit of connections, a broker that stops, or something in between (a proxy, a firewall)"
            )
        return None

    def why_left(self) -> str | None:
        """Why the client may have left, whoever closed the connection; None where nothing tells."""
        if not self._refused:
            return None
        return (
            "the broker does not know the version of ApiVersions that the client sent, and the client did not go on "
            "with one that it knows: probably the client is newer than it can cope with"
        )

    def _why_not_answered(self, waiting: Pending) -> str | None:
        key, version = waiting.api_key, waiting.api_version
        known = api(key)
        what = f"{known.name if known is not None else f'API {key}'} v{version}"
        if self._versions:
            spoken = self._versions.get(key)
            if spoken is None:
                return f"at {what}: its answer to ApiVersions does not have this API"
            if not spoken[0] <= version <= spoken[1]:
                return f"at {what}: its answer to ApiVersions has versions {spoken[0]} to {spoken[1]} of it only"
        if key == SASL_AUTHENTICATE and not self._handshake:
            return f"at {what}, before which there has to be a SaslHandshake: SASL in the wrong order"
        if key == SASL_AUTHENTICATE:
            return f"at {what}: probably it did not accept the credentials"
        if key == SASL_HANDSHAKE:
            return f"at {what}: probably it is older than 0.10, where there was none"
        if self._handshake or self._authenticated:
            return None
        if key == API_VERSIONS:
            return (
                f"without an answer to {what}: probably the listener expects TLS, there is a limit of connections "
                "(max.connections, max.connections.per.ip) or a proxy without a broker behind it, or the broker is "
                "older than 0.10, where there was no ApiVersions; or it is a broker that stops"
            )
        causes = "the listener wants SASL authentication first (security.protocol SASL_PLAINTEXT or SASL_SSL)"
        if not self.heard:
            dropped = dropped_in(key, version)
            if dropped is None:
                causes += ", or TLS, or the broker does not take this version"
            else:
                causes = (
                    f"the broker is Kafka {dropped[0]} or newer, which does not take this version; or {causes}, or TLS"
                )
        return f"at {what}, before any authentication: probably {causes}; or it is a broker that stops"


def too_large(size: int, *, opened: bool) -> str | None:
    """Why the broker closed the connection in the midst of a request of `size` bytes; None where it need not be that.

    `opened`: something else than greeting and authentication was answered before.
    """
    if size < (LARGE if opened else LARGE_BEFORE_AUTHENTICATION):
        return None
    return (
        f"the broker closed the connection while a request of {size:,} bytes came in: probably that is more than it "
        "takes (socket.request.max.bytes; before authentication sasl.server.max.receive.size)"
    )


def refusal(api_key: int, body: Body | None) -> Problem | None:
    """What a response of AUTHENTICATION says about an authentication that failed, in words; None where it did not."""
    error = None if body is None else body.get("error_code")
    if error == UNSUPPORTED_SASL_MECHANISM:
        taken = (body or {}).get("mechanisms") or ()
        names = ", ".join(name for name in taken[:MAX_NAMED] if isinstance(name, str))[:MAX_NAMES]
        detail = f"the listener does not take the mechanism that the client asks for; it takes {names or 'none'}"
    elif error == ILLEGAL_SASL_STATE and api_key == SASL_HANDSHAKE:
        detail = "the listener has no SASL (security.protocol PLAINTEXT or SSL), or SASL was through already"
    elif error == ILLEGAL_SASL_STATE:
        detail = (
            "SASL in the wrong order, or on a listener without it: SaslAuthenticate comes behind a SaslHandshake, and "
            "not when it is through"
        )
    elif error == SASL_AUTHENTICATION_FAILED:
        detail = "the broker did not accept the credentials"
    else:
        return None
    return Problem("sasl-refused", detail)
