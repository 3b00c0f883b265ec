"""Dropping privileges: after the interfaces are open, the process continues as an ordinary user, for good.

Opening interfaces requires privileges, reading them does not. The data may come from anyone, so none of it is examined
before the process has dropped everything: root, capabilities, and any way back (no_new_privs). A process that stays
root has no capabilities either, except those for its own files.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from kafkasniff.capture.live.capabilities import (
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
"""Linux's user and group of files that nobody owns (/proc/sys/kernel/overflowuid), if there is no entry."""


class Identity(msgspec.Struct, frozen=True):
    """The user that a process continues as."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    """Supplementary groups."""
    name: str
    """Name for messages."""


def is_root() -> bool:
    """Whether this process may become another user."""
    return hasattr(os, "geteuid") and os.geteuid() == 0


def named_identity(text: str) -> Identity:
    """Parse `NAME` or `UID`; `:GROUP` replaces the user's groups with a single one. Raises UsageError."""
    import grp
    import pwd

    name, colon, group = text.partition(":")
    entry: pwd.struct_passwd | None
    try:
        # As in POSIX for chown: a name may consist of digits.
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
            raise UsageError(f"--user: {name} has no entry, so add the group: {name}:GROUP")
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
    """The user who called sudo, by its variables; None if nobody did, or root."""
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
    """The unprivileged user that every system has."""
    import pwd

    try:
        entry = pwd.getpwnam(NOBODY)
    except KeyError:
        return Identity(NOBODY_ID, NOBODY_ID, (NOBODY_ID,), NOBODY)
    # The rights of its groups are not needed: they are for others of that name.
    return Identity(entry.pw_uid, entry.pw_gid, (entry.pw_gid,), NOBODY)


def may_become_others() -> bool:
    """Whether root has the necessary capabilities: in containers it often lacks them."""
    found = effective()
    needed = mask(CAP_SETUID, CAP_SETGID)
    return found is None or found & needed == needed


def _number(text: str) -> int | None:
    # Longer numbers are not valid for users.
    if not text.isascii() or not text.isdigit() or len(text) > 10:
        return None
    return number if (number := int(text)) <= MAX_ID else None


@contextlib.contextmanager
def acting_as(identity: Identity) -> Iterator[None]:
    """Within the block files are opened and created with the rights of `identity`; root's return after it.

    Raises MissingPartError if that is not allowed.
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
    """Continue as `identity` (None: unchanged), without a way back, and without capabilities except `keep`.

    Call it before there are threads: capabilities belong to a thread. If the new user may not enter the working
    directory, it becomes `/`. Raises MissingPartError on failure, including for other threads; the process must not
    continue then.
    """
    drop_bounding_set()
    if identity is not None:
        with _allowed(identity):
            os.setgroups(_groups(identity))
            # For root these also set the saved ids.
            os.setgid(identity.gid)
            os.setuid(identity.uid)
    drop_all_but(keep)
    if identity is not None:
        _check(identity)
        _leave_closed_folder()


def _leave_closed_folder() -> None:
    # A path below it could not be used anyway, and child processes begin by entering it.
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
        raise MissingPartError(f"cannot continue as {identity.name}: {error.strerror or error}") from error


def _groups(identity: Identity) -> list[int]:
    return list(identity.groups[: os.sysconf("SC_NGROUPS_MAX")])


def _check(identity: Identity) -> None:
    """Check that nothing of root is left or can be regained."""
    if (os.getuid(), os.geteuid(), os.getgid(), os.getegid()) != (*(identity.uid,) * 2, *(identity.gid,) * 2):
        raise MissingPartError(f"cannot continue as {identity.name}: the process has another user")
    setters: list[Callable[[int], None]] = [os.seteuid, os.setuid]
    if identity.gid:
        setters += [os.setegid, os.setgid]
    for back in setters:
        try:
            back(0)
        except PermissionError:
            continue
        raise MissingPartError(f"cannot continue as {identity.name}: the process could become root again")
