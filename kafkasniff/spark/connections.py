"""Stage 1: packets to staged rows; each task handles one shard of the connections.

The packets of a shard arrive in capture order, so a task works like one process of `export --jobs`: it starts from the
shard's state of the last run, ends with the state for the next, and its rows are final but for facts that other shards
may know (`exports.staging`). They stay on the disk of the executor until these are known (stage 2, table_rows.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from kafkasniff.capture.timeline.parts import Place
from kafkasniff.enrich.catalog import LearnedFacts
from kafkasniff.model import NO_TIME, Problem, Summary
from kafkasniff.packets import COLUMNS, PacketBatch
from kafkasniff.runtime.memory_limits import checked_memory
from kafkasniff.runtime.threads import Threads
from kafkasniff.spark.keys import TaskKeys
from kafkasniff.spark.piece_store import PieceStore
from kafkasniff.spark.pieces import in_capture_order, read_ahead
from kafkasniff.spark.shard_rows import END, ShardRows
from kafkasniff.spark.worker_settings import settle_worker
from kafkasniff.tables.checkpoint import dump
from kafkasniff.tables.checkpoint.values import Values
from kafkasniff.tables.exports.beginning import load_state
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.shard import parts
from kafkasniff.tables.exports.staging import new_stager, stage, stage_rest

__all__ = ["BEGIN_VALUES", "END_VALUES", "ReadConnections", "ShardBegin", "ShardEnd"]


class ShardBegin(msgspec.Struct):
    """What a shard begins with."""

    state: bytes
    """A `ShardState`."""
    problems: list[Problem] = []
    """Problems of the run rather than of a connection: they become rows of one of the shards."""


class ShardEnd(msgspec.Struct):
    """The final state of a shard."""

    shard: int
    state: bytes
    """A `ShardState`, for the next run."""
    learned_facts: LearnedFacts
    summary: Summary
    order: int
    """Packets so far, including earlier runs."""
    size: int = 0
    """Bytes of its staged rows."""
    in_session: int = 0
    """Bytes of those that are exchanges in fetch sessions."""


BEGIN_VALUES: Final = Values[ShardBegin](ShardBegin)
END_VALUES: Final = Values[ShardEnd](ShardEnd)
"""Types of values that pass through shuffle files."""


class ReadConnections:
    """Reads the pieces of one shard, which come in any order. Among them is a row with a `ShardBegin`."""

    def __init__(
        self,
        options: ExportOptions,
        names: Mapping[int, str],
        *,
        order: int = 0,
        end_clock: int = NO_TIME,
        keys: TaskKeys | None = None,
        memory: int | None = None,
        earliest: Sequence[Place] = (),
    ) -> None:
        """`end_clock`: the packet clock when the captures end; `order`: number of packets in earlier runs.

        `names`: names of captures by `capture_index`; `keys`: secrets for decrypting TLS; `memory`: budget of a task
        in bytes; `earliest`: as for `PieceStore`.
        """
        self._options = options
        self._names = tuple(names.get(index, "") for index in range(max(names, default=-1) + 1))
        self._order = order
        self._end_clock = end_clock
        self._memory = checked_memory(memory)
        self._keys = TaskKeys() if keys is None else keys
        self._earliest = earliest

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark, once per task."""
        settle_worker()
        yield from self.read(batches)

    def read(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of a shard, from its pieces and the row with its beginning. Raises OSError.

        The rows have the number of the shard; the number of the partition is another one if Spark makes lost rows of a
        union again.
        """
        with contextlib.ExitStack() as stack:
            # Closed last: threads may still read its file.
            store = stack.enter_context(PieceStore(self._earliest))
            threads = stack.enter_context(Threads(1, "kafkasniff-shard"))
            rows = iter(batches)
            shard, begin = store.beginning(rows)
            out = ShardRows(shard, threads)
            pieces = read_ahead(store.in_order(rows), threads)
            yield from self._read(shard, BEGIN_VALUES.load(begin), pieces, out)

    def _read(
        self, shard: int, begin: ShardBegin, pieces: Iterator[PacketBatch], out: ShardRows
    ) -> Iterator[pa.RecordBatch]:
        order = self._order
        state = load_state(begin.state, self._options)
        state.inspector.limit_memory(self._memory)
        state.inspector.limit_messages(self._memory)
        # The summaries of earlier runs are not counted again.
        state.enricher.count_into(state.inspector.begin_summary())
        secrets = self._keys.begin(state.inspector, shard)
        stager = new_stager(state, self._options, None, out)
        stager.take(begin.problems)
        for whole in in_capture_order(pieces):
            whole.captures = self._names
            whole.order += order
            whole.end_order += order
            whole.notes.extend(secrets.among(whole))
            for part in parts(whole):
                stage(state, stager, part)
                yield from out.full()
            order = whole.end_order
        rest = _nothing(self._names, order, self._end_clock)
        rest.notes.extend(secrets.rest(order))
        stage(state, stager, rest)
        stager.flush()
        learned_facts = state.enricher.catalog.learned_facts
        assert learned_facts is not None
        end = ShardEnd(shard, dump(state), learned_facts, state.inspector.summary, order)
        yield from out.take()
        out.open = True
        stage_rest(state, new_stager(state, self._options, None, out), out)
        end.size, end.in_session = out.bytes, out.bytes_in_session
        yield from out.take()
        out.add(END, END_VALUES.dump(end))
        yield from out.take()


def _nothing(names: tuple[str, ...], order: int, end_clock: int) -> PacketBatch:
    """No packets, only the time when the captures end."""
    columns: dict[str, Any] = {name: np.empty(0, dtype) for name, dtype in COLUMNS.items()}
    clock = np.empty(0, np.int64)
    return PacketBatch(columns, b"", captures=names, clock=clock, end_clock=end_clock, end_order=order, packets=0)
