"""Rows of CSV, read back by Python's own reader."""

from __future__ import annotations

import csv
import io
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.model import Endpoint, ErrorCode, Exchange, Lines, Problem, SaslToken
from kafkasniff.sinks.csv import COLUMNS, CsvSink
from kafkasniff.sinks.jsonl import message_object
from kafkasniff.text.printable import printable
from tests.cli.console import kafkasniff
from tests.conftest import ROOT
from tests.sinks.messages import BROKER, CLIENT, TIME_NS, message


def written(*events: Any) -> str:
    stream = io.BytesIO()
    sink = CsvSink(stream)
    for event in events:
        sink.write(event)
    sink.close()
    return stream.getvalue().decode()


def rows(*events: Any) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(written(*events), newline=""), strict=True))


def test_a_header_without_rows() -> None:
    assert written() == ",".join(COLUMNS) + "\n"


@pytest.mark.parametrize("kind", ["request", "response"])
def test_values_are_those_of_json(kind: Any) -> None:
    one = message(kind, capture="a.pcap")
    (row,) = rows(one)
    line = message_object(one, capture=True)
    assert list(row) == list(COLUMNS)
    for name in COLUMNS:
        if name not in {"errors", "problems"}:
            assert row[name] == ("" if line.get(name) is None else str(line[name])), name


def test_errors_and_problems() -> None:
    errors = (ErrorCode(3, "UNKNOWN_TOPIC_OR_PARTITION", "topics[0].error_code"), ErrorCode(999, None, "error_code"))
    (row,) = rows(message("response", errors=errors, problems=(Problem("body-trailing", "2 bytes, unread"),)))
    assert row["errors"] == "UNKNOWN_TOPIC_OR_PARTITION at topics[0].error_code; error 999 at error_code"
    assert row["problems"] == "body-trailing: 2 bytes, unread"


def test_events_without_a_message() -> None:
    token = SaslToken("request", 40, "PLAIN", b"secret", 1, None, TIME_NS, CLIENT, BROKER, 7)
    problem = Problem("gap", "3 packets", connection=2, time_ns=TIME_NS, packet=9, bytes=100, exchange=4)
    first, second = rows(token, Exchange(1, 1, "complete", None, None), problem)
    assert (first["type"], first["connection"], first["size"], first["first_packet"]) == ("sasl", "1", "40", "7")
    assert (second["type"], second["connection"], second["exchange"], second["size"]) == ("problem", "2", "4", "100")
    assert (second["last_packet"], second["problems"]) == ("9", "gap: 3 packets")
    assert "secret" not in written(token)


@pytest.mark.parametrize("begin", ["=", "+", "-", "@"])
def test_a_client_id_is_no_formula(begin: str) -> None:
    (row,) = rows(message(client_id=f'{begin}HYPERLINK("http://x")'))
    assert row["client_id"] == f'\'{begin}HYPERLINK("http://x")'


def test_names_with_commas_quotes_and_line_ends() -> None:
    text = 'a,"b"\r\nc\x1b[31m'
    assert len(written(message(client_id=text)).splitlines()) == 2
    (row,) = rows(message(client_id=text, client=Endpoint("fe80::1", 5)))
    assert row["client_id"] == printable(text)
    assert row["client"] == "[fe80::1]:5"


@given(st.lists(st.text() | st.binary(), min_size=1, max_size=5))
def test_any_client_id_is_one_row(names: list[str | bytes]) -> None:
    found = rows(*(message(client_id=name) for name in names))
    shown = [printable(name) for name in names]
    assert [row["client_id"] for row in found] == [f"'{name}" if name[:1] in set("=+-@") else name for name in shown]


def test_finished_rows() -> None:
    stream = io.BytesIO()
    sink = CsvSink(stream)
    sink.write_lines(Lines(b"a\nb\n", 2))
    sink.flush()
    assert stream.getvalue().splitlines()[1:] == [b"a", b"b"]


@pytest.mark.parametrize("options", [[], ["--jobs", "2"], ["--no-payload"], ["-v"], ["--records"]])
def test_decode(options: list[str]) -> None:
    """Every message of a capture, the same for any number of jobs and any detail."""
    path = ROOT / "captures" / "java-codecs.pcap"
    table = list(csv.DictReader(io.StringIO(kafkasniff("decode", "--format", "csv", *options, path).text)))
    lines = kafkasniff("decode", "--format", "json", path).objects
    for row, line in itertools.zip_longest(table, lines):
        assert (row["type"], row["time"], row["exchange"]) == (line["type"], line["time"], str(line["exchange"]))
        assert row["latency_ms"] == str(line.get("latency_ms", ""))


def test_decode_with_a_filter() -> None:
    options = ["--format", "csv", "--api", "Produce", "-c", "3", ROOT / "captures" / "java-codecs.pcap"]
    assert [row["api"] for row in csv.DictReader(io.StringIO(kafkasniff("decode", *options).text))] == ["Produce"] * 3
