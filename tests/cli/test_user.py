"""`live --user`: what opened an interface decodes as an ordinary user, seen from the outside."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkasniff.cli.environment import Exit
from tests.capture.network import on_own_loopback
from tests.cli.console import kafkasniff
from tests.conftest import ROOT, missing
from tests.craft import kafka_bytes as kafka
from tests.exports.exported import rows

PATIENCE = 120
LOW_PORT = 99
NOBODY = pwd.getpwnam("nobody")
SUDO = {"SUDO_UID": str(NOBODY.pw_uid), "SUDO_GID": str(NOBODY.pw_gid), "SUDO_USER": "nobody"}
NOTHING = {"CapInh": "0" * 16, "CapPrm": "0" * 16, "CapEff": "0" * 16, "NoNewPrivs": "1"}


def barriers() -> dict[Path, set[Path]]:
    """Folders that only root may enter, and what Python needs below each."""
    found: dict[Path, set[Path]] = {}
    for needed in {Path(sys.base_prefix), Path(sys.prefix), ROOT}:
        real = needed.resolve()
        closed = [folder for folder in (*reversed(real.parents), real) if not folder.stat().st_mode & 0o001]
        if closed:
            found.setdefault(closed[0], set()).add(real)
    return found


def enterable(command: list[str]) -> list[str]:
    """The command where everybody may run its Python: in a mount namespace of its own, if that is in root's home."""
    lines = ["set -eu", 'aside=$(mktemp -d); mount -t tmpfs -o mode=700 tmpfs "$aside"']
    for place, (folder, needed) in enumerate(sorted(barriers().items())):
        kept = [(f'"$aside"/{place}.{number}', shlex.quote(str(path))) for number, path in enumerate(sorted(needed))]
        lines += [f"mkdir {aside}; mount --rbind {path} {aside}" for aside, path in kept]
        lines.append(f"mount -t tmpfs -o mode=755 tmpfs {shlex.quote(str(folder))}")
        lines += [f"mkdir -p {path}; mount --rbind {aside} {path}" for aside, path in kept]
    if len(lines) == 2:
        return command
    return ["unshare", "--mount", "sh", "-c", "; ".join([*lines, 'exec "$@"']), "sh", *command]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of nobody's: those of pytest only root may enter."""
    with tempfile.TemporaryDirectory() as name:
        os.chown(name, NOBODY.pw_uid, NOBODY.pw_gid)
        yield Path(name)


@pytest.fixture
def root(require_root: Callable[[], None], require_tool: Callable[[str], str]) -> None:
    require_root()
    if os.geteuid() != 0:
        missing("becoming somebody else needs root")
    require_tool("unshare")


def environ(**more: str) -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("SUDO_")}
    return {**plain, "PYTHONPATH": str(ROOT), **more}


@contextlib.contextmanager
def conversation() -> Iterator[int]:
    """A broker on loopback that answers what it is sent; gives its port. The client speaks when the block is left."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield (port := server.getsockname()[1])
        with socket.create_connection(("127.0.0.1", port)) as client, server.accept()[0] as broker:
            batch = kafka.record_batch([kafka.record(0, b"k", b"v")])
            client.sendall(kafka.produce_request(5, "orders", batch, version=9))
            broker.recv(4096)
            broker.sendall(kafka.produce_response(5, "orders", 7, version=9))
            client.recv(4096)


def threads(pid: int) -> list[dict[str, str]]:
    """What the kernel says of each thread of a process."""
    texts = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status")]
    return [dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line) for text in texts]


Look = Callable[[int], None]


def run_live(
    options: list[str], look: Look, folder: Path, *, around: tuple[str, ...] = (), **variables: str
) -> tuple[str, list[str]]:
    """`live` on loopback over a conversation, looked at when it is decoded: the first line on stderr, what is said."""
    with conversation() as port:
        python = [*around, sys.executable, "-m", "kafkasniff", "live", "-i", "lo", "--format", "json"]
        process = subprocess.Popen(
            enterable([*python, *options, f"tcp port {port}"]),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=environ(**variables),
        )
        assert process.stderr is not None
        first = process.stderr.readline()
        if "listening on lo" not in first:
            process.kill()
            pytest.fail(first + process.communicate()[1])
    try:
        assert process.stdout is not None
        lines = [json.loads(process.stdout.readline()) for _ in range(2)]
        assert [(line["type"], line["api"]) for line in lines] == [("request", "Produce"), ("response", "Produce")]
        look(process.pid)
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=PATIENCE)[1]
        assert process.returncode == 0, said
    finally:
        process.kill()
        process.communicate()
    return first, said.splitlines()


@pytest.mark.root
@pytest.mark.parametrize("way", ["--user", "sudo"])
def test_root_goes_on_as_nobody(way: str, root: None, folder: Path) -> None:
    """Files, tables and metrics at a low port: all of it works, and nothing of root is left."""
    as_nobody(way, folder)


@on_own_loopback
def as_nobody(way: str, folder: Path) -> None:
    def look(pid: int) -> None:
        found = threads(pid)
        assert len(found) > 1, "metrics have a thread"
        for status in found:
            assert status["Uid"].split() == [str(NOBODY.pw_uid)] * 4, status["Name"]
            assert status["Gid"].split() == [str(NOBODY.pw_gid)] * 4
            groups = {int(group) for group in status["Groups"].split()}
            assert groups == set(os.getgrouplist("nobody", NOBODY.pw_gid))
            assert {name: status[name] for name in NOTHING} == NOTHING
        with urllib.request.urlopen(f"http://127.0.0.1:{LOW_PORT}/metrics", timeout=PATIENCE) as answer:
            assert b'kafkasniff_requests_total{api="Produce"} 1.0' in answer.read()
        # A commit of tables is made by a process of its own.
        deadline = time.monotonic() + PATIENCE
        while not (folder / "tables" / "manifest.json").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)

    options = ["-o", "-", "-w", "kept.pcapng", "--export", "tables", "--export-every", "1s"]
    options += ["--metrics", f":{LOW_PORT}", *(["--user", "nobody"] if way == "--user" else [])]
    first, said = run_live(options, look, folder, **(SUDO if way == "sudo" else {}))
    assert first == "kafkasniff: listening on lo as nobody, Ctrl-C to stop\n"
    assert not any("Traceback" in line for line in said)
    assert len(rows(folder / "tables", "exchanges")) == 1
    made = [folder / "kept.pcapng", *(path for path in (folder / "tables").rglob("*"))]
    assert len(made) > 4
    assert {(path.stat().st_uid, path.stat().st_gid) for path in made} == {(NOBODY.pw_uid, NOBODY.pw_gid)}
    again = kafkasniff("decode", "--format", "json", folder / "kept.pcapng")
    assert [line["api"] for line in again.objects] == ["Produce", "Produce"]


@pytest.mark.root
@pytest.mark.parametrize(("options", "variables"), [([], {}), (["--user", "root"], SUDO)], ids=["plain", "--user root"])
def test_root_that_stays(options: list[str], variables: dict[str, str], root: None, folder: Path) -> None:
    as_root(options, variables, folder)


@on_own_loopback
def as_root(options: list[str], variables: dict[str, str], folder: Path) -> None:
    def look(pid: int) -> None:
        (status,) = threads(pid)
        assert status["Uid"].split() == ["0"] * 4
        assert int(status["CapEff"], 16) == int(threads(os.getpid())[0]["CapEff"], 16)

    assert run_live(options, look, folder, **variables)[0] == "kafkasniff: listening on lo, Ctrl-C to stop\n"


@pytest.mark.root
def test_a_capability_goes_when_the_interface_is_open(
    root: None, require_tool: Callable[[str], str], folder: Path
) -> None:
    """As of a file's capabilities or of a service's ambient ones."""
    with_capability(require_tool("setpriv"), folder)


@on_own_loopback
def with_capability(setpriv: str, folder: Path) -> None:
    def look(pid: int) -> None:
        (status,) = threads(pid)
        assert status["Uid"].split() == [str(NOBODY.pw_uid)] * 4
        assert {name: status[name] for name in NOTHING} == NOTHING
        assert status["CapAmb"] == "0" * 16

    ids = ("--reuid", str(NOBODY.pw_uid), "--regid", str(NOBODY.pw_gid), "--clear-groups")
    around = (setpriv, *ids, "--inh-caps", "-all,+net_raw", "--ambient-caps", "-all,+net_raw")
    # Arrow would start a thread.
    options = ["--export", "tables"]
    assert run_live(options, look, folder, around=around)[0] == "kafkasniff: listening on lo, Ctrl-C to stop\n"


# -- what goes wrong


def ended(arguments: list[str], folder: Path, **variables: str) -> tuple[int, str]:
    """The exit code of a run that ends by itself, and what it said."""
    command = [sys.executable, "-m", "kafkasniff", "live", "-i", "lo", "-q", *arguments, "port 1"]
    done = subprocess.run(
        enterable(command), capture_output=True, text=True, cwd=folder, env=environ(**variables), timeout=PATIENCE,
        check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


@pytest.mark.root
@pytest.mark.parametrize("option", ["-o", "-w", "--export"])
def test_a_place_that_the_user_may_not_write_to(option: str, root: None, folder: Path) -> None:
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    code, said = ended([option, str(closed / "out")], folder, **SUDO)
    assert code == Exit.UNAVAILABLE
    assert said == (
        f"kafkasniff: cannot write {closed / 'out'}: Permission denied "
        "(nobody, as whom this goes on, needs the right to write there, or: --user root)\n"
    )
    assert list(closed.iterdir()) == []


@pytest.mark.root
def test_where_kafkasniff_cannot_be_read(root: None, folder: Path) -> None:
    """Who asked for the user is told; who did not has the capture all the same, and is told."""
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    os.symlink(ROOT / "kafkasniff", closed / "kafkasniff")
    os.symlink(ROOT / "dissectors", closed / "dissectors")
    said = f"nobody may not read {closed}/kafkasniff/__init__.py, which kafkasniff runs from"
    code, told = ended(["--user", "nobody"], folder, PYTHONPATH=str(closed))
    assert (code, told) == (
        Exit.UNAVAILABLE,
        f"kafkasniff: {said}: install it where nobody may read it\n",
    )
    assert ended(["--duration", "0.1"], folder, PYTHONPATH=str(closed), **SUDO) == (
        0,
        f"kafkasniff: goes on as root, since {said}\n",
    )


def test_users_that_make_no_sense(folder: Path) -> None:
    if os.geteuid() == 0:
        code, said = ended(["--user", "nonesuch"], folder)
        assert (code, "there is no user 'nonesuch'" in said) == (Exit.USAGE, True)
    else:
        code, said = ended(["--user", "root"], folder)
        assert (code, "only root" in said) == (Exit.USAGE, True)
    # This process stays what it is.
    result = kafkasniff("live", "-i", "lo", "--user", "nobody")
    assert (result.code, "of its own" in result.err) == (Exit.USAGE, True)
