"""The nouns: the types that kafkasniff yields, frozen and slotted.

Times are nanoseconds since the Unix epoch (UTC) as `int`, `None` if the capture has none; durations are nanoseconds.
Sizes are bytes. Packet numbers are 1-based and count every packet of their capture, as tshark's `frame.number`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import msgspec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NO_TIME: Final = -(2**63)
"""`time_ns` of a packet without a time in its capture (pcapng simple packet blocks)."""
PACKET_SHIFT: Final = 40
"""Packet numbers travel as `capture index << 40 | number in that capture`, so that they compare in capture order."""
PACKET_NUMBER: Final = (1 << PACKET_SHIFT) - 1
"""Mask of the number within its capture."""

Direction = Literal["request", "response"]
"""The stream from the client to the broker ("request") or from the broker to the client ("response")."""

Status = Literal["answered", "no_response", "unanswered", "open", "lost", "orphan"]
"""How an exchange ended: no_response (acks 0), unanswered (connection ended), open (capture ended), lost (a gap may
contain the response), orphan (a response without its request).
"""

Body = dict[str, Any]
"""A decoded body by the protocol's names in snake_case; bytes stay bytes, uuids are strings of 22 characters."""


class Endpoint(msgspec.Struct, frozen=True, gc=False):
    """One end of a connection."""

    address: str
    """IPv4 or IPv6 address as text (RFC 5952)."""
    port: int

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


class Problem(msgspec.Struct, frozen=True, gc=False):
    """A problem that does not stop the run. `text.problem_kinds` lists the kinds."""

    kind: str
    """Machine-readable name, kebab-case: `tcp-gap`, `body-truncated` …"""
    detail: str
    """A sentence for a person; contains no secrets."""
    offset: int | None = None
    """Within a message: offset of the byte concerned, from the first byte after the length prefix."""
    connection: int | None = None
    """Number of the connection concerned."""
    time_ns: int | None = None
    capture: str | None = None
    """Name of the capture concerned."""
    packet: int | None = None
    """Number of the packet at which the problem was found."""
    direction: Direction | None = None
    bytes: int | None = None
    """How many bytes are concerned (lost, skipped)."""
    exchange: int | None = None
    """Number of the exchange concerned, for problems of how it ended."""
    connection_id: int | None = None
    """`Exchange.connection_id` of the connection concerned."""
    client: Endpoint | None = None
    """The ends of the connection concerned, as far as its roles are known."""
    broker: Endpoint | None = None


class BrokerTimes(msgspec.Struct, frozen=True):
    """The broker's own times of the exchanges in a request log, by API."""

    apis: dict[str, tuple[int, ...]]
    """Number of exchanges, and the sums of `BROKER_TIMES`, in microseconds."""


BROKER_TIMES: Final = ("total", "request_queue", "local", "remote", "throttle", "response_queue", "send")
"""`totalTimeMs` and its parts, which follow each other: waiting for a handler, handling, waiting for other brokers or
data, throttled, waiting for the network thread, sending (`kafka.network.RequestChannel`)."""


class ErrorCode(msgspec.Struct, frozen=True, gc=False):
    """A non-zero error code in a response."""

    code: int
    name: str | None
    """Name in `org.apache.kafka.common.protocol.Errors`; None for an unknown code."""
    path: str
    """Where in the body: `responses[0].partition_responses[0].error_code`."""


class Message(msgspec.Struct, frozen=True, gc=False):
    """A decoded request or response."""

    type: Direction
    size: int
    """The length prefix: bytes of header and body."""
    correlation_id: int | None = None
    api_key: int | None = None
    api: str | None = None
    """Name of the API; None for an unknown key and for an orphan response."""
    api_version: int | None = None
    client_id: str | bytes | None = None
    """From the request header (for a response: that of its request); bytes if it is not UTF-8."""
    header: Body | None = None
    """The header's fields; None if not even the header could be read."""
    header_tags: tuple[tuple[int, bytes], ...] = ()
    """Tagged fields of the header, as (tag, bytes)."""
    body: Body | None = None
    body_version: int | None = None
    """The version that the body was read as, if it is not `api_version` (ApiVersions with error 35)."""
    raw: bytes | None = None
    """Everything after the header, if the body could not be fully decoded; None if that holds a secret."""
    raw_redacted: int | None = None
    """Length of `raw` if it was withheld because it may hold a secret."""
    errors: tuple[ErrorCode, ...] = ()
    problems: tuple[Problem, ...] = ()
    # Its place on the wire; None for a message that did not come from a capture.
    exchange: int | None = None
    connection: int | None = None
    capture: str | None = None
    time_ns: int | None = None
    """Time of the packet that made the message's bytes contiguous."""
    client: Endpoint | None = None
    broker: Endpoint | None = None
    first_packet: int | None = None
    """Lowest number of the packets that delivered its bytes."""
    last_packet: int | None = None
    """Highest number of the packets that delivered its bytes."""
    latency_ns: int | None = None
    """For a response: from the completion of the request to the packet with the response's first byte; negative values
    are kept.
    """
    duration_ns: int | None = None
    """For a response: from the packet with the request's first byte to the completion of the response."""
    # Learned from other messages (kafkasniff.enrich).
    session_topics: tuple[str, ...] = ()
    """For a Fetch request in a session (KIP-227): the topics of the session, as far as names are known; none if there
    are more than 100 (`enrich.sessions.MAX_NAMED`).
    """
    frame: bytes | None = None
    """Its bytes: header and body, secrets included. None unless the `Inspector` keeps them (`frames`)."""


class SaslToken(msgspec.Struct, frozen=True, gc=False):
    """A raw SASL token: after SaslHandshake v0, or GSSAPI as of 0.9, tokens travel without Kafka headers."""

    direction: Direction
    size: int
    """Length of the token."""
    mechanism: str | None
    token: bytes | None
    """The token; None unless secrets are shown."""
    connection: int | None = None
    capture: str | None = None
    time_ns: int | None = None
    client: Endpoint | None = None
    broker: Endpoint | None = None
    packet: int | None = None
    """Number of the packet that completed it."""
    meaning: Body | None = None
    """The mechanism's message, and its fields that are not secret: `{"mechanism", "message", …}`; None if unknown."""


HeldLines = tuple[int, int, int]
"""Number of the exchange of a request that waits for a decision, and where its lines begin and end."""


class Lines(msgspec.Struct, frozen=True, gc=False):
    """Rendered lines of messages, as written by a sink."""

    data: bytes | memoryview
    """Whole lines, each with its line feed. A view is only valid until the next lines are requested."""
    count: int
    """Number of messages."""
    time_ns: int | None = None
    """Time of the last one."""
    problems: int = 0
    """Number of problems of their bodies."""
    ends: NDArray[np.uint64] | None = None
    """Where the lines of each message end, if that is known."""
    held: Sequence[HeldLines] = ()
    """Requests among them that a filter decides on later. They do not count as messages here."""

    def first(self, count: int) -> Self:
        """The lines of the first messages, one for each; `count`: at most this many."""
        if self.count <= count:
            return self
        lines = bytes(self.data).split(b"\n", count)[:count]
        return type(self)(b"".join(line + b"\n" for line in lines), count, self.time_ns)


class DecidedRequest(msgspec.Struct, frozen=True, gc=False):
    """A filter's decision on a request of an exchange that was held before."""

    exchange: int
    connection: int
    is_selected: bool


class Exchange(msgspec.Struct, frozen=True, gc=False):
    """A request and its response, if any; yielded once complete."""

    exchange: int
    """Running number, shared with its messages."""
    connection: int
    """Number of the connection, in order of first packet."""
    status: Status
    request: Message | None
    response: Message | None
    latency_ns: int | None = None
    duration_ns: int | None = None
    problems: tuple[Problem, ...] = ()
    """Problems of the exchange itself; those of its messages are in the messages."""
    connection_id: int = 0
    """BLAKE2b-64 (signed) of the sorted endpoints and the time of the first packet: the same in every run."""
    exchange_id: int = 0
    """Ordinal within the connection; (connection_id, exchange_id) is the key of the Parquet tables."""
    retransmits: int = 0
    """Retransmitted segments of the connection, both directions, since its previous exchange ended."""
    # Learned from other messages (kafkasniff.enrich).
    broker_id: int | None = None
    """Number of the broker at the address, if known."""
    software_name: str | None = None
    """The client's software according to ApiVersions (v3 and later)."""
    software_version: str | None = None
    behind_ns: int | None = None
    """Part of the latency: the broker was still answering earlier requests of the connection."""
    muted_ns: int | None = None
    """Part of the latency: a quota kept the broker from reading the request, or delayed the response (KIP-219)."""


class StreamBytes(msgspec.Struct, frozen=True, gc=False):
    """An account of the bytes of one stream, from its first byte to its last.

    `decoded + skipped + lost` are all of them, and `decoded + skipped + repeated + ignored` are the payload bytes of
    its captured packets (except those after its end).
    """

    decoded: int = 0
    """In messages and SASL tokens, length prefixes included."""
    skipped: int = 0
    """In no message, though captured: not Kafka, added or hidden by TLS, skipped in search of the next frame,
    frames that are not messages, or `pending`.
    """
    lost: int = 0
    """Missing from the capture."""
    pending: int = 0
    """Part of the skipped bytes: the beginning of a frame in which the stream ended."""
    repeated: int = 0
    """In addition: retransmitted bytes, and those in packets that were captured twice, and those that arrived after
    the stream had continued without them, which are among the lost.
    """
    ignored: int = 0
    """In addition: bytes of packets that do not fit the stream, or that precede the first captured one."""

    @property
    def size(self) -> int:
        """Length of the stream."""
        return self.decoded + self.skipped + self.lost


class TlsTurns(msgspec.Struct, frozen=True):
    """Answers of the broker on a TLS connection, judged by who spoke when: estimates, at most 3% off.

    An answer is the broker's first data after data of the client. Its time is that from the client's last packet on.
    Pipelined requests have one answer, and a long poll takes as long as one.
    """

    answers: int = 0
    p50_ns: int | None = None
    """Median of their times; None: there are none."""
    p99_ns: int | None = None
    longest_ns: int | None = None
    """Exact."""
    unanswered_ns: int | None = None
    """Time from the client's last data to the last packet, if the broker sent nothing in it; None: it did."""


class TlsHandshake(msgspec.Struct, frozen=True):
    """What is visible of a TLS connection without its keys; None and empty: not seen."""

    version: int | None = None
    """The version of the ServerHello, such as 0x0303."""
    suite: int | None = None
    """The cipher suite."""
    offered: int | None = None
    """The highest version that the client offers."""
    server_name: str | None = None
    """The host that the client asks for (SNI)."""
    alpn: str | None = None
    certificate: bytes | None = None
    """The server's own certificate in DER; TLS 1.3 encrypts it."""
    client_certificate: bytes | None = None
    """The client's, likewise."""
    resumed: bool = False
    """An earlier session is resumed, without a certificate."""
    lacks_certificate: bool = False
    """The client was asked for a certificate and has none."""
    counts: dict[str, int] = {}
    """`resumed` sessions, `early_data_accepted` and `early_data_refused` (TLS 1.3, 0-RTT), `key_updates`,
    `renegotiations`; all but resumption is visible only with keys.
    """
    handshake_ns: int | None = None
    """Time from the ClientHello until both ends sent under their keys."""
    turns: TlsTurns = TlsTurns()


class Connection(msgspec.Struct, frozen=True):
    """A TCP connection that carried data; yielded at its end."""

    connection: int
    """Number of the connection, in order of first packet."""
    connection_id: int
    """As in `Exchange`."""
    verdict: Literal["kafka", "not_kafka", "undecided"]
    ended: Literal["fin", "rst", "reused", "idle", "end"]
    """fin, rst: closed on the wire; reused: a new connection took its 4-tuple; idle: silent for an hour; end: the
    capture ended.
    """
    client: Endpoint
    """If no message showed the roles: the sender of the SYN, otherwise the end with the higher port."""
    broker: Endpoint
    capture: str | None = None
    """Name of the capture with its first packet."""
    time_ns: int | None = None
    """Time of its first packet."""
    end_time_ns: int | None = None
    """Time of its last packet."""
    syn_seen: bool = False
    """Its beginning is in the capture."""
    packets: int = 0
    client_bytes: int = 0
    """Payload bytes of the client's stream in the capture, each counted once."""
    broker_bytes: int = 0
    bytes_decoded: int = 0
    """Bytes of both streams that became messages or SASL tokens."""
    bytes_lost: int = 0
    """Bytes of both streams missing from the capture."""
    retransmits: int = 0
    requests: int = 0
    responses: int = 0
    unanswered: int = 0
    """Exchanges whose response should be there but is not: unanswered, open, lost."""
    problems: int = 0
    """Problems of the connection, its exchanges and its messages."""
    client_ids: tuple[str | bytes, ...] = ()
    """Client ids of its requests, in order of appearance."""
    software_name: str | None = None
    software_version: str | None = None
    software_late: bool = False
    """Exchanges were over before the client identified its software: clients that authenticate do so earlier."""
    sasl_mechanism: str | None = None
    """The client's last choice in SaslHandshake, or the mechanism of its raw tokens."""
    forced: bool = False
    """Its port is Kafka's according to the user."""
    verdict_detail: str = ""
    """Why it is not Kafka."""
    verdict_time_ns: int | None = None
    verdict_packet: int | None = None
    verdict_capture: str | None = None
    client_stream: StreamBytes = StreamBytes()
    """An account of the bytes of the client's stream."""
    broker_stream: StreamBytes = StreamBytes()
    protocol: str | None = None
    """`Kafka`, `Kafka over TLS`; if it is not Kafka, the protocol that its first bytes indicate: `TLS` (not decrypted),
    `TLS with ALPN` (of another protocol), `HTTP`, `SSH` …; None if unknown.
    """
    captured: Literal["both", "client", "broker"] = "both"
    """The direction whose packets are in the capture."""
    tls: TlsHandshake | None = None
    """Its TLS handshake; None without TLS."""
    served: bool = False
    """The broker answered a request that it serves only after authentication."""


class Summary(msgspec.Struct):
    """Totals of a run, for the line at its end."""

    packets: int = 0
    """Packets read, of any kind."""
    tcp_packets: int = 0
    connections: int = 0
    """TCP connections."""
    kafka_connections: int = 0
    requests: int = 0
    responses: int = 0
    sasl_tokens: int = 0
    problems: int = 0
    """Problem lines and problems within messages."""
    bytes_stream: int = 0
    """Payload bytes of all streams, each counted once, including lost ones of known number."""
    bytes_decoded: int = 0
    """Bytes of streams that became messages or SASL tokens."""
    bytes_skipped: int = 0
    """Captured bytes of streams that became neither (resync, not Kafka, …)."""
    bytes_lost: int = 0
    """Bytes of streams missing from the capture."""
    bytes_pending: int = 0
    """Part of the skipped bytes: frames in which their streams ended."""
    bytes_repeated: int = 0
    """In addition: retransmitted bytes, and those in packets that were captured twice."""
    bytes_ignored: int = 0
    """In addition: bytes of packets that do not fit their streams."""
    not_kafka: int = 0
    """Connections judged not to be Kafka."""
    undecided: int = 0
    """Connections with data, but too little to judge."""

    def add(self, more: Summary) -> None:
        """Add the totals of another run, or of another part of this one."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(more, name))

    @classmethod
    def total(cls, parts: Iterable[Summary]) -> Summary:
        """The sum of summaries."""
        found = cls()
        for part in parts:
            found.add(part)
        return found
