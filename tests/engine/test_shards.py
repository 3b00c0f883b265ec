"""Shards of connections: each packet is in one, both directions in the same, and a state may be divided again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafkasniff.capture import open_captures
from kafkasniff.engine.inspector import Inspector
from kafkasniff.engine.shards import NUMBERS, number_from, reshard, shard_of_keys, shard_of_rows, share
from kafkasniff.model import Exchange
from kafkasniff.tables.checkpoint import dump, load

CAPTURE = Path(__file__).parents[2] / "captures" / "kraft-three-brokers.pcap"


def batches(chunk_size: int = 16 << 20) -> list[Any]:
    with open_captures([str(CAPTURE)], chunk_size=chunk_size) as source:
        return list(source)


@pytest.mark.parametrize("shards", [1, 2, 3, 7])
def test_each_packet_is_in_one_shard(shards: int) -> None:
    (batch, *_) = batches()
    shares = [share(batch, shard, shards) for shard in range(shards)]
    assert sorted(np.concatenate([one.order for one in shares]).tolist()) == batch.order.tolist()
    assert sum(one.packets for one in shares) == batch.packets
    ends = [
        {
            frozenset([(s, p), (d, q)])
            for s, p, d, q in zip(one.src_lo, one.src_port, one.dst_lo, one.dst_port, strict=True)
        }
        for one in shares
    ]
    assert sum(map(len, ends)) == len(set().union(*ends)), "a connection is in two shares"
    if shards > 1:
        assert min(map(len, ends)) > 0


def test_rows_and_keys_agree() -> None:
    (batch, *_) = batches()
    rows = shard_of_rows(batch, 5).tolist()
    keys = []
    for row in range(len(batch)):
        source = (int(batch.src_hi[row]), int(batch.src_lo[row]), int(batch.src_port[row]))
        target = (int(batch.dst_hi[row]), int(batch.dst_lo[row]), int(batch.dst_port[row]))
        keys.append((min(source, target), max(source, target)))
    assert shard_of_keys(keys, 5) == rows
    assert shard_of_keys([], 5) == []


def found(inspector: Inspector, some: list[Any], events: list[Any]) -> None:
    for batch in some:
        events += inspector.feed(batch)


def reported(events: list[Any]) -> list[tuple[Any, ...]]:
    return sorted(
        (
            one.connection_id,
            one.exchange_id,
            one.status,
            one.latency_ns,
            repr(one.problems),
            repr(one.response and one.response.body),
        )
        for one in events
        if isinstance(one, Exchange)
    )


@pytest.mark.parametrize(("first", "second"), [(1, 3), (3, 1), (2, 3), (3, 2), (2, 2)])
def test_a_state_is_divided_again(first: int, second: int) -> None:
    parts = batches(20_000)
    half = len(parts) // 2
    whole: list[Any] = []
    inspector = Inspector()
    found(inspector, parts, whole)
    whole += inspector.close()

    events: list[Any] = []
    before = [Inspector() for _ in range(first)]
    for shard, inspector in enumerate(before):
        number_from(inspector, shard)
        found(inspector, [share(batch, shard, first) for batch in parts[:half]], events)
    states = [dump(inspector) for inspector in before]
    numbers: list[int] = []
    for shard in range(second):
        inspector = reshard([load(state, Inspector) for state in states], shard, second)
        more: list[Any] = []
        found(inspector, [share(batch, shard, second) for batch in parts[half:]], more)
        more += inspector.close()
        numbers += {one.connection for one in more if isinstance(one, Exchange)}
        events += more
    assert reported(events) == reported(whole)
    assert len(numbers) == len(set(numbers)), "two shards gave the same number"
    assert max(numbers) > NUMBERS
