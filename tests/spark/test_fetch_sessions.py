"""Fetch sessions of an export by Spark, without Spark: rows of brokers in, what applies to each exchange out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pytest

from kafkasniff.enrich.sessions import SessionStep
from kafkasniff.model import Endpoint
from kafkasniff.spark import fetch_sessions
from kafkasniff.spark.fetch_sessions import BROKER_VALUES, HELD, SESSIONS, STEP_COLUMNS, BrokerSessions, WalkSessions
from kafkasniff.tables.checkpoint import dump
from kafkasniff.tables.rows.sessions import SessionContent, Sessions, encode_held

FIRST, SECOND = Endpoint("10.0.0.1", 9092), Endpoint("fd00::2", 9093)
SCHEMA = pa.schema(
    [
        ("broker", pa.string()),
        ("open", pa.bool_()),
        ("time_ns", pa.int64()),
        ("connection_id", pa.int64()),
        ("exchange_id", pa.int64()),
        ("shard", pa.int64()),
        ("number", pa.int64()),
        ("data", pa.binary()),
    ]
)


class Fetch(NamedTuple):
    """An exchange with a step of a session."""

    broker: Endpoint
    time_ns: int
    exchange: int
    step: SessionStep
    open: bool = False


def begins(broker: Endpoint, time_ns: int, session: int, *topics: str, **more: Any) -> Fetch:
    """A request for a new session with a partition of each topic, and the broker's answer."""
    step = SessionStep(0, 0, added={topic: [0] for topic in topics}, answer_ns=time_ns + 1, answer_number=session)
    return Fetch(broker, time_ns, time_ns, step, **more)


def continues(broker: Endpoint, time_ns: int, session: int, epoch: int, *topics: str, **more: Any) -> Fetch:
    step = SessionStep(
        session, epoch, added={topic: [0] for topic in topics}, answer_ns=time_ns + 1, answer_number=session
    )
    return Fetch(broker, time_ns, time_ns, step, **more)


def row(one: Fetch) -> dict[str, Any]:
    place = (f"{one.broker.address}/{one.broker.port}", one.open, one.time_ns, 7, one.exchange, 3, 5)
    return dict(zip(STEP_COLUMNS, (*place, msgspec.msgpack.encode(one.step)), strict=True))


def walked(
    fetches: Sequence[Fetch], carried: Sessions | None = None, cuts: Sequence[int] = ()
) -> tuple[dict[int, bytes], dict[Endpoint, Sessions]]:
    """What applies to each exchange, and the sessions of each broker afterwards."""
    order = sorted(fetches, key=lambda one: (str(one.broker.address), one.open, one.time_ns))
    places = [0, *cuts, len(order)]
    batches = [
        pa.RecordBatch.from_pylist([row(one) for one in order[start:end]], schema=SCHEMA)
        for start, end in pairwise(places)
    ]
    held: dict[int, bytes] = {}
    after: dict[Endpoint, Sessions] = {}
    for batch in WalkSessions(dump(carried or Sessions()))(batches):
        for found in batch.to_pylist():
            if found["kind"] == HELD:
                assert (found["connection_id"], found["shard"], found["number"]) == (7, 3, 5)
                held[found["exchange_id"]] = found["data"]
            else:
                assert found["kind"] == SESSIONS
                broker: BrokerSessions = BROKER_VALUES.load(found["data"])
                assert broker.broker not in after
                after[broker.broker] = broker.sessions()
    return held, after


def content(topics: tuple[str, ...]) -> bytes:
    return encode_held(SessionContent(topics, False, len(topics), None))


def test_later_requests_have_the_topics_of_earlier_ones() -> None:
    held, after = walked(
        [
            begins(FIRST, 10, 5, "orders"),
            continues(FIRST, 20, 5, 1),
            continues(FIRST, 30, 5, 2, "payments"),
            continues(FIRST, 40, 5, 3),
        ]
    )
    assert held[20] == content(("orders",))
    assert held[40] == content(("orders", "payments"))
    assert after.keys() == {FIRST}


def test_a_session_is_its_brokers() -> None:
    """The same number at another broker is another session."""
    held, after = walked(
        [
            begins(FIRST, 10, 5, "orders"),
            begins(SECOND, 11, 5, "payments"),
            continues(FIRST, 20, 5, 1),
            continues(SECOND, 21, 5, 1),
            continues(SECOND, 31, 6, 1),
        ]
    )
    assert (held[20], held[21]) == (content(("orders",)), content(("payments",)))
    assert 31 not in held, "nothing is known of this session"
    assert after.keys() == {FIRST, SECOND}


def test_sessions_of_the_last_run_continue() -> None:
    _, after = walked([begins(FIRST, 10, 5, "orders")])
    carried = Sessions()
    carried.replace({FIRST}, after[FIRST])
    held, _ = walked([continues(FIRST, 20, 5, 1), continues(SECOND, 20, 5, 1)._replace(exchange=21)], carried)
    assert held == {20: content(("orders",))}


def test_open_exchanges_are_no_part_of_the_state() -> None:
    """The next run processes them again: what it begins with is the state before them."""
    begun = [begins(FIRST, 10, 5, "orders"), continues(FIRST, 20, 5, 1)]
    held, after = walked(
        [*begun, continues(FIRST, 30, 5, 2, "payments", open=True), continues(FIRST, 40, 5, 3, open=True)]
    )
    assert held[40] == content(("orders", "payments"))
    _, before = walked(begun)
    assert dump(after[FIRST]) == dump(before[FIRST])
    carried = Sessions()
    carried.replace({FIRST}, after[FIRST])
    again, _ = walked([continues(FIRST, 30, 5, 2, "payments"), continues(FIRST, 40, 5, 3)], carried)
    assert again[40] == held[40]


def many(seed: int) -> list[Fetch]:
    random = Random(seed)
    fetches = []
    for time_ns in range(1, 200):
        broker, session = random.choice([FIRST, SECOND]), random.randrange(1, 4)
        topics = random.sample(["orders", "payments", "returns"], random.randrange(3))
        opened = time_ns > 180 and random.random() < 0.5
        if random.random() < 0.2:
            fetches.append(begins(broker, 10 * time_ns, session, *topics, open=opened))
        else:
            fetches.append(continues(broker, 10 * time_ns, session, random.randrange(1, 3), *topics, open=opened))
    return fetches


@pytest.mark.parametrize("seed", range(4))
def test_batches_of_any_size_change_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fetches, random = many(seed), Random(seed)
    held, after = walked(fetches)
    assert len(held) > 50
    expected = held, {broker: dump(sessions) for broker, sessions in after.items()}
    cuts = sorted(random.sample(range(len(fetches)), 30))
    monkeypatch.setattr(fetch_sessions, "BATCH_ROWS", 3)
    again, states = walked(fetches, cuts=cuts)
    assert (again, {broker: dump(sessions) for broker, sessions in states.items()}) == expected


@pytest.mark.parametrize("seed", range(2))
def test_the_same_as_all_brokers_in_one_process(seed: int) -> None:
    fetches = [one for one in many(seed) if not one.open]
    held, _ = walked(fetches)
    sessions, found = Sessions(), {}
    for one in sorted(fetches, key=lambda one: one.time_ns):
        step = sessions.step(one.broker, one.time_ns, one.step)
        if step is not None:
            found[one.exchange] = encode_held(step)
    assert held == found


def test_a_task_without_rows() -> None:
    assert list(WalkSessions(dump(Sessions()))([])) == []
