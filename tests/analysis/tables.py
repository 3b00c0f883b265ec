"""Rows of the tables for tests: unnamed columns have a plain default or are null."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from kafkasniff.analysis import find_question, make_parameters
from kafkasniff.analysis.sql.question import SqlQuestion
from kafkasniff.kafka.apis.dissectors import api_by_name
from kafkasniff.tables.rows import CONNECTIONS, EXCHANGES, RECORDS
from kafkasniff.tables.rows.staged import STAGED

START_NS = 1_795_000_000_000_000_000
SECOND = 1_000_000_000
Row = dict[str, Any]
SCHEMAS = {"exchanges": EXCHANGES, "records": RECORDS, "connections": CONNECTIONS, "transport": STAGED["transport"]}


def moment(seconds: float) -> datetime:
    """Time of an answer, `seconds` after the start."""
    microseconds = (START_NS + round(seconds * SECOND)) // 1000
    return datetime.fromtimestamp(microseconds // 1_000_000, UTC).replace(microsecond=microseconds % 1_000_000)


def partition(topic: str | None = "orders", number: int = 0, **values: Any) -> Row:
    names = [field.name for field in EXCHANGES.field("partitions").type.value_type]
    row = dict.fromkeys(names)
    row |= {"topic": topic, "partition": number, "error_code": 0}
    assert not values.keys() - row.keys()
    return {**row, **values}


def exchange(api: str | None = "Metadata", at: float = 0.0, **values: Any) -> Row:
    """A row of `exchanges`, `at` seconds after the start. Bodies may be dicts."""
    found = None if api is None else api_by_name(api)
    time_ns = START_NS + round(at * SECOND)
    row: Row = dict.fromkeys(EXCHANGES.names)
    row |= {
        **{"capture": "test.pcap", "connection_id": 1, "exchange_id": 1, "time": time_ns // 1000, "time_ns": time_ns},
        **{"client_ip": "10.0.0.5", "client_port": 50_000, "broker_ip": "10.0.0.9", "broker_port": 9092},
        **{
            "broker_id": 1,
            "api_key": None if found is None else found.key,
            "api": api,
            "correlation_id": 1,
            "client_id": "app",
        },
        **{"api_version": None if found is None else found.max_version, "status": "answered"},
        **{"request_size": 100, "response_size": 200, "latency_us": 1000, "duration_us": 1200, "retransmits": 0},
        **{"error_code": 0, "error_count": 0, "topics": [], "partitions": [], "problems": []},
        **{"behind_us": 0, "muted_us": 0, "wait_us": 0},
    }
    assert not values.keys() - row.keys(), values
    row |= values
    for body in ("request_body", "response_body"):
        if isinstance(row[body], dict):
            row[body] = json.dumps(row[body], separators=(",", ":"))
    if not row["topics"]:
        row["topics"] = list(dict.fromkeys(one["topic"] for one in row["partitions"] if one["topic"] is not None))
    return row


def record(topic: str = "orders", at: float = 0.0, **values: Any) -> Row:
    row: Row = dict.fromkeys(RECORDS.names)
    row |= {
        **{"connection_id": 1, "exchange_id": 1, "time": (START_NS + round(at * SECOND)) // 1000, "api": "Produce"},
        **{"direction": "request", "topic": topic, "partition": 0, "timestamp": START_NS // 1000, "key": b"k"},
        **{"value": b"value", "headers": [], "compression": "none", "magic": 2, "producer_id": -1},
    }
    assert not values.keys() - row.keys()
    return {**row, **values}


def connection(at: float = 0.0, lived: float = 10.0, **values: Any) -> Row:
    row: Row = dict.fromkeys(CONNECTIONS.names)
    start = START_NS + round(at * SECOND)
    end = start + round(lived * SECOND)
    row |= {
        **{"connection_id": 1, "time": start // 1000, "time_ns": start, "end_time": end // 1000, "end_time_ns": end},
        **{"client_ip": "10.0.0.5", "client_ids": ["app"], "verdict": "kafka", "ended": "fin", "requests": 3},
    }
    assert not values.keys() - row.keys()
    return {**row, **values}


def batch_of(rows: Sequence[Row], table: str = "exchanges") -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=SCHEMAS[table])


def asked(
    name: str,
    exchanges: Iterable[Row] = (),
    records: Iterable[Row] = (),
    connections: Iterable[Row] = (),
    **parameters: Any,
) -> Any:
    """A question that has seen some rows."""
    question = find_question(name)
    asked_one = question(make_parameters(question, parameters))
    given = {"exchanges": list(exchanges), "records": list(records), "connections": list(connections)}
    batches = {table: [batch_of(given[table], table)] for table in asked_one.reads()}
    if isinstance(asked_one, SqlQuestion):
        asked_one.ask([Batches(batches)])
        return asked_one
    for table, (batch,) in batches.items():
        asked_one.update(batch, table)
    return asked_one


class Batches:
    """Rows in memory, as queries read them."""

    def __init__(self, tables: Mapping[str, Sequence[pa.RecordBatch]]) -> None:
        self.tables = tables

    def batches(self, table: str, _reading: object, /) -> Iterator[pa.RecordBatch]:
        yield from self.tables[table]


def answers(name: str, *args: Any, **kwargs: Any) -> list[Row]:
    """Rows of the answer."""
    return list(asked(name, *args, **kwargs).result().to_pylist())


def pick(rows: Sequence[Row], *names: str) -> list[tuple[Any, ...]]:
    """Some columns of an answer."""
    return [tuple(row[name] for name in names) for row in rows]
