"""`kafkasniff stats`; `screens/stats.txt` has what it shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkasniff.cli.environment import Exit
from tests.cli.console import kafkasniff


def answered(*arguments: object, **options: Any) -> dict[str, Any]:
    result = kafkasniff("stats", "--format", "json", *arguments, **options)
    assert result.code in (Exit.OK, Exit.BROKEN), result.err
    (found,) = result.objects
    return found


def test_a_capture_and_its_export_agree(capture: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert kafkasniff("export", capture, "-o", folder).code == Exit.OK
    one, other = answered(capture), answered(folder)
    assert one["security"]["identities"]
    for each in one["security"]["identities"]:
        each["examples"] = [{**example, "connection": None, "exchange": None} for example in each["examples"]]
    assert one.pop("sources") == [str(capture)]
    assert other.pop("sources") == [str(folder)]
    assert one == other


@pytest.mark.extended
def test_an_incomplete_export(capture: Path, tmp_path: Path) -> None:
    kafkasniff("export", capture, "-o", tmp_path / "few", "--tables", "exchanges")
    answer = answered(tmp_path / "few")
    assert (answer["connections"], answer["problems"]) == (None, None)
    # Three of the lists, the decoded share, and the detectors that need a missing table.
    assert len(answer["notes"]) == 10
    reported = kafkasniff("stats", tmp_path / "few")
    assert reported.err.count("\n") == 10
    assert "connections" not in reported.lines[2]
    kafkasniff("export", capture, "-o", tmp_path / "headers", "--no-bodies")
    answer = answered(tmp_path / "headers")
    assert (answer["errors"], answer["topics"], answer["groups"]) == ([], [], [])
    assert answer["exchanges"]["requests"] == 24
    kafkasniff("export", capture, "-o", tmp_path / "hashes", "--hash-payload")
    assert answered(tmp_path / "hashes")["topics"][0]["record_bytes_max"] is None
    kafkasniff("export", capture, "-o", tmp_path / "none", "--tables", "records")
    assert kafkasniff("stats", tmp_path / "none").code == Exit.USAGE
