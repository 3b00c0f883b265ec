"""`kafkasniff stats` and `analyze`: of captures as of their export; `screens` has what they show."""

from __future__ import annotations

import stat
import tempfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kafkasniff.analysis import percentiles
from kafkasniff.cli.environment import Exit
from tests.analysis.exports import write_export
from tests.analysis.tables import connection, exchange, partition, record
from tests.choice import one_in
from tests.cli.console import kafkasniff
from tests.conftest import ROOT


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


CAPTURES = ROOT / "captures"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    part = partition("orders", record_count=2, batch_count=1, bytes=100, compression="none")
    rows = [exchange("Produce", second, latency_us=1000 * second, partitions=[part]) for second in range(1, 11)]
    rows.append(exchange("Fetch", 20, latency_us=5, topics=["orders"]))
    return write_export(
        tmp_path_factory.mktemp("analyze") / "out", exchanges=rows, records=[record()], connections=[connection()]
    )


def test_parquet(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "answer.parquet"
    assert kafkasniff("analyze", "latency", folder, "-o", path).code == Exit.OK
    assert pq.read_table(path).column("count").to_pylist() == [1, 10]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text = tmp_path / "answer.parquet.txt"
    kafkasniff("analyze", "latency", folder, "-o", text)
    assert text.read_text().startswith("api")


def test_a_span_of_time(folder: Path) -> None:
    shown = kafkasniff("analyze", "latency", folder, "--format", "json", "--since", "+5s", "--until", "+9s")
    assert [(row["api"], row["count"]) for row in shown.objects] == [("Produce", 5)]
    later = kafkasniff("analyze", "latency", folder, "--since", "2030-01-01T00:00:00Z")
    assert (later.code, later.out) == (Exit.NOTHING, b"")
    assert "latency: nothing found" in later.err
    assert "there are no exchanges in this span of time" in later.err


def test_what_memory_bounds_leave_out_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(percentiles, "MAX_BUCKETS", 1)
    result = kafkasniff("analyze", "slow-brokers", folder, "-q")
    assert result.code == Exit.UNAVAILABLE
    assert "slow-brokers: the answer is incomplete: 11 exchanges of the smallest groups are missing" in result.err


def test_missing_tables(tmp_path: Path) -> None:
    part = partition("orders", record_count=2, batch_count=1, bytes=100, compression="none")
    folder = write_export(tmp_path / "out", exchanges=[exchange("Produce", partitions=[part])])
    result = kafkasniff("analyze", "batching", folder)
    assert result.code == Exit.OK
    assert "no table records" in result.err
    assert kafkasniff("analyze", "batching", folder, "-q").err == ""
    result = kafkasniff("analyze", "churn", folder)
    assert result.code == Exit.USAGE
    assert "needs the table connections" in result.err


@pytest.mark.parametrize("question", one_in(2, ["topic", "record-sizes"]))
def test_the_answer_matches_that_of_the_export(question: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capture, tables, temporary = CAPTURES / "java-group-classic.pcap", tmp_path / "tables", tmp_path / "temporary"
    assert kafkasniff("export", "-q", "-o", tables, capture).code == 0
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    asked = kafkasniff("analyze", question, capture, "--format", "json")
    expected = kafkasniff("analyze", question, tables, "--format", "json")
    assert asked.code == expected.code == 0
    assert asked.objects == expected.objects != []
    assert asked.err.startswith("kafkasniff: ")
    assert "0 bytes lost" in asked.err
    assert list(temporary.iterdir()) == [], "no temporary file is left"
