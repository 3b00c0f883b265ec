"""JSON lines and CSV of messages. `test_events.py` has all events."""

from __future__ import annotations

import csv
import io
import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.model import ErrorCode
from kafkasniff.sinks.csv import CsvSink
from kafkasniff.sinks.jsonl import JsonSink, message_object
from kafkasniff.text.printable import printable
from tests.cli.console import kafkasniff
from tests.conftest import ROOT
from tests.sinks.messages import message


def lines(*events: Any, **options: Any) -> list[dict[str, Any]]:
    stream = io.BytesIO()
    sink = JsonSink(stream, **options)
    for event in events:
        sink.write(event)
    sink.close()
    return [json.loads(line, parse_constant=pytest.fail) for line in stream.getvalue().splitlines()]


def test_the_library_s_objects_are_the_lines() -> None:
    one = message("response", body={"value": b"\xff", "text": b"x"}, errors=(ErrorCode(3, "X", "y"),))
    assert [message_object(one)] == lines(one)
    assert [message_object(one, form="hex", capture=True)] == lines(one, form="hex", capture=True)
    assert list(message_object(one)) == list(lines(one)[0])


@given(st.lists(st.text() | st.binary(), min_size=1, max_size=5))
def test_any_client_id_is_one_row(names: list[str | bytes]) -> None:
    stream = io.BytesIO()
    sink = CsvSink(stream)
    for name in names:
        sink.write(message(client_id=name))
    sink.close()
    found = csv.DictReader(io.StringIO(stream.getvalue().decode(), newline=""), strict=True)
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
