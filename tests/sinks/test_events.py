"""Events of every kind in every format, in `events/` for review. `python -m tests.sinks.test_events` writes them."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pytest

from kafkasniff.model import Endpoint, ErrorCode, Exchange, Problem, SaslToken
from kafkasniff.sinks.csv import CsvSink
from kafkasniff.sinks.jsonl import JsonSink
from kafkasniff.sinks.text import PROBLEMS_SHOWN, TextSink
from kafkasniff.sinks.tree import VALUE_WIDTH
from tests.sinks.messages import BATCH, BROKER, CLIENT, TIME_NS, message

KEPT = Path(__file__).parent / "events"
SECOND, DAY = 1_000_000_000, 86_400_000_000_000
NOT_LEADER = ErrorCode(6, "NOT_LEADER_OR_FOLLOWER", "responses[0].partitions[0].error_code")
LEADER = {"partition_index": 0, "error_code": 6, "current_leader": {"leader_id": 3, "leader_epoch": 2}}
REFUSED = {"session_id": 0, "error_code": 0, "responses": [{"topic": "orders", "partitions": [LEADER]}]}
UNKNOWN = {"api_key": None, "api": None, "api_version": None, "client_id": None, "body": None}
RECORD = {"offset": 7, "timestamp": 1_700_000_000_000, "key": b"k", "value": None, "headers": []}
HEADERS = [{"key": "h", "value": b"\xff\x00"}, {"key": "n", "value": None}]
RECORDS = {"batches": [{**BATCH, "records": [RECORD, {**RECORD, "value": b"v", "headers": HEADERS}]}]}
USER = {"mechanism": "PLAIN", "message": "credentials", "username": "\x1b[31mu"}


def produced(*partitions: dict[str, Any]) -> dict[str, Any]:
    return {"acks": -1, "timeout_ms": 30_000, "topic_data": [{"name": "orders", "partition_data": list(partitions)}]}


def response(key: int, api: str, version: int, body: dict[str, Any], **fields: Any) -> Any:
    return message("response", api_key=key, api=api, api_version=version, body=body, **fields)


# Each group has a sink of its own, since columns grow and facts about connections are remembered.
GROUPS: dict[str, list[Any]] = {
    "requests and responses": [
        message(),
        message("response"),
        response(1, "Fetch", 12, REFUSED, latency_ns=502_000_000, errors=(NOT_LEADER,), time_ns=TIME_NS + SECOND),
        Exchange(1, 1, "unanswered", message(), None),
        message("response", latency_ns=-1_500, duration_ns=None),
    ],
    "columns that grow": [
        message(),
        message(
            api="AlterPartitionReassignments", api_key=45, api_version=0, exchange=1234567, correlation_id=7654321,
            body={"topics": None}, client_id="quite-a-long-name", client=Endpoint("2001:db8::1234:5678", 51334),
            connection=9,
        ),
        message(),
    ],
    "days and missing times": [
        message(), message(time_ns=TIME_NS + 1), message(time_ns=TIME_NS + DAY), message(time_ns=None), message(),
    ],
    "errors and problems": [
        message("response", errors=(ErrorCode(3, "UNKNOWN_TOPIC_OR_PARTITION", "a.code"), ErrorCode(999, None, "b"))),
        message(problems=tuple(Problem("crc-mismatch", f"batch {at}", at) for at in range(PROBLEMS_SHOWN + 2))),
        message(problems=(Problem("body-trailing", "2 bytes, unread"),)),
    ],
    "problems of streams": [
        (gap := Problem("tcp-gap", "1448 bytes are missing", None, 3, TIME_NS, "a.pcap", 17, "response", 1448)),
        message(),
        msgspec.structs.replace(gap, client=CLIENT, broker=BROKER),
        Problem("capture-cut", "x"),
        Problem("request-unanswered", "3", connection=2, time_ns=TIME_NS, packet=9, bytes=100, exchange=4),
    ],
    "tokens": [
        SaslToken("request", 17, "PLAIN", None, 3, "a.pcap", TIME_NS, CLIENT, BROKER, 9),
        SaslToken("request", 4, "PLAIN", b"\0u\0p"),
        SaslToken("response", 17, "PLAIN", None, 3, "a.pcap", TIME_NS, CLIENT, BROKER, 9, USER),
    ],
    "orphans and unknown APIs": [
        message("response", **UNKNOWN, latency_ns=None, problems=(Problem("orphan-response", "no request"),)),
        message(api_key=200, api=None, api_version=3, body=None),
        message(raw=b"\xff\x00", body=None),
        message(raw_redacted=12, body=None),
    ],
    "ends": [
        message(),
        message(client=Endpoint("10.0.0.7", 1), broker=Endpoint("::1", 9092)),
        message("response"),
        message(client=None, broker=None, connection=None),
    ],
    "captures": [message(), message(capture="b.pcap"), message(capture="b.pcap"), message(capture="a\udcff.pcap")],
    "names": [
        message(client_id=name)
        for name in ('=HYPERLINK("http://x")', 'a,"b"\r\nc\x1b[31m', b"\xffx", "x" * 50, "", "größe 數據", None)
    ],
    "headers and versions": [
        message("response", header_tags=((9, b"\x01\x02"),), body_version=0),
        response(
            18, "ApiVersions", 4, {"error_code": 35, "api_keys": []}, body_version=0,
            errors=(ErrorCode(35, "UNSUPPORTED_VERSION", "error_code"),),
        ),
    ],
    "records": [message(body=produced({"index": 0, "records": RECORDS}, {"index": 1, "records": None}))],
    "codes and times": [
        response(60, "DescribeCluster", 2, {"error_code": 0, "error_message": None, "endpoint_type": 2}),
        message("response", **{**UNKNOWN, "body": {"error_code": 6}}),
        message("response", **{**UNKNOWN, "body": {"error_code": 999}}),
        message(body={"records": {"batches": [{**BATCH, "max_timestamp": -1}]}}),
        message(
            api_key=2, api="ListOffsets", api_version=7,
            body={"topics": [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -2}]}]},
        ),
        *(
            response(60, "DescribeCluster", 0, {"cluster_authorized_operations": bits,
                                                "_cluster_authorized_operations": names})
            for bits, names in ((264, ["READ", "DESCRIBE"]), (1 << 20, ["bit 20"]))
        ),
    ],
    "values": [
        message(body={"nodes": list(range(40)), "list": [{}, {"a": 1}], "empty": {}, "none": [], "text": b"value"}),
        message(body={"a": None, "b": True, "c": 1.5, "d": b"", "e": "", "f": 'a"b', "g": b"\xff", "h": b"\x1b[0m"}),
        message(body={"a": "x" * (VALUE_WIDTH + 9), "b": "ü" * (VALUE_WIDTH + 2), "c": b"\xff" * (VALUE_WIDTH + 1)}),
        message(body={"auth_bytes": {"redacted": 17}, "_unknown_tags": [{"tag": 9, "base64": "AQI="}]}),
        message(body={"a": b"x", "b": 1, "_a": {"format": "consumer", "value": {"topics": ["t"]}}, "_c": 2}),
        message(api_key=48, body={"values": [float("nan"), float("inf"), float("-inf"), 0.5, -0.0]}),
    ],
}  # fmt: skip


class Sink(Protocol):
    def write(self, event: Any) -> None: ...
    def close(self) -> None: ...


FORMATS: dict[str, Callable[[Any], Sink]] = {
    "lines.txt": TextSink,
    "lines-ascii.txt": lambda stream: TextSink(stream, encoding="ascii", captures=True, colour=True),
    "bodies.txt": lambda stream: TextSink(stream, verbosity=1, width=80, captures=True),
    "records.txt": lambda stream: TextSink(stream, verbosity=2, width=120, colour=True),
    "auto.jsonl": lambda stream: JsonSink(stream, capture=True),
    "hex.jsonl": lambda stream: JsonSink(stream, form="hex"),
    "base64.jsonl": lambda stream: JsonSink(stream, form="base64", terminal=True),
    "rows.csv": CsvSink,
}


def written(name: str) -> Iterator[str]:
    for title, events in GROUPS.items():
        stream = io.BytesIO()
        sink = FORMATS[name](stream)
        for event in events:
            sink.write(event)
        sink.close()
        yield f"== {title}"
        yield from stream.getvalue().decode().replace("\x1b", "ESC").splitlines()


@pytest.mark.parametrize("name", FORMATS)
def test_events(name: str) -> None:
    kept = (KEPT / name).read_text(encoding="utf-8").splitlines()
    for number, (ours, expected) in enumerate(zip(written(name), kept, strict=True), 1):
        assert ours == expected, f"line {number} of {name}; wanted? python -m tests.sinks.test_events"


if __name__ == "__main__":
    for name in FORMATS:
        (KEPT / name).write_text("".join(f"{line}\n" for line in written(name)), encoding="utf-8")
