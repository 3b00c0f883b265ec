"""Whose folders and files are used, from their status alone; `test_confined_files.py` has real ones."""

from __future__ import annotations

import os
import stat

import pytest

from kafkasniff.runtime.ownership import kind_of, why_file_refused, why_folder_refused

ME, OTHER, ROOT = 1000, 2000, 0
SHARED = "belongs to root, and others may write to it"


def status(uid: int, mode: int = stat.S_IFREG | 0o644, *, links: int = 1) -> os.stat_result:
    return os.stat_result((mode, 1, 1, links, uid, uid, 0, 0, 0, 0))


def folder(uid: int, mode: int = 0o755) -> os.stat_result:
    return status(uid, stat.S_IFDIR | mode)


@pytest.mark.parametrize(
    ("user", "caller", "of", "mode", "refused"),
    [
        (ME, None, ME, 0o777, ""),
        (ME, None, ROOT, 0o755, ""),
        *((ME, None, ROOT, mode, SHARED) for mode in (0o1777, 0o775, 0o757)),
        (ME, None, OTHER, 0o755, "belongs to user 2000, not to you"),
        (ROOT, None, ROOT, 0o777, ""),
        (ROOT, None, ME, 0o755, "belongs to user 1000"),
        (ROOT, ME, ME, 0o755, ""),
        (ROOT, ME, OTHER, 0o755, "belongs to user 2000"),
        # Sudo's variable means nothing to an ordinary user.
        (ME, OTHER, OTHER, 0o755, "belongs to user 2000"),
    ],
)
def test_folders(
    user: int, caller: int | None, of: int, mode: int, refused: str, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SUDO_UID", raising=False)
    if caller is not None:
        monkeypatch.setenv("SUDO_UID", str(caller))
    monkeypatch.setattr("os.geteuid", lambda: user)
    found = why_folder_refused(folder(of, mode))
    assert (found or "").startswith(refused)
    assert (found is None) == (not refused)


@pytest.mark.parametrize(
    ("file", "within", "own", "refused"),
    [
        (status(ME, links=2), ME, True, None),
        (status(ROOT), ME, True, None),
        (status(ROOT, links=2), ME, True, "hard link to a file of user 0"),
        (status(OTHER), ME, True, "belongs to user 2000"),
        (status(OTHER, links=2), OTHER, False, None),
        (status(ROOT), OTHER, False, None),
        (status(ME, links=2), OTHER, False, "hard link to a file of user 1000"),
    ],
)
def test_files(
    file: os.stat_result, within: int, own: bool, refused: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: ME)
    found = why_file_refused(file, folder(within), own=own)
    assert found is None if refused is None else refused in (found or "")


def test_only_files_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: ME)
    for form, kind in (
        (stat.S_IFLNK, "a symbolic link"),
        (stat.S_IFDIR, "a folder"),
        (stat.S_IFIFO, "a FIFO"),
        (stat.S_IFSOCK, "a socket"),
        (stat.S_IFCHR, "a device"),
        (stat.S_IFBLK, "a device"),
    ):
        one = status(ME, form | 0o644)
        assert kind_of(one) == kind
        assert (why_file_refused(one, folder(ME), own=True) or "").startswith(f"is {kind}, not a file")
    assert kind_of(status(ME)) == "a file"
