"""The same traffic gives the same findings, whichever command looks at it, and in its export as well."""

from __future__ import annotations

import functools
import html
import json
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.analysis.detectors import run
from kafkasniff.analysis.detectors.registry import SECURITY
from kafkasniff.capture import open_captures
from kafkasniff.capture.timeline.key_log_file import open_key_log
from kafkasniff.engine.inspector import Inspector
from kafkasniff.enrich import Catalog, Enricher
from kafkasniff.live.findings import NOT_LIVE, LiveFindings
from tests.choice import ALL
from tests.cli.console import kafkasniff
from tests.conftest import ROOT

CAPTURES = ROOT / "captures"
FEW = ("faults/broker-alone-restarted.pcap", "java-denied.pcap")
"""Captures whose findings need packets, and bodies and logins."""
MANY = sorted(
    str(path.relative_to(CAPTURES)) for path in CAPTURES.rglob("*.pcap*") if path.suffix in (".pcap", ".pcapng")
)
SHOWN = ("severity", "detector", "title", "subject", "count", "first", "last")


def of_captures(start: int) -> pytest.MarkDecorator:
    """One of the few and, with all tests, every eighth one of the others."""
    return pytest.mark.parametrize("name", sorted({FEW[start], *(MANY[start::8] if ALL else [])}))


def keys_of(path: Path) -> Path | None:
    keys = path.with_name(f"{path.name}.keys")
    return keys if keys.exists() else None


def options(path: Path) -> tuple[str, ...]:
    keys = keys_of(path)
    return () if keys is None else ("--keylog", str(keys))


def answer(command: str, *arguments: object) -> Any:
    result = kafkasniff(command, "--quiet", "--format", "json", *arguments)
    assert result.code in (0, 1, 4), result.err
    return json.loads(result.out)


def shown(findings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: one[key] for key in SHOWN} for one in findings]


def without_numbers(findings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Exports have keys of exchanges, and no numbers of a run."""
    numbers = {"connection": None, "exchange": None}
    return [{**one, "evidence": [{**each, **numbers} for each in one["evidence"]]} for one in findings]


def without_effects(findings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            **one,
            "meaning": one["meaning"].partition(" Effects: ")[0],
            "values": {key: value for key, value in one["values"].items() if key != "effects"},
        }
        for one in findings
    ]


@functools.cache
def checked(name: str) -> list[dict[str, Any]]:
    """What `check` finds in a capture."""
    path = CAPTURES / name
    found: list[dict[str, Any]] = answer("check", path, *options(path))["findings"]
    return found


@of_captures(0)
def test_check_of_the_export(name: str, tmp_path: Path) -> None:
    path = CAPTURES / name
    out = tmp_path / "out"
    assert kafkasniff("export", "--quiet", path, "-o", out, *options(path)).code in (0, 4)
    assert without_numbers(answer("check", out)["findings"]) == without_numbers(checked(name))


@pytest.mark.parametrize("name", sorted({FEW[1], *(MANY[2::16] if ALL else [])}))
def test_stats_security_and_report(name: str, tmp_path: Path) -> None:
    path = CAPTURES / name
    expected = checked(name)
    assert answer("stats", path, *options(path))["findings"] == shown(expected)
    # `security` examines only these, so it does not know what follows from them.
    assert without_effects(answer("security", path, *options(path))["findings"]) == without_effects(
        [one for one in expected if one["detector"] in SECURITY]
    )
    page = tmp_path / "page.html"
    # 1: a page about traffic without Kafka messages.
    assert kafkasniff("report", "--quiet", path, "-o", page, *options(path)).code in (0, 1, 4)
    text = html.unescape(page.read_text(encoding="utf-8"))
    assert [one["title"] for one in expected if one["title"] not in text] == []


@of_captures(1)
def test_live(name: str) -> None:
    """Once all connections have ended, except for detectors that need them all to have ended."""
    path = CAPTURES / name
    expected = run(
        [str(path)], skip=NOT_LIVE, keys=open_key_log(str(keys)) if (keys := keys_of(path)) else None
    ).findings
    catalog, now = Catalog(), 0.0
    inspector = Inspector(exchanges=True, connections=True, records="metadata", network="links")
    enricher = Enricher(catalog)
    if keys is not None:
        inspector.follow_key_log(open_key_log(str(keys)))
    live = LiveFindings(inspector, lambda: False, catalog=catalog, clock=lambda: now)
    with open_captures([str(path)]) as source:
        for batch in source:
            for event in enricher.feed(inspector.feed(batch)):
                live.take(event)
            live.taken(len(batch))
    for event in enricher.feed(inspector.close()):
        live.take(event)
    live.taken(0)
    now = 100.0
    live.look()
    shown = live.shown()
    # If several are about the same subject, the worst one is shown.
    worst = {(one.detector, repr(one.subject)): one.title for one in reversed(expected)}
    assert sorted(row.title for row in shown.rows) == sorted(worst.values())
    assert shown.paused == ""
