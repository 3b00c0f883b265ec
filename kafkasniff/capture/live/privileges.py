"""How to get the missing right to capture, in one line that suits the machine."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from typing import Final

import msgspec

__all__ = ["CAP_NET_RAW", "ProcessRights", "advice", "process_rights"]

CAP_NET_RAW: Final = 13
PROC_STATUS: Final = "/proc/self/status"
"""Linux's; other systems have no capabilities."""

LASTING: Final = (
    ("darwin", "Wireshark's ChmodBPF does that at every start"),
    ("freebsd", "own and perm in /etc/devfs.conf do that at every start"),
)
"""How device permissions become permanent, by the beginning of `sys.platform`."""


class ProcessRights(msgspec.Struct, frozen=True):
    """The ways in which a process could get the right."""

    root: bool
    bounded: bool
    """The right is outside of what this process and its children may ever have: a container without it."""
    no_new: bool
    """No program that it starts may have more rights than it has (no_new_privs)."""
    sudo: bool
    """There is a sudo."""
    program: str
    """How kafkasniff was invoked."""
    python: str
    """The file whose capabilities count."""
    platform: str = "linux"
    """`sys.platform`."""


def process_rights(status: str | None = None) -> ProcessRights:
    """Those of this process; `status`: the text of PROC_STATUS."""
    if status is None:
        try:
            with open(PROC_STATUS, "rb") as file:
                status = file.read().decode("utf-8", "replace")
        except OSError:
            status = ""
    fields = {name: value.strip() for name, _, value in (line.partition(":") for line in status.splitlines())}
    bounding = fields.get("CapBnd", "")
    program = shutil.which(sys.argv[0]) or f"{sys.executable} -m kafkasniff"
    return ProcessRights(
        root=os.geteuid() == 0,
        bounded=_is_hex(bounding) and not int(bounding, 16) >> CAP_NET_RAW & 1,
        no_new=fields.get("NoNewPrivs") == "1",
        sudo=shutil.which("sudo") is not None,
        program=os.path.abspath(program) if os.sep in program and " " not in program else program,
        python=os.path.realpath(sys.executable),
        platform=sys.platform,
    )


def advice(interface: str, at: ProcessRights) -> str:
    """One line for the user: how to run it here, and an alternative that works elsewhere."""
    pipe = f"tcpdump -i {interface} -U -w - | kafkasniff decode -"
    if at.platform != "linux":
        return _of_devices(interface, at, pipe)
    needs = f"capturing on {interface} needs the capability CAP_NET_RAW"
    if at.bounded:
        return (
            f"{needs}, which this container or service can never have: start it with this capability (docker run "
            "--cap-add NET_RAW, securityContext.capabilities.add, CapabilityBoundingSet=), or capture outside of it: "
            f"sudo {pipe}"
        )
    if at.no_new or at.root:
        reason = "may not gain (no_new_privs)" if at.no_new else "lacks although it is root"
        return (
            f"{needs}, which this process {reason}: let the program that starts it grant it (systemd: "
            f"AmbientCapabilities=CAP_NET_RAW), or capture elsewhere: sudo {pipe}"
        )
    setcap = f"setcap cap_net_raw,cap_net_admin=eip {shlex.quote(at.python)}"
    if at.sudo:
        return (
            f"{needs}: sudo {at.program} live -i {interface}; or once, for everything that this Python runs: sudo "
            f"{setcap}; or: sudo {pipe}"
        )
    return (
        f"{needs}, and there is no sudo here: as root, {at.program} live -i {interface}, or once, for everything that "
        f"this Python runs: {setcap}; or, as root: {pipe}"
    )


def _of_devices(interface: str, at: ProcessRights, pipe: str) -> str:
    """The BSDs and macOS: users who may read the devices may capture."""
    needs = f"capturing on {interface} needs the right to read /dev/bpf*"
    if at.root:
        return (
            f"{needs}, which this process lacks although it is root (a jail, a sandbox): capture outside of it: {pipe}"
        )
    lasting = "".join(f"; {how}" for system, how in LASTING if at.platform.startswith(system))
    group = f"give /dev/bpf* to a group of yours (chgrp, chmod g+r{lasting})"
    if at.sudo:
        return f"{needs}: sudo {at.program} live -i {interface}; or, as root, {group}; or: sudo {pipe}"
    return f"{needs}, and there is no sudo here: as root, {at.program} live -i {interface}, or {group}, or: {pipe}"


def _is_hex(text: str) -> bool:
    try:
        int(text, 16)
    except ValueError:
        return False
    return True
