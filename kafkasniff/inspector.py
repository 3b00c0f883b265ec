"""The inspector: packets in, decoded messages out. Composes the stages, gives numbers; does no I/O.

Everything that a connection yields is made by the connection's own stages. Here the connections' events are merged back
into capture order (by the order of the packet at which each became known; at the same packet by connection), and
get what only the merge can give: connection and exchange numbers, and the word on connections that are not Kafka but
whose endpoint spoke Kafka before.
"""

from __future__ import annotations

import hashlib
import ipaddress
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal

from kafkasniff.kafka.connection import ConnectionOptions, KafkaConnection
from kafkasniff.kafka.context import DecodeOptions
from kafkasniff.kafka.events import Event, ExchangeEvent, MessageEvent, ProblemEvent, TokenEvent, VerdictEvent
from kafkasniff.kafka.framing import MAX_FRAME
from kafkasniff.model import Connection, Direction, Endpoint, Exchange, Message, Problem, SaslToken, Summary
from kafkasniff.packets import PacketBatch
from kafkasniff.streams import NO_TIME, PACKET_SHIFT, Closed
from kafkasniff.tcp import Reassembler, TcpConnection
from kafkasniff.tcp.plan import Key
from kafkasniff.tcp.reassembly import Delta

__all__ = ["Inspector", "Output"]

Output = Message | SaslToken | Exchange | Problem | Connection

MAX_SECRETS: Final = 1024
"""Blocks of decryption secrets kept."""

MAX_CLIENT_IDS: Final = 16
"""Client ids that a connection's account names; clients have one for each connection, proxies more."""

API_VERSIONS: Final = 18
SASL_HANDSHAKE: Final = 17

_NUMBER: Final = (1 << PACKET_SHIFT) - 1


class _Open:
    """What is known of an exchange that is not over: its number, and the request for the `Exchange` to come."""

    __slots__ = ("api", "api_version", "correlation_id", "number", "request", "response")

    def __init__(self, number: int) -> None:
        self.number = number
        self.api: str | None = None
        self.api_version: int | None = None
        self.correlation_id: int | None = None
        self.request: Message | None = None
        self.response: Message | None = None


class _Connection:
    """The inspector's side of a connection: its number and what is the same for all its messages."""

    __slots__ = (
        "account",
        "broker",
        "client",
        "endpoints",
        "exchanges",
        "first_packet",
        "first_time",
        "forced",
        "id",
        "kafka",
        "number",
    )

    def __init__(self, number: int, tcp: TcpConnection, options: ConnectionOptions, ports: frozenset[int]) -> None:
        self.number = number
        self.endpoints = tcp.endpoints
        self.first_time = tcp.first_time
        self.first_packet = tcp.first_packet
        self.account: _Account | None = None
        forced: int | None = None
        if ports:
            # Direction d is sent by endpoint d: the client's is the one whose target is the forced port.
            if tcp.endpoints[1][2] in ports:
                forced = 0
            elif tcp.endpoints[0][2] in ports:
                forced = 1
        self.forced = forced is not None
        self.kafka = KafkaConnection(options, forced)
        self.client: Endpoint | None = None
        self.broker: Endpoint | None = None
        self.id = 0
        self.exchanges: dict[int, _Open] = {}

    def assign(self, client: int) -> None:
        """The roles are known."""
        self.client = endpoint(self.endpoints[client])
        self.broker = endpoint(self.endpoints[1 - client])

    def identify(self) -> int:
        """Its `connection_id`, which needs no more than its endpoints and its first packet."""
        if not self.id:
            key = b"".join(struct.pack(">QQH", *end) for end in sorted(self.endpoints))
            digest = hashlib.blake2b(key + struct.pack(">q", self.first_time), digest_size=8).digest()
            self.id = int.from_bytes(digest, "big", signed=True)
        return self.id


class _Account:
    """What is counted of a connection for its `Connection`."""

    __slots__ = (
        "before_software",
        "client_ids",
        "mechanism",
        "problems",
        "requests",
        "responses",
        "software",
        "unanswered",
        "verdict",
    )

    def __init__(self) -> None:
        self.requests = 0
        self.responses = 0
        self.unanswered = 0
        self.problems = 0
        self.client_ids: dict[str | bytes, None] = {}
        self.software: tuple[str | None, str | None] = (None, None)
        self.before_software = False
        """An exchange was over before the client said what it is."""
        self.mechanism: str | None = None
        self.verdict: VerdictEvent | None = None

    def message(self, event: MessageEvent, problems: int) -> None:
        """Count a message. Hot."""
        self.problems += problems
        if not event.is_request:
            self.responses += 1
            return
        self.requests += 1
        client_id = event.client_id
        if client_id is not None and client_id not in self.client_ids and len(self.client_ids) < MAX_CLIENT_IDS:
            self.client_ids[client_id] = None
        decoded = event.decoded
        if decoded.api_key == API_VERSIONS and decoded.body is not None:
            name, version = decoded.body.get("client_software_name"), decoded.body.get("client_software_version")
            if isinstance(name, str):
                self.software = (name, version if isinstance(version, str) else None)
        elif decoded.api_key == SASL_HANDSHAKE and decoded.body is not None:
            mechanism = decoded.body.get("mechanism")
            if isinstance(mechanism, str):
                self.mechanism = mechanism


class Inspector:
    """Packets in, `Message`, `SaslToken`, `Exchange` and `Problem` out, in order of completion.

    - `ports`: take these ports as Kafka, and only these; empty: find Kafka by content on any port
    - `records`: "full" decodes records, "batches" only the batches' headers, "metadata" those and the records of
      KRaft's metadata log, "columns" as "metadata" with the other records' bytes kept beside the batches, "skip" none
    - `show_secrets`: do not redact tokens, passwords and the like
    - `max_frame`: bound on a frame's size in bytes
    - `exchanges`: yield `Exchange` objects also (they keep the request until its response is there)
    - `connections`: yield a `Connection` at the end of each that carried data also, and put the client's software
      into exchanges
    """

    def __init__(
        self,
        *,
        ports: Iterable[int] = (),
        records: Literal["full", "columns", "metadata", "batches", "skip"] = "full",
        show_secrets: bool = False,
        max_frame: int = MAX_FRAME,
        exchanges: bool = True,
        connections: bool = False,
    ) -> None:
        self._ports = frozenset(ports)
        self._show_secrets = show_secrets
        self._options = ConnectionOptions(
            decode=DecodeOptions(records=records, show_secrets=show_secrets),
            max_frame=max_frame,
            every_end=exchanges,
        )
        self._want_exchanges = exchanges
        self._want_connections = connections
        self._reassembler = Reassembler()
        self._connections = 0
        self._exchanges = 0
        self._captures: tuple[str, ...] = ()
        self._known_brokers: set[tuple[int, int, int]] = set()
        self.summary = Summary()
        self.names: dict[str, str] = {}
        """Address → name, from the captures' name records."""
        self.secrets: list[bytes] = []
        """Decryption secrets found in the captures, at most MAX_SECRETS blocks."""

    def feed(self, batch: PacketBatch) -> list[Output]:
        """Take the next packets in capture order."""
        if batch.captures:
            self._captures = batch.captures
        self.summary.packets += batch.packets
        self.summary.tcp_packets += len(batch)
        deltas = self._reassembler.feed(batch)
        opened = self._reassembler.opened
        opened.sort(key=lambda connection: connection.first_order)
        for connection in opened:
            self._connections += 1
            owner = connection.owner = _Connection(self._connections, connection, self._options, self._ports)
            if self._want_connections:
                owner.account = _Account()
        self.summary.connections += len(opened)
        keyed: list[_Keyed] = []
        for index, note in enumerate(batch.notes):
            if isinstance(note.value, Problem):
                keyed.append((note.order, -1, index, None, note.value))
            elif isinstance(note.value, bytes):
                if len(self.secrets) < MAX_SECRETS:
                    self.secrets.append(note.value)
            else:
                self.names[note.value[0]] = note.value[1]
        self._take(deltas, keyed)
        return self._merge(keyed)

    def close(self) -> list[Output]:
        """The capture has ended; returns what was still open."""
        keyed: list[_Keyed] = []
        self._take(self._reassembler.close(), keyed)
        return self._merge(keyed)

    # -- several inspectors, each with a share of the connections ----------------------------------------------------

    def reset_summary(self) -> Summary:
        """Count from zero; returns the new summary."""
        self.summary = Summary()
        return self.summary

    @property
    def highest_number(self) -> int:
        """No connection and no exchange has a higher number so far."""
        return max(self._connections, self._exchanges)

    def number_from(self, number: int) -> None:
        """Number what comes next, connections and exchanges, above this."""
        self._connections = self._exchanges = number

    def absorb(self, others: Sequence[Inspector], wanted: Callable[[Sequence[Key]], list[bool]]) -> None:
        """Take over what is open with others, and let go of connections that are not wanted, by their endpoints."""
        self._reassembler.absorb([other._reassembler for other in others], wanted)
        for other in others:
            self._known_brokers |= other._known_brokers
            self.names.update(other.names)

    # -- merging ----------------------------------------------------------------------------------------------------

    def _take(self, deltas: list[Delta], keyed: list[_Keyed]) -> None:
        summary = self.summary
        for tcp, items in deltas:
            connection = tcp.owner
            assert isinstance(connection, _Connection)
            if self._ports and not connection.forced:
                continue
            kafka = connection.kafka
            seen, decoded, lost = kafka.bytes_seen, kafka.bytes_decoded, kafka.bytes_lost
            events = kafka.feed(items)
            summary.bytes_stream += kafka.bytes_seen - seen + kafka.bytes_lost - lost
            summary.bytes_decoded += kafka.bytes_decoded - decoded
            summary.bytes_lost += kafka.bytes_lost - lost
            if kafka.verdict == "undecided" and kafka.bytes_seen and isinstance(items[-1], Closed):
                summary.undecided += 1
            number = connection.number
            keyed.extend((event.order, number, index, connection, event) for index, event in enumerate(events))
            last = items[-1]
            if connection.account is not None and isinstance(last, Closed) and (kafka.bytes_seen or kafka.bytes_lost):
                keyed.append((last.order, number, len(events), connection, _End(tcp, last)))
        summary.bytes_skipped = summary.bytes_stream - summary.bytes_lost - summary.bytes_decoded

    def _merge(self, keyed: list[_Keyed]) -> list[Output]:
        # The first three differ between any two entries, so that the comparison never reaches the events.
        keyed.sort()
        out: list[Output] = []
        for _, _, _, connection, event in keyed:
            if connection is None:
                assert isinstance(event, Problem)
                self._problem(event, out)
            elif isinstance(event, MessageEvent):
                self._message(connection, event, out)
            elif isinstance(event, ExchangeEvent):
                self._exchange(connection, event, out)
            elif isinstance(event, ProblemEvent):
                self._problem(self._stream_problem(connection, event), out)
            elif isinstance(event, TokenEvent):
                self._token(connection, event, out)
            elif isinstance(event, VerdictEvent):
                self._verdict(connection, event, out)
            elif isinstance(event, _End):
                out.append(self._ended(connection, event))
        return out

    def _problem(self, problem: Problem, out: list[Output]) -> None:
        self.summary.problems += 1
        out.append(problem)

    def _capture(self, packet: int) -> str | None:
        index = packet >> PACKET_SHIFT
        return self._captures[index] if index < len(self._captures) else None

    def _message(self, connection: _Connection, event: MessageEvent, out: list[Output]) -> None:
        """Hot: once for each message."""
        frame, decoded = event.frame, event.decoded
        exchange = connection.exchanges.get(event.ordinal)
        if exchange is None:
            self._exchanges += 1
            exchange = connection.exchanges[event.ordinal] = _Open(self._exchanges)
        if not (event.is_request or self._want_exchanges):
            del connection.exchanges[event.ordinal]  # its end is not told
        problems = decoded.problems if not event.problems else (*event.problems, *decoded.problems)
        message = Message(
            "request" if event.is_request else "response",
            frame.size,
            decoded.correlation_id,
            decoded.api_key,
            decoded.api,
            decoded.api_version,
            event.client_id,
            decoded.header,
            decoded.header_tags,
            decoded.body,
            decoded.body_version,
            decoded.raw,
            decoded.raw_redacted,
            decoded.errors,
            problems,
            exchange.number,
            connection.number,
            self._capture(frame.last_seen),
            None if frame.time_ns == NO_TIME else frame.time_ns,
            connection.client,
            connection.broker,
            frame.first_packet & _NUMBER,
            frame.last_packet & _NUMBER,
            event.latency_ns,
            event.duration_ns,
        )
        if problems:
            self.summary.problems += len(problems)
        if connection.account is not None:
            connection.account.message(event, len(problems))
        if event.is_request:
            self.summary.requests += 1
            exchange.api = decoded.api
            exchange.api_version = decoded.api_version
            exchange.correlation_id = decoded.correlation_id
            if self._want_exchanges:
                exchange.request = message
        else:
            self.summary.responses += 1
            if self._want_exchanges:
                exchange.response = message
        out.append(message)

    def _exchange(self, connection: _Connection, event: ExchangeEvent, out: list[Output]) -> None:
        exchange = connection.exchanges.pop(event.ordinal)
        account = connection.account
        if account is not None:
            account.problems += len(event.problems)
            account.unanswered += event.status in _WITHOUT
            account.before_software = account.before_software or account.software[0] is None
        if self._want_exchanges:
            out.append(
                Exchange(
                    exchange.number,
                    connection.number,
                    event.status,
                    exchange.request,
                    exchange.response,
                    event.latency_ns,
                    event.duration_ns,
                    event.problems,
                    connection.identify(),
                    event.ordinal,
                    event.retransmits,
                    None,
                    *((None, None) if account is None else account.software),
                )
            )
        for problem in event.problems:
            what = f"{exchange.api or 'request'} v{exchange.api_version} #{exchange.correlation_id}"
            told = Problem(
                problem.kind,
                f"exchange {exchange.number}, {what}: {problem.detail}",
                connection=connection.number,
                time_ns=None if event.time_ns == NO_TIME else event.time_ns,
                capture=self._capture(event.packet),
                packet=event.packet & _NUMBER,
                direction="request",
                exchange=exchange.number,
                connection_id=connection.identify(),
            )
            self._problem(told, out)

    def _stream_problem(self, connection: _Connection, event: ProblemEvent) -> Problem:
        if connection.account is not None:
            connection.account.problems += 1
        return Problem(
            event.kind,
            event.detail,
            connection=connection.number,
            time_ns=None if event.time_ns == NO_TIME else event.time_ns,
            capture=self._capture(event.packet),
            packet=event.packet & _NUMBER,
            direction=_direction(event.is_request),
            bytes=event.bytes,
            connection_id=connection.identify(),
        )

    def _token(self, connection: _Connection, event: TokenEvent, out: list[Output]) -> None:
        # Few connections have raw tokens.
        from kafkasniff.kafka.embedded.sasl_messages import describe_message  # noqa: PLC0415

        frame = event.frame
        token = frame.data[frame.start : frame.end]
        direction: Direction = "request" if event.is_request else "response"
        self.summary.sasl_tokens += 1
        if connection.account is not None and event.mechanism is not None:
            connection.account.mechanism = event.mechanism
        out.append(
            SaslToken(
                direction,
                frame.size,
                event.mechanism,
                token if self._show_secrets else None,
                connection.number,
                self._capture(frame.last_seen),
                None if frame.time_ns == NO_TIME else frame.time_ns,
                connection.client,
                connection.broker,
                frame.last_seen & _NUMBER,
                describe_message(event.mechanism, direction, token) if len(token) == frame.size else None,
            )
        )

    def _verdict(self, connection: _Connection, event: VerdictEvent, out: list[Output]) -> None:
        if connection.account is not None:
            connection.account.verdict = event
        if event.is_kafka:
            assert event.client is not None
            connection.assign(event.client)
            self.summary.kafka_connections += 1
            self._known_brokers.add(connection.endpoints[1 - event.client])
            return
        self.summary.not_kafka += 1
        if connection.forced or not self._known_brokers.isdisjoint(connection.endpoints):
            ends = " and ".join(str(endpoint(end)) for end in connection.endpoints)
            problem = Problem(
                "not-kafka",
                f"the connection between {ends} is not Kafka: {event.detail}",
                connection=connection.number,
                time_ns=None if event.time_ns == NO_TIME else event.time_ns,
                capture=self._capture(event.packet),
                packet=event.packet & _NUMBER,
                connection_id=connection.identify(),
            )
            self._problem(problem, out)

    def _ended(self, connection: _Connection, end: _End) -> Connection:
        """The account of a connection, all of whose events were told."""
        kafka, account = connection.kafka, connection.account
        assert account is not None
        verdict = account.verdict
        client = kafka.client
        if client is None:
            # Ports of clients come from the upper range on nearly every system (RFC 6335, section 6).
            client = 0 if connection.endpoints[0][2] > connection.endpoints[1][2] else 1
        ends = (endpoint(connection.endpoints[client]), endpoint(connection.endpoints[1 - client]))
        return Connection(
            connection.number,
            connection.identify(),
            "not_kafka" if kafka.verdict == "not-kafka" else kafka.verdict,
            end.closed.reason,
            *ends,
            self._capture(connection.first_packet),
            None if connection.first_time == NO_TIME else connection.first_time,
            None if end.last_time == NO_TIME else end.last_time,
            end.syn_seen,
            end.closed.packets,
            kafka.bytes_of[client],
            kafka.bytes_of[1 - client],
            kafka.bytes_decoded,
            kafka.bytes_lost,
            kafka.retransmits,
            account.requests,
            account.responses,
            account.unanswered,
            account.problems,
            tuple(account.client_ids),
            *account.software,
            account.before_software and account.software[0] is not None,
            account.mechanism,
            connection.forced,
            "" if verdict is None else verdict.detail,
            None if verdict is None or verdict.time_ns == NO_TIME else verdict.time_ns,
            None if verdict is None else verdict.packet & _NUMBER,
            None if verdict is None else self._capture(verdict.packet),
        )


class _End:
    """A connection is over: what its `Connection` takes from the TCP side, as it is at that packet."""

    __slots__ = ("closed", "last_time", "order", "syn_seen")

    def __init__(self, tcp: TcpConnection, closed: Closed) -> None:
        self.order = closed.order
        self.closed = closed
        self.last_time = closed.time_ns
        self.syn_seen = any(stream.isn is not None for stream in tcp.streams)


_WITHOUT: Final = frozenset({"unanswered", "open", "lost"})
"""Statuses of exchanges whose response should be there."""

_Keyed = tuple[int, int, int, _Connection | None, Event | Problem | _End]
"""Order of the packet, number of the connection (-1: none), place within the connection, and what there is to tell."""


def endpoint(end: tuple[int, int, int]) -> Endpoint:
    """An (address high half, low half, port) as an `Endpoint`; IPv4-mapped addresses are IPv4."""
    high, low, port = end
    if high == 0 and low >> 32 == 0xFFFF:
        return Endpoint(str(ipaddress.IPv4Address(low & 0xFFFFFFFF)), port)
    return Endpoint(str(ipaddress.IPv6Address(high << 64 | low)), port)


def _direction(is_request: bool | None) -> Direction | None:
    if is_request is None:
        return None
    return "request" if is_request else "response"
