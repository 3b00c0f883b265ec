"""Step 1 over batches of packets: through a shard's state to staged rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Final

from kafkasniff.engine.inspector import Inspector, Output
from kafkasniff.engine.pair_columns import PairColumns, PairFinder
from kafkasniff.engine.wanted_bodies import EVERY_BODY, WantedBodies
from kafkasniff.model import NO_TIME
from kafkasniff.packets import PacketBatch
from kafkasniff.runtime.confined_files import ConfinedPath
from kafkasniff.tables.checkpoint.carried import ShardState
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.staged import StagedFiles
from kafkasniff.tables.exports.stager import ROWS_PART, Staged, Stager

if TYPE_CHECKING:
    from kafkasniff.filters import Predicate

__all__ = ["inspected", "new_stager", "stage", "stage_rest", "stage_unfinished", "together_bytes"]

TOGETHER_BYTES: Final = 16 << 20
"""Memory of messages that become rows at once, or a sixteenth of the budget: small groups cost several times as
much."""
TOGETHER: Final = 4096
"""Events of connections that end with the captures, processed at once."""


def new_stager(
    state: ShardState,
    options: ExportOptions,
    predicate: Predicate | None,
    files: Staged,
    *,
    bodies: WantedBodies = EVERY_BODY,
) -> Stager:
    """The stager that continues with a state's selection; `bodies` as for `Stager`."""
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
        bodies=bodies,
        memory=state.inspector.memory,
        limits=state.inspector.decode_options,
        logins=state.logins,
    )


def together_bytes(inspector: Inspector) -> int:
    """Memory of an inspector's messages that become rows at once."""
    return min(TOGETHER_BYTES, inspector.memory // ROWS_PART)


def stage(
    state: ShardState,
    stager: Stager,
    batch: PacketBatch,
    seen: Callable[[Sequence[Output | PairColumns]], object] | None = None,
) -> None:
    """Take the next packets. Raises OSError if rows cannot be written.

    `seen` is called with the inspector's output, and with the exchanges that are columns.
    """
    for events, columns in _fed(state, stager, batch, stager.finder):
        if seen is not None:
            seen(events)
            seen(columns)
        stager.take(events)
        for found in columns:
            stager.take_columns(found, batch.captures)
        del events  # before the next ones are decoded


def inspected(state: ShardState, stager: Stager, batch: PacketBatch) -> Iterator[list[Output]]:
    """The events of the next packets, for `stager` to take, in groups that fit into memory."""
    for events, _ in _fed(state, stager, batch, None):
        yield events
        del events


def _fed(
    state: ShardState, stager: Stager, batch: PacketBatch, finder: PairFinder | None
) -> Iterator[tuple[list[Output], list[PairColumns]]]:
    """The same, without the exchanges that `finder` finds."""
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
    stager.take_links(inspector.take_links())


def _begin(state: ShardState, stager: Stager, batch: PacketBatch) -> None:
    if state.start_ns is None and len(batch):
        times = batch.time_ns[batch.time_ns != NO_TIME]
        if len(times):
            state.start_ns = int(times[0])
            stager.begins(state.start_ns)


def stage_rest(
    state: ShardState, stager: Stager, files: Staged, events: Callable[[Sequence[Output]], object] | None = None
) -> None:
    """End the captures: take what was still open, and write all waiting rows. Raises OSError.

    `events` is called with the inspector's output.
    """
    together: list[Output] = []
    size, most = 0, together_bytes(state.inspector)
    inspector = state.inspector
    for slice_ in inspector.close_slices():
        stager.take_links(inspector.take_links())
        together += state.enricher.feed(slice_)
        del slice_
        size += state.inspector.slice_bytes
        if size > most or len(together) > TOGETHER:
            _take_rest(stager, together, events)
            together, size = [], 0
    _take_rest(stager, together, events)
    stager.take_links(inspector.take_links())
    stager.flush()
    files.close()
    learned_facts = state.enricher.catalog.learned_facts
    assert learned_facts is not None
    learned_facts.hosts.update(state.inspector.names)


def _take_rest(stager: Stager, rest: list[Output], events: Callable[[Sequence[Output]], object] | None) -> None:
    if events is not None:
        events(rest)
    stager.take(rest)


def stage_unfinished(
    state: ShardState, options: ExportOptions, predicate: Predicate | None, folder: ConfinedPath
) -> None:
    """Stage rows that end only with the captures: they are unfinished, and a run that continues replaces them.

    Afterwards only the names and the summary of the state are valid. Raises OSError.
    """
    folder.remove_tree()
    files = StagedFiles(folder)
    stage_rest(state, new_stager(state, options, predicate, files), files)
