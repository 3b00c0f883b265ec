"""The same traffic gives the same findings, whichever command looks at it, and in its export as well."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.console import kafkasniff
from tests.conftest import ROOT

CAPTURES = ROOT / "captures"
FEW = (
    "java-denied.pcap",
    "faults/broker-alone-restarted.pcap",
    "faults/plaintext-at-sasl.pcap",
)
"""Captures whose findings need packets, bodies and logins."""
MANY = sorted(
    str(path.relative_to(CAPTURES)) for path in CAPTURES.rglob("*.pcap*") if path.suffix in (".pcap", ".pcapng")
)
SHOWN = ("severity", "detector", "title", "subject", "count", "first", "last")

every_capture = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FEW else pytest.mark.extended) for name in MANY]
)


def options(path: Path) -> tuple[str, ...]:
    keys = path.with_name(f"{path.name}.keys")
    return ("--keylog", str(keys)) if keys.exists() else ()


def answer(command: str, *arguments: object) -> Any:
    result = kafkasniff(command, "--quiet", "--format", "json", *arguments)
    assert result.code in (0, 1, 4), result.err
    return json.loads(result.out)


def shown(findings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: one[key] for key in SHOWN} for one in findings]


def without_numbers(findings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Exports have keys of exchanges, and no numbers of a run."""
    for one in findings:
        for each in one["evidence"]:
            del each["connection"], each["exchange"]
    return findings


@every_capture
def test_check_of_the_export(name: str, tmp_path: Path) -> None:
    path = CAPTURES / name
    out = tmp_path / "out"
    assert kafkasniff("export", "--quiet", path, "-o", out, *options(path)).code in (0, 4)
    assert without_numbers(answer("check", out)["findings"]) == without_numbers(
        answer("check", path, *options(path))["findings"]
    )


@every_capture
def test_stats_and_report(name: str, tmp_path: Path) -> None:
    path = CAPTURES / name
    expected = answer("check", path, *options(path))["findings"]
    assert answer("stats", path, *options(path))["findings"] == shown(expected)
    page = tmp_path / "page.html"
    # 1: a page about traffic without Kafka messages.
    assert kafkasniff("report", "--quiet", path, "-o", page, *options(path)).code in (0, 1, 4)
    text = html.unescape(page.read_text(encoding="utf-8"))
    assert [one["title"] for one in expected if one["title"] not in text] == []
