"""Shards, the coordinator and the interleaver in one process, as the crew has them, with chunks of any size."""

from __future__ import annotations

import dataclasses
import io
import pickle
from collections import deque
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

import numpy as np

from kafkasniff.cli.jobs import make_shards
from kafkasniff.enrich import Catalog, Enricher
from kafkasniff.filters import Predicate, Selector
from kafkasniff.inspector import Inspector
from kafkasniff.model import Summary
from kafkasniff.packets import NO_TIME, PacketBatch
from kafkasniff.parallel.coordinator import AHEAD
from kafkasniff.parallel.dealer import Dealer
from kafkasniff.parallel.forms import Form, JsonForm, TextForm
from kafkasniff.parallel.interleave import Chunk, Interleaver
from kafkasniff.parallel.window import Told
from kafkasniff.shards import shard_of_rows
from kafkasniff.sinks.jsonl import JsonSink
from kafkasniff.sinks.text import TextSink


@dataclasses.dataclass(frozen=True)
class Written:
    """What a run wrote, to the byte."""

    lines: bytes
    summary: Summary


def first_time(batches: Sequence[PacketBatch]) -> list[int | None]:
    """The run's first time, as far as it is known with each batch."""
    found: list[int | None] = []
    known: int | None = None
    for batch in batches:
        times = batch.time_ns[batch.time_ns != NO_TIME]
        if known is None and len(times):
            known = int(times[0])
        found.append(known)
    return found


def alone(
    batches: Sequence[PacketBatch],
    *,
    text: int | None = None,
    predicate: Predicate | None = None,
    topics: dict[str, str] | None = None,
    **options: Any,
) -> Written:
    """One process; `text`: verbosity, None for JSON lines."""
    stream = io.BytesIO()
    inspector = Inspector(exchanges=predicate is not None, **options)
    enricher = Enricher(Catalog(topics), summary=inspector.summary)
    sink = JsonSink(stream) if text is None else TextSink(stream, verbosity=text, names=inspector.names)
    selector = Selector(predicate)
    for batch, start in zip((*batches, None), (*first_time(batches), None), strict=True):
        events: Any = enricher.feed(inspector.close() if batch is None else inspector.feed(batch))
        if batch is not None:
            selector.start_ns = start
        for event in selector.feed(events):
            sink.write(event)
    sink.close()
    return Written(stream.getvalue(), inspector.summary)


def together(
    batches: Sequence[PacketBatch],
    jobs: int,
    *,
    text: int | None = None,
    predicate: Predicate | None = None,
    topics: dict[str, str] | None = None,
    seed: int = 0,
    **options: Any,
) -> Written:
    """So many shards; `seed`: in what pieces and in which turn they hand their lines on."""
    stream = io.BytesIO()
    names: dict[str, str] = {}
    form: Form = JsonForm(JsonSink(stream), stream)
    if text is not None:
        form = TextForm(TextSink(stream, verbosity=text, names=names))
    shards, coordinator = make_shards(
        jobs, {"exchanges": predicate is not None, **options}, Catalog(topics), form, predicate
    )
    summary = Summary()
    random, dealer = Random(seed), Dealer(jobs)
    waiting: deque[tuple[PacketBatch | None, list[Any]]] = deque()

    def finish() -> None:
        batch, found = waiting.popleft()

        def retell(told: list[Told], everything: bool) -> list[Told]:
            pairs = zip(shards, told, strict=True)
            return [_sent(shard.retell(one, everything=everything)) for shard, one in pairs]

        settled = coordinator.settle(found, retell)
        names.update(note.value for note in (batch.notes if batch else ()) if isinstance(note.value, tuple))
        interleaver = Interleaver(settled.ranks)
        chunks: list[deque[Chunk]] = []
        for shard, given in zip(shards, settled.given, strict=True):
            lines = [line for part in shard.render(_sent(given)) for line in zip(*part, strict=True)]
            chunks.append(deque(_chunks(lines, random)))
            summary.add(shard.summary)
        for one in found:
            summary.add(one.summary)
        while not interleaver.ended:
            turn = random.choice([shard for shard in range(jobs) if not interleaver.has_ended(shard)])
            if chunks[turn]:
                interleaver.add(turn, chunks[turn].popleft())
            else:
                interleaver.end(turn)
            runs = interleaver.take()
            if runs is not None:
                form.write(runs)

    for batch, start in zip((*batches, None), (*first_time(batches), None), strict=True):
        dealt = np.empty(0, np.int64)
        if batch is not None:
            # Whoever has a connection, it comes to the same: by their loads, or by a hash.
            dealt = dealer.deal(batch) if seed % 2 else shard_of_rows(batch, jobs)
        waiting.append((batch, [_sent(shard.decode(batch, dealt, start)) for shard in shards]))
        if len(waiting) > AHEAD:
            finish()
    while waiting:
        finish()
    form.flush()
    return Written(stream.getvalue(), summary)


def _sent(message: Any) -> Any:
    """As it arrives in another process."""
    return pickle.loads(pickle.dumps(message, 5))


def _chunks(lines: list[tuple[int, bool, Any]], random: Random) -> Iterable[Chunk]:
    while lines:
        size = random.choice((1, 2, 7, 100))
        part, lines = lines[:size], lines[size:]
        indices, messages, data = map(list, zip(*part, strict=True))
        yield _sent(Chunk(np.array(indices, np.int64), np.array(messages, np.bool_), data))
