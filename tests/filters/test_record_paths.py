"""Fields of records, and JSON in them."""

from __future__ import annotations

from typing import Any

import pytest

from kafkasniff.errors import UsageError
from kafkasniff.filters.record_paths import MAX_JSON, record_path
from kafkasniff.model import Exchange
from tests.cli.console import kafkasniff as command
from tests.conftest import ROOT
from tests.filters.expressions import exchange, holds
from tests.sinks.messages import message


def _record(key: Any = None, value: Any = None, **more: Any) -> dict[str, Any]:
    return {"offset": 0, "timestamp": 1_700_000_000_000, "key": key, "value": value, "headers": [], **more}


def _records(*records: dict[str, Any]) -> dict[str, Any]:
    return {"batches": [{"records": list(records)}], "truncated_bytes": 0}


def _produced(*records: dict[str, Any]) -> Exchange:
    partition = {"index": 0, "records": _records(*records)}
    return exchange(message(body={"topic_data": [{"name": "t", "partition_data": [partition]}]}), None)


def _fetched(*records: dict[str, Any]) -> Exchange:
    body = {"responses": [{"topic": "t", "partitions": [{"partition_index": 0, "records": _records(*records)}]}]}
    fetch = {"api_key": 1, "api": "Fetch", "api_version": 12}
    return exchange(message(body={}, **fetch), message("response", body=body, **fetch))


@pytest.mark.parametrize("name", ["record.", "record.topic", "record.header", "record.header[]", "record.offset.$.a"])
def test_other_names(name: str) -> None:
    with pytest.raises(UsageError):
        record_path(name)


@pytest.mark.parametrize("make", [_produced, _fetched])
def test_records_of_both_directions(make: Any) -> None:
    of = make(
        _record(b"k1", b"v1", headers=[{"key": b"a", "value": b"x"}, {"key": "b", "value": b"y"}]),
        _record(b"k2", None, offset=7),
    )
    for expression, answer in {
        'record.key == "k2"': True,
        'record.key != "k1"': False,
        'record.value == "v1"': True,
        'record.value in ("v2", "v3")': False,
        'record.header[a] == "x"': True,
        'record.header["b"] =~ "^y$"': True,
        'record.header[c] == "x"': False,
        "record.header[c] == null": True,
        "record.offset > 6": True,
        "record.timestamp < 2030-01-01T00:00:00Z": True,
        "has record": True,
        # The two may be different records.
        'record.key == "k2" and record.value == "v1"': True,
    }.items():
        assert holds(expression, of) is answer, expression


def test_an_exchange_without_records() -> None:
    of = exchange(message(api_key=3, api="Metadata", api_version=9, body={"topics": None}), None)
    assert not holds("record", of)
    assert not holds('record.key != "a"', of)
    assert holds("record.key == null", of)


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("record.value.$.id == 4711", True),
        ("record.value.$.id > 5000", False),
        ('record.value.$.lines.sku contains "b-"', True),
        ("record.value.$.paid == true", True),
        ("record.value.$.paid == 1", False),
        ("record.value.$.none == null", True),
        ("exists(record.value.$.lines)", True),
        ('record.value.$."a.b" startswith "x"', True),
        ('record.value.$.a.b == "xyz"', False),
        ("record.value.$.total == 9.5", True),
    ],
)
def test_json(expression: str, answer: bool) -> None:
    value = b'{"id":4711,"paid":true,"none":null,"total":9.5,"a.b":"xyz","lines":[{"sku":"a-1"},{"sku":"b-2"}]}'
    for data in (value, b"\0\0\0\0\7" + value):
        assert holds(expression, _produced(_record(None, data))) is answer
    assert holds(expression.replace("record.value", "record.key"), _produced(_record(value))) is answer


def test_what_is_no_json_has_no_members() -> None:
    large = b'{"a":"' + b"x" * MAX_JSON + b'"}'
    for value in (b"", b"\0", b"{", b"[" * 100_000, b'"\xff"', b'{"a":' * 50_000, {"redacted": 4}, large):
        assert not holds("has record.value.$.a", _produced(_record(None, value)))
    for value in (b"5", b"[4, [5]]"):
        assert holds("record.value.$ == 5", _produced(_record(None, value)))


def test_records_that_the_output_excludes() -> None:
    capture = ROOT / "captures" / "java-codecs.pcap"
    found = command("decode", "--no-records", "--filter", "record.key == 'a'", capture)
    assert (found.code, "--no-records" in found.err) == (2, True)
