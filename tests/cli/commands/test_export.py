from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.cli.environment import Exit, Interrupted
from tests.cli.console import kafkasniff
from tests.tables.exports.exported import manifest, rows

ROOT = Path(__file__).resolve().parents[3]


def test_one_row_per_exchange(capture: Path, tmp_path: Path) -> None:
    result = kafkasniff("export", capture, "--output", tmp_path / "out")
    assert result.code == 0
    assert result.out == b""
    lines = kafkasniff("decode", "--format", "json", "--no-records", capture).objects
    messages = [line for line in lines if line["type"] in {"request", "response"}]
    found = rows(tmp_path / "out", "exchanges")
    assert len(found) == len({line["exchange"] for line in messages})
    reported = manifest(tmp_path / "out")["tables"]
    numbers = [(name, len(rows(tmp_path / "out", name))) for name in reported if name != "transport"]
    counts = ", ".join(f"{count:,} {name if count != 1 else name[:-1]}" for name, count in numbers)
    assert f"{counts} in {tmp_path / 'out'}" in result.err
    # The bodies are those of the JSON lines.
    bodies = sorted(json.dumps(line["body"]) for line in messages if line["type"] == "request")
    assert sorted(json.dumps(json.loads(row["request_body"])) for row in found) == bodies
    for path in (tmp_path / "out").rglob("*.parquet"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_filters_and_bodies(capture: Path, tmp_path: Path) -> None:
    assert kafkasniff("export", capture, "-q", "-o", tmp_path / "a", "--errors", "--no-json").code == 0
    (row,) = rows(tmp_path / "a", "exchanges")
    assert row["error"] == "NOT_LEADER_OR_FOLLOWER"
    assert row["request_body"] is None
    (connection,) = rows(tmp_path / "a", "connections")
    assert connection["connection_id"] == row["connection_id"]
    assert {one["exchange_id"] for one in rows(tmp_path / "a", "records")} == {row["exchange_id"]}
    assert kafkasniff("export", capture, "-q", "-o", tmp_path / "b", "--api", "Produce").code == 0
    for row in rows(tmp_path / "b", "exchanges"):
        assert '"records":[' not in row["request_body"]


def test_standard_input(capture: Path, tmp_path: Path) -> None:
    assert kafkasniff("export", capture, "-q", "-o", tmp_path / "file").code == 0
    data = capture.read_bytes()
    assert kafkasniff("export", "-", "-q", "-o", tmp_path / "pipe", stdin=data).code == 0
    strip = [{**row, "capture": None} for row in rows(tmp_path / "pipe", "exchanges")]
    assert strip == [{**row, "capture": None} for row in rows(tmp_path / "file", "exchanges")]
    assert manifest(tmp_path / "pipe")["captures"] == [{"name": "stdin", "size": None, "head": None, "tail": None}]


def test_a_connection_that_is_not_kafka(capture: Path, tmp_path: Path) -> None:
    """A problem only if its port was named."""
    assert kafkasniff("export", "-q", "--port", 80, capture, "-o", tmp_path / "out").code == Exit.OK
    found = [row["detail"] for row in rows(tmp_path / "out", "problems") if row["kind"] == "not-kafka"]
    lines = kafkasniff("decode", "--format", "json", "--port", 80, capture).objects
    assert found == [line["detail"] for line in lines if line.get("kind") == "not-kafka"] != []


def test_an_interrupted_export_leaves_no_table(capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise Interrupted(15)

    monkeypatch.setattr("kafkasniff.tables.exports.staging.Stager.take", interrupted)
    assert kafkasniff("export", capture, "-o", tmp_path / "out").code == Exit.SIGTERM
    assert not list((tmp_path / "out").rglob("*.parquet"))
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_truncated_capture_is_exported_up_to_its_end(capture: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.pcap"
    path.write_bytes(capture.read_bytes()[:-7])
    assert kafkasniff("export", path, "-o", tmp_path / "out").code == Exit.BROKEN
    assert rows(tmp_path / "out", "exchanges")
    assert "capture-cut" in {row["kind"] for row in rows(tmp_path / "out", "problems")}


@pytest.mark.extended
def test_a_killed_worker_is_reported(capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kafkasniff.runtime.worker_processes import Workers

    messages = Workers.messages

    def killing(self: Workers, *rest: Any, **more: Any) -> Any:
        os.kill(self._processes[0].pid or 0, signal.SIGKILL)
        return messages(self, *rest, **more)

    monkeypatch.setattr(Workers, "messages", killing)
    result = kafkasniff("export", capture, "-o", tmp_path / "out", "--jobs", 2)
    assert result.code == Exit.UNAVAILABLE
    assert "a worker process was killed (SIGKILL), as the kernel does when memory runs out: " in result.err
    assert not (tmp_path / "out" / "manifest.json").exists()


@pytest.mark.extended
def test_a_signal_ends_all_processes(tmp_path: Path) -> None:
    """A pipe that nobody writes to keeps one process waiting; with files, workers are stopped midway."""
    os.mkfifo(tmp_path / "pipe")
    hold = os.open(tmp_path / "pipe", os.O_RDWR)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "kafkasniff", "export", str(tmp_path / "pipe"), "-o", str(tmp_path / "out")],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stderr=subprocess.PIPE,
        )
        deadline = time.monotonic() + 60
        while not (tmp_path / "out").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGHUP)
        process.communicate(timeout=60)
        assert process.returncode == Exit.SIGHUP
    finally:
        os.close(hold)
    assert not (tmp_path / "out" / "manifest.json").exists()
