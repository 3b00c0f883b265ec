from __future__ import annotations

import grp
import json
import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from kafkasniff.capture.live.privileges import (
    CAP_DAC_OVERRIDE,
    Identity,
    acting_as,
    effective,
    lowered,
    mask,
    named_identity,
    sudo_caller,
)
from kafkasniff.capture.live.privileges import nobody as somebody
from kafkasniff.errors import UsageError
from tests.cli.test_user import enterable
from tests.conftest import missing

STRANGER = 54_321
"""A user without an entry."""


def root() -> None:
    if os.geteuid() != 0:
        missing("becoming somebody else needs root")


def nobody() -> pwd.struct_passwd:
    return pwd.getpwnam("nobody")


def test_users_by_name_and_number() -> None:
    entry = nobody()
    group = grp.getgrgid(entry.pw_gid).gr_name
    for text in ("nobody", str(entry.pw_uid)):
        found = named_identity(text)
        assert (found.uid, found.gid, found.name) == (entry.pw_uid, entry.pw_gid, "nobody")
        assert set(found.groups) == set(os.getgrouplist("nobody", entry.pw_gid))
    for text in (f"nobody:{group}", f"nobody:{entry.pw_gid}", f"{entry.pw_uid}:{group}"):
        assert named_identity(text) == Identity(entry.pw_uid, entry.pw_gid, (entry.pw_gid,), "nobody")
    assert named_identity(f"{STRANGER}:7") == Identity(STRANGER, 7, (7,), str(STRANGER))
    assert named_identity("root").uid == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nonesuch", "no user 'nonesuch'"),
        ("", "no user ''"),
        (":daemon", "no user ''"),
        ("nobody:nonesuch", "no group 'nonesuch'"),
        ("nobody:", "no group ''"),
        (str(STRANGER), f"{STRANGER}:GROUP"),
        ("4294967295:1", "no user"),  # -1, which means "no change" in system calls
        ("-1:1", "no user"),
        ("१:1", "no user"),
        ("nobody:99999999999", "no group"),
        ("no\0body", "no user"),
    ],
)
def test_unknown_users(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=r"--user: ") as caught:
        named_identity(text)
    assert said in str(caught.value)


def test_the_invoking_user_of_sudo() -> None:
    entry = nobody()
    found = sudo_caller({"SUDO_UID": str(entry.pw_uid), "SUDO_GID": str(entry.pw_gid), "SUDO_USER": "root"})
    assert found == named_identity("nobody")
    assert sudo_caller({"SUDO_UID": str(STRANGER), "SUDO_GID": "7"}) == Identity(STRANGER, 7, (7,), str(STRANGER))
    for environ in (
        {},
        {"SUDO_UID": "0", "SUDO_GID": "0"},
        {"SUDO_UID": "65534"},
        {"SUDO_UID": "nobody", "SUDO_GID": "1"},
        {"SUDO_UID": "-1", "SUDO_GID": "-1"},
        {"SUDO_UID": "4294967295", "SUDO_GID": "1"},
    ):
        assert sudo_caller(environ) is None, environ


@pytest.mark.extended
@pytest.mark.root
def test_changing_the_user(tmp_path: Path) -> None:
    root()
    before = os.getresuid(), os.getresgid(), os.getgroups()
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with acting_as(named_identity(f"{STRANGER}:7")):
        assert (os.geteuid(), os.getegid(), os.getgroups()) == (STRANGER, 7, [7])
        with pytest.raises(PermissionError):
            (closed / "file").touch()
    assert (os.getresuid(), os.getresgid(), os.getgroups()) == before
    (closed / "file").touch()


PROGRAM = """
import ctypes, json, os, sys
from kafkasniff.capture.live import privileges
from kafkasniff.errors import MissingPartError
{before}
try:
    privileges.become({identity})
except MissingPartError as error:
    print("refused:", error)
    sys.exit()
names = ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs")
lines = (line.split(":", 1) for line in open("/proc/self/status"))
print(json.dumps({{name: value.split() for name, value in lines if name in names}}))
"""


def become(identity: Identity | None, before: str = "", keep: int = 0) -> str:
    call = repr(identity).replace("Identity", "privileges.Identity") + f", keep={keep}"
    program = PROGRAM.format(identity=call, before=before)
    command = enterable([sys.executable, "-c", program])
    environ = {
        **os.environ,
        "OPENBLAS_NUM_THREADS": "1",
    }  # as the command line does: without threads, except those of a test
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, env=environ).stdout


NOTHING = {name: ["0" * 16] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}


@pytest.mark.extended
@pytest.mark.root
def test_dropping_cannot_be_undone() -> None:
    root()
    reported = become(Identity(STRANGER, 7, (7, 9), "stranger"))
    ids = {"Uid": [str(STRANGER)] * 4, "Gid": ["7"] * 4, "Groups": ["7", "9"]}
    assert json.loads(reported) == {**ids, **NOTHING, "NoNewPrivs": ["1"]}


@pytest.mark.extended
@pytest.mark.root
def test_root_without_another_user_has_no_capabilities() -> None:
    """Nor do programs that it executes, which would otherwise regain the rights of root."""
    root()
    reported = json.loads(become(None))
    assert reported["Uid"] == ["0"] * 4
    assert {name: reported[name] for name in NOTHING} == NOTHING
    assert reported["NoNewPrivs"] == ["1"]
    again = "import subprocess; status = 'grep ^CapEff /proc/self/status'"
    end = "print(subprocess.run(status.split(), capture_output=True, text=True, check=True).stdout)"
    program = f"from kafkasniff.capture.live.privileges import become\n{again}\nbecome(None)\n{end}"
    command, environ = [sys.executable, "-c", program], {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, env=environ)
    assert done.stdout.split() == ["CapEff:", "0" * 16]


@pytest.mark.extended
@pytest.mark.root
def test_a_kept_capability(tmp_path: Path) -> None:
    root()
    closed = tmp_path / "closed"
    closed.mkdir()
    os.chown(closed, STRANGER, 7)
    closed.chmod(0o700)
    kept = mask(CAP_DAC_OVERRIDE)
    reported = json.loads(become(None, keep=kept))
    shown = [f"{kept:016x}"]
    assert {name: reported[name] for name in NOTHING} == {**NOTHING, "CapPrm": shown, "CapEff": shown}
    before = effective()
    with lowered(0), pytest.raises(PermissionError):
        (closed / "file").touch()
    with lowered(kept):
        (closed / "file").touch()
    assert effective() == before


def test_the_user_nobody_without_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing_entry(name: str) -> None:
        raise KeyError(name)

    entry = nobody()
    assert somebody() == Identity(entry.pw_uid, entry.pw_gid, (entry.pw_gid,), "nobody")
    monkeypatch.setattr(pwd, "getpwnam", missing_entry)
    assert somebody() == Identity(65534, 65534, (65534,), "nobody")


@pytest.mark.extended
@pytest.mark.root
@pytest.mark.parametrize("call", ["os.setuid", "os.seteuid", "os.setgid"])
def test_a_change_without_effect_is_noticed(call: str) -> None:
    root()
    reported = become(Identity(STRANGER, 7, (7,), "stranger"), f"{call} = lambda number: None")
    assert reported.startswith("refused: cannot continue as stranger: ")


@pytest.mark.extended
@pytest.mark.root
def test_a_thread_that_keeps_capabilities_is_noticed() -> None:
    root()
    waits = "import threading\nthreading.Thread(target=threading.Event().wait, args=(60,), daemon=True).start()"
    assert become(None, waits) == "refused: cannot drop capabilities: some are left\n"
    # glibc changes the user in all threads.
    assert json.loads(become(Identity(STRANGER, 7, (7,), "stranger"), waits))["CapPrm"] == ["0" * 16]
