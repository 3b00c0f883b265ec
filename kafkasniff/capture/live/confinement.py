"""Confinement of a process that decodes untrusted data: where it may write, and what it must still be able to read."""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
import os
import stat
import struct
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from typing import Final

from kafkasniff.kafka.schema.data_files import added_folders, data_folder

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


# The files that a run must be able to read later: kafkasniff, its data, its packages, Python.
#
# Modules, extension modules with their libraries, and definitions are read when they are first needed: in the middle of
# a capture, possibly by another user than the one that started it.

PARTS: Final = (
    "_cffi_backend",
    "certifi",
    "charset_normalizer",
    "click",
    "cramjam",
    "crc32c",
    "cryptography",
    "google.protobuf",
    "grpc",
    "idna",
    "isal",
    "lz4",
    "msgspec",
    "numpy",
    "obstore",
    "opentelemetry",
    "orjson",
    "prometheus_client",
    "pyarrow",
    "requests",
    "rich",
    "scapy",
    "urllib3",
    "zstandard",
)
"""Packages that `live` imports; missing ones do not matter."""
_NEVER_READ: Final = frozenset({"__pycache__", "include", "site-packages", "test", "tests"})
"""Folders of packages and of Python without needed files; without a cache a module is recompiled."""
DEFINITION: Final = ".txt"
"""A file of dissectors/."""
_LIBRARIES: Final = ".libs"
"""Folder next to a package installed from a wheel: the libraries of its extension modules."""


def unreadable(paths: Iterable[str]) -> str | None:
    """A file or folder, or one below it, that this process cannot read now; None if there is none."""
    for path in paths:
        found = _unreadable_below(path)
        if found is not None:
            return found
    return None


def own_files() -> list[str]:
    """Files, and folders with everything in them. Some may be missing."""
    return list(dict.fromkeys(_places()))


def _places() -> Iterator[str]:
    yield sys.executable
    # In a virtual environment the program is a link, and this file marks it.
    yield os.path.join(sys.prefix, "pyvenv.cfg")
    yield str(data_folder())
    yield from map(str, added_folders())
    for name in ("kafkasniff", *PARTS):
        try:
            found = importlib.util.find_spec(name)
        except ModuleNotFoundError:  # of a package within another
            continue
        if found is None:
            continue
        if found.submodule_search_locations is None:
            if found.origin is not None:
                yield found.origin
            continue
        for place in found.submodule_search_locations:
            yield place
            yield place + _LIBRARIES
    # Including those of the Python that a virtual environment is based on.
    yield os.path.dirname(os.__file__)
    yield sysconfig.get_path("platstdlib")


def _unreadable_below(path: str) -> str | None:
    """`path`, or the unreadable part of it; missing paths (in a zip, say) are not needed."""
    try:
        entries = list(os.scandir(path))
    except NotADirectoryError:
        return None if _is_readable(path) else path
    except PermissionError:
        return path
    except OSError:
        return None
    suffixes = (*importlib.machinery.all_suffixes(), DEFINITION)
    for entry in entries:
        if entry.is_dir():
            found = None if entry.name in _NEVER_READ else _unreadable_below(entry.path)
            if found is not None:
                return found
        # Names of libraries have their version at the end.
        elif (entry.name.endswith(suffixes) or ".so." in entry.name) and not _is_readable(entry.path):
            return entry.path
    return None


def _is_readable(path: str) -> bool:
    try:
        # Not access(2), which uses the real user.
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
    except PermissionError:
        return False
    except OSError:
        return True
    return True
