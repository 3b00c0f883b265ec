"""What a process can still do after giving up rights, and which files it must be able to read."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kafkasniff.capture.live import privileges
from kafkasniff.capture.live.privileges import (
    CAP_DAC_OVERRIDE,
    CAP_SETUID,
    PARTS,
    Identity,
    acting_as,
    effective,
    mask,
    unreadable,
)
from tests.conftest import ROOT, missing

PROGRAM = """
import ctypes, json, os, socket, subprocess, sys
from kafkasniff.capture.live.privileges import confine, landlock_version
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
    if privileges.landlock_version() < 4:
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
        monkeypatch.setattr(privileges, "landlock_version", lambda found=found: found)
        assert not privileges.confine(["/"])
    # Neither this process nor the file system has changed.
    with open(os.devnull, "w"):
        pass


STRANGER = Identity(54_321, 7, (7,), "stranger")
ELSEWHERE = {"spark", "report"}
"""Packages that `live` does not import."""
NOT_OF_LIVE = {
    *("aiohttp", "anyio", "deltalake", "duckdb", "jinja2", "markupsafe", "mcp"),
    *("mcp_types", "py4j", "pyiceberg", "pyspark", "textual", "textual_serve", "uvicorn", "vl_convert"),
}


def imported() -> set[str]:
    """Packages that modules of kafkasniff import in any function."""
    known = {*sys.stdlib_module_names, "kafkasniff"}
    found = set()
    for path in (ROOT / "kafkasniff").rglob("*.py"):
        if path.relative_to(ROOT / "kafkasniff").parts[0] in ELSEWHERE:
            continue
        source = path.read_text()
        if known.issuperset(re.findall(r"^\s*(?:from|import) (\w+)", source, re.M)):
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                found |= {name.name for name in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                found.add(node.module)
    return {name for name in found if name.partition(".")[0] not in known}


@pytest.mark.extended
def test_every_imported_package_is_checked() -> None:
    names = {name for name in imported() if name.partition(".")[0] not in NOT_OF_LIVE}
    assert len(names) > len(PARTS)
    assert [name for name in names if not any(f"{name}.".startswith(f"{part}.") for part in PARTS)] == []


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A package in a folder, both accessible to everybody."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == "root" and folder != Path("/") and not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o011)
    package = tmp_path / "package"
    (package / "inner" / "tests").mkdir(parents=True)
    for name in ("__init__.py", "inner/fast.so", "inner/libdata.so.3", "inner/tests/test.py", "inner/000_produce.txt"):
        (package / name).touch()
    return package


@pytest.mark.parametrize(
    "name", ["__init__.py", "inner", "inner/fast.so", "inner/libdata.so.3", "inner/000_produce.txt", "."]
)
def test_a_file_that_cannot_be_read(name: str, installed: Path) -> None:
    def seen() -> str | None:
        """By a stranger, or without root, which no mode keeps out, by ourselves."""
        with contextlib.nullcontext() if os.geteuid() else acting_as(STRANGER):
            return unreadable([str(installed), "/nowhere/at/all"])

    assert seen() is None
    mode = (installed / name).stat().st_mode
    (installed / name).chmod(0)
    assert seen() == str(installed / name)
    (installed / name).chmod(mode)
    assert seen() is None


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="capabilities are Linux only")


def test_permitted_ones_become_effective() -> None:
    with privileges.lowered(0):
        privileges.make_effective(mask(CAP_SETUID, CAP_DAC_OVERRIDE))
        found = effective()
    assert found == (effective() or 0) & mask(CAP_SETUID, CAP_DAC_OVERRIDE)


@pytest.mark.parametrize("listed", [True, False])
def test_other_threads_are_looked_at(listed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = tmp_path / "task"
    monkeypatch.setattr(privileges, "_TASKS", str(tasks))
    if listed:
        for thread, permitted in (("1", 0), ("2", mask(CAP_DAC_OVERRIDE))):
            (tasks / thread).mkdir(parents=True)
            (tasks / thread / "status").write_text(f"Name:\tx\nCapPrm:\t{permitted:016x}\n")
        # A thread that ends meanwhile.
        (tasks / "3").mkdir()
    assert privileges._some_thread_has_more(0) is listed
    assert not privileges._some_thread_has_more(mask(CAP_DAC_OVERRIDE))
