"""Staged rows become final ones: values that tables take from the whole run."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest

from kafkasniff.enrich.catalog import LearnedFacts
from kafkasniff.enrich.sessions import SessionStep
from kafkasniff.model import Endpoint
from kafkasniff.sinks.jsonl import body_json
from kafkasniff.tables.rows import TABLES
from kafkasniff.tables.rows import resolve as module
from kafkasniff.tables.rows.resolve import LearnedNames, Resolver
from kafkasniff.tables.rows.sessions import Sessions
from kafkasniff.tables.rows.staged import STAGED, StagedParts

IDS = ["AAECAwQFBgcICQoLDA0ODw", "_____________________w"]


def facts() -> LearnedFacts:
    found = LearnedFacts()
    found.topic(IDS[0], "orders", 9)
    found.spoke_kafka(Endpoint("10.0.0.9", 9092), 50)
    found.late_software(-7, "librdkafka", "2.6")
    return found


def resolved(table: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    resolver = Resolver(LearnedNames(facts(), {IDS[1]: "given"}), Sessions(), body_json)
    batch = pa.RecordBatch.from_pylist(rows, schema=STAGED[table])
    parts = list(resolver.rows(table, batch))
    assert all(part.schema.equals(TABLES[table]) for part in parts)
    return [row for part in parts for row in part.to_pylist()]


def staged(**values: Any) -> dict[str, Any]:
    pending = values.pop("pending", None)
    row = {"connection_id": 1, "exchange_id": 1, "time_ns": 150, "api_key": 1, "api": "Fetch", "api_version": 13}
    row |= {"broker_ip": "10.0.0.9", "broker_port": 9092, "topics": [], "partitions": [], "problems": []}
    return {**row, "_pending": None if pending is None else msgspec.msgpack.encode(pending), **values}


def test_software_announced_late() -> None:
    rows = [staged(connection_id=-7), staged(connection_id=-7, software_name="x"), staged(connection_id=8)]
    found = [(row["software_name"], row["software_version"]) for row in resolved("exchanges", rows)]
    assert found == [("librdkafka", "2.6"), ("x", None), (None, None)]


def step(number: int, epoch: int, added: dict[str, list[int]], answer: int | None = None, **more: Any) -> StagedParts:
    values = {"forgotten": {}, "answer_ns": None, "answer_error": 0, "by_id": bool(added), **more}
    return StagedParts(session=SessionStep(number=number, epoch=epoch, added=added, answer_number=answer, **values))


def test_a_session_from_its_beginning_to_its_end() -> None:
    body = '{"session_id":17,"session_epoch":1,"topics":[]}'
    rows = [
        staged(time_ns=1, pending=step(0, 0, {IDS[0]: [0, 1]}, 17, answer_ns=2)),
        staged(time_ns=3, pending=step(17, 1, {}, 17), request_body=body),
        staged(time_ns=4, pending=step(17, 2, {IDS[1]: [0]}, 17), topics=["own"]),
        staged(time_ns=5, pending=step(17, 3, {}, 0, answer_error=70, answer_ns=6)),
        staged(time_ns=7, pending=step(17, 4, {}, 17)),
    ]
    known = body.replace('"topics"', '"_session":{},"topics"')
    rows.insert(2, staged(time_ns=3, exchange_id=2, pending=step(17, 1, {}, 17), request_body=known))
    found = resolved("exchanges", rows)
    assert [row["topics"] for row in found] == [
        [], ["orders"], ["orders"], ["orders", "given", "own"], ["orders", "given"], [],
    ]  # fmt: skip
    assert found[1]["request_body"] == '{"session_id":17,"session_epoch":1,"_session":{"partitions":2},"topics":[]}'
    assert found[2]["request_body"] == known


def test_sessions_with_many_topics_come_in_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OUTPUT_BYTES", 3_000)
    many = {f"topic-{number}": [0] for number in range(50)}
    rows = [staged(time_ns=1, pending=step(0, 0, many, 17, answer_ns=1, by_id=False))]
    rows += [staged(time_ns=2, exchange_id=place, pending=step(17, 1, {}, 17)) for place in range(20)]
    resolver = Resolver(LearnedNames(facts()), Sessions(), body_json)
    parts = list(resolver.rows("exchanges", pa.RecordBatch.from_pylist(rows, schema=STAGED["exchanges"])))
    assert len(parts) > 3
    found = [row for part in parts for row in part.to_pylist()]
    assert [row["exchange_id"] for row in found] == [1, *range(20)]
    assert all(row["topics"] == list(many) for row in found[1:])


def test_not_kafka_is_reported_where_kafka_was_spoken_before() -> None:
    ends = ["10.0.0.5/40000 10.0.0.9/9092", "10.0.0.9/9092 10.0.0.9/9093", "10.0.0.5/1 10.0.0.6/2", None]
    rows = [{"kind": "not-kafka", "packet": place, "time_ns": 60, "_endpoints": one} for place, one in enumerate(ends)]
    rows.append({"kind": "not-kafka", "packet": 9, "time_ns": 40, "_endpoints": ends[0]})
    assert [row["packet"] for row in resolved("problems", rows)] == [0, 1, 3]
