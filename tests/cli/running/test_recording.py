"""`live --recorder`: cases of real traffic, on a signal and on a finding, which `--exec` gets, too."""

from __future__ import annotations

import json
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkasniff.capture.write.capture_writer import WrittenBlocks
from kafkasniff.cli.environment import Exit
from kafkasniff.live.packet_filter import FlightRecorder
from tests.cli.console import kafkasniff
from tests.cli.person import PATIENCE
from tests.cli.real_live import STAYS, exchange, until_it_captures
from tests.cli.running.test_write_matching import comments

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
            assert process.stderr is not None
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
