"""The inspector's state of each connection: its number, open exchanges, and the account that is emitted at its end.

All of it is part of an inspector's state (state.py), so that a run can resume where another one ended.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Callable
from typing import Any, ClassVar, Final

from kafkasniff.kafka.apis.dissectors import SASL_HANDSHAKE
from kafkasniff.kafka.connection.events import ExchangeEvent, MessageEvent, VerdictEvent
from kafkasniff.kafka.messages.message_plan import client_software
from kafkasniff.kafka.schema.context import ConnectionMemory
from kafkasniff.model import Endpoint, Message

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
