"""JSON lines, CSV and trees of bodies; a new format needs only its entry. `test_events.py` has all events."""

from __future__ import annotations

import base64
import csv
import io
import itertools
import json
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.kafka.apis import dissectors
from kafkasniff.kafka.embedded.interpreters import may_have_floats
from kafkasniff.model import ErrorCode, SaslToken
from kafkasniff.redact.payload import SHOWN
from kafkasniff.sinks.csv import COLUMNS, CsvSink
from kafkasniff.sinks.formats import FORMATS, SinkSettings
from kafkasniff.sinks.jsonl import (
    JsonSink,
    message_object,
)
from kafkasniff.sinks.tree import VALUE_WIDTH, _Tree, bytes_dump, scalar_text
from kafkasniff.text.paint import COLOUR, PLAIN, Paint
from kafkasniff.text.printable import printable
from tests.cli.console import kafkasniff
from tests.conftest import ROOT
from tests.sinks.messages import BROKER, CLIENT, TIME_NS, message


@pytest.mark.parametrize("name", FORMATS)
def test_each_format_opens_and_closes(name: str) -> None:
    stream = BytesIO()
    sink = FORMATS[name].open(stream, SinkSettings(SHOWN))
    sink.flush()
    sink.close()
    assert stream.getvalue().count(b"\n") == (name == "csv")


# The contract's keys, in its order.
COMMON = ["type", "exchange", "connection", "time", "client", "broker", "api_key", "api", "api_version"]
COMMON += ["correlation_id", "client_id", "size", "first_packet", "last_packet", "problems"]


def lines(*events: Any, **options: Any) -> list[dict[str, Any]]:
    stream = io.BytesIO()
    sink = JsonSink(stream, **options)
    for event in events:
        sink.write(event)
    sink.close()
    return [json.loads(line, parse_constant=pytest.fail) for line in stream.getvalue().splitlines()]


def test_a_request_has_the_contract_s_keys_in_order() -> None:
    (line,) = lines(message())
    assert list(line) == [*COMMON, "body"]
    assert line["type"] == "request"
    assert line["time"] == "2026-11-21T04:00:00.123456789Z"
    assert (line["client"], line["broker"]) == ("10.0.0.5:51334", "10.0.0.9:9092")
    assert (line["api_key"], line["api"], line["api_version"]) == (0, "Produce", 9)
    assert line["body"]["acks"] == -1
    assert line["problems"] == []


@given(st.binary())
def test_any_bytes_round_trip(data: bytes) -> None:
    (line,) = lines(message(body={"value": data}))
    value = line["body"]["value"]
    assert (base64.b64decode(value["base64"]) if isinstance(value, dict) else value.encode()) == data


FLOAT_APIS = {48: "DescribeClientQuotas", 49: "AlterClientQuotas", 58: "Envelope", 72: "PushTelemetry"}
"""APIs whose bodies may hold floats: in fields, in a message inside, in metrics."""


def test_the_apis_with_floats_are_those_of_the_definitions() -> None:
    assert {key for key in dissectors.api_keys() if may_have_floats(key)} == FLOAT_APIS.keys()
    assert not may_have_floats(32_000)


def test_sasl_lines_hide_the_token_unless_it_is_shown() -> None:
    token = SaslToken("request", 17, "PLAIN", None, 3, "a.pcap", TIME_NS, CLIENT, BROKER, 9)
    (line,) = lines(token)
    keys = ["type", "connection", "time", "client", "broker", "direction", "size", "mechanism", "token"]
    assert list(line) == keys
    assert line["type"] == "sasl"
    assert line["token"] == {"redacted": 17}
    (line,) = lines(SaslToken("request", 4, "PLAIN", b"\0u\0p"))
    assert line["token"] == "\0u\0p"
    reported = {"mechanism": "PLAIN", "message": "credentials", "username": "u"}
    (line,) = lines(SaslToken("request", 17, "PLAIN", None, 3, "a.pcap", TIME_NS, CLIENT, BROKER, 9, reported))
    assert list(line) == [*keys, "_token"]
    assert line["_token"] == reported


def test_the_library_s_objects_are_the_lines() -> None:
    one = message("response", body={"value": b"\xff", "text": b"x"}, errors=(ErrorCode(3, "X", "y"),))
    assert [message_object(one)] == lines(one)
    assert [message_object(one, form="hex", capture=True)] == lines(one, form="hex", capture=True)
    assert list(message_object(one)) == list(lines(one)[0])


def test_something_that_is_no_json_is_a_mistake_not_a_null() -> None:
    with pytest.raises(TypeError):
        lines(message(body={"x": object()}))


def written(*events: Any) -> str:
    stream = io.BytesIO()
    sink = CsvSink(stream)
    for event in events:
        sink.write(event)
    sink.close()
    return stream.getvalue().decode()


def rows(*events: Any) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(written(*events), newline=""), strict=True))


@pytest.mark.parametrize("kind", ["request", "response"])
def test_values_are_those_of_json(kind: Any) -> None:
    one = message(kind, capture="a.pcap")
    (row,) = rows(one)
    line = message_object(one, capture=True)
    assert list(row) == list(COLUMNS)
    for name in COLUMNS:
        if name not in {"errors", "problems"}:
            assert row[name] == ("" if line.get(name) is None else str(line[name])), name


@pytest.mark.parametrize("begin", ["=", "+", "-", "@"])
def test_a_client_id_is_no_formula(begin: str) -> None:
    (row,) = rows(message(client_id=f'{begin}HYPERLINK("http://x")'))
    assert row["client_id"] == f'\'{begin}HYPERLINK("http://x")'


@given(st.lists(st.text() | st.binary(), min_size=1, max_size=5))
def test_any_client_id_is_one_row(names: list[str | bytes]) -> None:
    found = rows(*(message(client_id=name) for name in names))
    shown = [printable(name) for name in names]
    assert [row["client_id"] for row in found] == [f"'{name}" if name[:1] in set("=+-@") else name for name in shown]


@pytest.mark.parametrize("options", [[], ["--jobs", "2"], ["--no-payload"], ["-v"], ["--records"]])
def test_decode(options: list[str]) -> None:
    """Every message of a capture, the same for any number of jobs and any detail."""
    path = ROOT / "captures" / "java-codecs.pcap"
    table = list(csv.DictReader(io.StringIO(kafkasniff("decode", "--format", "csv", *options, path).text)))
    lines = kafkasniff("decode", "--format", "json", path).objects
    for row, line in itertools.zip_longest(table, lines):
        assert (row["type"], row["time"], row["exchange"]) == (line["type"], line["time"], str(line["exchange"]))
        assert row["latency_ms"] == str(line.get("latency_ms", ""))


def test_wide_values_are_cut_and_their_length_reported() -> None:
    assert scalar_text("x" * (VALUE_WIDTH + 1234)) == '"' + "x" * VALUE_WIDTH + '"… +1234 bytes'
    assert scalar_text("ü" * (VALUE_WIDTH + 2)).endswith("… +4 bytes")
    assert bytes_dump(b"y" * 20, 16) == '"' + "y" * 16 + '"… +4 bytes'
    assert bytes_dump(b"\xff\x01\x02", 2) == "0xff01… +1 bytes"
    # A cut through a character does not make hex of text.
    assert bytes_dump(("a" + "ü" * 10).encode(), 4) == '"aü"… +18 bytes'
    assert bytes_dump("數".encode() * 3, 4) == '"數"… +6 bytes'


@given(
    record=st.fixed_dictionaries(
        {
            "offset": st.integers(-(2**63), 2**63 - 1),
            "timestamp": st.integers(-5, 2**43),
            "key": st.none() | st.binary(max_size=9) | st.just({"redacted": 5}) | st.just({"length": 3}),
            "value": st.none() | st.binary(max_size=500) | st.text(max_size=300).map(str.encode),
            "headers": st.just([]),
        }
    ),
    width=st.integers(40, 200),
    paint=st.sampled_from([PLAIN, COLOUR]),
)
def test_a_plain_record_is_shown_like_any_struct(record: dict[str, Any], width: int, paint: Paint) -> None:
    record = {name: record[name] for name in ("offset", "timestamp", "key", "value", "headers")}
    tree = _Tree(paint, True, width)
    assert list(tree.record(record, 6)) == list(tree.struct(record, None, 6, "- "))
