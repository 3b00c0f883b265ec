"""Owners of folders and files: which are the user's own, and why others may not be used.

A folder is the user's own if the effective user owns it. For root, a folder of the user who called sudo counts, too.
For everybody, a folder of root counts that neither group nor others may write to. The same holds for files; only those
of the effective user may have further hard links.

In anybody's folder, a file with further hard links has to belong to the folder's owner.

Nothing here touches files: callers pass what `os.stat` or `os.fstat` returned.
"""

from __future__ import annotations

import os
import stat
from typing import Final

__all__ = ["kind_of", "why_file_refused", "why_folder_refused"]

_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


def why_folder_refused(found: os.stat_result) -> str | None:
    """Why a folder is not the user's own, to follow its path in a message; None: it is."""
    if _is_own(found):
        return None
    if found.st_uid == 0:
        return "belongs to root, and others may write to it: name a folder of your own"
    return f"belongs to user {found.st_uid}, not to you: name a folder of your own"


def why_file_refused(found: os.stat_result, folder: os.stat_result, *, own: bool) -> str | None:
    """Why this may not be read as a file of `folder`, to follow its path in a message; None: it may.

    `own`: the folder has to be the user's own.
    """
    if not stat.S_ISREG(found.st_mode):
        return f"is {kind_of(found)}, not a file: remove it, or name another folder"
    if own and not _is_own(found):
        return f"belongs to user {found.st_uid}, not to you: remove it, or name another folder"
    owner = os.geteuid() if own else folder.st_uid
    if found.st_nlink > 1 and found.st_uid != owner:
        return f"is a hard link to a file of user {found.st_uid}: remove it, or name another folder"
    return None


def _is_own(found: os.stat_result) -> bool:
    """Whether a folder or file belongs to the user: see the top."""
    user = os.geteuid()
    if found.st_uid == user:
        return True
    if user == 0:
        return str(found.st_uid) == os.environ.get("SUDO_UID")
    return found.st_uid == 0 and not found.st_mode & _OTHERS_WRITE


def kind_of(found: os.stat_result) -> str:
    """What a path leads to, as text with an article."""
    mode = found.st_mode
    if stat.S_ISLNK(mode):
        return "a symbolic link"
    if stat.S_ISDIR(mode):
        return "a folder"
    if stat.S_ISREG(mode):
        return "a file"
    return "a FIFO" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"
