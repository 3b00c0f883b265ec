"""A network in which each packet takes a while, for recordings of what crosses on the way.

Loopback delivers a packet before the sender continues, so no packet is ever in flight. Here a TUN device returns each
packet after a delay, with its addresses swapped: connections to the far address reach a server on the near one. The
process has its own network namespace.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import queue
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from .distribution import SetupError

__all__ = ["DELAY_S", "DEVICE", "FAR", "NEAR", "delayed_network", "keep_side"]

NEAR: Final = "10.9.0.1"
FAR: Final = "10.9.0.2"
DEVICE: Final = "tun0"
DELAY_S: Final = 0.02
"""How long a packet takes, one way."""

_CLONE_NEWNET: Final = 0x4000_0000
_TUNSETIFF: Final = 0x4004_54CA
_IFF_TUN_NO_PI: Final = 0x1001
_MTU: Final = 1500


@contextmanager
def delayed_network() -> Iterator[None]:
    """Move this thread, and the processes that it starts, into a network with a delay; needs root."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net", "rb") as before:
        if libc.unshare(_CLONE_NEWNET) != 0:
            raise SetupError(f"no network namespace: {os.strerror(ctypes.get_errno())}")
        try:
            device = os.open("/dev/net/tun", os.O_RDWR)
            fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), _IFF_TUN_NO_PI))
            for command in (
                f"address add {NEAR}/24 dev {DEVICE}",
                f"link set {DEVICE} mtu {_MTU} up",
                "link set lo up",
            ):
                subprocess.run(["ip", *command.split()], check=True)
            waiting: queue.Queue[tuple[float, bytes] | None] = queue.Queue()
            threading.Thread(target=_read, args=(device, waiting), daemon=True).start()
            threading.Thread(target=_write, args=(device, waiting), daemon=True).start()
            yield
        finally:
            libc.setns(before.fileno(), _CLONE_NEWNET)


def keep_side(capture: Path, port: int, *, of_client: bool) -> None:
    """Leave in a capture of the device the packets as one side has them: each passes the device at both sides."""
    every = capture.rename(capture.with_suffix(".both"))
    out, back = (NEAR, FAR) if of_client else (FAR, NEAR)
    chosen = f"(src host {out} and dst port {port}) or (src host {back} and src port {port})"
    command = ["tcpdump", "-Z", "root", "-r", str(every), "-w", str(capture), chosen]
    subprocess.run(command, check=True, capture_output=True)


def _read(device: int, waiting: queue.Queue[tuple[float, bytes] | None]) -> None:
    while True:
        packet = os.read(device, 2 * _MTU)
        if packet[0] >> 4 == 4:
            # Source and destination of IPv4 change places, which leaves the checksums as they are.
            waiting.put((time.monotonic() + DELAY_S, packet[:12] + packet[16:20] + packet[12:16] + packet[20:]))


def _write(device: int, waiting: queue.Queue[tuple[float, bytes] | None]) -> None:
    while (item := waiting.get()) is not None:
        due, packet = item
        time.sleep(max(due - time.monotonic(), 0))
        os.write(device, packet)
