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
from collections.abc import Iterable
from typing import Final, Literal

from kafkasniff.kafka.connection import ConnectionOptions, KafkaConnection
from kafkasniff.kafka.context import DecodeOptions
from kafkasniff.kafka.events import Event, ExchangeEvent, MessageEvent, ProblemEvent, TokenEvent, VerdictEvent
from kafkasniff.kafka.framing import MAX_FRAME
from kafkasniff.model import Direction, Endpoint, Exchange, Message, Problem, SaslToken, Summary
from kafkasniff.packets import PacketBatch
from kafkasniff.streams import NO_TIME, PACKET_SHIFT, Closed
from kafkasniff.tcp import Reassembler, TcpConnection
from kafkasniff.tcp.reassembly import Delta

__all__ = ["Inspector", "Output"]

Output = Message | SaslToken | Exchange | Problem

MAX_SECRETS: Final = 1024
"""Blocks of decryption secrets kept."""

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

    __slots__ = ("broker", "client", "endpoints", "exchanges", "first_time", "forced", "id", "kafka", "number")

    def __init__(self, number: int, tcp: TcpConnection, options: ConnectionOptions, ports: frozenset[int]) -> None:
        self.number = number
        self.endpoints = tcp.endpoints
        self.first_time = tcp.first_time
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
        key = b"".join(struct.pack(">QQH", *end) for end in sorted(self.endpoints))
        digest = hashlib.blake2b(key + struct.pack(">q", self.first_time), digest_size=8).digest()
        self.id = int.from_bytes(digest, "big", signed=True)


class Inspector:
    """Packets in, `Message`, `SaslToken`, `Exchange` and `Problem` out, in order of completion.

    - `ports`: take these ports as Kafka, and only these; empty: find Kafka by content on any port
    - `records`: "full" decodes records, "batches" only the batches' headers, "skip" neither
    - `show_secrets`: do not redact tokens, passwords and the like
    - `max_frame`: bound on a frame's size in bytes
    - `exchanges`: yield `Exchange` objects also (they keep the request until its response is there)
    """

    def __init__(
        self,
        *,
        ports: Iterable[int] = (),
        records: Literal["full", "batches", "skip"] = "full",
        show_secrets: bool = False,
        max_frame: int = MAX_FRAME,
        exchanges: bool = True,
    ) -> None:
        self._ports = frozenset(ports)
        self._show_secrets = show_secrets
        self._options = ConnectionOptions(
            decode=DecodeOptions(records=records, show_secrets=show_secrets),
            max_frame=max_frame,
            every_end=exchanges,
        )
        self._want_exchanges = exchanges
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
            connection.owner = _Connection(self._connections, connection, self._options, self._ports)
        self.summary.connections += len(opened)
        keyed: list[tuple[int, int, int, _Connection | None, Event | Problem]] = []
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
        keyed: list[tuple[int, int, int, _Connection | None, Event | Problem]] = []
        self._take(self._reassembler.close(), keyed)
        return self._merge(keyed)

    # -- merging ----------------------------------------------------------------------------------------------------

    def _take(
        self, deltas: list[Delta], keyed: list[tuple[int, int, int, _Connection | None, Event | Problem]]
    ) -> None:
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
        summary.bytes_skipped = summary.bytes_stream - summary.bytes_lost - summary.bytes_decoded

    def _merge(self, keyed: list[tuple[int, int, int, _Connection | None, Event | Problem]]) -> list[Output]:
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
                    connection.id,
                    event.ordinal,
                    event.retransmits,
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
            )
            self._problem(told, out)

    def _stream_problem(self, connection: _Connection, event: ProblemEvent) -> Problem:
        return Problem(
            event.kind,
            event.detail,
            connection=connection.number,
            time_ns=None if event.time_ns == NO_TIME else event.time_ns,
            capture=self._capture(event.packet),
            packet=event.packet & _NUMBER,
            direction=_direction(event.is_request),
            bytes=event.bytes,
        )

    def _token(self, connection: _Connection, event: TokenEvent, out: list[Output]) -> None:
        frame = event.frame
        self.summary.sasl_tokens += 1
        out.append(
            SaslToken(
                "request" if event.is_request else "response",
                frame.size,
                event.mechanism,
                frame.data[frame.start : frame.end] if self._show_secrets else None,
                connection.number,
                self._capture(frame.last_seen),
                None if frame.time_ns == NO_TIME else frame.time_ns,
                connection.client,
                connection.broker,
                frame.last_seen & _NUMBER,
            )
        )

    def _verdict(self, connection: _Connection, event: VerdictEvent, out: list[Output]) -> None:
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
            )
            self._problem(problem, out)


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
