"""Advice about missing privileges, and dropping them."""

from __future__ import annotations

import grp
import json
import os
import pwd
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkasniff.capture.live.privileges import (
    CAP_DAC_OVERRIDE,
    Identity,
    ProcessRights,
    acting_as,
    advice,
    effective,
    lowered,
    mask,
    named_identity,
    process_rights,
    sudo_caller,
)
from kafkasniff.errors import UsageError
from tests.cli.test_user import enterable
from tests.conftest import missing

USUAL = ProcessRights(
    root=False, bounded=False, no_new=False, sudo=True, program="/opt/bin/kafkasniff", python="/usr/bin/python 3"
)
PIPE = "tcpdump -i eth0 -U -w - | kafkasniff decode -"


def but(**changes: bool | str) -> ProcessRights:
    return ProcessRights(**{name: changes.get(name, getattr(USUAL, name)) for name in USUAL.__struct_fields__})


@pytest.mark.parametrize(
    ("at", "fits", "does_not"),
    [
        (USUAL, ["sudo /opt/bin/kafkasniff live -i eth0;"], ["no sudo", "/dev/bpf"]),
        (USUAL, ["sudo setcap cap_net_raw,cap_net_admin=eip '/usr/bin/python 3'", PIPE], []),
        (but(sudo=False), ["as root, /opt/bin/kafkasniff live -i eth0,", "setcap"], ["sudo /", "sudo setcap"]),
        (but(no_new=True), ["no_new_privs", "AmbientCapabilities=CAP_NET_RAW"], ["setcap"]),
        (but(root=True), ["AmbientCapabilities"], ["setcap"]),
        (but(bounded=True), ["--cap-add NET_RAW"], ["setcap"]),
        (but(bounded=True, root=True, no_new=True), ["--cap-add NET_RAW"], ["setcap"]),
        # Packets come from devices.
        (but(platform="darwin"), ["sudo /opt/bin/kafkasniff live -i eth0;", "ChmodBPF", f"sudo {PIPE}"], ["devfs"]),
        (but(platform="freebsd14"), ["/etc/devfs.conf", "chmod g+r"], ["ChmodBPF", "setcap"]),
        (but(platform="openbsd7", sudo=False), ["as root, /opt/bin/kafkasniff live", PIPE], ["sudo /", "sudo tcp"]),
        (but(platform="darwin", root=True), ["sandbox", PIPE], ["chmod", "sudo"]),
    ],
)  # fmt: skip
def test_one_line_with_matching_advice(at: ProcessRights, fits: list[str], does_not: list[str]) -> None:
    line = advice("eth0", at)
    needed = "capability CAP_NET_RAW" if at.platform == USUAL.platform else "right to read /dev/bpf*"
    assert line.startswith(f"capturing on eth0 needs the {needed}")
    assert [word for word in fits if word not in line] == [word for word in [*does_not, "\n"] if word in line] == []


def test_the_kernels_status_is_read() -> None:
    for status, expected in (
        ("Name:\tpython\nCapBnd:\t000001ffffffffff\nNoNewPrivs:\t0\n", (False, False)),
        ("CapBnd:\t00000000a80405fb\nNoNewPrivs:\t1\n", (True, True)),  # docker's default without NET_RAW
        ("CapBnd:\t00000000a80425fb\n", (False, False)),  # docker's default
        *((odd, (False, False)) for odd in ("", "CapBnd:\n", "CapBnd:\tnone\nNoNewPrivs\n")),
    ):
        found = process_rights(status)
        assert (found.bounded, found.no_new) == expected, status
    assert os.path.exists(process_rights().python)


@pytest.mark.extended
@pytest.mark.root
@pytest.mark.parametrize(
    ("before", "word"),
    [
        ("prctl(24, 13, 0, 0, 0)", "--cap-add"),  # PR_CAPBSET_DROP
        ("prctl(38, 1, 0, 0, 0)", "no_new_privs"),  # PR_SET_NO_NEW_PRIVS
        ("getpid()", "setcap"),
    ],
)
def test_processes_without_the_right(before: str, word: str, require_root: Callable[[], None]) -> None:
    require_root()
    if os.geteuid() != 0:
        missing("becoming somebody else needs root")
    program = (
        "import ctypes, os\n"
        "from kafkasniff.capture.live.live import open_live\n"
        "from kafkasniff.errors import MissingPartError\n"
        f"ctypes.CDLL(None).{before}\n"
        "os.setgroups([])\n"
        "os.setresuid(65534, 65534, 65534)\n"
        "try: open_live('lo')\n"
        "except MissingPartError as error: print(error)\n"
    )
    command = enterable([sys.executable, "-c", program])
    reported = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    assert word in reported
    assert reported.count("\n") == 1


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
        *({}, {"SUDO_UID": "0", "SUDO_GID": "0"}, {"SUDO_UID": "65534"}, {"SUDO_UID": "nobody", "SUDO_GID": "1"}),
        *({"SUDO_UID": "-1", "SUDO_GID": "-1"}, {"SUDO_UID": "4294967295", "SUDO_GID": "1"}),
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
    # As the command line does: without threads, except those of a test.
    environ = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
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


@pytest.mark.extended
@pytest.mark.root
def test_a_thread_that_keeps_capabilities_is_noticed() -> None:
    root()
    waits = "import threading\nthreading.Thread(target=threading.Event().wait, args=(60,), daemon=True).start()"
    assert become(None, waits) == "refused: cannot drop capabilities: some are left\n"
    # glibc changes the user in all threads.
    assert json.loads(become(Identity(STRANGER, 7, (7,), "stranger"), waits))["CapPrm"] == ["0" * 16]
