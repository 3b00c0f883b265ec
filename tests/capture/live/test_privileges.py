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
        (USUAL, ["sudo /opt/bin/kafkasniff live -i eth0;"], ["no sudo"]),
        (USUAL, ["sudo setcap cap_net_raw,cap_net_admin=eip '/usr/bin/python 3'"], []),
        (but(sudo=False), ["as root, /opt/bin/kafkasniff live -i eth0,", "setcap"], ["sudo /", "sudo setcap"]),
        (but(no_new=True), ["no_new_privs", "AmbientCapabilities=CAP_NET_RAW"], ["setcap"]),
        (but(root=True), ["AmbientCapabilities"], ["setcap"]),
        (but(bounded=True), ["--cap-add NET_RAW"], ["setcap"]),
        (but(bounded=True, root=True, no_new=True), ["--cap-add NET_RAW"], ["setcap"]),
    ],
)  # fmt: skip
def test_one_line_with_matching_advice(at: ProcessRights, fits: list[str], does_not: list[str]) -> None:
    line = advice("eth0", at)
    assert line.startswith("capturing on eth0 needs the capability CAP_NET_RAW")
    assert PIPE in line
    assert "\n" not in line
    for word in fits:
        assert word in line
    for word in does_not:
        assert word not in line


@pytest.mark.parametrize(
    ("at", "fits", "does_not"),
    [
        (but(platform="darwin"), ["sudo /opt/bin/kafkasniff live -i eth0;", "ChmodBPF", f"sudo {PIPE}"], ["devfs"]),
        (but(platform="freebsd14"), ["/etc/devfs.conf", "chmod g+r"], ["ChmodBPF", "setcap"]),
        (but(platform="openbsd7", sudo=False), ["as root, /opt/bin/kafkasniff live", PIPE], ["sudo /", "sudo tcp"]),
        (but(platform="darwin", root=True), ["sandbox", PIPE], ["chmod", "sudo"]),
    ],
)  # fmt: skip
def test_one_line_where_packets_come_from_devices(at: ProcessRights, fits: list[str], does_not: list[str]) -> None:
    line = advice("eth0", at)
    assert line.startswith("capturing on eth0 needs the right to read /dev/bpf*")
    assert "\n" not in line
    assert "CAP_NET_RAW" not in line
    for word in fits:
        assert word in line
    for word in does_not:
        assert word not in line


def test_the_kernels_status_is_read() -> None:
    status = "Name:\tpython\nCapBnd:\t000001ffffffffff\nNoNewPrivs:\t0\n"
    assert (process_rights(status).bounded, process_rights(status).no_new) == (False, False)
    status = "CapBnd:\t00000000a80405fb\nNoNewPrivs:\t1\n"  # docker's default without NET_RAW
    assert not process_rights("CapBnd:\t00000000a80425fb\n").bounded  # docker's default
    assert (process_rights(status).bounded, process_rights(status).no_new) == (True, True)
    for odd in ("", "CapBnd:\n", "CapBnd:\tnone\nNoNewPrivs\n"):
        assert (process_rights(odd).bounded, process_rights(odd).no_new) == (False, False)
    assert os.path.exists(process_rights().python)


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
        "import ctypes, fcntl, os\n"
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
