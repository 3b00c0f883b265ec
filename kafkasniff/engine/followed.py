"""The Python side of a connection: what its messages mean for later ones, and its account, emitted at its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final, Literal

import msgspec

from kafkasniff.engine.connection_stats import Account, MessageOwner, endpoint
from kafkasniff.kafka.connection.opening import Opening
from kafkasniff.kafka.messages.plausibility import protocol_in
from kafkasniff.kafka.schema.context import ConnectionMemory
from kafkasniff.model import NO_TIME, PACKET_NUMBER, Connection, StreamBytes, TlsHandshake
from kafkasniff.tls.gate import TlsGate

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
        one, other = self._stream(ending, client), self._stream(ending, 1 - client)
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
            one.decoded + one.skipped,
            other.decoded + other.skipped,
            one.decoded + other.decoded,
            one.lost + other.lost,
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
            one,
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
