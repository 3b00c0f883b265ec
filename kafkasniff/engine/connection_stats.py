"""The Python side of each connection: number, open exchanges, what its messages mean for later ones, and its account.

All of it is part of an inspector's state (`inspector_state.py`), so that a run can resume where another one ended.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Callable
from typing import Any, ClassVar, Final, Literal

import msgspec

from kafkasniff.kafka.apis.dissectors import SASL_HANDSHAKE
from kafkasniff.kafka.connection.events import ExchangeEvent, MessageEvent, VerdictEvent
from kafkasniff.kafka.messages.message_plan import client_software
from kafkasniff.kafka.messages.plausibility import Opening, protocol_in
from kafkasniff.kafka.schema.context import ConnectionMemory
from kafkasniff.model import NO_TIME, PACKET_NUMBER, Connection, Endpoint, Message, StreamBytes, TlsHandshake
from kafkasniff.tls.gate import TlsGate

Endpoints = tuple[tuple[int, int, int], tuple[int, int, int]]
"""The senders of direction 0 and 1: high and low half of the address, port."""

_WITHOUT: Final = frozenset({"unanswered", "open", "lost"})
"""Statuses of exchanges whose response should be there."""


class OpenExchange:
    """An exchange that is not over: its number, and the request for the later `Exchange`."""

    __slots__ = ("api", "api_version", "correlation_id", "number", "request", "response", "weight")

    def __init__(self, number: int) -> None:
        self.number = number
        self.api: str | None = None
        self.api_version: int | None = None
        self.correlation_id: int | None = None
        self.request: Message | None = None
        self.response: Message | None = None
        self.weight = 0
        """Bytes of memory that the request accounts for."""


def connection_id(endpoints: Endpoints, first_time: int) -> int:
    """A connection's number that is the same in every run, from its endpoints and the time_ns of its first packet."""
    # It imports OpenSSL, which code that only shows messages can do without.
    import hashlib  # noqa: PLC0415

    key = b"".join(struct.pack(">QQH", *end) for end in sorted(endpoints))
    digest = hashlib.blake2b(key + struct.pack(">q", first_time), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


class MessageOwner:
    """A connection, as its messages need it: its number, and whatever is the same for all of them."""

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
        "number",
        "open_until",
        "place",
    )

    lazy: ClassVar[dict[str, Callable[[], Any]]] = {"exchanges": dict}
    """Attributes that are made on first use: most connections of a scan have no message."""
    account: Account | None
    """Counts for its `Connection`; None: nobody asks for them."""
    exchanges: dict[int, OpenExchange]
    """By ordinal."""

    def __init__(self, number: int, endpoints: Endpoints, first_time: int, first_packet: int, *, forced: bool) -> None:
        self.number = number
        self.place = number
        """Its place among the connections of its inspector; equal to its number. States that are stored have both."""
        self.endpoints = endpoints
        self.first_time = first_time
        self.first_packet = first_packet
        self.forced = forced
        """Its port is taken as Kafka's."""
        self.client: Endpoint | None = None
        self.broker: Endpoint | None = None
        self.id = 0
        self.open_until: int | None = None
        """Time until which the broker may delay answers because of a request that has no response."""

    def __getattr__(self, name: str) -> Any:
        make = self.lazy.get(name)
        if make is None:
            raise AttributeError(f"a connection has no {name}")
        made = make()
        setattr(self, name, made)
        return made

    def assign(self, client: int) -> None:
        """The roles are known."""
        self.client = endpoint(self.endpoints[client])
        self.broker = endpoint(self.endpoints[1 - client])

    def identify(self) -> int:
        """Its `connection_id`, which depends only on its endpoints and first packet."""
        if not self.id:
            self.id = connection_id(self.endpoints, self.first_time)
        return self.id

    @property
    def message_memory(self) -> ConnectionMemory:
        """Facts from earlier messages that later ones need."""
        raise NotImplementedError


class Account:
    """Counts of a connection for its `Connection`, beside those of the engine."""

    __slots__ = ("client_ids", "mechanism", "problems", "software", "software_late", "unanswered", "verdict")

    def __init__(self) -> None:
        self.unanswered = 0
        self.problems = 0
        self.client_ids: list[str | bytes] = []
        self.software: tuple[str | None, str | None] = (None, None)
        self.software_late = False
        """An exchange was over before the client identified its software."""
        self.mechanism: str | None = None
        self.verdict: VerdictEvent | None = None

    def message(self, event: MessageEvent, problems: int) -> None:
        """Count a message. Hot."""
        self.problems += problems
        decoded = event.decoded
        if not event.is_request or decoded.body is None:
            return
        software = client_software(decoded.api_key)
        if software is not None:
            name, version = (decoded.body.get(field) for field in software)
            # The first one counts: columns of exchanges do not have their places among greetings.
            if isinstance(name, str) and self.software[0] is None:
                self.software = (name, version if isinstance(version, str) else None)
                self.software_late = event.late
        elif decoded.api_key == SASL_HANDSHAKE:
            mechanism = decoded.body.get("mechanism")
            if isinstance(mechanism, str):
                self.mechanism = mechanism

    def exchange(self, event: ExchangeEvent) -> None:
        """Count the end of an exchange. Hot."""
        self.problems += len(event.problems)
        self.unanswered += event.status in _WITHOUT


def endpoint(end: tuple[int, int, int]) -> Endpoint:
    """An (address high half, low half, port) as an `Endpoint`; IPv4-mapped addresses are IPv4."""
    high, low, port = end
    if high == 0 and low >> 32 == 0xFFFF:
        return Endpoint(str(ipaddress.IPv4Address(low & 0xFFFFFFFF)), port)
    return Endpoint(str(ipaddress.IPv6Address(high << 64 | low)), port)


# -- followed connections ----------------------------------------------------------------------------------------------


REASONS: Final[tuple[Literal["fin", "rst", "reused", "idle", "end"], ...]] = ("fin", "rst", "reused", "idle", "end")
"""`stream_types.Reason`."""
MAX_ASKED: Final = 65_600
"""Requests of a connection without a response: `stream_ledger.MAX_OUTSTANDING`, and `MAX_SILENT` that need none."""
_VERDICTS: Final[tuple[Literal["undecided", "kafka", "not_kafka"], ...]] = ("undecided", "kafka", "not_kafka")


class Asked(msgspec.Struct, frozen=True):
    """What the response to a request needs of it."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | bytes | None
    time_ns: int
    carry: object
    hidden: bool
    """The request is counted but not reported, and neither will be its response."""


class EarlyProblem(msgspec.Struct, frozen=True):
    """A problem of an undecided connection, reported if it turns out to be Kafka."""

    order: int
    direction: int
    kind: str
    detail: str
    time_ns: int
    packet: int
    bytes: int | None


class FollowedEnd(msgspec.Struct, frozen=True):
    """The end of a connection, as the engine accounts for it (`stream_types.Ending`)."""

    order: int
    ending: Any
    """A row of the array."""
    handshake: TlsHandshake | None
    encrypted: bool


class FollowedConnection(MessageOwner):
    """A connection that the stream engine follows, and what its messages so far mean for later ones."""

    __slots__ = (
        "asked",
        "early_problems",
        "ended",
        "gate",
        "index",
        "mechanism",
        "memory",
        "opening",
        "side",
        "slot",
        "stream",
        "verdict",
    )

    lazy: ClassVar[dict[str, Callable[[], Any]]] = {
        **MessageOwner.lazy,
        "account": Account,
        "asked": dict,
        "early_problems": list,
        "memory": ConnectionMemory,
        "opening": Opening,
    }
    asked: dict[int, Asked]
    """Requests without a response, by ordinal."""
    memory: ConnectionMemory
    opening: Opening | None
    """Until the first answer that is neither a greeting nor authentication, or until something does not fit."""
    early_problems: list[EarlyProblem]

    def __init__(self, number: int, index: int, opened: Any) -> None:
        one, other = ((int(opened["high"][d]), int(opened["low"][d]), int(opened["port"][d])) for d in (0, 1))
        client = int(opened["forced"])
        times = int(opened["first_time"]), int(opened["first_packet"])
        super().__init__(number, (one, other), *times, forced=client >= 0)
        self.index = index
        """The engine's number of it."""
        self.slot = int(opened["place"])
        """The same, which a later connection may have again: `connection` of regular messages."""
        self.verdict: Literal["undecided", "kafka", "not-kafka"] = "undecided"
        self.ended = False
        self.side: int | None = client if client >= 0 else None
        """Direction of the client's stream, once a message is known."""
        self.mechanism: str | None = None
        """Mechanism of the raw tokens."""
        self.gate: TlsGate | None = None
        """Removes TLS from its streams."""
        self.stream = b""
        """The engine's state of it, while it is dumped or loaded."""

    @property
    def message_memory(self) -> ConnectionMemory:
        """Facts from earlier messages that later ones need."""
        return self.memory

    def assign(self, client: int) -> None:
        """The roles are known."""
        super().assign(client)
        self.side = client

    def client_at_end(self, ending: Any) -> int:
        """Direction of the client's stream, by its port if nothing else showed it."""
        client = int(ending["client"])
        # Clients use the upper port range on nearly every system (RFC 6335, section 6).
        return client if client >= 0 else int(self.endpoints[0][2] <= self.endpoints[1][2])

    def at_end(self, end: FollowedEnd, capture: Callable[[int], str | None]) -> Connection:
        """The account of the connection, whose events were all emitted; `capture`: the name of a packet's capture."""
        account, ending = self.account, end.ending
        assert account is not None
        verdict, kind = account.verdict, _VERDICTS[ending["verdict"]]
        client = self.client_at_end(ending)
        protocol = None if verdict is None else protocol_in(verdict.detail)
        if kind == "kafka":
            protocol = "Kafka over TLS" if end.encrypted else "Kafka"
        stream_bytes, other = self._stream(ending, client), self._stream(ending, 1 - client)
        heard, last_time = ending["heard"].tolist(), int(ending["last_time"])
        return Connection(
            self.number,
            self.identify(),
            kind,
            REASONS[ending["reason"]],
            endpoint(self.endpoints[client]),
            endpoint(self.endpoints[1 - client]),
            capture(self.first_packet),
            None if self.first_time == NO_TIME else self.first_time,
            None if last_time == NO_TIME else last_time,
            bool(ending["syn_seen"]),
            int(ending["packets"]),
            stream_bytes.decoded + stream_bytes.skipped,
            other.decoded + other.skipped,
            stream_bytes.decoded + other.decoded,
            stream_bytes.lost + other.lost,
            int(ending["retransmits"]),
            int(ending["requests"]),
            int(ending["responses"]),
            account.unanswered,
            account.problems,
            tuple(account.client_ids),
            *account.software,
            account.software_late,
            account.mechanism,
            self.forced,
            "" if verdict is None else verdict.detail,
            None if verdict is None or verdict.time_ns == NO_TIME else verdict.time_ns,
            None if verdict is None else verdict.packet & PACKET_NUMBER,
            None if verdict is None else capture(verdict.packet),
            stream_bytes,
            other,
            protocol,
            "both" if all(heard) else "client" if heard[client] else "broker",
            end.handshake,
            bool(ending["served"]),
        )

    @staticmethod
    def _stream(ending: Any, direction: int) -> StreamBytes:
        """The byte account of one of its streams."""
        names = ("decoded", "skipped", "lost", "pending", "repeated", "ignored")
        return StreamBytes(**{name: int(ending[name][direction]) for name in names})
