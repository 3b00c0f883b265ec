"""The stream engine follows the network of connections as the specification does (`tests/oracle/timing`)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest

from kafkasniff.engine.inspector import Inspector
from kafkasniff.model import Connection, Endpoint, Exchange, SaslToken
from kafkasniff.native.streams import UNKNOWN, Network
from kafkasniff.packets import PacketBatch
from kafkasniff.tables.rows.transport import TransportRows
from tests.baseline.inputs import DISTURBANCES
from tests.choice import fewer, some_pairs
from tests.craft import damage
from tests.craft.batches import batch
from tests.craft.packet import ACK, FIN, RST, SYN, Packet
from tests.kernel.followers import corrupted, split
from tests.kernel.test_streams import CAPTURES, CRAFTED, SIZES, packets_of, seeded
from tests.oracle.tcp.reassembly import IDLE_NS, LINGER_NS
from tests.oracle.timing.links import Links

Change = Callable[[Sequence[Packet], Random], list[Packet]]
Networks = dict[tuple[int, int], Network | None]
CHANGES: dict[str, Change] = {"unchanged": damage.composed(), "changed-bytes": corrupted, **DISTURBANCES}
MOST_PACKETS = 200
SECOND = 1_000_000_000
OF_TIME = ("time", "end_time")
"""Columns that repeat others."""


class Found:
    """What an inspector finds of the network of the connections in these batches."""

    def __init__(self, batches: Iterable[PacketBatch], oracle: Links | None = None, **options: Any) -> None:
        """`oracle`: takes the same packets, one by one, and is asked about the same exchanges."""
        self._inspector = Inspector(connections=True, records="skip", network="exchanges", **options)
        self._rows = TransportRows()
        self.networks: Networks = {}
        self.expected: Networks = {}
        self.clients: dict[int, Endpoint] = {}
        for piece in batches:
            if oracle is not None:
                oracle.feed(piece)
            self._take(self._inspector.feed(piece), oracle)
        if oracle is not None:
            oracle.close()
        self._take(self._inspector.close(), oracle)
        self.rows = _sorted(self._rows.take().drop_columns(list(OF_TIME)).to_pylist())

    def _take(self, outputs: Iterable[Any], oracle: Links | None) -> None:
        for output in outputs:
            if isinstance(output, Exchange):
                place = output.connection_id, output.exchange_id
                networks = self._inspector.networks()
                (row,) = networks.places(np.array([output.connection]), np.array([output.exchange_id]))
                self.networks[place] = None if row == UNKNOWN else networks.one(row)
                if oracle is not None:
                    self.expected[place] = oracle.network(output)
            elif isinstance(output, SaslToken) and oracle is not None:
                oracle.token(output)
            elif isinstance(output, Connection) and output.verdict == "kafka":
                assert output.client is not None
                self.clients[output.connection_id] = output.client
        self._rows.append(self._inspector.take_links())


def _sorted(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["time_ns"], row["connection_id"], str(sorted(row.items()))))


def check(packets: list[Packet], minimum: int = 1) -> None:
    whole, oracle = batch(packets), Links()
    found = Found(split(whole, itertools.repeat(1)), oracle)
    assert found.rows == _sorted(oracle.rows(found.clients))
    assert found.networks == found.expected
    assert len(found.rows) >= minimum
    for sizes in ([], SIZES):
        again = Found(split(whole, itertools.cycle(sizes)))
        assert again.rows == found.rows
        assert again.networks == found.networks


ENDS = (("10.0.0.1", 1), ("10.0.0.1", 2), ("10.0.0.2", 9092))


@pytest.mark.parametrize("seed", range(fewer(2, 6)))
def test_of_packets_that_nobody_sends(seed: int) -> None:
    """Whatever packets say, and whenever they come."""
    random = Random(seed)
    packets, time = [], 1_700_000_000 * SECOND
    later = (0, 1000, SECOND // 1000, SECOND // 25, -SECOND // 1000)
    for _ in range(MOST_PACKETS):
        (src, sport), (dst, dport) = random.choice(ENDS), random.choice(ENDS)
        rare = random.choice((LINGER_NS, IDLE_NS, -LINGER_NS, SECOND))
        time += random.choice(later) if random.random() < 0.95 else rare
        packet = Packet(time, src, sport, dst, dport, 0, 0, 0)
        packets.append(
            packet.but(
                seq=(random.choice((0, 2**32 - 50)) + random.randrange(200)) % 2**32,
                ack=random.randrange(300),
                flags=random.choice((ACK, ACK, ACK, ACK, SYN, SYN | ACK, RST, FIN | ACK, 0, 0xFF)),
                payload=bytes(random.choice((0, 0, 1, 10, 50))),
                window=random.choice((0, 1, 500)),
                ident=random.randrange(5),
            )
        )
    check(packets)


@pytest.mark.parametrize(("source", "kind"), some_pairs([CRAFTED, *sorted(CAPTURES)], CHANGES, 10, 40))
def test_of_a_disturbed_capture(source: str, kind: str) -> None:
    check(CHANGES[kind](packets_of(source)[:MOST_PACKETS], seeded(source, kind)), int(kind == "unchanged"))
