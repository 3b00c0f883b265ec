"""Shards of a run: a state may be divided again."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from kafkasniff.capture import open_captures
from kafkasniff.engine.inspector import NUMBERS, Inspector, number_from, reshard, share
from kafkasniff.model import Exchange
from kafkasniff.tables.checkpoint import dump, load
from tests.choice import one_in
from tests.conftest import ROOT


@functools.cache
def batches(name: str = "kraft-three-brokers.pcap", chunk_size: int = 16 << 20) -> list[Any]:
    with open_captures([str(ROOT / "captures" / name)], chunk_size=chunk_size) as source:
        return list(source)


def found(inspector: Inspector, some: list[Any], *, close: bool = False) -> list[Any]:
    events = [event for batch in some for event in inspector.feed(batch)]
    return events + (inspector.close() if close else [])


def reported(events: list[Any]) -> list[tuple[Any, ...]]:
    return sorted(
        (
            *(one.connection_id, one.exchange_id, one.status, one.latency_ns, repr(one.problems)),
            repr(one.response and one.response.body),
        )
        for one in events
        if isinstance(one, Exchange)
    )


@pytest.mark.parametrize(("first", "second"), one_in(4, [(2, 3), (1, 3), (3, 1), (3, 2), (2, 2)]))
def test_a_state_is_divided_again(first: int, second: int) -> None:
    parts = batches(chunk_size=20_000)
    half = len(parts) // 2
    events: list[Any] = []
    before = [Inspector() for _ in range(first)]
    for shard, inspector in enumerate(before):
        number_from(inspector, shard)
        events += found(inspector, [share(batch, shard, first) for batch in parts[:half]])
    states = [dump(inspector) for inspector in before]
    numbers: list[int] = []
    for shard in range(second):
        inspector = reshard([load(state, Inspector) for state in states], shard, second)
        more = found(inspector, [share(batch, shard, second) for batch in parts[half:]], close=True)
        numbers += {one.connection for one in more if isinstance(one, Exchange)}
        events += more
    assert reported(events) == reported(found(Inspector(), parts, close=True))
    assert len(numbers) == len(set(numbers)), "two shards gave the same number"
    assert max(numbers) > NUMBERS
