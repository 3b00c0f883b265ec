"""Connections are dealt once, each to the shard that had least to do."""

from __future__ import annotations

import numpy as np
import pytest

from kafkasniff.parallel import dealer
from kafkasniff.parallel.dealer import Dealer
from tests.craft.batches import batch
from tests.craft.conversation import Conversation, interleaved
from tests.craft.packet import Packet
from tests.test_boundaries import cut


def packets(sizes: list[int]) -> list[Packet]:
    """A connection of each of these sizes, all at the same time, in ten turns of both sides."""
    talks = [Conversation(("10.0.0.5", 50_000 + number)) for number in range(len(sizes))]
    for talk, size in zip(talks, sizes, strict=True):
        for _ in range(5):
            talk.send("client", bytes(size // 10), 65_000)
            talk.send("broker", bytes(size // 10), 65_000)
    return interleaved(talks)


def owners(found: list[Packet], shards: np.ndarray) -> dict[int, set[int]]:
    """By the client's port, the shards that got packets."""
    taken: dict[int, set[int]] = {}
    for one, shard in zip(found, shards.tolist(), strict=True):
        taken.setdefault(one.sport if one.dport == 9092 else one.dport, set()).add(shard)
    return taken


@pytest.mark.parametrize("most", [dealer.MAX_DEALT, 3])
def test_a_connection_stays_where_it_is(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dealer, "MAX_DEALT", most)
    said = packets([50_000, 300, 9_000, 20_000, 700, 40_000, 10, 10])
    shards = Dealer(3)
    parts = cut(batch(said), range(1, len(said), 7))
    taken = owners(said, np.concatenate([shards.deal(one) for one in parts]))
    assert all(len(one) == 1 for one in taken.values())
    assert set().union(*taken.values()) == {0, 1, 2}


def test_shares_of_like_size() -> None:
    sizes = [100_000, 60_000, 50_000, 30_000, 30_000, 20_000, 10_000]
    taken = owners(said := packets(sizes), Dealer(2).deal(batch(said)))
    loads = [sum(size for port, size in enumerate(sizes, 50_000) if taken[port] == {shard}) for shard in (0, 1)]
    assert sum(loads) == sum(sizes)
    assert max(loads) <= 0.55 * sum(sizes)
