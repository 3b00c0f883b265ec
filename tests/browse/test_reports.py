"""What commands report of the selection."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkasniff.browse.commands import Commands
from kafkasniff.browse.reports import ReportLine, report
from tests.browse.opened import exported, fill, never, rows_of
from tests.choice import one_in
from tests.cli.console import kafkasniff as command
from tests.conftest import ROOT

CAPTURE = str(ROOT / "captures" / "java-errors.pcap")
EXPRESSION = 'client_id == "errors-admin"'


@pytest.mark.parametrize("name", one_in(2, ["timing", "stats"]))
def test_text_of_commands(name: str) -> None:
    commands = Commands((CAPTURE,), ("--port=43051",), ("--slower-than=1ms",))
    lines = report(name, commands, EXPRESSION, 90, numbers={}, stopped=never)
    wanted = command(name, "-q", "--port=43051", "--slower-than=1ms", "--filter", EXPRESSION, CAPTURE, width=90)
    assert [one.text for one in lines] == wanted.lines
    assert len(lines) > 10


def test_findings() -> None:
    [wanted] = command("check", "--format=json", "--filter", EXPRESSION, CAPTURE).objects
    lines = report("check", Commands((CAPTURE,)), EXPRESSION, 80, numbers={}, stopped=never)
    titles = [one for one in lines if one.severity is not None]
    assert [one.severity for one in titles] == [one["severity"] for one in wanted["findings"]]
    text = " ".join(" ".join(one.text.split()) for one in lines)
    for line, finding in zip(titles, wanted["findings"], strict=True):
        for words in (finding["title"], finding["meaning"], finding["advice"]):
            assert words in text
        found = command("decode", "-q", "--json", "--filter", line.evidence, CAPTURE).objects
        # Evidence without an exchange stands for its whole connection.
        wanted_exchanges = {one["exchange"] for one in finding["evidence"]} - {None}
        if wanted_exchanges:
            assert {one["exchange"] for one in found} == wanted_exchanges
        else:
            assert {one["connection"] for one in found} == {one["connection"] for one in finding["evidence"]}
    assert max(len(one.text) for one in lines) <= 80


@pytest.mark.extended
def test_findings_of_an_export_select_whole_connections() -> None:
    reading, folder = exported("faults/producers-short-lived")
    listed = fill(reading)
    numbers = listed.connection_numbers()
    [wanted] = command("check", "--format=json", folder).objects
    [finding] = [one for one in wanted["findings"] if one["detector"] == "connection-churn"]
    connections = {one["connection_id"] for one in finding["evidence"]}
    assert {one.get("exchange_id") for one in finding["evidence"]} == {None}
    commands = Commands(exports=(folder,))
    lines = report("check", commands, "", 80, numbers=numbers, stopped=never)
    [line] = [one for one in lines if one.text.lstrip().startswith("connection-churn:")]
    assert line.text.split(": ")[1] == f"Enter lists {len(connections)} of {finding['count']}"
    rows = rows_of(fill(reading, line.evidence))
    assert {row.connection_id for row in rows} == connections
    assert len(rows) == sum(row.connection_id in connections for row in rows_of(listed))
    # Connections without exchanges have nothing to list.
    lines = report("check", commands, "", 80, numbers={}, stopped=never)
    [line] = [one for one in lines if one.text.lstrip().startswith("connection-churn:")]
    assert (line.evidence, line.text.split(", ")[1]) == ("", "no exchanges to list")


def test_no_findings_errors_and_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert report("check", Commands((CAPTURE,)), 'api == "Heartbeat"', 80, numbers={}, stopped=never) == [
        ReportLine("no findings")
    ]
    [line] = report("stats", Commands((str(tmp_path / "none.pcap"),)), "", 80, numbers={}, stopped=never)
    assert "none.pcap" in line.text
    monkeypatch.setattr("kafkasniff.browse.reports.MAX_LINES", 3)
    assert len(report("timing", Commands((CAPTURE,)), "", 80, numbers={}, stopped=never)) == 3
