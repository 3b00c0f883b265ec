"""Landlock: a process that decodes untrusted data can create files in its output folders, and nowhere else.

Reading is not restricted: which files an interpreter and its libraries read late differs between systems, and
forgetting one would end a capture. The written folders are known and few. Listening sockets are open by then, and TCP
is needed only to send spans to one port. See landlock(7); system calls are by number, since glibc has no functions for
them.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import sys
from collections.abc import Iterable
from typing import Final

__all__ = ["confine", "version"]

_CREATE_RULESET: Final = 444
_ADD_RULE: Final = 445
_RESTRICT_SELF: Final = 446
_MACHINES: Final = frozenset({"x86_64", "aarch64", "armv7l", "i686", "loongarch64", "ppc64le", "riscv64", "s390x"})
"""Architectures on which the calls have these numbers."""
_RULESET_VERSION: Final = 1
_RULE_PATH_BENEATH: Final = 1
_RULE_NET_PORT: Final = 2
_MIN_VERSION: Final = 3
"""Earlier ones cannot prevent truncation of files (2), or renaming out of folders (1). Linux 6.2 has it."""
_TCP_VERSION: Final = 4

_WRITE_FILE: Final = 1 << 1
_TRUNCATE: Final = 1 << 14
_FILE: Final = _WRITE_FILE | _TRUNCATE
"""Changes to an existing file."""
_REMOVE_DIR, _REMOVE_FILE = 1 << 4, 1 << 5
_MAKE_CHAR, _MAKE_DIR, _MAKE_REG, _MAKE_SOCK, _MAKE_FIFO, _MAKE_BLOCK, _MAKE_SYM = (1 << bit for bit in range(6, 13))
_REFER: Final = 1 << 13
_OUTPUT: Final = _FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _REFER
"""Changes in a folder of ours: files and folders are created, renamed and removed."""
_HANDLED: Final = _OUTPUT | _MAKE_CHAR | _MAKE_SOCK | _MAKE_FIFO | _MAKE_BLOCK | _MAKE_SYM
"""All changes to a file system: refused unless a rule allows them."""
_BIND_AND_CONNECT_TCP: Final = 0b11
_CONNECT_TCP: Final = 0b10
_DEVICES: Final = ("/dev/null", "/dev/tty")
"""Files that Python or a terminal's library writes to by name."""


def version() -> int:
    """The kernel's version of Landlock; 0 if it has none."""
    if sys.platform != "linux" or os.uname().machine not in _MACHINES:
        return 0
    found = _libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_RULESET_VERSION))
    return max(int(found), 0)


def confine(folders: Iterable[str], ports: Iterable[int] = ()) -> bool:
    """Let this thread, and threads and processes that it starts, change nothing outside of `folders`, nor use TCP.

    `ports`: those that it may still connect to.

    Open files stay open. Call it with no_new_privs set, and before there are threads. Returns whether it succeeded: not
    if the kernel lacks it, or the parent process has forbidden it.
    """
    found = version()
    if found < _MIN_VERSION:
        return False
    libc = _libc()
    tcp = _BIND_AND_CONNECT_TCP if found >= _TCP_VERSION else 0
    attributes = struct.pack("=QQ", _HANDLED, tcp)[: 16 if tcp else 8]
    ruleset = libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    if ruleset < 0:
        return False
    try:
        for path in (*folders, *_DEVICES):
            if not _allow(libc, ruleset, path):
                return False
        for port in ports if tcp else ():
            rule = struct.pack("=QQ", _CONNECT_TCP, port)
            words = ctypes.c_int(ruleset), ctypes.c_int(_RULE_NET_PORT), rule, ctypes.c_uint32(0)
            if libc.syscall(_ADD_RULE, *words):
                return False
        return not libc.syscall(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)


def _allow(libc: ctypes.CDLL, ruleset: int, path: str) -> bool:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        # Unreachable paths cannot be written to either.
        return True
    try:
        rights = _OUTPUT if stat.S_ISDIR(os.fstat(place).st_mode) else _FILE
        rule = struct.pack("=Qi", rights, place)
        words = ctypes.c_int(ruleset), ctypes.c_int(_RULE_PATH_BENEATH), rule, ctypes.c_uint32(0)
        return not libc.syscall(_ADD_RULE, *words)
    finally:
        os.close(place)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
