"""`live --exec`, `--webhook` and `--recorder`: each finding once, failures that are only lines, cases of traffic."""

from __future__ import annotations

import json
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkasniff.capture.write.capture_writer import WrittenBlocks
from kafkasniff.cli.environment import Exit
from kafkasniff.cli.running import recording
from kafkasniff.cli.running.recording import MAX_NOTICES, Notifier, take_notifier
from kafkasniff.live.packet_filter import FlightRecorder
from kafkasniff.live.snapshot import FindingRow, Findings
from tests.cli.console import kafkasniff
from tests.cli.person import PATIENCE
from tests.cli.real_live import STAYS, exchange, until_it_captures
from tests.cli.running.test_write_matching import comments


def found_of(*rows: FindingRow) -> Any:
    """Findings of a run."""
    return SimpleNamespace(shown=lambda: Findings(rows=rows))


def row(about: str, severity: str = "error") -> FindingRow:
    return FindingRow(severity, f"title {about}", "meaning", "advice", "denied", about, 3, (1, 2))


def printed(notifier: Notifier, found: Any, batches: int = 3) -> list[str]:
    """What it prints while it looks at the findings this often."""
    lines: list[str] = []
    steps = notifier.batches(iter([None] * batches), found, ["eth0"], lines.append)
    assert list(steps) == [None] * batches
    return lines


def made(environ: dict[str, str] | None = None, **options: Any) -> Notifier:
    notifier = take_notifier({"execute": None, "webhook": None, "on": None, **options}, environ or {})
    return notifier


@contextmanager
def server(status: int) -> Iterator[tuple[str, list[tuple[Any, dict[str, Any]]]]]:
    got = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            got.append((self.headers["authorization"], json.loads(body)))
            self.send_response(status)
            self.send_header("location", "http://127.0.0.1:1/")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Not on stderr."""

    with HTTPServer(("127.0.0.1", 0), Handler) as served:
        threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.05}).start()
        try:
            yield f"http://127.0.0.1:{served.server_port}/secret", got
        finally:
            served.shutdown()


def test_each_finding_is_passed_once_and_notes_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "LOOK_SECONDS", 0.0)
    out = tmp_path / "out"
    with server(204) as (url, got):
        notifier = made({"KAFKASNIFF_WEBHOOK_TOKEN": "t"}, execute=f"cat >> {out}; echo >> {out}", webhook=url)
        assert notifier.ports == [int(url.split(":")[2].split("/")[0])]
        assert printed(notifier, found_of(row("a"), row("b"), row("c", "warning"))) == []
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [one["title"] for one in lines] == ["title a", "title b"]
    assert got == [("Bearer t", one) for one in lines]
    assert {name: lines[0][name] for name in ("captures", "severity", "count", "connections")} == {
        "captures": ["eth0"],
        "severity": "error",
        "count": 3,
        "connections": [1, 2],
    }


def test_failures_are_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "SECONDS", 0.3)
    assert printed(made(execute="exit 3"), found_of(row("a"))) == ["--exec: the command ended with exit code 3"]
    for status in (302, 500):
        with server(status) as (url, got):
            assert printed(made(webhook=url), found_of(row("a"))) == [f"--webhook 127.0.0.1: HTTP {status}"]
            assert len(got) == 1
    assert printed(made(webhook="http://127.0.0.1:1/x"), found_of(row("a")))[0].startswith("--webhook 127.0.0.1: ")


def test_a_command_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "SECONDS", 0.3)
    assert recording._execute("sleep 60 & wait", b"") == "the command took longer than 0.3 s and was ended"


def test_the_number_is_bounded() -> None:
    lines = printed(made(execute="true", on="note"), found_of(*(row(str(number), "note") for number in range(300))))
    assert lines == [f"more than {MAX_NOTICES} findings: --exec and --webhook do not get later ones"]


DENIED, DETECTOR = 29, "denied"
"""An error, and what names it."""


def test_memory_is_bounded_by_time_and_by_size() -> None:
    import numpy as np

    now = [0.0]
    recorder = FlightRecorder(b"head", 10.0, 100, clock=lambda: now[0])
    for moment in range(8):
        now[0] = float(moment)
        recorder.write(WrittenBlocks(bytes([moment]) * 20, np.array([20])))
    # Five of 20 bytes fit.
    assert recorder.pieces() == [b"head", *(bytes([moment]) * 20 for moment in range(3, 8))]
    now[0] = 15.5
    assert recorder.pieces() == [b"head", bytes([6]) * 20, bytes([7]) * 20]
    now[0] = 100.0
    assert recorder.pieces() == [b"head"]


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def cases(folder: Path, count: int) -> list[Path]:
    """Complete cases, once there are `count`."""
    wait_for(lambda: len(list(folder.glob("*/reason.txt"))) >= count)
    return [one.parent for one in sorted(folder.glob("*/reason.txt"))]


@pytest.mark.extended
@pytest.mark.root
def test_a_signal_and_a_finding_write_cases(tmp_path: Path, require_root: Callable[[], None]) -> None:
    require_root()
    lines = tmp_path / "lines"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        options = ["--recorder", "60s", "--cases", str(tmp_path), "--on", "error", "--duration", "10m"]
        options += ["--exec", f"cat >> {tmp_path}/passed"]
        command = [sys.executable, "-m", "kafkasniff", "live", *STAYS, "-i", "lo", *options, f"tcp port {port}"]
        with lines.open("wb") as file, subprocess.Popen(command, stdout=file, stderr=subprocess.PIPE) as process:
            until_it_captures(process)
            with socket.create_connection(("127.0.0.1", port)) as client, server.accept()[0] as broker:
                exchange(client, broker, 1)
                wait_for(lambda: "←" in lines.read_text())
                process.send_signal(signal.SIGUSR1)
                (asked,) = cases(tmp_path, 1)
                assert (asked / "reason.txt").read_text() == "SIGUSR1\n"
                for number in range(2, 400):
                    exchange(client, broker, number, error=DENIED)
                found = cases(tmp_path, 2)[1]
                wait_for((tmp_path / "passed").exists)
            process.terminate()
            said = process.stderr.read().decode()
            assert process.wait() == Exit.OK
    assert f"wrote {found}" in said
    assert (found / "reason.txt").read_text().startswith(f"{DETECTOR}: ")
    assert stat.S_IMODE((found / "packets.pcapng").stat().st_mode) & 0o077 == 0
    assert {one["detector"] for one in json.loads((found / "findings.json").read_text())["findings"]} >= {DETECTOR}
    # Once, although it was seen again and again.
    passed = json.loads((tmp_path / "passed").read_text())
    assert (passed["detector"], passed["captures"], passed["severity"]) == (DETECTOR, ["lo"], "error")
    assert not (found / "raw.pcapng").exists()
    titled = [texts for texts in comments(found / "packets.pcapng").values() if len(texts) > 1]
    # Requests and responses.
    assert {texts[0].partition(": ")[0] for texts in titled} == {"error"}
    assert len(titled) > 1
    assert (found / "report.html").stat().st_size > 1000
    rows = kafkasniff("decode", "-q", "--fields", "correlation_id", asked / "packets.pcapng").lines
    assert rows == ["1"]
    rows = kafkasniff("decode", "-q", "--fields", "correlation_id", found / "packets.pcapng").lines
    assert rows == list(map(str, range(1, 400)))
