"""`analyze` answers questions about captures as it does about their export."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

from kafkasniff.cli.environment import Exit
from tests.cli.console import kafkasniff
from tests.conftest import ROOT

CAPTURES = ROOT / "captures"


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables") / "tables"
    assert kafkasniff("export", "-q", "-o", folder, CAPTURES / "java-group-classic.pcap").code == 0
    return folder


@pytest.mark.parametrize("question", ["topic", "rebalances", "record-sizes", "latency"])
def test_the_answer_matches_that_of_the_export(
    tables: Path, question: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    asked = kafkasniff("analyze", question, CAPTURES / "java-group-classic.pcap", "--format", "json")
    expected = kafkasniff("analyze", question, tables, "--format", "json")
    assert asked.code == expected.code == 0
    assert [json.loads(line) for line in asked.lines] == [json.loads(line) for line in expected.lines] != []
    assert asked.err.startswith("kafkasniff: ")
    assert "0 bytes lost" in asked.err
    assert list(tmp_path.iterdir()) == [], "no temporary file is left"


def test_producers_and_consumers_of_a_topic() -> None:
    """According to the clients' own logs."""
    capture = CAPTURES / "librdkafka-codecs.pcap"
    result = kafkasniff("analyze", "topic", capture, "--topic", "codec-zstd", "--format", "json", "-q")
    assert (result.code, result.err) == (0, "")
    log = [json.loads(line) for line in (CAPTURES / "librdkafka-codecs.log.jsonl").read_text().splitlines()]
    produced = [one for one in log if one.get("topic") == "codec-zstd" and one["kind"] == "produced"]
    consumed = [one for one in log if one.get("topic") == "codec-zstd" and one["kind"] == "consumed"]
    reported = {row["role"]: row["records"] for row in result.objects}
    assert reported == {"producer": len(produced), "consumer": len(consumed)}
    assert len(produced) > 1


def test_stdin_and_several_captures(capture: Path) -> None:
    from_stdin = kafkasniff("analyze", "talkers", "-", "--format", "json", "-q", stdin=capture.read_bytes())
    assert from_stdin.objects == kafkasniff("analyze", "talkers", capture, "--format", "json", "-q").objects != []
    both = kafkasniff("analyze", "talkers", capture, CAPTURES / "kafkajs.pcap", "--format", "json", "-q")
    assert len(both.objects) > len(from_stdin.objects)


def test_a_broken_capture(capture: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.pcap"
    path.write_bytes(capture.read_bytes()[:-5])
    result = kafkasniff("analyze", "topic", path, "-q")
    assert (result.code, len(result.lines) > 1) == (Exit.BROKEN, True)


def test_refused_options(tables: Path, capture: Path, tmp_path: Path) -> None:
    def refused(*options: object) -> str:
        result = kafkasniff("analyze", "topic", *options)
        assert (result.code, result.out) == (Exit.USAGE, b"")
        return result.err

    assert "captures or one export" in refused(tables, capture)
    assert "--engine spark needs an export" in refused(capture, "--engine", "spark")
    assert "are for captures" in refused(tables, "--port", 9092)
    assert "is a capture to be read" in refused(capture, "-o", capture)
    nothing = tmp_path / "text"
    nothing.write_text("no capture")
    assert kafkasniff("analyze", "topic", nothing).code == Exit.CAPTURE
