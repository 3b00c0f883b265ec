"""A connection that Python follows: its stages, and how they account for its bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kafkasniff.engine.connection_stats import Account, Endpoints
from kafkasniff.engine.followed import REASONS, FollowedConnection, FollowedEnd
from kafkasniff.tcp.segments import Closed, Started
from kafkasniff.tls.gate import TlsGate
from kafkasniff.tls.keylog import KeyLog
from tests.oracle.kafka.connection import KafkaConnection
from tests.oracle.kafka.recognition import ConnectionOptions
from tests.oracle.tcp.connection import TcpConnection
from tests.oracle.tcp.runs import Item

__all__ = ["OracleConnection"]

_VERDICTS = ("undecided", "kafka", "not-kafka")


def _forced_client(endpoints: Endpoints, ports: frozenset[int]) -> int | None:
    """Direction of the client's stream if one of these ports is taken as Kafka's, otherwise None."""
    # Direction d is sent by endpoint d: the client's is the one whose target is the port.
    if endpoints[1][2] in ports:
        return 0
    return 1 if endpoints[0][2] in ports else None


class OracleConnection(FollowedConnection):
    """Its stages are created when its first data arrives: scans and refused connections have none."""

    __slots__ = ("_counts", "_forced", "_kafka", "_options", "_syns", "tcp", "tls")

    def __init__(
        self, number: int, tcp: TcpConnection, options: ConnectionOptions, ports: frozenset[int], *, counts: bool
    ) -> None:
        self._forced = _forced_client(tcp.endpoints, ports)
        high, low, port = zip(*tcp.endpoints, strict=True)
        opened = {
            "high": high,
            "low": low,
            "port": port,
            "place": 0,
            "forced": -1 if self._forced is None else self._forced,
        }
        super().__init__(number, number, opened | {"first_time": tcp.first_time, "first_packet": tcp.first_packet})
        self.tcp = tcp
        self._options = options
        self._counts = counts
        self._kafka: KafkaConnection | None = None
        self._syns: tuple[tuple[int, bool], ...] = ()
        """Before its first data: direction of each stream whose SYN was seen, and whether the client sends it."""
        self.tls: TlsGate | None = None
        """Removes TLS from its streams; None without TLS, and before its first data."""

    @property
    def kafka(self) -> KafkaConnection:
        """Its stage of frames and exchanges, which is created with that of TLS on first use."""
        found = self._kafka
        if found is None:
            found = self._kafka = KafkaConnection(self._options, self._forced)
            self.tls = TlsGate()
            self.account = Account() if self._counts else None
            for direction, client in self._syns:
                found.feed(self.tls.feed(Started(0, direction, client), KeyLog()))
            self._syns = ()
        return found

    def waits(self, items: Sequence[Item]) -> bool:
        """Whether it continues without stages: only SYNs, and its end, came so far."""
        if self._kafka is not None:
            return False
        for item in items:
            if not isinstance(item, (Started, Closed)):
                return False
        self._syns += tuple((item.direction, item.client) for item in items if isinstance(item, Started))
        return True

    def end(self, closed: Closed) -> FollowedEnd:
        """Its end, as the engine accounts for it."""
        kafka, streams = self.kafka, self.tcp.streams
        decoded = [kafka.decoded_of(direction) for direction in (0, 1)]
        ending = {
            "verdict": _VERDICTS.index(kafka.verdict),
            "reason": REASONS.index(closed.reason),
            "client": -1 if kafka.client is None else kafka.client,
            "last_time": closed.time_ns,
            "syn_seen": any(stream.isn is not None for stream in streams),
            "packets": closed.packets,
            "retransmits": kafka.retransmits,
            "heard": np.array([stream.heard for stream in streams]),
            "decoded": decoded,
            "skipped": [kafka.bytes_of[direction] - decoded[direction] for direction in (0, 1)],
            "lost": kafka.lost_of,
            "pending": kafka.pending_of,
            "repeated": closed.repeated,
            "ignored": closed.ignored,
        }
        turns = kafka._dialogue.turns
        ending |= {"requests": turns.requests, "responses": turns.responses, "served": turns.served}
        if self.account is not None:
            self.account.client_ids = turns.client_ids
        handshake = None if self.tls is None else self.tls.handshake
        return FollowedEnd(closed.order, ending, handshake, self.tls is not None)
