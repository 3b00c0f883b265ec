"""Values that real serializers wrote by the schemas of a real registry: what the programs say that they mean."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from tests.cli.console import kafkasniff
from tests.values.registered import ROOT

LIBRDKAFKA, JAVA = (ROOT / "captures" / f"{name}-registry.pcap" for name in ("librdkafka", "java"))


def reports(capture: Path, kind: str) -> list[dict[str, Any]]:
    lines = capture.with_suffix(".log.jsonl").read_text(encoding="utf-8").splitlines()
    return [one for line in lines if (one := json.loads(line))["kind"] == kind]


def decoded(capture: Path, api: str, *options: str) -> dict[tuple[str, int], dict[str, Any]]:
    """The records of a capture by topic and timestamp, with base64 for all bytes."""
    registry = str(capture.with_suffix(".registry"))
    found = kafkasniff(
        *("decode", "-q", "--two-pass", "--format", "json", "--bytes", "base64", "--registry", registry),
        *("--api", api, str(capture), *options),
    )
    records: dict[tuple[str, int], dict[str, Any]] = {}
    for line in found.text.splitlines():
        body = json.loads(line).get("body") or {}
        for topic in (*body.get("topic_data", ()), *body.get("responses", ())):
            for partition in topic.get("partition_data", topic.get("partitions", ())):
                for batch in (partition.get("records") or {"batches": []})["batches"]:
                    for record in batch["records"]:
                        name = topic.get("_topic_name", topic.get("name", topic.get("topic")))
                        records[name, record["timestamp"]] = record
    return records


@pytest.mark.parametrize("api", ["Produce", "Fetch"])
def test_librdkafka(api: str) -> None:
    found = decoded(LIBRDKAFKA, api)
    sent = reports(LIBRDKAFKA, "produced")
    assert {one["topic"] for one in sent} == {"avro", "places", "people", "parcels"}
    for one in sent:
        record = found[one["topic"], one["timestamp"]]
        value, means = record["_value"], one["means"]
        assert value["schema_type"] == one["schema_type"]
        if one["topic"] == "avro":
            assert record["_key"]["value"] == one["key_means"]
            for order in (means, means["parent"]):
                order["hash"] = {"base64": b64encode(b"\0\xff\1\2").decode()}
        if one["topic"] == "parcels":
            assert value["name"] == one["name"]
            if "code" in means:
                means["code"] = {"base64": means["code"]}
        assert value["value"] == means


@pytest.mark.parametrize("api", ["Produce", "Fetch"])
def test_apicurios_serializers(api: str) -> None:
    found = decoded(JAVA, api)
    means = {(one["topic"], one["timestamp"]): one["value"] for one in reports(JAVA, "means")}
    assert {key: record["_value"]["value"] for key, record in found.items()} == means
    formats = {topic: record["_value"]["format"] for (topic, _), record in found.items()}
    assert formats == {**dict.fromkeys(formats, "apicurio"), "avro-int": "schema-registry"}
    assert {record["_value"]["name"] for record in found.values()} == {"shop.Order", "shop.Item"}


def test_text_and_tables_of_apicurio(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    options = ("--registry", str(JAVA.with_suffix(".registry")), str(JAVA))
    text = kafkasniff("decode", "-q", "-v", "--api", "Produce", *options).text
    assert text.count('value: shop.Item {"name":"lamp"} (schema 4)') == 2
    assert kafkasniff("export", "-q", "-o", str(tmp_path / "t"), *options).code == 0
    rows = [row for file in (tmp_path / "t" / "records").rglob("*.parquet") for row in pq.read_table(file).to_pylist()]
    means = {(one["topic"], one["timestamp"]): one["value"] for one in reports(JAVA, "means")}
    found = {
        (row["topic"], round(row["timestamp"].timestamp() * 1000)): json.loads(row["value_decoded"]) for row in rows
    }
    assert found == means
