"""The inspector's side of a connection that the stream engine follows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec

from kafkasniff.engine.connection_stats import MessageOwner
from kafkasniff.kafka.connection.opening import Opening
from kafkasniff.kafka.schema.memory import ConnectionMemory
from kafkasniff.model import Connection, StreamBytes, TlsHandshake
from kafkasniff.tls.gate import TlsGate

__all__ = ["REASONS", "Asked", "EarlyProblem", "FollowedConnection", "FollowedEnd"]

REASONS: Final[tuple[Literal["fin", "rst", "reused", "idle", "end"], ...]] = ("fin", "rst", "reused", "idle", "end")
"""`stream_types.Reason`."""
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
        self.asked: dict[int, Asked] = {}
        """Requests without a response, by ordinal."""
        self.memory = ConnectionMemory()
        self.opening: Opening | None = Opening()
        """Until the first answer that is neither a greeting nor authentication, or until something does not fit."""
        self.mechanism: str | None = None
        """Mechanism of the raw tokens."""
        self.early_problems: list[EarlyProblem] = []
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

    def at_end(self, end: FollowedEnd, capture: Callable[[int], str | None]) -> Connection:
        """The account of the connection, whose events were all emitted; `capture`: the name of a packet's capture."""
        ending = end.ending
        client = int(ending["client"])
        return self.account_of(
            _VERDICTS[ending["verdict"]],
            REASONS[ending["reason"]],
            client if client >= 0 else None,
            last_time=int(ending["last_time"]),
            syn_seen=bool(ending["syn_seen"]),
            packets=int(ending["packets"]),
            retransmits=int(ending["retransmits"]),
            streams=[self._stream(ending, direction) for direction in (0, 1)],
            heard=ending["heard"].tolist(),
            encrypted=end.encrypted,
            handshake=end.handshake,
            capture=capture,
        )

    @staticmethod
    def _stream(ending: Any, direction: int) -> StreamBytes:
        """The byte account of one of its streams."""
        names = ("decoded", "skipped", "lost", "pending", "repeated", "ignored")
        return StreamBytes(**{name: int(ending[name][direction]) for name in names})
