"""What commands report of the selection."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkasniff.browse.commands import Commands
from kafkasniff.browse.reports import MAX_LINES, ReportLine, report
from tests.browse.test_commands import never
from tests.browse.test_export_reading import exported
from tests.browse.test_reading import fill
from tests.cli.console import kafkasniff as command
from tests.conftest import ROOT

CAPTURE = str(ROOT / "captures" / "java-errors.pcap")
EXPRESSION = 'client_id == "errors-admin"'


@pytest.mark.parametrize("name", ["stats", "timing"])
def test_text_of_commands(name: str) -> None:
    commands = Commands((CAPTURE,), ("--port=43051",), ("--slower-than=1ms",))
    lines = report(name, commands, EXPRESSION, 90, stopped=never)
    wanted = command(name, "-q", "--port=43051", "--slower-than=1ms", "--filter", EXPRESSION, CAPTURE, width=90)
    assert [one.text for one in lines] == wanted.lines
    assert len(lines) > 10


def test_findings() -> None:
    [wanted] = command("check", "--format=json", "--filter", EXPRESSION, CAPTURE).objects
    lines = report("check", Commands((CAPTURE,)), EXPRESSION, 80, stopped=never)
    titles = [one for one in lines if one.severity is not None]
    assert [one.severity for one in titles] == [one["severity"] for one in wanted["findings"]]
    text = " ".join(" ".join(one.text.split()) for one in lines)
    for line, finding in zip(titles, wanted["findings"], strict=True):
        for words in (finding["title"], finding["meaning"], finding["advice"]):
            assert words in text
        found = command("decode", "-q", "--json", "--filter", line.evidence, CAPTURE).objects
        assert {one["exchange"] for one in found} == {one["exchange"] for one in finding["evidence"]}
    assert max(len(one.text) for one in lines) <= 80


def test_findings_of_an_export_select_its_exchanges(tmp_path: Path) -> None:
    reading = exported("java-errors", tmp_path)
    [wanted] = command("check", "--format=json", tmp_path / "export").objects
    lines = report("check", Commands(exports=(str(tmp_path / "export"),)), "", 80, stopped=never)
    titles = [one for one in lines if one.severity is not None]
    assert len(titles) == len(wanted["findings"]) > 5
    for line, finding in zip(titles, wanted["findings"], strict=True):
        index = fill(reading, line.evidence)
        found = {(row.connection_id, row.exchange_id) for row in map(index.row, range(len(index)))}
        assert found == {(one["connection_id"], one["exchange_id"]) for one in finding["evidence"]}


def test_no_findings_and_errors(tmp_path: Path) -> None:
    assert report("check", Commands((CAPTURE,)), 'api == "Heartbeat"', 80, stopped=never) == [ReportLine("no findings")]
    [line] = report("stats", Commands((str(tmp_path / "none.pcap"),)), "", 80, stopped=never)
    assert "none.pcap" in line.text


def test_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkasniff.browse.reports.MAX_LINES", 3)
    assert MAX_LINES > 3
    assert len(report("stats", Commands((CAPTURE,)), "", 80, stopped=never)) == 3
