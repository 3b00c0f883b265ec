"""Fetch sessions of an export by Spark: brokers of their own, and what the next run continues with.

What they mean for rows: test_connections.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from kafkasniff.enrich.sessions import SessionStep
from kafkasniff.model import Endpoint
from kafkasniff.spark import connections
from kafkasniff.spark.connections import BROKER_VALUES, HELD, SESSIONS, STEP, STEP_COLUMNS, BrokerSessions, WalkSessions
from kafkasniff.tables.checkpoint import dump
from kafkasniff.tables.rows.sessions import SessionContent, Sessions, encode_held
from tests.spark.both_stages import decode
from tests.tables.exports.exported import CAPTURES

FIRST, SECOND = Endpoint("10.0.0.1", 9092), Endpoint("fd00::2", 9093)


def fetch(broker: Endpoint, time_ns: int, epoch: int, *topics: str, open_: bool = False) -> dict[str, Any]:
    """An exchange in session 5; a broker answers epoch 0 with a new session."""
    added = {topic: [0] for topic in topics}
    step = SessionStep(5 if epoch else 0, epoch, added=added, answer_ns=time_ns + 1, answer_number=5)
    place = (f"{broker.address}/{broker.port}", open_, time_ns, 7, time_ns, 3, 5)
    return dict(zip(STEP_COLUMNS, (*place, msgspec.msgpack.encode(step)), strict=True))


def walked(
    fetches: Sequence[dict[str, Any]], carried: Sessions | None = None, size: int = 100
) -> tuple[dict[int, bytes], dict[Endpoint, Sessions]]:
    """What applies to each exchange, and the sessions of each broker afterwards."""
    schema = decode([CAPTURES / "java-0.8.2.pcap"]).rows[0].schema
    order = sorted(fetches, key=lambda one: (one["broker"], one["open"], one["time_ns"]))
    rows = [pa.RecordBatch.from_pylist(order[at : at + size], schema=schema) for at in range(0, len(order), size)]
    held: dict[int, bytes] = {}
    after: dict[Endpoint, Sessions] = {}
    for batch in WalkSessions(dump(carried or Sessions()))(rows):
        for found in batch.to_pylist():
            if found["kind"] == HELD:
                assert (found["connection_id"], found["shard"], found["number"]) == (7, 3, 5)
                held[found["exchange_id"]] = found["data"]
            else:
                assert found["kind"] == SESSIONS != STEP
                broker: BrokerSessions = BROKER_VALUES.load(found["data"])
                assert broker.broker not in after
                after[broker.broker] = broker.sessions()
    return held, after


def content(*topics: str) -> bytes:
    return encode_held(SessionContent(topics, False, len(topics), None))


def test_a_session_is_its_brokers_and_open_exchanges_are_no_part_of_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next run processes open ones again: what it begins with is the state before them."""
    begun = [fetch(FIRST, 10, 0, "orders"), fetch(SECOND, 11, 0, "returns"), fetch(FIRST, 20, 1), fetch(SECOND, 21, 1)]
    opened = [fetch(FIRST, 30, 2, "payments", open_=True), fetch(FIRST, 40, 3, open_=True)]
    held, after = walked([*begun, *opened])
    assert (held[20], held[21], held[40]) == (content("orders"), content("returns"), content("orders", "payments"))
    assert after.keys() == {FIRST, SECOND}
    assert dump(after[FIRST]) == dump(walked(begun)[1][FIRST])
    carried = Sessions()
    carried.replace({FIRST}, after[FIRST])
    again, _ = walked([{**one, "open": False} for one in opened], carried)
    assert again == {number: held[number] for number in (30, 40)}
    assert walked([fetch(SECOND, 50, 2)], carried)[0] == {}, "nothing is known of this session"
    monkeypatch.setattr(connections, "BATCH_ROWS", 1)
    assert walked([*begun, *opened], size=1)[0] == held
