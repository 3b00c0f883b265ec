"""Fetch sessions between the stages: the topics of each Fetch exchange in a session, found broker by broker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
import pyarrow as pa

from kafkasniff.enrich.sessions import SessionStep
from kafkasniff.model import Endpoint
from kafkasniff.spark.shard_rows import BATCH_ROWS, batch_of
from kafkasniff.tables.checkpoint import dump, load
from kafkasniff.tables.checkpoint.values import Values
from kafkasniff.tables.rows.sessions import Sessions, encode_held

__all__ = ["BROKER_VALUES", "HELD", "SESSIONS", "STEP_COLUMNS", "BrokerSessions", "WalkSessions"]

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
