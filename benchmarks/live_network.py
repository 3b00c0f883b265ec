"""A network of the benchmark's own: a namespace with `lo` and a pair of veth interfaces, gone with the process.

Nothing of it is seen by the rest of the machine, and nobody else's packets pass it.
"""

from __future__ import annotations

import ctypes
import dataclasses
import errno
import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Final

CLONE_NEWNET: Final = 0x40000000
SENDS: Final = "kafka0"
LISTENS: Final = "kafka1"
"""What is sent by `SENDS` arrives at `LISTENS`."""
LOOPBACK: Final = "lo"

MTU: Final = 65_535
"""The highest of veth: packets recorded from loopback are that long."""

NET: Final = Path("/proc/thread-self/net")
"""Not /proc/self: that is the namespace of the process's first thread."""


class NetworkError(Exception):
    """The network cannot be made; the message says why."""


@dataclasses.dataclass(frozen=True)
class Counters:
    """What the kernel has received on an interface since it is there."""

    packets: int
    bytes: int
    dropped: int
    """Before any socket saw them."""

    def __sub__(self, other: Counters) -> Counters:
        return Counters(self.packets - other.packets, self.bytes - other.bytes, self.dropped - other.dropped)


def leave_for_own_network() -> None:
    """Move this thread, and what it starts from now on, to a new namespace with its interfaces. Raises NetworkError."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        reason = "it needs root" if code == errno.EPERM else os.strerror(code)
        raise NetworkError(f"no network namespace can be made: {reason}")
    _ip("link", "set", LOOPBACK, "up")
    _ip("link", "add", SENDS, "mtu", str(MTU), "type", "veth", "peer", "name", LISTENS, "mtu", str(MTU))
    for name in (SENDS, LISTENS):
        # Without IPv6 the interfaces have nothing of their own to say.
        setting = Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6")
        if setting.exists():
            setting.write_text("1")
        _ip("link", "set", name, "up")


def counters(interface: str) -> Counters:
    """Counters of an interface in this thread's namespace."""
    for line in (NET / "dev").read_text().splitlines():
        name, colon, numbers = line.partition(":")
        if colon and name.strip() == interface:
            received, packets, _errors, dropped = map(int, numbers.split()[:4])
            return Counters(packets, received, dropped)
    raise NetworkError(f"no interface {interface}")


def listeners(interface: str) -> int:
    """How many packet sockets are bound to the interface and run."""
    index = str(socket.if_nametoindex(interface))
    rows = [line.split() for line in (NET / "packet").read_text().splitlines()[1:]]
    # sk, reference count, type, protocol, interface, running …
    return sum(row[4] == index and row[5] == "1" for row in rows)


def program(name: str) -> str:
    """Path of a program, including those that only root's PATH has. Raises NetworkError."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin")
    if found is None:
        raise NetworkError(f"{name} is not installed")
    return found


def _ip(*arguments: str) -> None:
    done = subprocess.run([program("ip"), *arguments], capture_output=True, text=True, check=False, timeout=30)
    if done.returncode != 0:
        raise NetworkError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
