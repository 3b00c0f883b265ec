"""Step 1 for whoever has packets: batches through a shard's state to staged rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Final

from kafkasniff.confined import ConfinedPath
from kafkasniff.exports.beginning import load_state
from kafkasniff.exports.carried import ShardState
from kafkasniff.exports.options import ExportOptions
from kafkasniff.exports.staged import StagedFiles
from kafkasniff.exports.stager import ROWS_PART, Staged, Stager
from kafkasniff.inspector import Inspector, Output
from kafkasniff.model import Message
from kafkasniff.packets import NO_TIME, PacketBatch
from kafkasniff.paired import PairColumns, PairFinder

if TYPE_CHECKING:
    from kafkasniff.filters import Predicate
    from kafkasniff.tls.keylog import KeyLog

__all__ = ["inspected", "new_stager", "stage", "stage_rest", "stage_unfinished", "together_bytes"]

TOGETHER_BYTES: Final = 32 << 20
"""Bytes of memory of messages that rows are made of at once, or a sixteenth of the budget: few at a time cost several
times as much."""


def new_stager(
    state: ShardState,
    options: ExportOptions,
    predicate: Predicate | None,
    files: Staged,
    *,
    wants_body: Callable[[Message], bool] | None = None,
) -> Stager:
    """The stager that goes on with what a state has selected so far; `wants_body` as for `Stager`."""
    selector = None
    if predicate is not None:
        # Imported when there is something to select.
        from kafkasniff.filters import Selector  # noqa: PLC0415

        selector = Selector(predicate)
        selector.start_ns = state.start_ns
    return Stager(
        options,
        state.enricher,
        files,
        selector,
        selected=state.selected,
        wants_body=wants_body,
        memory=state.inspector.memory,
        limits=state.inspector.decode_options,
    )


def together_bytes(inspector: Inspector) -> int:
    """Bytes of memory of an inspector's messages that rows are made of at once."""
    return min(TOGETHER_BYTES, inspector.memory // ROWS_PART)


def stage(state: ShardState, stager: Stager, batch: PacketBatch) -> None:
    """Take the next packets. Raises OSError where rows cannot be written."""
    for events, columns in _fed(state, stager, batch, stager.finder):
        stager.take(events)
        for found in columns:
            stager.take_columns(found, batch.captures)
        del events  # before the next ones are decoded


def inspected(state: ShardState, stager: Stager, batch: PacketBatch) -> Iterator[list[Output]]:
    """What the next packets yield, for `stager` to take: as much at a time as there is memory for."""
    for events, _ in _fed(state, stager, batch, None):
        yield events
        del events


def _fed(
    state: ShardState, stager: Stager, batch: PacketBatch, finder: PairFinder | None
) -> Iterator[tuple[list[Output], list[PairColumns]]]:
    """The same, with the exchanges apart that `finder` finds."""
    _begin(state, stager, batch)
    inspector = state.inspector
    together: list[Output] = []
    size, most = 0, together_bytes(inspector)
    slices = zip(inspector.feed_slices(batch), repeat([])) if finder is None else inspector.feed_columns(batch, finder)
    for events, columns in slices:
        together += state.enricher.feed(events)
        del events
        size += inspector.slice_bytes
        if size > most or columns:
            yield together, columns
            together, size = [], 0
    if together:
        yield together, []


def _begin(state: ShardState, stager: Stager, batch: PacketBatch) -> None:
    if state.start_ns is None and len(batch):
        times = batch.time_ns[batch.time_ns != NO_TIME]
        if len(times):
            state.start_ns = int(times[0])
            stager.begins(state.start_ns)


def stage_rest(
    state: ShardState, stager: Stager, files: Staged, events: Callable[[Sequence[Output]], object] | None = None
) -> None:
    """The captures have ended: take what was still open, and write all rows that wait. Raises OSError.

    `events` is given what the inspector yields, too.
    """
    for slice_ in state.inspector.close_slices():
        rest = state.enricher.feed(slice_)
        if events is not None:
            events(rest)
        stager.take(rest)
        del slice_, rest
    stager.flush()
    files.close()
    tellings = state.enricher.catalog.tellings
    assert tellings is not None
    tellings.hosts.update(state.inspector.names)


def stage_unfinished(
    dumped: bytes,
    options: ExportOptions,
    predicate: Predicate | None,
    folder: ConfinedPath,
    *,
    keys: KeyLog | None = None,
    limit: Callable[[ShardState], object],
) -> ShardState:
    """Stage what ends only because the captures do: it is not over, and who goes on from `dumped` makes it again.

    `keys`: the key log that there was, since a state has nothing of it; `limit` says how much memory there is. Returns
    the state behind it, which is good for its tellings and its summary. Raises OSError.
    """
    state = load_state(dumped, options)
    limit(state)
    if keys is not None:
        state.inspector.follow_key_log(keys, tells=False)
    folder.remove_tree()
    files = StagedFiles(folder)
    stage_rest(state, new_stager(state, options, predicate, files), files)
    return state
