"""Giving up rights: what opened the interfaces goes on as an ordinary user, for good.

Interfaces take rights to be opened, and none to be read. What is read may come from anyone, so nothing of it is looked
at before the process has none left: no root, no capabilities, no way back (no_new_privs).
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from kafkasniff.errors import MissingPartError, UsageError

__all__ = ["Identity", "acting_as", "become", "is_root", "named_identity", "sudo_caller", "unreadable"]

PR_SET_NO_NEW_PRIVS: Final = 38
CAPABILITY_VERSION: Final = 0x20080522
"""_LINUX_CAPABILITY_VERSION_3: two words of 32 bits for each of three sets (capset(2))."""
CAPABILITY_SETS: Final = 24
"""Bytes of these."""
TASKS: Final = "/proc/self/task"
"""A folder for each thread."""
MAX_ID: Final = (1 << 32) - 2
"""The highest user or group; one more stands for `none` in system calls."""

PARTS: Final = ("kafkasniff", "numpy", "pyarrow", "rich")
"""Packages of which some is imported, or read, only when it is needed: they stand for all that are installed."""


class Identity(msgspec.Struct, frozen=True):
    """Whom a process may go on as."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    """Supplementary ones."""
    name: str
    """For people."""


def is_root() -> bool:
    """Whether this process may become somebody else."""
    return hasattr(os, "geteuid") and os.geteuid() == 0


def named_identity(text: str) -> Identity:
    """`NAME` or `UID`, with `:GROUP` for a group, and none besides, instead of those of the user. Raises UsageError."""
    import grp
    import pwd

    name, colon, group = text.partition(":")
    entry: pwd.struct_passwd | None
    try:
        # As POSIX has it for chown: a name may consist of digits.
        entry = pwd.getpwnam(name)
        uid = entry.pw_uid
    except (KeyError, ValueError):
        given = _number(name)
        if given is None:
            raise UsageError(f"--user: there is no user {name!r}") from None
        uid = given
        try:
            entry = pwd.getpwuid(uid)
        except KeyError:
            entry = None
    if entry is not None:
        name = entry.pw_name
    if not colon:
        if entry is None:
            raise UsageError(f"--user: {name} has no entry, so say the group, too: {name}:GROUP")
        return Identity(uid, entry.pw_gid, tuple(os.getgrouplist(name, entry.pw_gid)), name)
    try:
        gid = grp.getgrnam(group).gr_gid
    except (KeyError, ValueError):
        number = _number(group)
        if number is None:
            raise UsageError(f"--user: there is no group {group!r}") from None
        gid = number
    return Identity(uid, gid, (gid,), name)


def sudo_caller(environ: Mapping[str, str]) -> Identity | None:
    """Who called sudo, by the variables that it sets; None where nobody did, or root."""
    import pwd

    uid, gid = _number(environ.get("SUDO_UID", "")), _number(environ.get("SUDO_GID", ""))
    if not uid or gid is None:
        return None
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        return Identity(uid, gid, (gid,), str(uid))
    return Identity(uid, gid, tuple(os.getgrouplist(name, gid)), name)


def _number(text: str) -> int | None:
    # More digits are no number of a user.
    if not text.isascii() or not text.isdigit() or len(text) > 10:
        return None
    return number if (number := int(text)) <= MAX_ID else None


@contextlib.contextmanager
def acting_as(identity: Identity) -> Iterator[None]:
    """Within the block files are opened and made with the rights of `identity`; root's come back behind it.

    Raises MissingPartError where that is not allowed.
    """
    before = os.getgroups(), os.getegid(), os.geteuid()
    with _allowed(identity):
        os.setgroups(_groups(identity))
        os.setegid(identity.gid)
        os.seteuid(identity.uid)
    try:
        yield
    finally:
        os.seteuid(before[2])
        os.setegid(before[1])
        os.setgroups(before[0])


def unreadable(identity: Identity) -> str | None:
    """A file of kafkasniff's own, of its packages or of Python that `identity` may not read; None where all is well.

    Modules and definitions are read when they are needed first. A virtual environment in root's home cannot be then.
    """
    origins = [found.origin for name in PARTS if (found := importlib.util.find_spec(name)) is not None]
    with acting_as(identity):
        for path in (sys.executable, os.__file__, *origins):
            if path is None:
                continue
            try:
                open(path, "rb").close()
            except PermissionError:
                return path
            except OSError:
                continue  # in a zip, say: it is not the rights that are missing
    return None


def become(identity: Identity | None) -> None:
    """Go on as `identity` (None: as who this is), without capabilities and without a way back.

    Call it before there are threads: capabilities are a thread's own. Raises MissingPartError where it cannot be done,
    for other threads, too; the process is not to go on then.
    """
    if identity is not None:
        with _allowed(identity):
            os.setgroups(_groups(identity))
            # Of root these set the saved ones as well.
            os.setgid(identity.gid)
            os.setuid(identity.uid)
    if sys.platform == "linux":
        _drop_capabilities()
    if identity is not None:
        _check(identity)


@contextlib.contextmanager
def _allowed(identity: Identity) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise MissingPartError(f"cannot go on as {identity.name}: {error.strerror or error}") from error


def _groups(identity: Identity) -> list[int]:
    return list(identity.groups[: os.sysconf("SC_NGROUPS_MAX")])


def _drop_capabilities() -> None:
    """No capability in any set, and none by a program that is executed (prctl(2), no_new_privs)."""
    libc = ctypes.CDLL(None, use_errno=True)
    # Kernels before 3.5 have no such thing.
    libc.prctl(PR_SET_NO_NEW_PRIVS, *(ctypes.c_ulong(value) for value in (1, 0, 0, 0)))
    header = ctypes.create_string_buffer(struct.pack("=Ii", CAPABILITY_VERSION, 0), 8)
    if libc.capset(header, bytes(CAPABILITY_SETS)):
        raise MissingPartError(f"cannot give up capabilities: {os.strerror(ctypes.get_errno())}")
    left = ctypes.create_string_buffer(CAPABILITY_SETS)
    if libc.capget(header, left) or any(left.raw) or _some_thread_has_capabilities():
        raise MissingPartError("cannot give up capabilities: some are left")


def _some_thread_has_capabilities() -> bool:
    try:
        threads = os.listdir(TASKS)
    except OSError:
        return False  # no /proc, as in some chroots
    for thread in threads:
        with contextlib.suppress(FileNotFoundError), open(f"{TASKS}/{thread}/status", "rb") as status:
            if any(line.startswith(b"CapPrm:") and int(line[7:], 16) for line in status):
                return True
    return False


def _check(identity: Identity) -> None:
    """Nothing of root is left, nor can it be had back."""
    if (os.getuid(), os.geteuid(), os.getgid(), os.getegid()) != (*(identity.uid,) * 2, *(identity.gid,) * 2):
        raise MissingPartError(f"cannot go on as {identity.name}: the process is somebody else")
    ways: list[Callable[[int], None]] = [os.seteuid, os.setuid]
    if identity.gid:
        ways += [os.setegid, os.setgid]
    for back in ways:
        try:
            back(0)
        except PermissionError:
            continue
        raise MissingPartError(f"cannot go on as {identity.name}: the process could become root again")
