"""What a process can still do after confining itself, tested in child processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafkasniff.capture.live import landlock
from tests.conftest import ROOT, missing

PROGRAM = """
import ctypes, json, os, socket, subprocess, sys
from kafkasniff.capture.live.landlock import confine, version
from kafkasniff.cli.running.privileges import Rights
place = sys.argv[1]
before = open(f"{place}/before", "w")
server = socket.create_server(("127.0.0.1", 0))
port = server.getsockname()[1]
other = socket.create_server(("127.0.0.1", 0))
SETUP
def tried(what):
    try:
        what()
    except PermissionError:
        return "refused"
    return "done"
def moved():
    os.mkdir(f"{place}/out/aside")
    open(f"{place}/out/aside/file", "w").close()
    os.rename(f"{place}/out/aside/file", f"{place}/out/file")
    os.rmdir(f"{place}/out/aside")
    os.unlink(f"{place}/out/file")
python = lambda code: subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL).returncode
print(json.dumps({
    "within": tried(moved),
    "open file": tried(lambda: (before.write("x"), before.flush(), before.truncate(0))),
    "read": tried(lambda: open(f"{place}/there").read()),
    "null": tried(lambda: open("/dev/null", "w").close()),
    "make": tried(lambda: open(f"{place}/new", "w").close()),
    "write": tried(lambda: open(f"{place}/there", "r+").close()),
    "cut": tried(lambda: os.truncate(f"{place}/there", 0)),
    "remove": tried(lambda: os.unlink(f"{place}/there")),
    "link": tried(lambda: os.symlink("x", f"{place}/out/link")),
    "child": python(f"open({place + '/new'!r}, 'w')"),
    "connect": tried(lambda: socket.create_connection(("127.0.0.1", port))),
    "connect elsewhere": tried(lambda: socket.create_connection(other.getsockname())),
    "listen": tried(lambda: socket.create_server(("127.0.0.1", 0))),
}))
"""
ALLOWED = {"within", "open file", "read", "null"}


@pytest.mark.parametrize(
    "setup",
    [
        "ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)\nassert confine([f'{place}/out'])",
        # As in `live`; the user stays the same.
        "rights = Rights(drops=True)\nrights.settle(None, [f'{place}/out'])\nrights.give_up()",
        # As in `live --otlp`.
        "rights = Rights(drops=True)\nrights.settle(None, [f'{place}/out'], [port])\nrights.give_up()",
    ],
    ids=["alone", "as of live", "one port"],
)
def test_only_the_named_folders_are_writable_and_ports_reachable(setup: str, tmp_path: Path) -> None:
    if landlock.version() < 4:
        missing("this kernel's Landlock cannot confine files and TCP")
    (tmp_path / "out").mkdir()
    (tmp_path / "there").write_text("text")
    command = [sys.executable, "-c", PROGRAM.replace("SETUP", setup), str(tmp_path)]
    environ = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=environ)
    assert done.returncode == 0, done.stderr
    outcomes = json.loads(done.stdout)
    assert outcomes.pop("child") == 1
    allowed = {*ALLOWED, "connect"} if "[port]" in setup else ALLOWED
    assert outcomes == {name: "done" if name in allowed else "refused" for name in outcomes}
    assert (tmp_path / "there").read_text() == "text"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["before", "out", "there"]


def test_a_kernel_without_landlock(monkeypatch: pytest.MonkeyPatch) -> None:
    for found in (0, 1, 2):
        monkeypatch.setattr(landlock, "version", lambda found=found: found)
        assert not landlock.confine(["/"])
    # Neither this process nor the file system has changed.
    with open(os.devnull, "w"):
        pass
