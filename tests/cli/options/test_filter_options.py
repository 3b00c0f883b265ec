"""Filters on the command line, combined, in every command that has them."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.cli.environment import Exit
from tests.cli.console import Result, kafkasniff
from tests.tables.exports.exported import manifest, rows

RECORDS = "request.topic_data.partition_data.records.batches.records.key == 'key-0'"


def shown(result: Result) -> set[tuple[int, str]]:
    assert result.code == 0, result.err
    return {(line["exchange"], line["type"]) for line in result.objects if line["type"] != "problem"}


def decode(capture: Path, *options: object) -> set[tuple[int, str]]:
    return shown(kafkasniff("decode", "-q", "--format", "json", *options, capture))


Line = dict[str, Any]


@functools.cache
def everything(capture: Path) -> list[Line]:
    lines = kafkasniff("decode", "-q", "--format", "json", capture).objects
    return [line for line in lines if line["type"] != "problem"]


@pytest.mark.parametrize(
    ("short", "expression", "holds"),
    [
        (("--errors",), 'error != "NONE"', lambda line: line.get("errors")),
        (("--errors",), "error", lambda line: line.get("errors")),
        (("--api", "0,1"), 'api in ("Produce", "fetch")', lambda line: line["api_key"] in {0, 1}),
        (("--api", "metadata"), "api == 3", lambda line: line["api"] == "Metadata"),
        (("--slower-than", "0.5ms"), "latency_ms > 500us", lambda line: (line.get("latency_ms") or 0) > 0.5),
        (("--host", "10.0.0.6"), 'host == "10.0.0.6" && api =~ "[a-z]"', lambda line: "10.0.0.6:" in line["client"]),
        (("--port", "9092"), "broker_port == 9092", lambda _: True),
        (("--topic", "ör*"), 'topic =~ "^ör"', lambda line: "öre" in json.dumps(line, ensure_ascii=False)),
        (("--client-id", "craft*"), 'client_id startswith "craft"', lambda line: line["client_id"] == "crafted"),
        (("--exchange", 4, "--exchange", 5), "exchange == 4 or exchange == 5", lambda line: line["exchange"] in {4, 5}),
        (("--exchange=4, #5,#9",), "exchange in (4, 5, 9)", lambda line: line["exchange"] in {4, 5, 9}),
        (("--connection", "1"), "connection in (1)", lambda line: line["connection"] == 1),
        (("--since", "+0s"), 'time >= "+0s"', lambda _: True),
        (("--correlation-id", 3, "--correlation-id", 4), "correlation_id in (3, 4)",
         lambda line: line["correlation_id"] in {3, 4}),
    ],
)  # fmt: skip
def test_expressions_and_short_forms_agree(
    capture: Path, short: tuple[object, ...], expression: str, holds: Callable[[Line], bool]
) -> None:
    messages = everything(capture)
    wanted = {line["exchange"] for line in messages if holds(line)}
    expected = {(line["exchange"], line["type"]) for line in messages if line["exchange"] in wanted}
    assert decode(capture, "--filter", expression) == decode(capture, *short) == expected != set()


def test_all_filters_must_match(capture: Path) -> None:
    produced, first = decode(capture, "--filter", "api == 0"), decode(capture, "--filter", "exchange < 12")
    both = decode(capture, "--filter", "api == 0", "--filter", "exchange < 12")
    assert both == produced & first == decode(capture, "--filter", "exchange < 12", "--api", "Produce")
    assert set() < both < produced
    everything = decode(capture)
    assert decode(capture, "--filter", "not (api == 0)") == everything - produced


def test_records_are_decoded_where_a_filter_needs_them(capture: Path) -> None:
    expected = decode(capture, "--filter", RECORDS)
    assert expected
    # One line of text per message needs no records; the filter does.
    text = kafkasniff("decode", "--filter", RECORDS, capture)
    assert f"{len(expected)} shown" in text.err
    assert "key-0" not in text.text


def test_exported_rows_are_those_of_the_selected_exchanges(capture: Path, tmp_path: Path) -> None:
    expression = "api == 0 and not error"
    lines = kafkasniff("decode", "-q", "--format", "json", "--filter", expression, capture).objects
    wanted = sorted((line["api"], line["correlation_id"]) for line in lines if line["type"] == "request")
    done = kafkasniff("export", "-q", "-o", tmp_path, "--filter", expression, "--jobs", 2, capture)
    assert (done.code, done.err) == (0, "")
    found = rows(tmp_path, "exchanges")
    assert sorted((row["api"], row["correlation_id"]) for row in found) == wanted != []
    assert {row["error_code"] for row in found} <= {0, None}
    assert expression in json.dumps(manifest(tmp_path))
    other = kafkasniff("export", "-q", "-o", tmp_path, "--filter", "api == 0", capture)
    assert other.code == Exit.USAGE, "rows of another selection do not go into the same tables"


def test_numbers_and_keys_of_exported_rows_lead_to_each_other(capture: Path, tmp_path: Path) -> None:
    number = 12
    assert kafkasniff("export", "-q", "-o", tmp_path, "--exchange", number, capture).code == 0
    (row,) = rows(tmp_path, "exchanges")
    key = f"{row['connection_id']}/{row['exchange_id']}"
    wanted = decode(capture, "--exchange", number)
    assert wanted == {(number, "request"), (number, "response")}
    assert decode(capture, "--exchange", key) == wanted
    assert decode(capture, f"--exchange={key},#4") == wanted | decode(capture, "--exchange", 4)
    other = kafkasniff("decode", "-q", "--exchange", f"{row['connection_id'] + 1}/{row['exchange_id']}", capture)
    assert (other.code, other.out) == (Exit.NOTHING, b"")
    for wrong in ("1/", "/2", "1/2/3", "1/-2", "x/2"):
        refused = kafkasniff("decode", f"--exchange={wrong}", capture)
        assert (refused.code, "is not a number, nor CONNECTION_ID/EXCHANGE_ID" in refused.err) == (Exit.USAGE, True)
