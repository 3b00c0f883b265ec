"""Fetch sessions between the stages: what each Fetch exchange in a session is about, found broker by broker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
import pyarrow as pa

from kafkasniff.model import Endpoint
from kafkasniff.rows.sessions import Sessions, encode_held
from kafkasniff.rows.staged import SessionStep
from kafkasniff.spark.connections import BATCH_ROWS, batch_of
from kafkasniff.state import dump, load
from kafkasniff.state.values import Values

__all__ = ["BROKER_VALUES", "HELD", "SESSIONS", "STEP_COLUMNS", "BrokerSessions", "WalkSessions"]

HELD: Final = "held"
SESSIONS: Final = "sessions"

STEP_COLUMNS: Final = ("broker", "open", "time_ns", "connection_id", "exchange_id", "slot", "step")
"""What is needed of the exchanges of stage 1: all exchanges of a broker in one task, sorted by these (null first)."""

_STEP: Final = msgspec.msgpack.Decoder(SessionStep)


class BrokerSessions(msgspec.Struct):
    """The sessions of a broker when all that was over is gone through."""

    broker: Endpoint
    state: bytes
    """`Sessions`, dumped."""

    def sessions(self) -> Sessions:
        """They."""
        return load(self.state, Sessions)


BROKER_VALUES: Final = Values[BrokerSessions](BrokerSessions)
"""What `data` of kind `sessions` holds."""


class WalkSessions:
    """Rows of exchanges in sessions to rows of kind `held` (what `rows.sessions.encode_held` makes) and `sessions`."""

    def __init__(self, carried: bytes) -> None:
        """`carried`: the `Sessions` that the last run left, dumped."""
        self._carried = carried

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What Spark calls, once for each task."""
        carried = load(self._carried, Sessions)
        broker: str | None = None
        walk: _Broker | None = None
        for batch in batches:
            rows = []
            for name, open_, time_ns, connection_id, exchange_id, slot, data in zip(
                *(batch.column(column).to_pylist() for column in STEP_COLUMNS), strict=True
            ):
                if walk is None or name != broker:
                    if walk is not None:
                        yield _told(walk)
                    broker, walk = name, _Broker(name, carried)
                held = walk.step(time_ns, _STEP.decode(data), open_=open_)
                if held is not None:
                    rows.append((HELD, open_, slot, connection_id, exchange_id, None, None, None, len(held), held))
                if len(rows) >= BATCH_ROWS:
                    yield batch_of(rows)
                    rows = []
            yield batch_of(rows)
        if walk is not None:
            yield _told(walk)


class _Broker:
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
        # What is open now the next run goes through again, from here.
        self._sessions.answer()
        self._state = dump(self._sessions)
        return self._state

    def finish(self) -> BrokerSessions:
        return BrokerSessions(self.endpoint, self._settle() if self._state is None else self._state)


def _told(walk: _Broker) -> pa.RecordBatch:
    data = BROKER_VALUES.dump(walk.finish())
    return batch_of([(SESSIONS, False, 0, 0, 0, None, None, None, len(data), data)])
