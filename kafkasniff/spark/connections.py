"""Stage 1: packets to staged rows; each task handles one shard of the connections.

The packets of a shard arrive in capture order, so a task works like one process of `export --jobs`: it starts from the
shard's state of the last run, ends with the state for the next, and its rows are final but for facts that other shards
may know (`exports.staging`). They stay on the disk of the executor until these are known (stage 2, table_rows.py).
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import zstandard

from kafkasniff.capture.timeline.key_log_file import MAX_KEY_LOG
from kafkasniff.capture.timeline.parts import Place, PlacedNote
from kafkasniff.engine.inspector import Inspector
from kafkasniff.enrich.catalog import LearnedFacts
from kafkasniff.enrich.sessions import SessionStep
from kafkasniff.errors import MissingExtraError, MissingPartError, UsageError
from kafkasniff.model import NO_TIME, Endpoint, Problem, Summary
from kafkasniff.packets import COLUMNS, Note, PacketBatch
from kafkasniff.runtime.memory_limits import checked_memory
from kafkasniff.runtime.threads import Task, Threads
from kafkasniff.spark.options import arrow_schema
from kafkasniff.spark.pieces import ZSTD_LEVEL, PieceStore, in_capture_order, read_ahead, rows_before
from kafkasniff.spark.tasks import settle_worker
from kafkasniff.tables.checkpoint import dump, load
from kafkasniff.tables.checkpoint.wire import Values
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.shard import parts
from kafkasniff.tables.exports.staging import load_state, new_stager, stage, stage_rest
from kafkasniff.tables.rows.sessions import Sessions, encode_held
from kafkasniff.tables.rows.staged import STAGED, StagedParts, place_name
from kafkasniff.tls.keylog import KeyLog

# -- TLS secrets -------------------------------------------------------------------------------------------------------
#
# They travel to tasks within the function that these run, never as rows, settings or names: plans, event logs and
# messages show the names of functions, not their contents. docs/spark.md says what Spark may still write to its disks.

MAX_CAPTURED: Final = MAX_KEY_LOG
"""Maximum size of secrets in captures, which every task receives: the limit of a key log."""

PlacedSecrets = tuple[Place, bytes]
"""A block of secrets, and its position in the captures."""


def secrets_among(notes: Iterable[PlacedNote], captures_before: int = 0) -> list[PlacedSecrets]:
    """The secrets among notes; indices of captures continue those of earlier runs."""
    return [
        (note.place._replace(capture=note.place.capture + captures_before), note.value)
        for note in notes
        if isinstance(note.value, bytes)
    ]


def key_log_problems(keys: KeyLog | None) -> list[Problem]:
    """Problems of a key log's lines, reported once."""
    flaws = [] if keys is None else keys.take_flaws()
    return [Problem("tls-key-log", "; ".join(flaws))] if flaws else []


class TaskKeys:
    """Secrets given to each task of stage 1; to be pickled, but not to be shown."""

    def __init__(self, keys: KeyLog | None = None, captured: Iterable[PlacedSecrets] = ()) -> None:
        """`captured`: in any order. Raises MissingPartError if there is a key log but no package for decryption.

        Raises UsageError if captures have more than `MAX_CAPTURED` bytes of secrets.
        """
        self._file = None if keys is None else keys.file_secrets
        self._captured = sorted(captured, key=lambda one: one[0])
        if sum(len(block) for _, block in self._captured) > MAX_CAPTURED:
            raise UsageError(
                f"the captures hold more than {MAX_CAPTURED >> 20} MiB of decryption secrets: use --engine local"
            )
        here = _can_decrypt()
        if self._file is not None and not here:
            raise MissingExtraError("a key log", "cryptography", "tls")
        # If the package is missing everywhere, the connections' problems say so, as without Spark.
        self._decrypts = here and (self._file is not None or bool(self._captured))

    def begin(self, inspector: Inspector, shard: int) -> WaitingSecrets:
        """Give the key log to a task's inspector; returns the secrets to insert between packets.

        Raises MissingPartError if this task cannot decrypt although others can.
        """
        if self._decrypts and not _can_decrypt():
            raise MissingPartError("Spark's workers cannot decrypt TLS: their Python lacks the package cryptography")
        if self._file is not None:
            inspector.follow_key_log(KeyLog.of(self._file))
        # All shards see all secrets; only one reports on them.
        inspector.keys.reports = shard == 0
        return WaitingSecrets(self._captured)


class WaitingSecrets:
    """The captures' secrets, to be inserted between the packets of one shard, which arrive in capture order."""

    def __init__(self, captured: Iterable[PlacedSecrets]) -> None:
        """`captured`: in order."""
        self._left = list(captured)[::-1]

    def among(self, batch: PacketBatch) -> list[Note]:
        """The secrets that precede a packet of the next batch, but no packet before it."""
        notes: list[Note] = []
        while self._left:
            row = rows_before(batch, self._left[-1][0])
            if row == len(batch):
                break  # a packet of the next batch may be nearer
            notes.append(Note(int(batch.order[row]), self._left.pop()[1]))
        return notes

    def rest(self, order: int) -> list[Note]:
        """The secrets after the last packet, whose order is one less."""
        left, self._left = self._left[::-1], []
        return [Note(order, block) for _, block in left]


def _can_decrypt() -> bool:
    return importlib.util.find_spec("cryptography") is not None


# -- rows between the stages -------------------------------------------------------------------------------------------
#
# Rows between the stages: staged rows of the tables as Arrow streams, steps of fetch sessions, ends of shards.
#
# Spark handles every row one by one, in Java, and copies it several times. So there are few, and they are compressed: a
# row has up to `BLOCK_BYTES` of a table.

STEP: Final = "step"
END: Final = "end"

SHARD_ROWS: Final = {
    "kind": "string",
    "open": "boolean",
    "shard": "bigint",
    "number": "bigint",
    "in_session": "boolean",
    "connection_id": "bigint",
    "exchange_id": "bigint",
    "time_ns": "bigint",
    "broker": "string",
    "data": "binary",
}
"""Rows of stage 1, with their types in Spark.

`kind`: a table (`data` is a block of its staged rows), `step` (`data` is an `enrich.sessions.SessionStep`), `end` (of a
shard, `data` is a `connections.ShardEnd`). `open`: the exchanges were still open when the captures ended. `number`: of
the block in its shard, or of the block that has the step's exchange. `in_session`: exchanges that are in fetch
sessions. `connection_id`, `exchange_id`, `time_ns`, `broker`: of a step.
"""
_SCHEMA: Final = arrow_schema(SHARD_ROWS)

BLOCK_BYTES: Final = 8 << 20
"""Approximate bytes of staged rows in a block, before compression."""
WAITING_BYTES: Final = 32 << 20
"""Bytes of rows, of blocks before compression, that wait until they are handed to Spark."""
BATCH_BYTES: Final = 8 << 20
BATCH_ROWS: Final = 10_000
"""Maximum size of a batch handed to Spark."""
_NO_STEP: Final = (None,) * 4
"""What rows have in the columns of steps."""


class ShardRows:
    """Takes the staged rows of a shard (`exports.staging.Staged`), and hands them on as rows for Spark."""

    def __init__(self, shard: int, threads: Threads) -> None:
        """`threads` compress blocks: a connection that is most of the traffic is a single task, beside idle cores."""
        self._shard = shard
        self._threads = threads
        self._rows: list[tuple[Any, ...]] = []
        self._waiting = 0
        self._number = 0
        self.open = False
        """Whether the next rows are exchanges that are still open when the captures end."""
        self.bytes = 0
        """Total bytes of staged rows so far."""
        self.bytes_in_session = 0
        """The part of them with exchanges in fetch sessions."""

    def write(self, table: str, batch: pa.RecordBatch) -> None:
        """Take staged rows."""
        steps = _steps(batch) if table == "exchanges" else {}
        if steps:
            mask = np.zeros(len(batch), np.bool_)
            mask[list(steps)] = True
            self._blocks(table, batch.filter(pa.array(~mask)))
            self._blocks(table, batch.filter(pa.array(mask)), list(steps.values()))
        else:
            self._blocks(table, batch)

    def close(self) -> None:
        """After the last row; there is nothing left to do."""

    def add(self, kind: str, data: bytes) -> None:
        """Add a row that is not a block."""
        self._add(kind, data, len(data))

    def _add(
        self, kind: str, data: bytes | Task[bytes], size: int, *, session: bool = False, place: Sequence[Any] = _NO_STEP
    ) -> None:
        self._rows.append((kind, self.open, self._shard, self._number, session, *place, data))
        self._waiting += size

    def full(self) -> Iterator[pa.RecordBatch]:
        """The rows, once there are enough."""
        if len(self._rows) >= BATCH_ROWS or self._waiting >= WAITING_BYTES:
            yield from self.take()

    def take(self) -> Iterator[pa.RecordBatch]:
        """All rows, in batches of bounded size."""
        first = size = 0
        rows, self._rows, self._waiting = self._rows, [], 0
        rows = [(*row, data.result() if isinstance(data, Task) else data) for *row, data in rows]
        for number, row in enumerate(rows, 1):
            size += len(row[-1])
            if size >= BATCH_BYTES or number == len(rows):
                yield batch_of(rows[first:number])
                first, size = number, 0

    def _blocks(self, table: str, batch: pa.RecordBatch, steps: Sequence[tuple[Any, ...]] = ()) -> None:
        if not len(batch):
            return
        rows = max(1, len(batch) * BLOCK_BYTES // max(batch.nbytes, 1))
        for start in range(0, len(batch), rows):
            some = batch.slice(start, rows)
            self.bytes += some.nbytes
            self.bytes_in_session += some.nbytes if steps else 0
            block = self._threads.begin(partial(_block, table, some))
            self._add(table, block, some.nbytes, session=bool(steps))
            for *place, step in steps[start : start + rows]:
                self._add(STEP, step, len(step), session=True, place=place)
            self._number += 1


def _steps(batch: pa.RecordBatch) -> dict[int, tuple[Any, ...]]:
    """Rows of `exchanges` that are in fetch sessions: what their steps have in the columns of `SHARD_ROWS`."""
    rows = np.flatnonzero(batch.column("_pending").is_valid().to_numpy(zero_copy_only=False))
    wanted = ("connection_id", "exchange_id", "time_ns", "broker_ip", "broker_port", "_pending")
    some = [batch.column(name).take(pa.array(rows)).to_pylist() for name in wanted]
    found: dict[int, tuple[Any, ...]] = {}
    for row, *key, address, port, data in zip(rows.tolist(), *some, strict=True):
        step = msgspec.msgpack.decode(data, type=StagedParts).session
        if step is not None and address is not None:
            found[row] = (*key, place_name(address, port), msgspec.msgpack.encode(step))
    return found


def _block(table: str, batch: pa.RecordBatch, _thread: int) -> bytes:
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, STAGED[table]) as writer:
        writer.write_batch(batch)
    # As a whole: Arrow would compress each of some hundred buffers with a context of its own, at a third more cost.
    return zstandard.compress(stream.getvalue(), ZSTD_LEVEL)


def read_block(data: pa.Buffer) -> pa.RecordBatch:
    """The staged rows of a block."""
    with pa.ipc.open_stream(pa.py_buffer(zstandard.decompress(data))) as stream:
        return stream.read_next_batch()


def batch_of(rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    """Rows in the order of `SHARD_ROWS` as a record batch."""
    columns = zip(*rows, strict=True) if rows else ([] for _ in _SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


# -- stage 1 -----------------------------------------------------------------------------------------------------------


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
    ) -> None:
        """`end_clock`: the packet clock when the captures end; `order`: number of packets in earlier runs.

        `names`: names of captures by `capture_index`; `keys`: secrets for decrypting TLS; `memory`: budget of a task
        in bytes.
        """
        self._options = options
        self._names = tuple(names.get(index, "") for index in range(max(names, default=-1) + 1))
        self._order = order
        self._end_clock = end_clock
        self._memory = checked_memory(memory)
        self._keys = TaskKeys() if keys is None else keys

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
            store = stack.enter_context(PieceStore())
            threads = stack.enter_context(Threads(1, "kafkasniff-shard"))
            shard, begin = store.take(batches)
            out = ShardRows(shard, threads)
            pieces = read_ahead(store.in_order(), threads)
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


# -- fetch sessions between the stages ---------------------------------------------------------------------------------

HELD: Final = "held"
SESSIONS: Final = "sessions"

STEP_COLUMNS: Final = ("broker", "open", "time_ns", "connection_id", "exchange_id", "shard", "number", "data")
"""Columns needed of the steps of stage 1: all of a broker in one task, sorted by the first five (null first)."""

_STEP: Final = msgspec.msgpack.Decoder(SessionStep)


class BrokerSessions(msgspec.Struct):
    """The sessions of a broker after all exchanges that had ended."""

    broker: Endpoint
    state: bytes
    """`Sessions`, dumped."""

    def sessions(self) -> Sessions:
        """They."""
        return load(self.state, Sessions)


BROKER_VALUES: Final = Values[BrokerSessions](BrokerSessions)
"""Type of `data` for kind `sessions`."""


class WalkSessions:
    """Steps of exchanges in sessions to rows of kind `held` (made by `rows.sessions.encode_held`) and `sessions`."""

    def __init__(self, carried: bytes) -> None:
        """`carried`: the dumped `Sessions` of the last run."""
        self._carried = carried

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark, once per task."""
        carried = load(self._carried, Sessions)
        broker: str | None = None
        walk: _BrokerSessions | None = None
        for batch in batches:
            rows = []
            for name, open_, time_ns, *exchange, shard, number, data in zip(
                *(batch.column(column).to_pylist() for column in STEP_COLUMNS), strict=True
            ):
                if walk is None or name != broker:
                    if walk is not None:
                        yield _sessions_row(walk)
                    broker, walk = name, _BrokerSessions(name, carried)
                held = walk.step(time_ns, _STEP.decode(data), open_=open_)
                if held is not None:
                    rows.append((HELD, open_, shard, number, True, *exchange, None, None, held))
                if len(rows) >= BATCH_ROWS:
                    yield batch_of(rows)
                    rows = []
            yield batch_of(rows)
        if walk is not None:
            yield _sessions_row(walk)


class _BrokerSessions:
    """The sessions of one broker."""

    def __init__(self, name: str, carried: Sessions) -> None:
        address, _, port = name.rpartition("/")
        self.endpoint = Endpoint(address, int(port))
        self._sessions = carried.of({self.endpoint})
        self._state: bytes | None = None

    def step(self, time_ns: int | None, step: SessionStep, *, open_: bool) -> bytes | None:
        if open_ and self._state is None:
            self._settle()
        held = self._sessions.step(self.endpoint, time_ns, step)
        return None if held is None else encode_held(held)

    def _settle(self) -> bytes:
        # The next run processes exchanges that are open now again, from this state.
        self._sessions.answer()
        self._state = dump(self._sessions)
        return self._state

    def finish(self) -> BrokerSessions:
        return BrokerSessions(self.endpoint, self._settle() if self._state is None else self._state)


def _sessions_row(walk: _BrokerSessions) -> pa.RecordBatch:
    data = BROKER_VALUES.dump(walk.finish())
    return batch_of([(SESSIONS, False, 0, 0, True, None, None, None, None, data)])
