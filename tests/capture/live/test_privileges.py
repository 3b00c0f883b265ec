from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from kafkasniff.capture.live.privileges import ProcessRights, advice, process_rights
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
