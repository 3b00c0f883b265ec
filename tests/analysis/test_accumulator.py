"""Answers depend on the rows alone, not on batches, order, or how partial answers were merged."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.analysis import find_question, make_parameters, question_names
from kafkasniff.analysis.accumulator import Accumulator
from kafkasniff.analysis.sql.question import SqlQuestion
from tests.analysis.tables import SCHEMAS, Batches, Row, asked, batch_of, connection, exchange, partition, record
from tests.choice import examples, fewer, one_in

PARAMETERS: dict[str, dict[str, Any]] = {
    "latency": {"by": "api,broker,client,software,address,version,group,topic,connection", "every": "7s"},
    "metadata-storms": {"at_least": 1},
    "slow-brokers": {"at_least": 1},
    "outstanding": {"status": "open,unanswered,lost"},
    "versions": {"all": True},
}
QUERIES = [name for name in question_names() if issubclass(find_question(name), SqlQuestion)]
ACCUMULATORS = [name for name in question_names() if name not in QUERIES]
COUNTS = ("exchanges", "requests", "records", "bytes", "with_errors", "throttled", "produces")
"""Columns of answers that are never null."""
APIS = ("Produce", "Fetch", "Metadata", "JoinGroup", "SyncGroup", "LeaveGroup", "Heartbeat", "OffsetCommit")
NEWER = ("ConsumerGroupHeartbeat", "OffsetFetch", "ShareFetch", "CreateTopics", "DescribeCluster", "EndTxn", "EndTxn",
         "InitProducerId", "AddPartitionsToTxn")  # fmt: skip


PRODUCED = exchange("Produce", connection_id=9, partitions=[partition("a", offset=5, batch_count=1)])
ACQUIRED = {"acquired_records": [{"first_offset": 3, "last_offset": 4}]}
SHARED = exchange(
    "ShareFetch", group_id="g1", response_body={"responses": [{"topic_id": "t", "partitions": [ACQUIRED]}]}
)


def random_partition(random: Random) -> Row:
    return partition(
        random.choice(["a", "b", None]),
        random.randrange(3),
        error_code=random.choice([0, 0, 0, 6, 45, None]),
        offset=random.choice([None, -1, random.randrange(100)]),
        high_watermark=random.choice([None, random.randrange(200)]),
        record_count=random.choice([None, 0, random.randrange(20)]),
        batch_count=random.choice([None, 1, 2]),
        bytes=random.choice([None, random.randrange(5000)]),
        compression=random.choice([None, "none", "lz4"]),
        producer_id=random.choice([None, -1, 1, 2]),
        producer_epoch=random.choice([0, 1]),
        base_sequence=random.choice([-1, random.randrange(50), 2**31 - 5]),
    )


def random_exchange(random: Random, number: int) -> Row:
    members = random.sample(["m1", "m2", "m3"], random.randrange(3))
    parts = [random_partition(random) for _ in range(random.randrange(3))]
    errors = random.choice([0, 0, 1, 2])
    return exchange(
        random.choice([*APIS, *APIS, *NEWER, None]),
        random.randrange(40) / 2,
        connection_id=random.randrange(3),
        exchange_id=number,
        client_id=random.choice(["x", "y", "broker-1-fetcher-0", None]),
        client_ip=random.choice(["10.0.0.5", "::1"]),
        broker_id=random.choice([1, 2, None]),
        api_version=random.randrange(12),
        status=random.choice(["answered", "answered", "open", "unanswered", "lost"]),
        latency_us=random.choice([None, random.randrange(-50, 10**6)]),
        duration_us=random.choice([None, random.randrange(10**6)]),
        throttle_time_ms=random.choice([None, 0, 30]),
        error_code=random.choice([3, 25, 27]) if errors else 0,
        error_count=random.choice([errors, errors, None]),
        group_id=random.choice([None, "g1", "g2"]),
        member_id=random.choice([None, "m1", "m2"]),
        record_count=random.choice([None, 0, 5]),
        partitions=parts,
        topics=random.sample(["a", "b", "c"], random.randrange(3)),
        request_body=random.choice(
            [
                None,
                {"topics": None, "rack_id": "east", "member_epoch": random.randrange(-2, 3), "reason": "why"},
                {"generation_id": random.randrange(4), "members": [{"member_id": one} for one in members]},
                {"committed": random.random() < 0.5},
            ]
        ),
        transactional_id=random.choice([None, "t1", "t2"]),
        response_body=random.choice(
            [
                None,
                {"generation_id": random.randrange(4), "members": [{"member_id": one} for one in members]},
                {"member_epoch": random.randrange(4), "error_code": 3, "topics": [{"name": "t", "error_code": 5}]},
                {"brokers": [{"node_id": 1, "rack": random.choice(["east", "west", None])}]},
            ]
        ),
    )


def random_record(random: Random, number: int) -> Row:
    return record(
        random.choice(["a", "b"]),
        random.randrange(5),
        connection_id=random.randrange(3),
        exchange_id=number // 4,
        direction=random.choice(["request", "response"]),
        api=random.choice(["Produce", "Fetch"]),
        key=random.choice([None, b"k"]),
        value=random.choice([None, b"", b"v" * random.randrange(300)]),
        headers=random.choice([[], [{"key": "h", "value": None}]]),
        compression=random.choice(["none", "lz4"]),
        control=random.choice([None, None, "commit"]),
        producer_id=random.choice([-1, -1, 4]),
    )


@functools.cache
def pool(table: str) -> tuple[Row, ...]:
    random = Random(17)
    match table:
        case "exchanges":
            return (*(random_exchange(random, number) for number in range(260)), PRODUCED, SHARED)
        case "records":
            return (*(random_record(random, number) for number in range(150)), record("a", connection_id=9, offset=0))
    return tuple(
        connection(
            random.randrange(200),
            random.choice([0.1, 20]),
            client_ids=random.choice([[], ["x"], ["y", "x"]]),
            verdict=random.choice(["kafka", "kafka", "undecided"]),
            ended=random.choice(["fin", "rst", "end"]),
            requests=random.randrange(3),
        )
        for _ in range(80)
    )


@functools.cache
def pool_batch(table: str) -> pa.RecordBatch:
    return batch_of(pool(table), table)


def merged_in_parts(
    data: st.DataObject, tables: Iterable[str], fresh: Callable[[], Any], sent: Callable[[Any], Any]
) -> Any:
    """The pool's rows aggregated in any order, in batches that several parts count and that are merged then.

    `sent`: a part as it arrives from another process.
    """
    pieces: list[tuple[str, list[int]]] = []
    for table in tables:
        order = list(range(len(pool(table))))
        Random(data.draw(st.integers(0, 2**32))).shuffle(order)
        cuts = sorted(data.draw(st.sets(st.integers(0, len(order)), max_size=4)))
        pieces += [(table, order[low:high]) for low, high in zip([0, *cuts], [*cuts, len(order)], strict=True)]
    parts = [fresh() for _ in range(data.draw(st.integers(1, 3)))]
    for table, rows in data.draw(st.permutations(pieces)):
        part = parts[data.draw(st.integers(0, len(parts) - 1))]
        part.update(pool_batch(table).take(pa.array(rows, pa.int64())), table)
    while len(parts) > 1:
        other = parts.pop(data.draw(st.integers(0, len(parts) - 1)))
        parts[data.draw(st.integers(0, len(parts) - 1))].merge(sent(other) if data.draw(st.booleans()) else other)
    return parts[0]


def fresh(name: str) -> Any:
    question = find_question(name)
    return question(make_parameters(question, PARAMETERS.get(name, {})))


@functools.cache
def in_one(name: str) -> list[Row]:
    whole = asked(name, pool("exchanges"), pool("records"), pool("connections"), **PARAMETERS.get(name, {}))
    return list(whole.result().to_pylist())


@pytest.mark.parametrize("name", ACCUMULATORS)
@examples(3)
@given(data=st.data())
def test_any_split_order_and_merge_tree(name: str, data: st.DataObject) -> None:
    whole: Accumulator[Any] = fresh(name)
    merged = merged_in_parts(data, whole.reads(), lambda: fresh(name), lambda part: type(part).from_state(part.state()))
    assert in_one(name), "the pool has no rows for this question"
    assert merged.result().to_pylist() == in_one(name)
    assert merged.result().to_pylist() == in_one(name), "taking the answer changes something"


@pytest.mark.parametrize("name", one_in(3, [*QUERIES]))
@examples(3)
@given(data=st.data())
def test_a_query_over_any_split_and_order(name: str, data: st.DataObject) -> None:
    question = fresh(name)
    batches = {}
    for table in question.reads():
        order = list(range(len(pool(table))))
        Random(data.draw(st.integers(0, 2**32))).shuffle(order)
        cut = data.draw(st.integers(0, len(order)))
        batches[table] = [pool_batch(table).take(pa.array(part, pa.int64())) for part in (order[:cut], order[cut:])]
    question.ask([Batches(batches)])
    assert question.result().to_pylist() == in_one(name) != []
    assert question.notes() == []


def test_no_rows_and_empty_rows() -> None:
    for name in question_names():
        question = fresh(name)
        columns = question.result().schema
        nulls = {table: batch_of([dict.fromkeys(SCHEMAS[table].names)] * 3, table) for table in question.reads()}
        if isinstance(question, SqlQuestion):
            question.ask([Batches({table: [batch] for table, batch in nulls.items()})])
            assert question.result().schema == columns, name
            for row in question.result().to_pylist():
                assert {one for one in COUNTS if row.get(one, 0) is None} == set(), name
            continue
        for table, batch in nulls.items():
            question.update(batch_of([], table), table)
            question.update(batch, table)
        assert question.result().schema == columns, name
        assert question.notes() == [], name


@pytest.mark.parametrize("name", ACCUMULATORS)
def test_only_requested_columns_are_needed(name: str) -> None:
    question = fresh(name)
    for table, reading in question.reads().items():
        assert set(reading.columns) <= set(SCHEMAS[table].names)
        rows = [row for row in pool(table) if reading.apis is None or row["api"] in reading.apis]
        question.update(batch_of(rows, table).select(list(reading.columns)), table)
    assert question.result().to_pylist() == in_one(name)


@pytest.mark.parametrize("name", ["slow-brokers", "rebalances"])
def test_a_damaged_state_is_refused(name: str) -> None:
    state = asked(name, pool("exchanges")[:60], **PARAMETERS.get(name, {})).state()
    question, random = find_question(name), Random(5)
    for end in range(0, len(state), 97):
        with pytest.raises(ValueError, match=r"\w"):
            question.from_state(state[:end])
    for _ in range(fewer(50, 200)):
        damaged = bytearray(state)
        damaged[random.randrange(len(state))] ^= 1 << random.randrange(8)
        try:
            question.from_state(bytes(damaged)).result()
        except ValueError:
            continue
