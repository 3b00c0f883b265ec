"""The recorder's server processes, played by small programs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from captures.record import server
from captures.record.distribution import SetupError
from captures.record.server import ServerProcess

SERVES = "print('up', flush=True); time.sleep(60)"
STUBBORN = "signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"


class Played(ServerProcess):
    def __init__(self, directory: Path, program: str) -> None:
        super().__init__("the player", directory)
        self.program = program
        self.prepared = 0

    def _prepare(self) -> list[str]:
        self.prepared += 1
        return [sys.executable, "-S", "-c", f"import signal, sys, time\n{self.program}"]

    def _is_ready(self) -> bool:
        return b"up" in self._said_since_launch()


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_it_runs_as_long_as_the_block(tmp_path):
    with Played(tmp_path / "new" / "folder", SERVES) as played:
        pid = played.pid
        assert is_running(pid)
        assert played.log_file.read_text() == "up\n"
        with pytest.raises(RuntimeError, match="the player is running already"):
            played.launch()
    assert played.pid is None
    assert not is_running(pid)


def test_a_restarted_server_is_not_ready_by_its_old_output(tmp_path):
    played = Played(tmp_path, SERVES)
    played.start()
    first = played.pid
    played.kill()
    assert not is_running(first)
    played.program = "sys.exit('no')"
    with pytest.raises(SetupError):
        played.start()
    assert played.prepared == 2
    assert played.log_file.read_text() == "up\nno\n"


def test_the_end_of_the_log_shows_why_it_did_not_start(tmp_path):
    played = Played(tmp_path, "print('x' * 5_000); sys.exit('the reason')")
    with pytest.raises(SetupError, match=r"the player did not start:\nx{1900,1990}\nthe reason\n"):
        played.start()
    assert played.pid is None


def test_a_server_that_does_not_start_in_time_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "START_TIMEOUT_S", 0.2)
    played = Played(tmp_path, "time.sleep(60)")
    played.launch()
    pid = played.pid
    with pytest.raises(SetupError, match="did not start"):
        played.wait_until_ready()
    assert not is_running(pid)


def test_a_server_that_does_not_end_in_time_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "STOP_TIMEOUT_S", 0.2)
    played = Played(tmp_path, STUBBORN).start()
    pid = played.pid
    played.stop()
    assert not is_running(pid)
    played.stop()  # harmless when it is over
