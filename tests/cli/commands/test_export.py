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
from kafkasniff.errors import KafkasniffError
from kafkasniff.runtime.confined_files import open_own_folder
from kafkasniff.tables.exports import shard
from tests.cli.console import kafkasniff
from tests.craft.samples import mixed
from tests.craft.write import write_rotated
from tests.enrich import talks
from tests.tables.exports.exported import manifest, rows, tables

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
    numbers = [(name, len(rows(tmp_path / "out", name))) for name in reported]
    counts = ", ".join(f"{count:,} {name if count != 1 else name[:-1]}" for name, count in numbers)
    assert f"{counts} in {tmp_path / 'out'}" in result.err
    # The bodies are those of the JSON lines.
    bodies = sorted(json.dumps(line["body"]) for line in messages if line["type"] == "request")
    assert sorted(json.dumps(json.loads(row["request_body"])) for row in found) == bodies
    for path in (tmp_path / "out").rglob("*.parquet"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_records_in_bodies(capture: Path, tmp_path: Path) -> None:
    assert kafkasniff("export", capture, "-q", "-o", tmp_path / "out", "--records").code == 0
    lines = kafkasniff("decode", "--format", "json", capture).objects
    bodies = sorted(json.dumps(line["body"]) for line in lines if line["type"] == "response")
    found = [row["response_body"] for row in rows(tmp_path / "out", "exchanges")]
    assert sorted(json.dumps(json.loads(body)) for body in found if body is not None) == bodies


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


def test_a_topic_whose_name_becomes_known_late(tmp_path: Path) -> None:
    from tests.craft.write import pcap_bytes

    capture = tmp_path / "talk.pcap"
    capture.write_bytes(pcap_bytes(talks.both()))
    assert kafkasniff("export", capture, "-q", "-o", tmp_path / "out", "--topic", "orders", "--jobs", 2).code == 0
    found = rows(tmp_path / "out", "exchanges")
    assert kafkasniff("export", capture, "-q", "-o", tmp_path / "all").code == 0
    every = rows(tmp_path / "all", "exchanges")
    assert found == [row for row in every if "orders" in row["topics"]]
    assert any(row["api"] == "Fetch" and '"topics":[]' in row["request_body"] for row in found), "only in the session"


def test_only_some_tables(capture: Path, tmp_path: Path) -> None:
    assert kafkasniff("export", capture, "-q", "-o", tmp_path / "out", "--tables", "records, connections").code == 0
    assert list(manifest(tmp_path / "out")["tables"]) == ["records", "connections"]
    for wrong in ("record", ",", "exchanges,bodies"):
        result = kafkasniff("export", capture, "-o", tmp_path / "no", "--tables", wrong)
        assert result.code == Exit.USAGE
        assert "the tables are exchanges, records, connections, problems" in result.err
    assert not (tmp_path / "no").exists()


def test_a_repeated_export_does_nothing(capture: Path, tmp_path: Path) -> None:
    assert kafkasniff("export", capture, "-q", "-o", tmp_path / "out").code == 0
    result = kafkasniff("export", capture, "-o", tmp_path / "out")
    assert result.code == 0
    assert "nothing to do" in result.err


def test_todays_captures_continue_yesterdays(tmp_path: Path) -> None:
    parts = write_rotated(tmp_path, mixed(), 3)
    assert kafkasniff("export", *parts, "-q", "-o", tmp_path / "one").code == 0
    for count in (1, 2, 3):
        assert kafkasniff("export", *parts[:count], "-q", "-o", tmp_path / "many").code == 0
    assert tables(tmp_path / "many") == tables(tmp_path / "one")


def test_a_folder_of_another_origin_is_not_touched(capture: Path, tmp_path: Path) -> None:
    (tmp_path / "exchanges").mkdir()
    (tmp_path / "exchanges" / "precious").write_text("mine")
    result = kafkasniff("export", capture, "-o", tmp_path)
    assert result.code == Exit.USAGE
    assert "is not part of an export" in result.err
    assert (tmp_path / "exchanges" / "precious").read_text() == "mine"


def test_unreadable_inputs_leave_nothing(tmp_path: Path) -> None:
    assert kafkasniff("export", tmp_path / "missing.pcap", "-o", tmp_path / "out").code == Exit.CAPTURE
    assert not (tmp_path / "out").exists()


def test_unwritable_places(capture: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert kafkasniff("export", capture, "-o", tmp_path / "file" / "out").code == Exit.UNAVAILABLE


def test_standard_input(capture: Path, tmp_path: Path) -> None:
    assert kafkasniff("export", capture, "-q", "-o", tmp_path / "file").code == 0
    data = capture.read_bytes()
    assert kafkasniff("export", "-", "-q", "-o", tmp_path / "pipe", "--jobs", 3, stdin=data).code == 0
    strip = [{**row, "capture": None} for row in rows(tmp_path / "pipe", "exchanges")]
    assert strip == [{**row, "capture": None} for row in rows(tmp_path / "file", "exchanges")]
    assert manifest(tmp_path / "pipe")["captures"] == [{"name": "stdin", "size": None, "head": None, "tail": None}]
    assert kafkasniff("export", "-", "-o", tmp_path / "tty", stdin_tty=True).code == Exit.USAGE


def test_an_interrupted_export_leaves_no_table(capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise Interrupted(15)

    monkeypatch.setattr("kafkasniff.tables.exports.stager.Stager.take", interrupted)
    assert kafkasniff("export", capture, "-o", tmp_path / "out").code == Exit.SIGTERM
    assert not list((tmp_path / "out").rglob("*.parquet"))
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_truncated_capture_is_exported_up_to_its_end(capture: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.pcap"
    path.write_bytes(capture.read_bytes()[:-7])
    assert kafkasniff("export", path, "-o", tmp_path / "out").code == Exit.BROKEN
    assert rows(tmp_path / "out", "exchanges")
    assert "capture-cut" in {row["kind"] for row in rows(tmp_path / "out", "problems")}


def test_progress_is_shown_on_a_terminal(tmp_path: Path, capture: Path) -> None:
    ticks = iter(range(10_000))

    def clock() -> float:
        return float(next(ticks))

    result = kafkasniff("export", capture, "-o", tmp_path / "out", stderr_tty=True, clock=clock)
    assert "[####" in result.err
    assert "s left" in result.err


def test_several_processes(capture: Path, tmp_path: Path) -> None:
    assert kafkasniff("export", capture, "-q", "-o", tmp_path / "one").code == 0
    assert kafkasniff("export", capture, "-q", "-o", tmp_path / "two", "--jobs", 2).code == 0
    assert tables(tmp_path / "two") == tables(tmp_path / "one")


def test_a_failing_worker_is_reported(capture: Path, tmp_path: Path) -> None:
    missing = tmp_path / "missing.pcap"
    assert kafkasniff("export", capture, missing, "-o", tmp_path / "out", "--jobs", 2).code == Exit.CAPTURE
    assert not (tmp_path / "out").exists()


def test_a_killed_worker_is_reported(capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kafkasniff.runtime.worker_processes import Workers

    messages = Workers.messages

    def killing(self: Workers, *rest: Any, **more: Any) -> Any:
        os.kill(self._processes[1].pid or 0, signal.SIGKILL)
        return messages(self, *rest, **more)

    monkeypatch.setattr(Workers, "messages", killing)
    result = kafkasniff("export", capture, "-o", tmp_path / "out", "--jobs", 2)
    assert result.code == Exit.UNAVAILABLE
    assert "a worker process was killed (SIGKILL), as the kernel does when memory runs out: " in result.err
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_worker_with_a_bug_is_reported(capture: Path, tmp_path: Path) -> None:
    task = shard.ShardTask(
        open_own_folder(tmp_path) / "w", shard.ExportOptions(), (str(capture),), (), 0, b"no state at all"
    )
    from kafkasniff.tables.exports.workers import run_shards

    with pytest.raises(KafkasniffError, match="not a state of kafkasniff"):
        run_shards([task], shard.Hooks())


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, Exit.SIGINT), (signal.SIGTERM, Exit.SIGTERM), (signal.SIGHUP, Exit.SIGHUP)],
)
def test_a_signal_ends_all_processes(number: int, code: int, tmp_path: Path) -> None:
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
        process.send_signal(number)
        process.communicate(timeout=60)
        assert process.returncode == code
    finally:
        os.close(hold)
    assert not (tmp_path / "out" / "manifest.json").exists()
