"""Stage 1: packets to exchanges; each task handles one shard of the connections.

The packets of a shard arrive in capture order, so a task works like one process of `export --jobs`: it has one
inspector, which starts from the shard's state of the last run and ends with the state for the next. Its events are
passed on as typed data (`checkpoint.values`), with records still as on the wire. So a task only reassembles, frames,
pairs and decodes the bodies around the records: a connection with much traffic costs little here, and the expensive
work (stage 2, table_rows.py) is distributed by exchange.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from kafkasniff.enrich.learned_facts import LearnedFacts
from kafkasniff.kafka.apis.named_apis import FETCH
from kafkasniff.model import Connection, Exchange, Problem, Summary
from kafkasniff.runtime.memory_limits import checked_memory
from kafkasniff.spark.keys import TaskKeys
from kafkasniff.spark.packet_rows import packet_batches
from kafkasniff.spark.worker_kernel import check_kernel
from kafkasniff.tables.checkpoint import dump
from kafkasniff.tables.checkpoint.carried import ShardState
from kafkasniff.tables.checkpoint.values import Values
from kafkasniff.tables.exports.beginning import load_state
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.shard import parts
from kafkasniff.tables.rows.problems import NOT_KAFKA
from kafkasniff.tables.rows.sessions import session_step
from kafkasniff.tables.rows.staged import place_name
from kafkasniff.tcp.packets import COLUMNS, NO_TIME, PacketBatch

__all__ = [
    "CONNECTION",
    "CONNECTION_VALUES",
    "END",
    "END_VALUES",
    "EXCHANGE",
    "EXCHANGES",
    "EXCHANGE_VALUES",
    "PROBLEM",
    "PROBLEM_VALUES",
    "SLOT_NS",
    "ReadConnections",
    "ShardEnd",
    "batch_of",
    "slot_of",
]

EXCHANGE: Final = "exchange"
CONNECTION: Final = "connection"
PROBLEM: Final = "problem"
END: Final = "end"

EXCHANGES: Final = {
    "kind": "string",
    "open": "boolean",
    "slot": "bigint",
    "connection_id": "bigint",
    "exchange_id": "bigint",
    "time_ns": "bigint",
    "broker": "string",
    "step": "binary",
    "size": "bigint",
    "data": "binary",
}
"""Rows of stage 1, with their types in Spark.

`kind`: `exchange` (`data` is an `Exchange` and whether names are missing in its bodies, see `EXCHANGE_VALUES`),
`connection`, `problem` (likewise), `end` (of a shard, a `ShardEnd`). `open`: it was still open when the captures ended.
`slot`: the minute of its time. `time_ns`, `broker` and `step` are set for exchanges in fetch sessions
(`enrich.sessions.SessionStep`). `size`: bytes of `data`.
"""
_SCHEMA: Final = pa.schema(
    [
        pa.field("kind", pa.string()),
        pa.field("open", pa.bool_()),
        *(pa.field(name, pa.int64()) for name in ("slot", "connection_id", "exchange_id", "time_ns")),
        pa.field("broker", pa.string()),
        pa.field("step", pa.binary()),
        pa.field("size", pa.int64()),
        pa.field("data", pa.binary()),
    ]
)

SLOT_NS: Final = 60 * 10**9
"""Rows are distributed to tasks of stage 2 by the minute of their time, so that a file covers a span of time."""

BATCH_BYTES: Final = 8 << 20
BATCH_ROWS: Final = 10_000
"""Maximum size of a batch handed to Spark."""


class ShardEnd(msgspec.Struct):
    """The final state of a shard."""

    shard: int
    state: bytes
    """A `ShardState`, for the next run."""
    learned_facts: LearnedFacts
    summary: Summary
    order: int
    """Packets so far, including earlier runs."""
    without_kernel: str | None = None
    """Why the task had no native kernel; None: it had one."""
    slots: dict[int, tuple[int, int]] = {}
    """By slot, the bytes of `data` in the other rows of the shard, and the number of these rows."""
    steps: bool = False
    """Whether any of them has a `step`."""


EXCHANGE_VALUES: Final = Values[tuple[Exchange, bool]](tuple[Exchange, bool])
CONNECTION_VALUES: Final = Values[Connection](Connection)
PROBLEM_VALUES: Final = Values[Problem](Problem)
END_VALUES: Final = Values[ShardEnd](ShardEnd)
"""Type of `data` by kind. The data passes through shuffle files."""


def slot_of(time_ns: int | None) -> int:
    """The slot of a time; without one, that of 1970."""
    return 0 if time_ns is None else time_ns // SLOT_NS


class ReadConnections:
    """Reads the packets of one shard, in capture order; Spark's partition number is the shard's number.

    A row with the initial state of the shard, in the column `state`, precedes them.
    """

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
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        yield from self.read(context.partitionId(), batches)

    def read(self, shard: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of a shard, from the row with its state and its packets in capture order."""
        state: ShardState | None = None
        order = self._order
        out = _RowBuffer()
        for batch in batches:
            packets = batch
            if state is None:
                state = load_state(batch.column("state")[0].as_py(), self._options)
                state.inspector.limit_memory(self._memory)
                state.inspector.limit_messages(self._memory)
                # The summaries of earlier runs are not counted again.
                state.enricher.count_into(state.inspector.begin_summary())
                secrets = self._keys.begin(state.inspector, shard)
                packets = batch.slice(1)
            whole = packet_batches(packets, self._names, order)
            whole.notes.extend(secrets.among(whole))
            for part in parts(whole):
                for events in state.inspector.feed_slices(part):
                    self._take(state, events, out)
                    yield from out.full()
            order += len(packets)
        assert state is not None
        end = _nothing(self._names, order, self._end_clock)
        end.notes.extend(secrets.rest(order))
        self._take(state, state.inspector.feed(end), out)
        carried = dump(state)
        self._take(state, state.inspector.close(), out, open_=True)
        learned_facts = state.enricher.catalog.learned_facts
        assert learned_facts is not None
        left = ShardEnd(shard, carried, learned_facts, state.inspector.summary, order, check_kernel())
        left.slots, left.steps = dict(out.slots), out.steps
        out.add(END, END_VALUES.dump(left), connection_id=shard)
        yield from out.take()

    def _take(self, state: ShardState, events: Sequence[Any], out: _RowBuffer, *, open_: bool = False) -> None:
        tables = self._options.tables
        learned_facts = state.enricher.catalog.learned_facts
        missed = state.enricher.missed
        assert learned_facts is not None
        for event in state.enricher.feed(events):
            kind = type(event)
            if kind is Exchange:
                unnamed = event.exchange in missed
                missed.discard(event.exchange)
                if tables != ("connections",):
                    out.exchange(event, unnamed=unnamed, open_=open_)
            elif kind is Connection:
                learned_facts.connection(event)
                if "connections" in tables or event.verdict == "not_kafka":
                    data = CONNECTION_VALUES.dump(event)
                    out.add(CONNECTION, data, slot_of(event.time_ns), connection_id=event.connection_id, open_=open_)
            elif kind is Problem and "problems" in tables and event.exchange is None and event.kind != NOT_KAFKA:
                data = PROBLEM_VALUES.dump(event)
                out.add(PROBLEM, data, slot_of(event.time_ns), connection_id=event.connection_id or 0, open_=open_)


def _nothing(names: tuple[str, ...], order: int, end_clock: int) -> PacketBatch:
    """No packets, only the time when the captures end."""
    columns: dict[str, Any] = {name: np.empty(0, dtype) for name, dtype in COLUMNS.items()}
    clock = np.empty(0, np.int64)
    return PacketBatch(columns, b"", captures=names, clock=clock, end_clock=end_clock, end_order=order, packets=0)


class _RowBuffer:
    """Rows waiting to be handed to Spark."""

    def __init__(self) -> None:
        self._rows: list[tuple[Any, ...]] = []
        self._bytes = 0
        self.slots: dict[int, tuple[int, int]] = {}
        """As in `ShardEnd`."""
        self.steps = False

    def exchange(self, exchange: Exchange, *, unnamed: bool, open_: bool) -> None:
        request, response = exchange.request, exchange.response
        seen = request if request is not None else response
        if seen is None:
            return
        step = broker = None
        if request is not None and request.api_key == FETCH and request.broker is not None:
            found = session_step(request, response)
            if found is not None:
                step = msgspec.msgpack.encode(found)
                broker = place_name(request.broker.address, request.broker.port)
        self.add(
            EXCHANGE,
            EXCHANGE_VALUES.dump((exchange, unnamed)),
            slot_of(seen.time_ns),
            connection_id=exchange.connection_id or 0,
            exchange_id=exchange.exchange_id or 0,
            open_=open_,
            time_ns=seen.time_ns,
            broker=broker,
            step=step,
        )

    def add(
        self,
        kind: str,
        data: bytes,
        slot: int = 0,
        *,
        connection_id: int = 0,
        exchange_id: int = 0,
        open_: bool = False,
        time_ns: int | None = None,
        broker: str | None = None,
        step: bytes | None = None,
    ) -> None:
        row = (kind, open_, slot, connection_id, exchange_id, time_ns, broker, step, len(data), data)
        self._rows.append(row)
        self._bytes += len(data)
        size, count = self.slots.get(slot, (0, 0))
        self.slots[slot] = size + len(data), count + 1
        self.steps |= step is not None

    def full(self) -> Iterator[pa.RecordBatch]:
        """The rows, once there are enough."""
        if len(self._rows) >= BATCH_ROWS or self._bytes >= BATCH_BYTES:
            yield from self.take()

    def take(self) -> Iterator[pa.RecordBatch]:
        """All rows, in batches of bounded size."""
        first = size = 0
        rows, self._rows, self._bytes = self._rows, [], 0
        for number, row in enumerate(rows, 1):
            size += row[-2]
            if size >= BATCH_BYTES or number == len(rows):
                yield batch_of(rows[first:number])
                first, size = number, 0


def batch_of(rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    """Rows in the order of `EXCHANGES` as a record batch."""
    columns = zip(*rows, strict=True) if rows else ([] for _ in _SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
