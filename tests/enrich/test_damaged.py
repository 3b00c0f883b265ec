"""Damaged captures: nothing raises, and names do not depend on how packets are batched. Goldens have the names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import pytest

from tests.choice import fewer, in_turn
from tests.conftest import ROOT
from tests.craft import damage
from tests.craft.batches import batch
from tests.craft.outcome import output
from tests.craft.packet import Packet
from tests.craft.read import read_packets


def corrupted(packets: Sequence[Packet], rng: Random) -> list[Packet]:
    """Bytes within messages are others than were sent."""
    found = []
    for packet in packets:
        data = bytearray(packet.payload)
        if len(data) > 40 and rng.random() < 0.5:
            for _ in range(rng.randrange(1, 5)):
                data[rng.randrange(20, len(data))] = rng.randrange(256)
        found.append(packet.but(payload=bytes(data)))
    return found


UNREST = [damage.snapped, damage.lossy, damage.late, damage.responses_only, corrupted]


@pytest.mark.parametrize(
    ("unrest", "name"), in_turn(UNREST, ["kraft-two-brokers.pcap", "java-group-share.pcap", "java-admin.pcap"], 3)
)
def test_damaged_messages_pass(name: str, unrest: Callable[[Sequence[Packet], Random], list[Packet]]) -> None:
    packets = read_packets(ROOT / "captures" / name)
    for seed in range(fewer(1, 3)):
        broken = unrest(packets, Random(seed))
        whole = output([batch(broken)], enriched=True)
        first, second = batch(broken).split(len(broken) // 2)
        assert output([first, second], enriched=True) == whole
