"""What bytes of unknown kind are: how likely a request, whether a response, or another protocol; why a client fails.

The PROXY protocol header that a load balancer may send before a connection's bytes follows HAProxy's specification,
versions 1 (a line of text) and 2 (binary).

A broker that refuses a client closes the connection, mostly without an error: there is no error code for a listener
with another protocol, or for a request before authentication. The messages of a connection's `Opening` (greeting and
authentication, until anything else is answered) narrow down the reason. Sources: SaslServerAuthenticator,
SslTransportLayer, SocketServer, KafkaApis.
"""

from __future__ import annotations

import ipaddress
from functools import cache
from struct import Struct, unpack_from
from typing import Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from kafkasniff.kafka.apis.dissectors import API_VERSIONS, PRODUCE, SASL_AUTHENTICATE, SASL_HANDSHAKE, api, api_keys
from kafkasniff.kafka.apis.releases import dropped_in
from kafkasniff.kafka.messages.message import (
    UNSUPPORTED_VERSION,
    Decoded,
    decode_request,
    decode_response,
    request_header,
)
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.model import NO_TIME, Body, Problem

NAMED: Final = "this is "
"""Prefix of a reason that names the stream's protocol."""
_SIZE = Struct(">i")
_METHODS: Final = (b"GET ", b"POST ", b"PUT ", b"HEAD ", b"DELETE ", b"OPTIONS ", b"CONNECT ", b"PATCH ", b"TRACE ")
_STARTS: Final = (
    (b"HTTP/", "HTTP"),
    (b"PRI * HTTP/2", "HTTP/2"),
    (b"SSH-", "SSH"),
    (b"\x00\x00\x00\x08\x04\xd2", "PostgreSQL"),
    (b"AMQP", "AMQP"),
    (b"<!DOCTYPE", "HTML"),
    (b"-ERR ", "RESP, which Redis speaks"),
    (b"220 ", "SMTP or FTP"),
    (b"220-", "SMTP or FTP"),
    (b"* OK ", "IMAP"),
    (b"+OK ", "POP3"),
)
_DATABASE: Final = b"\0\0\0"
"""Bytes 1 to 3 of what MySQL says first (its length, little-endian, and number 0) and of PostgreSQL's refusal."""
_TLS: Final = (0x14, 0x15, 0x16, 0x17)
_ALERT: Final = 0x15


def is_gssapi_token(data: bytes, start: int, end: int) -> bool:
    """Whether these bytes are the first token of GSSAPI with Kerberos or SPNEGO (RFC 2743, 3.1; RFC 4121, 4.1)."""
    head = data[start : min(end, start + 24)]
    return head[:1] == b"\x60" and (
        b"\x06\x09\x2a\x86\x48\x86\xf7\x12\x01\x02\x02" in head or b"\x06\x06\x2b\x06" in head
    )


def name_protocol(head: bytes) -> str | None:
    """Description of a stream that is not Kafka, by its first bytes; None if it is unknown."""
    if _is_tls(head):
        return "TLS"
    if head.startswith(_METHODS):
        # The size in the broker's log, which people search for.
        return (
            "HTTP: perhaps a browser, a health check or a scrape; a broker takes its first bytes for a request of "
            f"{_SIZE.unpack_from(head)[0]:,} bytes and closes the connection"
        )
    return next((name for start, name in _STARTS if head.startswith(start)), None)


def protocol_in(reason: str) -> str | None:
    """The protocol that a reason against Kafka names: `TLS`, `HTTP`, `SSH` …; None if it names none.

    `TLS with ALPN` for TLS that offers other application protocols: Kafka does not use ALPN.
    """
    if not reason.startswith(NAMED):
        return None
    name = reason.removeprefix(NAMED)
    if name.startswith(("TLS", "SSL")):
        return "TLS with ALPN" if ", ALPN " in name else "TLS"
    return name.partition(":")[0]


def name_answer(size: int) -> str | None:
    """Description of a non-Kafka answer to a Kafka client, by its first four bytes in place of a length.

    A sentence; None if they are unknown.
    """
    head = _SIZE.pack(size)
    logged = f"(the client takes it for a response of {size:,} bytes)"
    if _is_tls(head):
        what = "an alert of TLS" if head[0] == _ALERT else "TLS"
        return (
            f"a client that speaks Kafka without TLS is answered with {what} {logged}: the listener expects TLS "
            "(security.protocol SSL or SASL_SSL)"
        )
    found = next((name for start, name in _STARTS if start.startswith(head)), None)
    if found is None and head[1:] == _DATABASE:
        found = "the protocol of MySQL or PostgreSQL"
    if found is None:
        return None
    return f"a Kafka client is answered in {found} {logged}: what listens there is not a broker (wrong host or port?)"


def _is_tls(head: bytes) -> bool:
    """RFC 8446, 5.1: type and version of a record."""
    return len(head) >= 3 and head[0] in _TLS and head[1] == 3 and head[2] <= 4


MAX_PROLOGUE: Final = 536
"""Maximum size of a header; the specification promises that it fits the smallest segment."""

_V1: Final = b"PROXY "
_V1_LONGEST: Final = 107
_V2: Final = b"\r\n\r\n\x00\r\nQUIT\n"
_ADDRESSES: Final = {0x11: (4, "TCP over IPv4"), 0x21: (16, "TCP over IPv6")}


def proxy_prologue(head: bytes) -> tuple[int, str] | None:
    """Length and description of the PROXY header at the start of `head`.

    (0, "") if there is none, None if more bytes are needed.
    """
    if head.startswith(_V1[: len(head)]) and len(head) < len(_V1):
        return None
    if head.startswith(_V1):
        end = head.find(b"\r\n", 0, _V1_LONGEST)
        if end >= 0:
            words = head[:end].decode("latin-1").split(" ")
            if len(words) == 6:
                return end + 2, _describe(words[2], words[4], words[3], words[5])
            return end + 2, "PROXY protocol v1 header without addresses"
        return None if len(head) < _V1_LONGEST else (0, "")
    if head.startswith(_V2[: len(head)]) and len(head) < len(_V2) + 4:
        return None
    if not head.startswith(_V2):
        return 0, ""
    family, length = unpack_from(">BH", head, 13)
    total = 16 + length
    if total > MAX_PROLOGUE:
        return 0, ""
    if len(head) < total:
        return None
    width, _ = _ADDRESSES.get(family, (0, ""))
    if not width or length < 2 * width + 4:
        return total, "PROXY protocol v2 header without addresses"
    source, target = head[16 : 16 + width], head[16 + width : 16 + 2 * width]
    ports = unpack_from(">HH", head, 16 + 2 * width)
    return total, _describe(
        str(ipaddress.ip_address(source)), str(ports[0]), str(ipaddress.ip_address(target)), str(ports[1])
    )


def _describe(source: str, source_port: str, target: str, target_port: str) -> str:
    return f"PROXY protocol header: the client is {source} port {source_port}, connected to {target} port {target_port}"


BEGINNING: Final = 256
"""Bytes of an incomplete request that are examined."""

MAX_KEY: Final = 1_000
"""Highest plausible API key: Kafka has 95 after fifteen years."""
MAX_VERSION: Final = 100
"""Highest plausible version: Fetch has 18."""
NEWER_VERSIONS: Final = 3
"""A client may be newer than the dissectors: versions this much above the known ones are plausible."""
MAX_ODDITY: Final = 512
"""A request with surplus bytes after its body is plausible up to this size."""
_HEADER: Final = Struct(">hhih")
"""API key, version, correlation id, length of the client id."""
_CLIENT_ID: Final = 10
"""Bytes before the client id."""
TRIAL: Final = DecodeOptions(records="skip", show_secrets=True, inside=False)
"""Options for a message that may be another one."""


def _highest_version(api_key: int) -> int:
    """The highest plausible version of an API; -1 if the API is unknown."""
    known = api(api_key)
    return -1 if known is None else known.max_version + NEWER_VERSIONS


@cache
def highest_versions() -> NDArray[np.int32]:
    """`_highest_version` of each API, by key. All definitions are read for it."""
    return np.array([_highest_version(key) for key in range(max(api_keys()) + 1)], np.int32)


def judge_request(data: bytes, start: int, end: int, *, strict: bool) -> Literal["exact", "plausible", "no"]:
    """How likely these bytes are a request.

    exact: of a known version, consumed to the last byte by its body; plausible: a valid header, and a body
    that decodes except for an oddity, such as the surplus bytes that some clients send. `strict`: for bytes of unknown
    kind, so a client id must be printable and the version known.
    """
    header = request_header(data, start, end, strict=strict)
    if header is None or header.api_key not in api_keys():
        return "no"
    decoded = decode_request(data, start, end, TRIAL)
    kinds = {problem.kind for problem in decoded.problems}
    if "version-unknown" in kinds:
        return "plausible"
    if decoded.body is None or decoded.raw is not None:
        return "no"
    if "trailing-bytes" in kinds and len(data[start:end]) > MAX_ODDITY + header.length:
        return "no"
    # A short response with small ids decodes as a Produce request without data.
    nothing = header.api_key == PRODUCE and not decoded.body.get("topic_data")
    return "plausible" if kinds or nothing else "exact"


def has_request_form(data: bytes, size: int) -> bool:
    """Whether the available bytes of a frame of `size` are the header of a request of any API and version.

    Sufficient if the user says that they are a client's.
    """
    if size < _CLIENT_ID or len(data) < _CLIENT_ID:
        return False
    key, version, _, length = _HEADER.unpack_from(data)
    if not (0 <= key <= MAX_KEY or key in api_keys()):
        return False
    if not (0 <= version <= MAX_VERSION and -1 <= length <= size - _CLIENT_ID):
        return False
    stop = min(_CLIENT_ID + max(length, 0), len(data))
    cut = stop - _CLIENT_ID < length
    return data[_CLIENT_ID:stop].decode("utf-8", "ignore" if cut else "replace").isprintable()


def is_likely_request(data: bytes, start: int, end: int) -> bool:
    """Whether these bytes have a plausible header, even if their body is odd or truncated.

    A header without a client id says little: then the body has to decode, except for trailing bytes, and must neither
    be all zeros, as a token may be, nor a Produce without data.
    """
    header = request_header(data, start, end, strict=True)
    if header is None or header.api_key not in api_keys():
        return False
    if header.client_id:
        return True
    judgement = judge_request(data, start, end, strict=True)
    says_something = header.api_key != PRODUCE and any(data[start + header.length : end])
    return judgement == "exact" or (judgement == "plausible" and says_something)


def is_answer(request: bytes, response: bytes) -> bool:
    """Whether `response` exactly decodes as one to a request of a known version; ids are not compared."""
    header = request_header(request, 0, len(request), strict=True)
    if header is None:
        return False
    decoded = decode_response(response, 0, len(response), header.api_key, header.api_version, TRIAL)
    return bool(decoded.body) and not decoded.problems


def may_begin_request(head: bytes, *, aligned: bool) -> bool:
    """Whether a request, or the token of GSSAPI as in 0.9, may begin with these bytes, at most BEGINNING of them.

    `aligned`: they are the first of their stream.
    """
    if len(head) < 4 or is_gssapi_token(head, 0, len(head)) or (aligned and head[0] == 0x60):
        return True
    if int.from_bytes(head[2:4], "big") > _highest_version(int.from_bytes(head[:2], "big")):
        return False
    if aligned or len(head) < 10:
        return True
    # An invalid size may be anything up to the bound: the following frames must not wait until it is reached.
    length = int.from_bytes(head[8:10], "big", signed=True)
    return length >= -1 and head[10 : 10 + max(length, 0)].decode("utf-8", "ignore").isprintable()


def may_be_request(data: bytes, size: int, *, known: bool) -> bool:
    """Whether the available bytes of a frame of `size` have a plausible request header.

    `known`: the stream is certainly the client's. Else it may be the broker's, whose responses look like Produce
    requests without a client id: then there must be one.
    """
    header = request_header(data, 0, len(data))
    if header is None:
        return _is_cut_in_client_id(data, size)
    return known or bool(header.client_id)


def _is_cut_in_client_id(data: bytes, size: int) -> bool:
    """Whether the available part of a frame is a request's header up to somewhere in its client id, or to its end."""
    if len(data) == size or len(data) <= _CLIENT_ID:
        return False
    length = int.from_bytes(data[_CLIENT_ID - 2 : _CLIENT_ID], "big", signed=True)
    if not len(data) - _CLIENT_ID <= length <= size - _CLIENT_ID:
        return False
    if request_header(data[: _CLIENT_ID - 2] + b"\xff\xff\0", 0, _CLIENT_ID + 1, strict=True) is None:
        return False
    return data[_CLIENT_ID:].decode("utf-8", "ignore").isprintable()


TRUNCATED: Final = ("body-truncated", "array-too-long")
"""Problems of a body that ends too early and is valid until then."""


def does_not_fit(decoded: Decoded, *, cut: bool) -> bool:
    """Whether a body was not decoded exactly to its end (for a truncated message: to the end of its bytes)."""
    # The option for secrets does not matter here.
    kinds = {problem.kind for problem in decoded.problems} - {"body-withheld"}
    if decoded.raw is None and decoded.raw_redacted is None:
        return "trailing-bytes" in kinds or (cut and bool(kinds))
    return "version-unknown" not in kinds and not (cut and kinds.issubset(TRUNCATED))


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
