"""`live --user` opens an interface as root and decodes as an unprivileged user, checked from the outside."""

from __future__ import annotations

import json
import os
import pwd
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkasniff.capture.live.privileges import CAP_DAC_OVERRIDE, mask
from kafkasniff.cli.environment import Exit
from tests.capture.network import on_own_loopback
from tests.cli.console import kafkasniff
from tests.cli.real_live import conversation
from tests.conftest import ROOT, missing
from tests.tables.exports.exported import rows

pytestmark = pytest.mark.extended
PATIENCE = 120
LOW_PORT = 99
NOBODY = pwd.getpwnam("nobody")
SUDO = {"SUDO_UID": str(NOBODY.pw_uid), "SUDO_GID": str(NOBODY.pw_gid), "SUDO_USER": "nobody"}
NO_RIGHTS = {**dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapAmb"), "0" * 16), "NoNewPrivs": "1"}
NOTHING = {**NO_RIGHTS, "CapBnd": "0" * 16}


def barriers() -> dict[Path, set[Path]]:
    """Folders that only root may enter, and the paths that Python needs within each."""
    found: dict[Path, set[Path]] = {}
    for needed in {Path(sys.base_prefix), Path(sys.prefix), ROOT}:
        real = needed.resolve()
        closed = [folder for folder in (*reversed(real.parents), real) if not folder.stat().st_mode & 0o001]
        if closed:
            found.setdefault(closed[0], set()).add(real)
    return found


def enterable(command: list[str]) -> list[str]:
    """Make this Python runnable by everybody: in a private mount namespace, if it is in root's home."""
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
    """A folder accessible to the user nobody; those of pytest are open to root only."""
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


def threads(pid: int) -> list[dict[str, str]]:
    """The kernel's status of each thread of a process."""
    texts = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status")]
    return [dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line) for text in texts]


Look = Callable[[int], None]


def run_live(
    options: list[str], look: Look, folder: Path, *, around: tuple[str, ...] = (), **variables: str
) -> tuple[str, list[str]]:
    """Run `live` on loopback over a conversation and inspect it when it decodes: first line on stderr, output."""
    with conversation(5) as port:
        python = [*around, sys.executable, "-m", "kafkasniff", "live", "-i", "lo", "--format", "json"]
        process = subprocess.Popen(
            enterable([*python, *options, f"tcp port {port}"]),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=environ(**variables),
        )
        first = line = process.stderr.readline()
        if "warning: " in first:
            line = process.stderr.readline()
        if "listening on lo" not in line:
            process.kill()
            pytest.fail(first + line + process.communicate()[1])
    try:
        lines = [json.loads(process.stdout.readline()) for _ in range(2)]
        assert [(line["type"], line["api"]) for line in lines] == [("request", "Produce"), ("response", "Produce")]
        look(process.pid)
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=PATIENCE)[1]
        assert process.returncode == 0, said
    finally:
        process.kill()
        process.communicate()
    return first, [*([] if line is first else [line.rstrip()]), *said.splitlines()]


@pytest.mark.root
@pytest.mark.parametrize("way", ["--user", "sudo", "plain root"])
def test_root_continues_as_nobody(way: str, root: None, folder: Path) -> None:
    """Files, tables and metrics on a privileged port work, and no right of root is left."""
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
            all_groups = {NOBODY.pw_gid} if way == "plain root" else set(os.getgrouplist("nobody", NOBODY.pw_gid))
            assert groups == all_groups
            assert {name: status[name] for name in NOTHING} == NOTHING
        with urllib.request.urlopen(f"http://127.0.0.1:{LOW_PORT}/metrics", timeout=PATIENCE) as answer:
            assert b'kafkasniff_requests_total{api="Produce"} 1.0' in answer.read()
        # A separate process commits tables.
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
    owners = {path.name: (path.stat().st_uid, path.stat().st_gid) for path in made}
    # A file that is opened once belongs to the invoking user, since many services share the user nobody.
    kept = owners.pop("kept.pcapng")
    assert kept == ((0, 0) if way == "plain root" else (NOBODY.pw_uid, NOBODY.pw_gid))
    assert set(owners.values()) == {(NOBODY.pw_uid, NOBODY.pw_gid)}
    again = kafkasniff("decode", "--format", "json", folder / "kept.pcapng")
    assert [line["api"] for line in again.objects] == ["Produce", "Produce"]


@pytest.mark.root
@pytest.mark.parametrize(
    ("options", "writes", "variables"),
    [
        (["--keep-root"], False, {}),
        (["--user", "root"], False, SUDO),
        (["--keep-root", "-o", "-", "-w", "kept.pcapng"], False, {}),
        (["--keep-root", "-o", "-", "-w", "kept.pcapng", "-C", "1m"], True, {}),
    ],
    ids=["--keep-root", "--user root", "--keep-root -w", "--keep-root -w -C"],
)
def test_root_without_another_user(
    options: list[str], writes: bool, variables: dict[str, str], root: None, folder: Path
) -> None:
    """Without capabilities, except for the one needed for files in another user's folder."""
    as_root(options, writes, variables, folder)


@on_own_loopback
def as_root(options: list[str], writes: bool, variables: dict[str, str], folder: Path) -> None:
    kept = f"{mask(CAP_DAC_OVERRIDE) if writes else 0:016x}"

    def look(pid: int) -> None:
        (status,) = threads(pid)
        assert status["Uid"].split() == ["0"] * 4
        assert {name: status[name] for name in NOTHING} == {**NOTHING, "CapPrm": kept, "CapEff": kept}

    first, said = run_live(options, look, folder, **variables)
    why = "--user root" if "--user" in options else "--keep-root"
    rest = "CAP_DAC_OVERRIDE, to write its files, and no other capability" if writes else "no capabilities"
    assert first == f"kafkasniff: warning: stays root ({why}), with {rest}\n"
    assert said[0] == "kafkasniff: listening on lo, Ctrl-C to stop"


@pytest.mark.root
def test_a_capability_is_dropped_after_the_interface_is_open(
    root: None, require_tool: Callable[[str], str], folder: Path
) -> None:
    """As granted by file capabilities or a service's ambient ones."""
    with_capability(require_tool("setpriv"), folder)


@on_own_loopback
def with_capability(setpriv: str, folder: Path) -> None:
    def look(pid: int) -> None:
        (status,) = threads(pid)
        assert status["Uid"].split() == [str(NOBODY.pw_uid)] * 4
        assert {name: status[name] for name in NO_RIGHTS} == NO_RIGHTS

    ids = ("--reuid", str(NOBODY.pw_uid), "--regid", str(NOBODY.pw_gid), "--clear-groups")
    around = (setpriv, *ids, "--inh-caps", "-all,+net_raw", "--ambient-caps", "-all,+net_raw")
    # Arrow would start a thread.
    options = ["--export", "tables"]
    assert run_live(options, look, folder, around=around)[0] == "kafkasniff: listening on lo, Ctrl-C to stop\n"


def ended(arguments: list[str], folder: Path, **variables: str) -> tuple[int, str]:
    """Exit code and output of a run that ends by itself."""
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
        "(nobody, as whom live continues, needs the right to write there; or use --user NAME or --keep-root)\n"
    )
    assert list(closed.iterdir()) == []


@pytest.mark.root
@pytest.mark.parametrize("options", [["-w", "ring.pcapng", "-C", "1m"], ["--export", "tables"]])
def test_root_in_a_private_folder(options: list[str], root: None) -> None:
    """Files created later need a folder that nobody can write to; files opened at once do not."""
    with tempfile.TemporaryDirectory() as name:
        code, said = ended(options, Path(name))
        assert (code, "nobody, as whom live continues, needs the right" in said) == (Exit.UNAVAILABLE, True)
        assert said.count("\n") == 1
        assert list(Path(name).iterdir()) == []
        once = ["-o", "out.jsonl", "-w", "kept.pcapng", "--duration", "0.1"]
        assert ended(once, Path(name)) == (0, "")
        made = {path.name: (path.stat().st_uid, path.stat().st_mode & 0o777) for path in Path(name).iterdir()}
        assert made == {"out.jsonl": (0, 0o600), "kept.pcapng": (0, 0o600)}


@pytest.mark.root
def test_root_that_cannot_change_its_user(root: None, require_tool: Callable[[str], str], folder: Path) -> None:
    """As in a container with CAP_NET_RAW alone: the process stays root, and drops even that."""
    in_container(require_tool("setpriv"), folder)


@on_own_loopback
def in_container(setpriv: str, folder: Path) -> None:
    def look(pid: int) -> None:
        (status,) = threads(pid)
        assert status["Uid"].split() == ["0"] * 4
        assert {name: status[name] for name in NO_RIGHTS} == NO_RIGHTS

    first, _ = run_live([], look, folder, around=(setpriv, "--bounding-set", "-all,+net_raw"))
    assert first == (
        "kafkasniff: warning: stays root (it lacks CAP_SETUID and CAP_SETGID, which changing user needs), "
        "with no capabilities\n"
    )
