"""`--fields`: rows have what the JSON lines have."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from kafkasniff.cli.environment import Exit
from kafkasniff.filters.fields import FIELDS
from tests.cli.console import kafkasniff
from tests.conftest import ROOT

ERRORS = ROOT / "captures" / "java-errors.pcap"
CODECS = ROOT / "captures" / "librdkafka-codecs.pcap"
PATHS = ("request.acks", "response.throttle_time_ms", "response.responses.name", "record.key", "record.value.id")
EVERY = ",".join((*FIELDS, *PATHS))


def rows(*options: str) -> list[dict[str, Any]]:
    return kafkasniff("decode", "-q", "--json", "--fields", EVERY, *options, ERRORS).objects


def test_rows_have_what_lines_have() -> None:
    lines = kafkasniff("decode", "-q", "--json", ERRORS).objects
    ends: dict[int, dict[str, dict[str, Any]]] = {}
    for line in lines:
        if line["type"] in ("request", "response"):
            ends.setdefault(line["exchange"], {})[line["type"]] = line
    found = {row["exchange"]: row for row in rows()}
    assert found.keys() == ends.keys()
    for number, row in found.items():
        request, response = ends[number].get("request"), ends[number].get("response")
        first = request or response
        assert first is not None
        same = (
            *("api", "api_key", "api_version", "correlation_id", "client_id", "time", "connection", "client", "broker"),
        )
        assert {name: row[name] for name in same} == {name: first[name] for name in same}
        assert row["size"] == [one["size"] for one in (request, response) if one]
        assert row["host"] == [first["client"], first["broker"]]
        assert row["request"] is (request is not None)
        if response is not None:
            assert [row["latency_ms"], row["duration_ms"]] == [response["latency_ms"], response["duration_ms"]]
            codes = [one["name"] for one in response["errors"]] or ["NONE"]
            assert row["error"] == list(dict.fromkeys(codes))
            assert row["response.throttle_time_ms"] == response["body"].get("throttle_time_ms")
    assert any(row["record.key"] for row in found.values())


def test_cells_are_the_same_in_text_and_csv() -> None:
    text = kafkasniff("decode", "-q", "--fields", EVERY, ERRORS).text
    header, *found = csv.reader(io.StringIO(kafkasniff("decode", "-q", "--format=csv", "--fields", EVERY, ERRORS).text))
    assert header == EVERY.split(",")
    # A spreadsheet would take -1 for a formula.
    assert [[cell.removeprefix("'") for cell in row] for row in found] == [row.split("\t") for row in text.splitlines()]
    api = header.index("api")
    assert [row[api] for row in found] == [row["api"] for row in rows()]


def test_count_and_filters_count_rows() -> None:
    everything = rows()
    assert rows("-c", "3") == everything[:3]
    wanted = [row for row in everything if "Produce" in row["api"]]
    assert rows("--api", "Produce") == wanted
    done = kafkasniff("decode", "--fields", "api", "--api", "Produce", ERRORS)
    assert f"{len(wanted)} exchanges shown" in done.err


def test_payload_and_secrets_stay_hidden() -> None:
    shown = kafkasniff("decode", "-q", "--fields", "record.key", "--api", "Produce", CODECS).text
    hidden = kafkasniff("decode", "-q", "--no-payload", "--fields", "record.key", "--api", "Produce", CODECS).text
    assert "tombstone" in shown
    assert "tombstone" not in hidden
    assert "9 bytes" in hidden
    sasl = kafkasniff(
        "decode", "-q", "--fields", "request", ROOT / "captures" / "java-sasl.pcap", "-e", "request.auth_bytes"
    )
    assert "-secret" not in sasl.text
    assert "redacted" in sasl.text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--fields", "time,topc"), '--fields: column 6: unknown field "topc"; did you mean topic?'),
        (("--fields", "time topic"), "--fields: column 6: expected ',' or the end, not 'topic'"),
        (("--fields", ""), "--fields: column 1: expected a field, not the end"),
        (("-e", "request.nosuch_field_at_all"), '--fields: column 1: no API has "request.nosuch_field_at_all"'),
        (("-e", "api", "-v"), "-v shows messages, --fields rows: give one of them"),
        (("-e", "record.key", "--no-records"), "--fields refers to records, which --no-records skips"),
        (("-e", "api", "-w", "x.pcap"), "--fields cannot be combined with --write-matching"),
    ],
)
def test_misuse(options: tuple[str, ...], message: str) -> None:
    done = kafkasniff("decode", *options, ERRORS)
    assert done.code == Exit.USAGE
    assert message in done.err
