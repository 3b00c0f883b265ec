"""Bytes that Apache Kafka's classes wrote, compared with what these classes read from them (see vectors/README.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.kafka.records.record_sets import decode_records
from tests.kafka.records_craft import context, kinds

VECTORS = {
    vector["name"]: vector
    for vector in json.loads((Path(__file__).parents[1] / "vectors" / "records.json").read_text())
}
each_vector = pytest.mark.parametrize("name", VECTORS)


def value(reported: Any) -> bytes | None:
    if isinstance(reported, dict):
        return bytes.fromhex(reported["byte"]) * reported["times"]
    return None if reported is None else bytes.fromhex(reported)


def reported_record(reported: dict[str, Any]) -> dict[str, Any]:
    record = {
        "offset": reported["offset"],
        "timestamp": reported["timestamp"],
        "key": value(reported["key"]),
        "value": value(reported["value"]),
    }
    if "headers" in reported:
        record["headers"] = [{"key": header["key"], "value": value(header["value"])} for header in reported["headers"]]
    return record


def decode(data: bytes, records: str = "full") -> tuple[dict[str, Any], list[str]]:
    where = context(records)
    return decode_records(data, 0, len(data), where), kinds(where)


@each_vector
def test_as_kafka_reads_it(name):
    vector = VECTORS[name]
    data = bytes.fromhex(vector["data"])
    out, problems = decode(data)
    assert problems == []
    assert list(out) == ["batches", "truncated_bytes"]
    assert out["truncated_bytes"] == vector["truncated_bytes"]
    assert len(out["batches"]) == len(vector["batches"])
    for batch, reported in zip(out["batches"], vector["batches"], strict=True):
        assert batch["crc_ok"] is reported["valid"] is True
        assert batch["batch_length"] == reported["size"] - 12
        for field in ("magic", "compression"):
            assert batch[field] == reported[field]
        records = batch["records"]
        assert [{k: v for k, v in record.items() if k != "_control"} for record in records] == [
            reported_record(record) for record in reported["records"]
        ]
        assert batch["record_count"] == len(reported["records"])
        if reported["magic"] < 2:
            assert batch["base_offset"] == reported["last_offset"]
            same = () if reported["magic"] == 0 else ("timestamp_type", "max_timestamp")
            lacking = {"partition_leader_epoch", "transactional", "producer_id", "last_offset_delta", "base_timestamp"}
            assert not lacking & set(batch)
        else:
            assert batch["base_offset"] + batch["last_offset_delta"] == reported["last_offset"]
            assert batch.get("_delete_horizon") == reported["delete_horizon"]
            same = (
                "base_offset",
                "crc",
                "partition_leader_epoch",
                "producer_id",
                "producer_epoch",
                "base_sequence",
                "transactional",
                "control",
                "record_count",
                "timestamp_type",
                "max_timestamp",
            )
        for field in same:
            assert batch[field] == reported[field], field
        for record, reported_one in zip(records, reported["records"], strict=True):
            assert ("_control" in record) == ("control" in reported_one)
            if "control" in reported_one:
                assert record["_control"]["name"] == reported_one["control"]
            if "coordinator_epoch" in reported_one:
                assert record["_control"]["value"]["coordinator_epoch"] == reported_one["coordinator_epoch"]


@each_vector
def test_other_ways_to_read_them(name: str) -> None:
    """Only the headers; and among other bytes, even if they look like more of the same."""
    data = bytes.fromhex(VECTORS[name]["data"])
    alone, _ = decode(data)
    for before, after in ((data, data), (b"\xff" * 7, b"\0" * 90)):
        where = context(base=len(before))
        assert decode_records(before + data + after, len(before), len(before) + len(data), where) == alone
        assert where.problems == []
    headers, problems = decode(data, "batches")
    assert problems == []
    for batch in alone["batches"]:
        del batch["records"]
    assert headers == alone
