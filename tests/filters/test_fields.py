"""The fields available to a filter."""

from __future__ import annotations

import json

from kafkasniff.filters.fields import FIELDS
from tests.cli.console import kafkasniff as command
from tests.conftest import ROOT


def test_every_key_of_a_json_line_is_a_field() -> None:
    lines = command("decode", "-q", "--format", "json", "-c", 3, ROOT / "captures" / "java-errors.pcap").objects
    line = next(line for line in lines if line["type"] == "response")
    others = {
        "type": "both messages of an exchange come or neither",
        "errors": "error",
        "body": "request.…, response.…",
    }
    assert set(line) - set(FIELDS) == set(others), json.dumps(line)[:200]
