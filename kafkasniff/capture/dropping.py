"""Giving up rights: what opened the interfaces goes on as an ordinary user, for good.

Interfaces take rights to be opened, and none to be read. What is read may come from anyone, so nothing of it is looked
at before the process has none left: no root, no capabilities, no way back (no_new_privs). Whoever stays root has no
capabilities either, but for those that its own files take.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from kafkasniff.capture.capabilities import (
    CAP_SETGID,
    CAP_SETUID,
    drop_all_but,
    drop_bounding_set,
    effective,
    mask,
)
from kafkasniff.errors import MissingPartError, UsageError

__all__ = [
    "Identity",
    "acting_as",
    "become",
    "is_root",
    "may_become_others",
    "named_identity",
    "nobody",
    "sudo_caller",
]

MAX_ID: Final = (1 << 32) - 2
"""The highest user or group; one more stands for `none` in system calls."""
NOBODY: Final = "nobody"
NOBODY_ID: Final = 65534
"""The user and group of files that nobody owns, to Linux (/proc/sys/kernel/overflowuid): where there is no entry."""


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


def nobody() -> Identity:
    """The user without rights that every system has."""
    import pwd

    try:
        entry = pwd.getpwnam(NOBODY)
    except KeyError:
        return Identity(NOBODY_ID, NOBODY_ID, (NOBODY_ID,), NOBODY)
    # What its groups may, it need not: they are for others of that name.
    return Identity(entry.pw_uid, entry.pw_gid, (entry.pw_gid,), NOBODY)


def may_become_others() -> bool:
    """Whether root has what that takes: in containers it often lacks it."""
    found = effective()
    needed = mask(CAP_SETUID, CAP_SETGID)
    return found is None or found & needed == needed


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


def become(identity: Identity | None, *, keep: int = 0) -> None:
    """Go on as `identity` (None: as who this is), without a way back, and without capabilities but those of `keep`.

    Call it before there are threads: capabilities are a thread's own. Where the new user may not enter the working
    directory, it is `/` from then on. Raises MissingPartError where it cannot be done, for other threads, too; the
    process is not to go on then.
    """
    drop_bounding_set()
    if identity is not None:
        with _allowed(identity):
            os.setgroups(_groups(identity))
            # Of root these set the saved ones as well.
            os.setgid(identity.gid)
            os.setuid(identity.uid)
    drop_all_but(keep)
    if identity is not None:
        _check(identity)
        _leave_closed_folder()


def _leave_closed_folder() -> None:
    # A path below it could not be used anyway, and processes that are started begin by entering it.
    try:
        os.close(os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        os.chdir(".")
    except PermissionError:
        os.chdir("/")


@contextlib.contextmanager
def _allowed(identity: Identity) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise MissingPartError(f"cannot go on as {identity.name}: {error.strerror or error}") from error


def _groups(identity: Identity) -> list[int]:
    return list(identity.groups[: os.sysconf("SC_NGROUPS_MAX")])


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
