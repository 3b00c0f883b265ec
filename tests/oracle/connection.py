"""A connection that Python follows: its stages, and how they account for its bytes."""

from __future__ import annotations

import numpy as np

from kafkasniff.engine.connection_stats import REASONS, Account, Endpoints, FollowedConnection, FollowedEnd
from kafkasniff.tls.gate import TlsGate
from kafkasniff.tls.items import Closed
from tests.oracle.kafka.connection import KafkaConnection
from tests.oracle.kafka.recognition import ConnectionOptions
from tests.oracle.tcp.connection import TcpConnection

_VERDICTS = ("undecided", "kafka", "not-kafka")


def _forced_client(endpoints: Endpoints, ports: frozenset[int]) -> int | None:
    """Direction of the client's stream if one of these ports is taken as Kafka's, otherwise None."""
    # Direction d is sent by endpoint d: the client's is the one whose target is the port.
    if endpoints[1][2] in ports:
        return 0
    return 1 if endpoints[0][2] in ports else None


class OracleConnection(FollowedConnection):
    """Its stages, and what is counted of it."""

    def __init__(
        self, number: int, tcp: TcpConnection, options: ConnectionOptions, ports: frozenset[int], *, counts: bool
    ) -> None:
        forced = _forced_client(tcp.endpoints, ports)
        high, low, port = zip(*tcp.endpoints, strict=True)
        opened = {"high": high, "low": low, "port": port, "place": 0, "forced": -1 if forced is None else forced}
        super().__init__(number, number, opened | {"first_time": tcp.first_time, "first_packet": tcp.first_packet})
        self.tcp = tcp
        self.account = Account() if counts else None
        self.kafka = KafkaConnection(options, forced)
        """Its stage of frames and exchanges."""
        self.tls: TlsGate | None = TlsGate()
        """Removes TLS from its streams; None once it is known that there is none."""

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
            "skipped": [seen - read for seen, read in zip(kafka.both("seen"), decoded, strict=True)],
            "lost": kafka.both("lost"),
            "pending": kafka.both("pending"),
            "repeated": closed.repeated,
            "ignored": closed.ignored,
        }
        turns = kafka._dialogue.turns
        ending |= {"requests": turns.requests, "responses": turns.responses, "served": turns.served}
        if self.account is not None:
            self.account.client_ids = turns.client_ids
        handshake = None if self.tls is None else self.tls.seen(self.client_at_end(ending), closed.time_ns)
        return FollowedEnd(closed.order, ending, handshake, self.tls is not None)
