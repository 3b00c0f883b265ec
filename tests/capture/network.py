"""A network of the test's own: concurrent tests use the machine's loopback interface as well."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import functools
import os
import socket
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tests.conftest import missing

CLONE_NEWNET = 0x40000000
SIOCSIFFLAGS = 0x8914
IFF_UP = 1


def on_own_loopback(test: Callable[..., None]) -> Callable[..., None]:
    """A test that runs in a thread with its own network namespace: only its own packets pass `lo`.

    Threads and sockets that the test makes belong to that namespace, too; it ends with the last of them.
    """

    def alone(*arguments: object, **named: object) -> bool:
        if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
            code = ctypes.get_errno()
            if code == errno.EPERM:
                return False
            raise OSError(code, os.strerror(code))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))
        test(*arguments, **named)
        return True

    @functools.wraps(test)
    def run(*arguments: object, **named: object) -> None:
        with ThreadPoolExecutor(1) as threads:
            if not threads.submit(alone, *arguments, **named).result():
                missing("network namespaces need root or CAP_SYS_ADMIN")

    return run
