"""`--registry` and `--schema`: decoded values in every output, in filters, and never where payload is hidden."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.console import kafkasniff
from tests.tables.exports.exported import rows
from tests.values.registered import CAPTURE, served

REGISTRY = str(CAPTURE.with_suffix(".registry"))
DECODE = ("decode", "-q", "--registry", REGISTRY, str(CAPTURE))


def values(text: str) -> list[Any]:
    """The decoded values in JSON lines of Produce requests."""
    return [
        record["_value"].get("value")
        for line in text.splitlines()
        for data in json.loads(line)["body"].get("topic_data", ())
        for batch in data["partition_data"][0]["records"]["batches"]
        for record in batch["records"]
        if "_value" in record
    ]


def test_json_lines() -> None:
    found = kafkasniff(*DECODE, "--format", "json", "--topic", "avro-orders", "--api", "Produce")
    assert values(found.text)[-2:] == [
        {"id": 1, "item": "lamp", "price": 12.5},
        {"id": 70000, "item": "größe 數", "price": None},
    ]


@pytest.mark.parametrize("path", ["record.value.id", "record.value.$.id", 'record.value."id"'])
def test_filters(path: str) -> None:
    found = kafkasniff(*DECODE, "--api", "Produce", "--format", "json", "--filter", f"{path} > 10")
    assert values(found.text) == [{"id": 70000, "item": "größe 數", "price": None},
                                  {"id": 70000, "item": "größe 數"}, {"id": 70000, "item": "größe 數"},
                                  {"id": 70000, "item": "größe 數", "price": None}]  # fmt: skip
    expression = f'{path} > 10 and topic == "avro-orders"'
    assert kafkasniff("decode", "-q", str(CAPTURE), "--api", "Produce", "--filter", expression).code == 1


def test_hidden_payload_hides_decoded_values() -> None:
    for option in ("--no-payload", "--hash-payload"):
        for form in (("--format", "json"), ("-v",)):
            found = kafkasniff(*DECODE, *form, option)
            assert found.code == 0
            assert "lamp" not in found.text
            assert "shop.Order" not in found.text
        # Filters see payload, and nothing that is said about it shows any.
        found = kafkasniff(*DECODE, "--format", "json", option, "--filter", "record.value.id == 70000")
        assert '"api":"Produce"' in found.text
        assert "größe" not in found.text


def test_a_registry_at_a_url() -> None:
    with served(Path(REGISTRY)) as registry:
        arguments = ("decode", "-q", "--format", "json", str(CAPTURE), "--registry")
        assert kafkasniff(*arguments, registry.url).text == kafkasniff(*arguments, REGISTRY).text
        assert len(registry.asked) == len(set(registry.asked))
        registry.asked.clear()
        # Only if it is named.
        environ = {"SCHEMA_REGISTRY_URL": registry.url}
        assert kafkasniff("decode", "-q", "-v", str(CAPTURE), environ=environ).code == 0
        assert registry.asked == []


def test_problems(tmp_path: Path) -> None:
    found = kafkasniff("decode", "-q", "--format", "json", "--registry", str(tmp_path), str(CAPTURE)).text
    problems = [one for line in found.splitlines() if (one := json.loads(line))["type"] == "problem"]
    assert [one["kind"] for one in problems] == ["schema-unknown"] * 6
    assert problems[0]["detail"] == f"schema 301 is not in {tmp_path}"
    assert (problems[0]["connection"], problems[0]["packet"], problems[0]["direction"]) == (4, 49, "request")


def exported(folder: Path, *options: str) -> list[dict[str, Any]]:
    found = kafkasniff("export", "-q", str(CAPTURE), "-o", str(folder), *options)
    assert (found.code, found.err) == (0, "")
    return rows(folder, "records")


def test_the_table_of_records(tmp_path: Path) -> None:
    found = exported(tmp_path / "one", "--registry", REGISTRY)
    values = [
        json.loads(one["value_decoded"]) for one in found if one["topic"] == "avro-orders" and one["value_decoded"]
    ]
    assert values[-2:] == [{"id": 1, "item": "lamp", "price": 12.5}, {"id": 70000, "item": "größe 數", "price": None}]
    assert {one["key_decoded"] for one in found if one["topic"] == "header-orders"} == {'"order-1"', '"order-70000"'}
    assert {one["value_decoded"] for one in found if one["topic"] == "plain"} == {None}
    # Without schemas the columns are null, with hidden payload, too.
    for number, options in enumerate(((), ("--registry", REGISTRY, "--no-payload"))):
        assert {one["value_decoded"] for one in exported(tmp_path / str(number), *options)} == {None}


def test_queries_and_the_way_of_a_record_decode_captures(tmp_path: Path) -> None:
    query = "SELECT DISTINCT value_decoded->>'$.item' AS item FROM records WHERE (value_decoded->>'$.id')::INT > 10"
    found = kafkasniff("sql", "-q", "--registry", REGISTRY, "--format", "json", query, str(CAPTURE))
    assert found.text == '{"item":"größe 數"}\n'
    # An export has the decoded keys; the bytes of this one are those of a long string of Avro, after its schema id.
    folder = tmp_path / "tables"
    exported(folder, "--registry", REGISTRY)
    for source in (("--registry", REGISTRY, str(CAPTURE)), (str(folder),)):
        follow = ("follow", "-q", "--key", "order-70000", "--topic", "avro-orders", *source)
        ways = json.loads(kafkasniff(*follow, "--format", "json").text)["records"]
        assert [(way["offset"], way["key_decoded"]) for way in ways] == [(1, '"order-70000"'), (2, '"order-70000"')]
        assert "avro-orders-0@1  key order-70000, value" in kafkasniff(*follow).text
        hidden = kafkasniff(*follow, "--no-payload", "--format", "json").text.partition('"records"')[2]
        assert "order-7" not in hidden
    for command in (("sql", "FROM records"), ("follow", "--key", "x")):
        assert kafkasniff(*command, "--registry", REGISTRY, str(folder)).code == 2


def test_exports_say_what_is_missing(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    found = kafkasniff("export", "-q", str(CAPTURE), "-o", str(tmp_path / "t"), "--registry", str(empty))
    assert "schema 9baa9e35-1170-4c98-990a-9f7880664864 is not in" in found.err
    assert f"{empty} lacks ids with which keys or values seem to begin: " in found.err
    for option in (("--engine", "spark"), ("--records", "--filter", "record.value.id > 1"), ("--format", "otlp")):
        refused = kafkasniff("export", str(CAPTURE), "-o", "http://127.0.0.1:9", "--registry", str(empty), *option)
        assert refused.code == 2, option
