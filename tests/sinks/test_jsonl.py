from __future__ import annotations

import base64
import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.kafka.apis import dissectors
from kafkasniff.kafka.embedded.interpreters import may_have_floats
from kafkasniff.model import Endpoint, ErrorCode, Exchange, Problem, SaslToken
from kafkasniff.sinks.jsonl import (
    JsonSink,
    body_json,
    message_object,
    plain,
)
from tests.sinks.messages import BROKER, CLIENT, TIME_NS, message

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


def test_a_response_has_latency_duration_and_errors() -> None:
    error = ErrorCode(3, "UNKNOWN_TOPIC_OR_PARTITION", "responses[0].partition_responses[0].error_code")
    (line,) = lines(message("response", errors=(error, ErrorCode(999, None, "error_code"))))
    assert list(line) == [*COMMON, "latency_ms", "duration_ms", "errors", "body"]
    assert line["latency_ms"] == 1.234
    assert line["duration_ms"] == 1.4
    assert line["errors"] == [
        {
            "code": 3,
            "name": "UNKNOWN_TOPIC_OR_PARTITION",
            "path": "responses[0].partition_responses[0].error_code",
        },
        {"code": 999, "name": None, "path": "error_code"},
    ]


def test_an_orphan_response_is_null_if_nothing_is_known() -> None:
    unknown = {"api_key": None, "api": None, "api_version": None, "client_id": None, "body": None}
    (line,) = lines(message("response", **unknown, latency_ns=None, duration_ns=None))
    for key in (*unknown, "latency_ms", "duration_ms"):
        assert line[key] is None


def test_a_connection_number_with_other_endpoints_shows_them() -> None:
    others = {"client": Endpoint("10.0.0.7", 1), "broker": Endpoint("::1", 9092)}
    events = [message(), message(**others), message("response"), message(client=None, broker=None, connection=None)]
    assert [(line["client"], line["broker"]) for line in lines(*events)] == [
        ("10.0.0.5:51334", "10.0.0.9:9092"),
        ("10.0.0.7:1", "[::1]:9092"),
        ("10.0.0.5:51334", "10.0.0.9:9092"),
        (None, None),
    ]
    assert lines(*events) == [json.loads(json.dumps(message_object(one))) for one in events]


def test_negative_latencies_stay_so() -> None:
    (line,) = lines(message("response", latency_ns=-1_500))
    assert line["latency_ms"] == -0.0015


def test_optional_keys_and_their_places() -> None:
    (line,) = lines(
        message("response", header_tags=((9, b"\x01\x02"),), body_version=0, raw=b"\xff\x00"),
        capture=True,
    )
    optional = ["capture", "header_tags", "body_version", "body", "raw"]
    assert list(line) == [*COMMON, "latency_ms", "duration_ms", "errors", *optional]
    assert line["capture"] == "a.pcap"
    assert line["header_tags"] == [{"tag": 9, "base64": "AQI="}]
    assert line["body_version"] == 0
    assert base64.b64decode(line["raw"]) == b"\xff\x00"
    (line,) = lines(message(raw_redacted=12))
    assert line["raw"] == {"redacted": 12}


def test_problems_within_messages_have_kind_detail_and_offset() -> None:
    (line,) = lines(message(problems=(Problem("trailing-bytes", "3 bytes", 120),)))
    assert line["problems"] == [{"kind": "trailing-bytes", "detail": "3 bytes", "offset": 120}]


@pytest.mark.parametrize(
    ("form", "text", "binary"),
    [
        ("auto", "value", {"base64": "/wA="}),
        ("base64", {"base64": "dmFsdWU="}, {"base64": "/wA="}),
        ("hex", {"hex": "76616c7565"}, {"hex": "ff00"}),
    ],
)
def test_bytes_in_their_three_forms(form: Any, text: Any, binary: Any) -> None:
    body = {"text": b"value", "binary": b"\xff\x00", "nested": [{"key": b"value"}], "none": None, "empty": b""}
    (line,) = lines(message(body=body, client_id="x"), form=form)
    assert line["body"]["text"] == text
    assert line["body"]["binary"] == binary
    assert line["body"]["nested"] == [{"key": text}]
    assert line["body"]["none"] is None


def test_a_client_id_that_is_not_utf8() -> None:
    (line,) = lines(message(client_id=b"\xffx"))
    assert line["client_id"] == {"base64": "/3g="}


@given(st.binary())
def test_any_bytes_round_trip(data: bytes) -> None:
    (line,) = lines(message(body={"value": data}))
    value = line["body"]["value"]
    assert (base64.b64decode(value["base64"]) if isinstance(value, dict) else value.encode()) == data


FLOAT_APIS = {48: "DescribeClientQuotas", 49: "AlterClientQuotas", 58: "Envelope", 72: "PushTelemetry"}
"""APIs whose bodies may hold floats: in fields, in a message inside, in metrics."""


def test_nan_and_infinities_are_strings_in_the_apis_that_have_floats() -> None:
    values = [float("nan"), float("inf"), float("-inf"), 0.5, -0.0]
    for key in FLOAT_APIS:
        (line,) = lines(message(api_key=key, body={"values": [{"value": value} for value in values]}))
        assert [item["value"] for item in line["body"]["values"]] == ["NaN", "Infinity", "-Infinity", 0.5, -0.0]


def test_the_apis_with_floats_are_those_of_the_definitions() -> None:
    assert {key for key in dissectors.api_keys() if may_have_floats(key)} == FLOAT_APIS.keys()
    assert not may_have_floats(32_000)


def test_problem_lines_have_all_keys() -> None:
    (line,) = lines(Problem("tcp-gap", "1448 bytes are missing", None, 3, TIME_NS, "a.pcap", 17, "request", 1448))
    assert line == {
        "type": "problem",
        "kind": "tcp-gap",
        "detail": "1448 bytes are missing",
        "connection": 3,
        "time": "2026-11-21T04:00:00.123456789Z",
        "capture": "a.pcap",
        "packet": 17,
        "direction": "request",
        "bytes": 1448,
    }
    assert list(line) == ["type", "kind", "detail", "connection", "time", "capture", "packet", "direction", "bytes"]
    (line,) = lines(Problem("capture-cut", "x"))
    assert [key for key, value in line.items() if value is None] == [
        "connection", "time", "capture", "packet", "direction", "bytes",
    ]  # fmt: skip


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


def test_the_end_of_an_exchange_has_no_line() -> None:
    assert lines(Exchange(1, 1, "answered", message(), message("response"))) == []


def test_ipv6_endpoints_are_in_brackets() -> None:
    (line,) = lines(message(client=Endpoint("::1", 40000)))
    assert line["client"] == "[::1]:40000"


def test_no_time_is_null() -> None:
    (line,) = lines(message(time_ns=None))
    assert line["time"] is None


def test_a_capture_s_name_that_is_not_utf8_does_not_break_the_line() -> None:
    (line,) = lines(message(capture="a\udcff.pcap"), capture=True)
    assert line["capture"] == "a\\xff.pcap"


def test_the_library_s_objects_are_the_lines() -> None:
    one = message("response", body={"value": b"\xff", "text": b"x"}, errors=(ErrorCode(3, "X", "y"),))
    assert [message_object(one)] == lines(one)
    assert [message_object(one, form="hex", capture=True)] == lines(one, form="hex", capture=True)
    assert list(message_object(one)) == list(lines(one)[0])


def test_bodies_alone() -> None:
    assert json.loads(body_json({"a": b"\xff", "b": [float("nan")]})) == {"a": {"base64": "/w=="}, "b": ["NaN"]}
    assert plain({"a": [b"x", {"b": b"\xff"}]}) == {"a": ["x", {"b": {"base64": "/w=="}}]}


def test_something_that_is_no_json_is_a_mistake_not_a_null() -> None:
    with pytest.raises(TypeError):
        lines(message(body={"x": object()}))
