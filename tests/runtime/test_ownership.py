"""Whose folders and files are used, from their status alone; `test_confined_files.py` has real ones."""

from __future__ import annotations

import os
import stat

import pytest

from kafkasniff.runtime.ownership import kind_of, why_file_refused, why_folder_refused

ME, OTHER, ROOT = 1000, 2000, 0


def status(uid: int, mode: int = stat.S_IFREG | 0o644, *, links: int = 1) -> os.stat_result:
    return os.stat_result((mode, 1, 1, links, uid, uid, 0, 0, 0, 0))


def folder(uid: int, mode: int = 0o755) -> os.stat_result:
    return status(uid, stat.S_IFDIR | mode)


@pytest.fixture
def user(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUDO_UID", raising=False)
    monkeypatch.setattr("os.geteuid", lambda: request.param)


as_me = pytest.mark.parametrize("user", [ME], indirect=True)
as_root = pytest.mark.parametrize("user", [ROOT], indirect=True)


@as_me
@pytest.mark.usefixtures("user")
def test_folders_of_an_ordinary_user() -> None:
    assert why_folder_refused(folder(ME, 0o777)) is None
    assert why_folder_refused(folder(ROOT)) is None
    for mode in (0o1777, 0o775, 0o757):
        assert (why_folder_refused(folder(ROOT, mode)) or "").startswith("belongs to root, and others may write to it")
    assert (why_folder_refused(folder(OTHER)) or "").startswith("belongs to user 2000, not to you")


@as_root
@pytest.mark.usefixtures("user")
def test_folders_of_who_called_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    assert why_folder_refused(folder(ROOT, 0o777)) is None
    assert why_folder_refused(folder(ME)) is not None
    monkeypatch.setenv("SUDO_UID", str(ME))
    assert why_folder_refused(folder(ME)) is None
    assert why_folder_refused(folder(OTHER)) is not None


@as_me
@pytest.mark.usefixtures("user")
def test_sudo_means_nothing_to_an_ordinary_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", str(OTHER))
    assert why_folder_refused(folder(OTHER)) is not None


@as_me
@pytest.mark.usefixtures("user")
def test_files_in_an_own_folder() -> None:
    assert why_file_refused(status(ME, links=2), folder(ME), own=True) is None
    assert why_file_refused(status(ROOT), folder(ME), own=True) is None
    assert "hard link to a file of user 0" in (why_file_refused(status(ROOT, links=2), folder(ME), own=True) or "")
    assert "belongs to user 2000" in (why_file_refused(status(OTHER), folder(ME), own=True) or "")


@as_me
@pytest.mark.usefixtures("user")
def test_files_in_anybodys_folder() -> None:
    assert why_file_refused(status(OTHER, links=2), folder(OTHER), own=False) is None
    assert why_file_refused(status(ROOT), folder(OTHER), own=False) is None
    refused = why_file_refused(status(ME, links=2), folder(OTHER), own=False)
    assert "hard link to a file of user 1000" in (refused or "")


@as_me
@pytest.mark.usefixtures("user")
@pytest.mark.parametrize(
    ("form", "kind"),
    [
        (stat.S_IFLNK, "a symbolic link"),
        (stat.S_IFDIR, "a folder"),
        (stat.S_IFIFO, "a FIFO"),
        (stat.S_IFSOCK, "a socket"),
        (stat.S_IFCHR, "a device"),
        (stat.S_IFBLK, "a device"),
    ],
)
def test_only_files_are_read(form: int, kind: str) -> None:
    assert kind_of(status(ME, form | 0o644)) == kind
    refused = why_file_refused(status(ME, form | 0o644), folder(ME), own=True)
    assert (refused or "").startswith(f"is {kind}, not a file")
    assert kind_of(status(ME)) == "a file"
