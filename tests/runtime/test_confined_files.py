"""Nothing in a folder leads out of it, no matter who prepared it and what is there instead of a file or folder."""

from __future__ import annotations

import os
import pickle
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkasniff.errors import CaptureError, UsageError
from kafkasniff.runtime.confined_files import (
    MAX_DEPTH,
    ConfinedPath,
    kind_of,
    open_any_folder,
    open_own_folder,
    why_file_refused,
    why_folder_refused,
)
from tests.conftest import missing

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


SOMEBODY = 54_321
"""A user who owns nothing on any machine."""


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim"
    path.write_text("mine")
    return path


@pytest.fixture
def own(tmp_path: Path) -> ConfinedPath:
    return open_own_folder(tmp_path / "out", make=True)


def need_root() -> None:
    if os.geteuid():
        missing("root, to make files of other users")


def test_files_come_and_go(own: ConfinedPath) -> None:
    before = os.umask(0)
    try:
        own.below("a", "b", "one").put(b"1")
        own.below("a", "b", "one").put(b"2")
    finally:
        os.umask(before)
    assert own.below("a", "b", "one").content() == b"2"
    assert own.below("a", "b").names() == ["one"]
    assert stat.S_IMODE(own.below("a", "b", "one").path.stat().st_mode) == 0o600
    assert stat.S_IMODE(own.below("a", "b").path.stat().st_mode) == 0o755
    own.below("a", "b", "one").move_to(own.below("c", "two"))
    assert own.below("c", "two").content() == b"2"
    own.below("a", "b").remove_if_empty()
    own.remove_if_empty()
    assert own.names() == ["a", "c"]
    assert own.below("c", "two").relative_to(own) == "c/two"
    assert own.below("missing", "folder").names() == []
    own.below("missing").remove_tree()


def test_another_process_has_the_same_folder(own: ConfinedPath, tmp_path: Path) -> None:
    (own / "one").put(b"1")
    path = pickle.dumps(own / "one")
    assert pickle.loads(path) == own / "one"
    assert pickle.loads(path).content() == b"1"
    (tmp_path / "out").rename(tmp_path / "moved")
    (tmp_path / "out").mkdir()
    with pytest.raises(UsageError, match="no longer the same folder"):
        pickle.loads(path)
    assert (own / "one").content() == b"1", "it is held by its descriptor, not by its path"


@pytest.mark.parametrize("name", ["", ".", "..", "../victim", "/etc/passwd", "a/b", "a\0b"])
def test_names_are_plain(own: ConfinedPath, name: str) -> None:
    with pytest.raises(UsageError, match="not the name of a file"):
        own.below("a", name)


def _moved_to(path: ConfinedPath) -> None:
    one = path.parent.parent / "one"
    one.put(b"theirs")
    one.move_to(path)


DONE: dict[str, Callable[[ConfinedPath], object]] = {
    "create": lambda path: path.create(),
    "put": lambda path: path.put(b"theirs"),
    "read": lambda path: path.content(),
    "move": lambda path: path.move_to(path.parent / "moved"),
    "move to": _moved_to,
    "remove": lambda path: path.remove_file(),
    "remove tree": lambda path: path.remove_tree(),
    "make": lambda path: path.make_folder(),
    "names": lambda path: path.names(),
    "check": lambda path: path.parent.check_tree(),
}


@pytest.mark.parametrize("action", DONE)
def test_a_symbolic_link_leads_nowhere(action: str, own: ConfinedPath, victim: Path) -> None:
    """In the place of a file: it is refused, or goes itself."""
    (own / "table").make_folder()
    (own.path / "table" / "part").symlink_to(victim)
    (own.path / "table" / "part.new").symlink_to(victim)
    before = victim.stat()
    if action in {"put", "move to", "remove"}:
        DONE[action](own.below("table", "part"))
        assert not (own.path / "table" / "part").is_symlink()
    else:
        with pytest.raises((UsageError, FileExistsError)):
            DONE[action](own.below("table", "part"))
    assert victim.read_text() == "mine"
    assert (victim.stat().st_ino, victim.stat().st_nlink) == (before.st_ino, before.st_nlink)


@pytest.mark.parametrize("action", sorted(DONE.keys() - {"check"}))
def test_a_symbolic_link_instead_of_a_folder(action: str, own: ConfinedPath, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "part").write_text("mine")
    (own.path / "table").symlink_to(outside)
    with pytest.raises(UsageError, match=r"table is a symbolic link, not a folder: remove it"):
        DONE[action](own.below("table", "part"))
    assert [path.name for path in outside.iterdir()] == ["part"]
    assert (outside / "part").read_text() == "mine"


def test_a_tree_is_removed_without_following_links(own: ConfinedPath, tmp_path: Path, victim: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("mine")
    own.below("tree", "below", "file").put(b"")
    (own.path / "tree" / "folder").symlink_to(tmp_path / "outside")
    (own.path / "tree" / "below" / "link").symlink_to(victim)
    (own / "tree").remove_tree()
    assert own.names() == []
    assert (tmp_path / "outside" / "file").read_text() == victim.read_text() == "mine"
    (own.path / "tree").symlink_to(tmp_path / "outside")
    with pytest.raises(UsageError, match="symbolic link"):
        (own / "tree").remove_tree()
    assert (tmp_path / "outside" / "file").exists()


def test_a_tree_that_is_too_deep(own: ConfinedPath) -> None:
    own.below(*"a" * (MAX_DEPTH + 1), "file").put(b"")
    with pytest.raises(UsageError, match="deeply than any folder"):
        (own / "a").remove_tree()
    with pytest.raises(UsageError, match="deeply than any folder"):
        own.check_tree()


@pytest.mark.parametrize("kind", ["FIFO", "socket", "folder"])
def test_other_things_than_files_are_not_opened(kind: str, own: ConfinedPath, monkeypatch: pytest.MonkeyPatch) -> None:
    """A FIFO would block."""
    monkeypatch.chdir(own.path)  # the path of a socket must be short
    if kind == "FIFO":
        os.mkfifo("part")
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind("part")
    else:
        os.mkdir("part")
    for folder, refusal in ((own, UsageError), (open_any_folder(own.path), CaptureError)):
        with pytest.raises(refusal, match=f"part is a {kind}, not a file: remove it"):
            (folder / "part").content()


def test_a_device_is_not_opened(own: ConfinedPath) -> None:
    need_root()
    try:
        os.mknod(own.path / "part", 0o600 | stat.S_IFCHR, os.makedev(1, 5))  # endless zeros
    except PermissionError:
        missing("the right to make devices")
    with pytest.raises(UsageError, match="a device"):
        (own / "part").content()


def test_files_of_others_are_refused(own: ConfinedPath, victim: Path) -> None:
    need_root()
    os.chown(victim, SOMEBODY, -1)
    os.link(victim, own.path / "part")
    with pytest.raises(UsageError, match="part belongs to user 54321, not to you: remove it"):
        (own / "part").content()
    with pytest.raises(UsageError, match="belongs to user 54321"):
        (own / "part").move_to(own / "moved")
    with pytest.raises(CaptureError, match="hard link to a file of user 54321"):
        (open_any_folder(own.path) / "part").content()
    victim.unlink()
    assert (open_any_folder(own.path) / "part").content() == b"mine"


def test_folders_of_others_are_refused(own: ConfinedPath, monkeypatch: pytest.MonkeyPatch) -> None:
    need_root()
    own.below("table", "part").put(b"1")
    os.chown(own.path / "table", SOMEBODY, -1)
    with pytest.raises(UsageError, match="table belongs to user 54321, not to you: name a folder of your own"):
        own.below("table", "part").content()
    assert open_any_folder(own.path).below("table", "part").content() == b"1"
    os.chown(own.path, SOMEBODY, -1)
    with pytest.raises(UsageError, match="belongs to user 54321"):
        open_own_folder(own.path)
    monkeypatch.setenv("SUDO_UID", str(SOMEBODY))
    assert open_own_folder(own.path).below("table", "part").content() == b"1"


def test_a_folder_that_is_swapped_between_check_and_use(
    own: ConfinedPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the very moment before the file is made, the folder becomes a link to another."""
    (tmp_path / "outside").mkdir()
    (own / "table").make_folder()
    real = os.open

    def swapped(path: str, flags: int, *arguments: int, dir_fd: int | None = None) -> int:
        if path == "part":
            (own.path / "table").rename(own.path / "checked")
            (own.path / "table").symlink_to(tmp_path / "outside")
        return real(path, flags, *arguments, dir_fd=dir_fd)

    monkeypatch.setattr("os.open", swapped)
    own.below("table", "part").create().close()
    assert list((tmp_path / "outside").iterdir()) == []
    assert [path.name for path in (own.path / "checked").iterdir()] == ["part"]


def test_no_descriptor_is_left(own: ConfinedPath, victim: Path) -> None:
    (own / "table").make_folder()
    (own.path / "table" / "link").symlink_to(victim)
    (own.path / "link").symlink_to(victim.parent)
    before = len(os.listdir("/dev/fd"))
    assert open_any_folder(own.path).names() == ["link", "table"]
    own.below("table", "part").put(b"1")
    own.below("table", "part").move_to(own.below("other", "part"))
    for path in (own.below("table", "link"), own.below("link", "victim"), own.below("missing", "file")):
        with pytest.raises((UsageError, OSError)):
            path.content()
    (own / "other").remove_tree()
    assert len(os.listdir("/dev/fd")) == before
