"""A network between brokers and clients that loses and delays frames on demand: two namespaces, and a cable that is a
thread.

The recording moves into a network namespace of its own, with the brokers; the clients get another. Nothing of either
reaches the machine's network. Needs root.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import struct
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from ..distribution import SetupError

BROKERS: Final = "10.77.0.1"
CLIENTS: Final = "10.77.0.2"
_NEW_NETWORK: Final = 0x40000000
_SET_INTERFACE: Final = 0x400454CA
_TAP_WITHOUT_HEADER: Final = 0x1002
_IPV4: Final = b"\x08\x00"
INTERFACE: Final = "wire"


def passes(_frame: bytes, _to_broker: bool) -> bool:
    """The rule of a cable that loses nothing."""
    return True


class Wire:
    """A context manager. `clients` precedes the command of a program that is to run at the clients' end."""

    def __init__(self) -> None:
        self.passes: Callable[[bytes, bool], bool] = passes
        """Whether a frame (with its Ethernet header) arrives; the second argument: it goes to the broker."""
        self.delay_s = 0.0
        """How long a frame takes, one way."""
        self.bytes_per_s: float = 0
        """How much passes in each direction; 0: all at once."""
        self._ends: list[int] = []
        self._stop, self._stopped = os.pipe()
        self._thread = threading.Thread(target=self._carry, daemon=True)

    def __enter__(self) -> Self:
        self._home = os.open("/proc/self/ns/net", os.O_RDONLY)
        if ctypes.CDLL(None, use_errno=True).unshare(_NEW_NETWORK):
            raise SetupError(f"cannot make a network namespace: {os.strerror(ctypes.get_errno())}")
        self._keeper = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        self.clients = ("nsenter", f"--net=/proc/{self._keeper.pid}/ns/net")
        while os.readlink(f"/proc/{self._keeper.pid}/ns/net") == os.readlink("/proc/thread-self/ns/net"):
            if self._keeper.poll() is not None:
                raise SetupError("cannot make a network namespace for the clients")
        self._ends = [_tap("wire"), _tap("wire2")]
        _run("ip", "link", "set", "wire2", "netns", str(self._keeper.pid), "name", INTERFACE)
        for prefix, address in (((), BROKERS), (self.clients, CLIENTS)):
            _run(*prefix, "ip", "link", "set", "lo", "up")
            _run(*prefix, "ip", "address", "add", f"{address}/24", "dev", INTERFACE)
            _run(*prefix, "ip", "link", "set", INTERFACE, "up")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.write(self._stopped, b"x")
        self._thread.join()
        for end in (*self._ends, self._stop, self._stopped):
            os.close(end)
        self._keeper.kill()
        self._keeper.wait()
        ctypes.CDLL(None).setns(self._home, _NEW_NETWORK)
        os.close(self._home)

    def _carry(self) -> None:
        brokers, clients = self._ends
        waiting: dict[int, deque[tuple[float, bytes]]] = {brokers: deque(), clients: deque()}
        while True:
            soonest = min((frames[0][0] for frames in waiting.values() if frames), default=None)
            timeout = None if soonest is None else max(soonest - time.monotonic(), 0)
            ready, _, _ = select.select([*waiting, self._stop], [], [], timeout)
            if self._stop in ready:
                return
            for end in ready:
                frame = os.read(end, 65_536)
                if frame[12:14] == _IPV4 and not self.passes(frame, end == clients):
                    continue
                frames = waiting[clients if end == brokers else brokers]
                # A frame follows the one before, which may still be on its way.
                since = max(time.monotonic(), frames[-1][0] - self.delay_s if frames else 0)
                takes = len(frame) / self.bytes_per_s if self.bytes_per_s else 0
                frames.append((since + takes + self.delay_s, frame))
            for end, frames in waiting.items():
                while frames and frames[0][0] <= time.monotonic():
                    os.write(end, frames.popleft()[1])


def _tap(name: str) -> int:
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
    fcntl.ioctl(device, _SET_INTERFACE, struct.pack("16sH22x", name.encode(), _TAP_WITHOUT_HEADER))
    return device


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SetupError(f"{' '.join(command)}: {done.stderr}")
