from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kafkasniff.cli.environment import Exit, Interrupted
from tests.cli.console import kafkasniff


def rows(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for path in sorted((folder / "exchanges").glob("date=*/*.parquet")):
        found += pq.ParquetFile(path).read().to_pylist()
    return found


def test_one_row_per_exchange(capture: Path, tmp_path: Path) -> None:
    result = kafkasniff("export", capture, "--output", tmp_path / "out")
    assert result.code == 0
    assert result.out == b""
    lines = kafkasniff("decode", "--format", "json", capture).objects
    messages = [line for line in lines if line["type"] in {"request", "response"}]
    found = rows(tmp_path / "out")
    assert len(found) == len({line["exchange"] for line in messages})
    assert f"{len(found)} rows in {tmp_path / 'out'}" in result.err
    # The bodies are those of the JSON lines.
    bodies = sorted(json.dumps(line["body"]) for line in messages if line["type"] == "request")
    assert sorted(json.dumps(json.loads(row["request_body"])) for row in found) == bodies
    for path in (tmp_path / "out").rglob("*.parquet"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_filters_and_bodies(capture: Path, tmp_path: Path) -> None:
    assert kafkasniff("export", capture, "-q", "-o", tmp_path / "a", "--errors", "--no-bodies").code == 0
    (row,) = rows(tmp_path / "a")
    assert row["error"] == "NOT_LEADER_OR_FOLLOWER"
    assert row["request_body"] is None
    assert kafkasniff("export", capture, "-q", "-o", tmp_path / "b", "--api", "Produce", "--no-records").code == 0
    for row in rows(tmp_path / "b"):
        assert '"records":[' not in row["request_body"]


def test_a_folder_with_an_export_is_refused(capture: Path, tmp_path: Path) -> None:
    assert kafkasniff("export", capture, "-q", "-o", tmp_path / "out").code == 0
    result = kafkasniff("export", capture, "-o", tmp_path / "out")
    assert result.code == Exit.USAGE
    assert "already holds an export" in result.err


def test_what_cannot_be_opened_leaves_nothing(tmp_path: Path) -> None:
    assert kafkasniff("export", tmp_path / "missing.pcap", "-o", tmp_path / "out").code == Exit.CAPTURE
    assert not (tmp_path / "out").exists()


def test_an_interrupted_export_leaves_no_table(capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise Interrupted(15)

    monkeypatch.setattr("kafkasniff.sinks.parquet.ParquetSink.write", interrupted)
    assert kafkasniff("export", capture, "-o", tmp_path / "out").code == Exit.SIGTERM
    assert not list((tmp_path / "out").rglob("*.parquet"))
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_cut_capture_is_exported_as_far_as_it_goes(capture: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.pcap"
    path.write_bytes(capture.read_bytes()[:-7])
    assert kafkasniff("export", path, "-o", tmp_path / "out").code == Exit.BROKEN
    assert rows(tmp_path / "out")
