"""Decoded keys and values in the records of messages: what the recorded program says that they mean."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.capture import open_captures
from kafkasniff.engine.inspector import Inspector
from kafkasniff.enrich import Enricher
from kafkasniff.model import Message, Problem, Summary
from kafkasniff.sinks.jsonl import JsonSink
from kafkasniff.values import stage
from kafkasniff.values.registries import FolderRegistry
from kafkasniff.values.stage import ValueDecoder, ValueSchemas, file_reader
from tests.values.avro_bytes import long
from tests.values.registered import CAPTURE, put, write_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("registry"))


def events(schemas: ValueSchemas, rows: int | None = None) -> Iterator[Any]:
    """The events of the capture, `rows` packets at a time."""
    inspector = Inspector(records="full")
    enricher, values = Enricher(), ValueDecoder(schemas, inspector.summary)
    with open_captures([str(CAPTURE)]) as source:
        for batch in source:
            for part in [batch] if rows is None else batch.parts(iter(lambda: (rows, 1 << 30), None)):
                for found in inspector.feed_slices(part):
                    yield from values.feed(enricher.feed(found))
    for found in inspector.close_slices():
        yield from values.feed(enricher.feed(found))


def fed(
    record: dict[str, Any], schemas: ValueSchemas, topic: str = "t"
) -> tuple[dict[str, Any], list[Problem], Message]:
    """A Produce request with one record, the problems before it, and the message."""
    record = {"offset": 3, "headers": [], "key": None, **record}
    partition = {"index": 0, "records": {"batches": [{"records": [record]}]}}
    body = {"topic_data": [{"name": topic, "partition_data": [partition]}]}
    message = Message("request", 1, api_key=0, api="Produce", api_version=9, body=body)
    summary = Summary()
    *problems, message = ValueDecoder(schemas, summary).feed([message])
    assert summary.problems == len(problems) + len(message.problems)
    return record, problems, message


def test_batches_change_nothing(folder: Path, tmp_path: Path) -> None:
    less = write_folder(tmp_path)
    (less / "schemas/ids/303.json").unlink()
    put(less, "schemas/ids/302", {"schema": "{"})
    for registry in (FolderRegistry(folder), FolderRegistry(less)):
        outputs = set()
        for rows in (None, 1, 7):
            sink = JsonSink(stream := io.BytesIO())
            for event in events(ValueSchemas(registry), rows):
                sink.write(event)
            sink.close()
            outputs.add(stream.getvalue())
        assert len(outputs) == 1
        kinds = [json.loads(line)["kind"] for line in outputs.pop().splitlines() if b'"type":"problem"' in line]
        assert kinds == ([] if registry.name == str(folder) else ["schema-invalid", "schema-unknown"])


def test_values_that_do_not_follow_their_schema(folder: Path) -> None:
    schemas = ValueSchemas(FolderRegistry(folder))
    value = b"\0\0\0\1\x2e" + long(1) + b"\x10short"
    record, problems, message = fed(
        {"value": value, "_value": {"format": "schema-registry", "schema_id": 302}}, schemas
    )
    assert record["_value"] == {"format": "schema-registry", "schema_id": 302}
    assert problems == []
    (problem,) = message.problems
    assert problem.kind == "schema-value"
    assert problem.detail == (
        "value of the record at offset 3: not decoded by schema 302: an impossible length at byte 6"
    )
    # A guess says nothing.
    record, problems, message = fed({"value": value}, schemas)
    assert (problems, message.problems) == ([], ())
    assert "_value" not in record


def test_a_guess_is_decoded_if_all_of_it_follows_the_schema(folder: Path) -> None:
    """As long as two numbers, so its framing alone proves nothing."""
    schemas = ValueSchemas(FolderRegistry(folder))
    record, *_ = fed({"value": b"\0\0\0\1\x2d\x04ab"}, schemas)
    assert record["_value"] == {"format": "schema-registry", "schema_id": 301, "schema_type": "AVRO", "value": "ab"}
    assert "_value" not in fed({"value": b"\0\0\0\1\x2d\0\0\0"}, schemas)[0]
    for topic in ("__consumer_offsets", "__other"):
        assert "_value" not in fed({"value": b"\0\0\0\1\x2d\x04ab"}, schemas, topic)[0]


def test_local_schemas(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "s.avsc").write_text('["null", "string"]', encoding="utf-8")
    reader = file_reader(str(tmp_path / "s.avsc"))
    schemas = ValueSchemas(FolderRegistry(folder), {("t", "value"): reader, ("t", "key"): reader})
    for data, framed in ((b"\2\x04ab", False), (b"\0\0\0\0\7\2\x04ab", True)):
        record, *_ = fed({"key": data, "value": data}, schemas)
        for target in ("_key", "_value"):
            wanted = {"format": "schema-registry", "schema_id": 7} if framed else {"format": "schema-file"}
            assert record[target] == {**wanted, "schema_type": "AVRO", "value": "ab"}
    # A union of null begins with a zero.
    assert fed({"value": b"\0"}, schemas)[0]["_value"]["value"] is None
    *_, message = fed({"value": b"\4"}, schemas)
    assert message.problems[0].detail.startswith(
        "value of the record at offset 3: not decoded by its schema: an unknown"
    )
    assert "_value" not in fed({"value": b"\2\x04ab"}, schemas, "other")[0]


def test_large_values_are_not_decoded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "MAX_VALUE", 20)
    monkeypatch.setattr(stage, "MAX_MESSAGE", 30)
    schemas = ValueSchemas(FolderRegistry(folder))
    value = b"\0\0\0\1\x2d\x1e" + b"a" * 15
    fact = {"format": "schema-registry", "schema_id": 301}
    record, _, message = fed({"value": value, "_value": fact}, schemas)
    assert message.problems[0].detail == "value of the record at offset 3: 21 bytes are too many to decode"
    value = value[:-1].replace(b"\x1e", b"\x1c")
    record, _, message = fed({"value": value, "_value": fact}, schemas)
    assert record["_value"]["value"] == "a" * 14
    record, _, message = fed({"key": value, "value": value, "_key": fact, "_value": fact}, schemas)
    assert "value" in record["_key"]
    assert "value" not in record["_value"]
    assert len(message.problems) == 1


def test_the_value_of_a_record_may_be_missing_or_hidden(folder: Path) -> None:
    schemas = ValueSchemas(FolderRegistry(folder))
    for value in (None, {"redacted": 5}):
        record, problems, message = fed({"value": value}, schemas)
        assert (record["value"], problems, message.problems) == (value, [], ())
