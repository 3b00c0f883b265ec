"""Files of an export folder: the only module that opens, creates, moves or removes them.

Somebody else may have prepared the folder, with symbolic links in place of files and folders, FIFOs, links to files of
others, and names that lead elsewhere. So the user's folder is opened once, and everything below is reached from its
descriptor, one plain component at a time, none of which may be a symbolic link. There is no time between a check and a
use in which another path could replace the one that was checked.

    open_own_folder     for writing: the folder has to be the user's own
    open_any_folder     for reading: anybody's folder

A folder is the user's own if the effective user owns it. For root, a folder of the user who called sudo counts, too.
For everybody, a folder of root counts that neither group nor others may write to. If the opened folder has to be the
user's own, so has each folder below it, and each file that is read; only files of the effective user may have further
hard links. In anybody's folder, a file with further hard links has to belong to the folder's owner.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from kafkasniff.errors import CaptureError, KafkasniffError, UsageError

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


FILE_MODE: Final = 0o600
"""Exports hold captured data: readable only for the owner, until the owner decides otherwise."""
FOLDER_MODE: Final = 0o755
"""Reduced by the umask. Only the owner ever puts anything into a folder."""
MAX_DEPTH: Final = 8
"""Maximum nesting of folders that are removed: an export has five."""

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A FIFO would block until somebody writes to it.
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class _Root:
    """The user's folder, open. It is closed with the last path below it, or by `close`."""

    def __init__(self, path: Path, *, own: bool) -> None:
        self.path = path
        self.own = own
        self.refusal: type[KafkasniffError] = UsageError if own else CaptureError
        self.descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            found = os.fstat(self.descriptor)
            self.identity = found.st_dev, found.st_ino
            self.check_folder(found, path)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        if hasattr(self, "descriptor"):
            self.close()

    def check_folder(self, found: os.stat_result, path: Path) -> None:
        """Raises UsageError if a folder to write into is not the user's own."""
        why = why_folder_refused(found) if self.own else None
        if why is not None:
            raise self.refusal(f"{path} {why}")

    def check_file(self, found: os.stat_result, folder: os.stat_result, path: Path) -> None:
        """Raises if this is not a file that may be read."""
        why = why_file_refused(found, folder, own=self.own)
        if why is not None:
            raise self.refusal(f"{path} {why}")


def open_own_folder(path: str | os.PathLike[str], *, make: bool = False) -> ConfinedPath:
    """A folder to write into. `make`: create it, and missing parents.

    Raises OSError if it cannot be opened, UsageError if it belongs to another user.
    """
    if make:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, FOLDER_MODE)
    return ConfinedPath(_Root(Path(path), own=True))


def open_any_folder(path: str | os.PathLike[str]) -> ConfinedPath:
    """A folder to read from; refusals are CaptureErrors. Raises OSError if it cannot be opened."""
    return ConfinedPath(_Root(Path(path), own=False))


def _reopened(path: str, own: bool, identity: tuple[int, int], parts: tuple[str, ...]) -> ConfinedPath:
    """A path that another process of this machine has handed over."""
    root = _Root(Path(path), own=own)
    if root.identity != identity:
        raise root.refusal(f"{path} is no longer the same folder as when this run began")
    return ConfinedPath(root, parts)


class ConfinedPath:
    """A path in an open folder; no component leads out of it. It need not exist.

    All methods raise OSError like the calls of `os`, with the whole path, and UsageError (CaptureError in a folder that
    was opened for reading) for anything that does not belong in an export. It may be sent to another process, which
    reopens the folder.
    """

    __slots__ = ("_root", "parts")

    def __init__(self, root: _Root, parts: tuple[str, ...] = ()) -> None:
        self._root = root
        self.parts = parts
        """Components below the folder."""

    def __reduce__(self) -> tuple[object, ...]:
        root = self._root
        return _reopened, (os.path.abspath(root.path), root.own, root.identity, self.parts)

    def __truediv__(self, name: str) -> ConfinedPath:
        return self.below(name)

    def below(self, *names: str) -> ConfinedPath:
        """The path of a file or folder by its components. Raises UsageError if one is not a plain name."""
        for name in names:
            if not name or name in {".", ".."} or "/" in name or "\0" in name:
                raise self._root.refusal(f"{name!r} is not the name of a file in {self}: name another folder")
        return ConfinedPath(self._root, (*self.parts, *names))

    def __str__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"ConfinedPath({str(self.path)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConfinedPath) and (self._root.identity, self.parts) == (
            other._root.identity,
            other.parts,
        )

    def __hash__(self) -> int:
        return hash((self._root.identity, self.parts))

    @property
    def path(self) -> Path:
        """For messages, and for code that can only use paths; not for opening."""
        return self._root.path.joinpath(*self.parts)

    @property
    def name(self) -> str:
        """The last component; for the folder itself the name given by the user."""
        return self.path.name

    @property
    def parent(self) -> ConfinedPath:
        """The folder that contains this."""
        assert self.parts
        return ConfinedPath(self._root, self.parts[:-1])

    def relative_to(self, folder: ConfinedPath) -> str:
        """The path relative to a folder above it, components separated by slashes."""
        assert self.parts[: len(folder.parts)] == folder.parts
        return "/".join(self.parts[len(folder.parts) :])

    # -- inspection

    @contextlib.contextmanager
    def _opened(self, *, make: bool = False) -> Iterator[int]:
        """A descriptor of this folder; `make`: create it and missing parents."""
        root = self._root
        opened = -1
        try:
            for depth, part in enumerate(self.parts, 1):
                child = self._child(root.descriptor if opened < 0 else opened, part, depth, make=make)
                if opened >= 0:
                    os.close(opened)
                opened = child
            yield root.descriptor if opened < 0 else opened
        finally:
            if opened >= 0:
                os.close(opened)

    def _child(self, folder: int, part: str, depth: int, *, make: bool) -> int:
        path = self._root.path.joinpath(*self.parts[:depth])
        try:
            try:
                descriptor = os.open(part, _FOLDER, dir_fd=folder)
            except FileNotFoundError:
                if not make:
                    raise
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, FOLDER_MODE, dir_fd=folder)
                descriptor = os.open(part, _FOLDER, dir_fd=folder)
        except OSError as error:
            # Linux reports a symbolic link as no directory, other systems as a link.
            if error.errno in {errno.ENOTDIR, errno.ELOOP, errno.EMLINK}:
                kind = kind_of(os.stat(part, dir_fd=folder, follow_symlinks=False))
                raise self._root.refusal(f"{path} is {kind}, not a folder: remove it, or name another folder") from None
            raise _with_path(error, path) from None
        try:
            self._root.check_folder(os.fstat(descriptor), path)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    @contextlib.contextmanager
    def _entry(self, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """A descriptor of the containing folder, and the name in it."""
        with self.parent._opened(make=make) as folder:
            try:
                yield folder, self.parts[-1]
            except OSError as error:
                raise _with_path(error, self.path) from None

    def exists(self) -> bool:
        """Whether there is anything by that name, including symbolic links to anywhere."""
        try:
            with self._entry() as (folder, name):
                os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def names(self) -> list[str]:
        """The contents of this folder, in order; empty if there is no folder."""
        try:
            with self._opened() as folder:
                return sorted(os.listdir(folder))
        except FileNotFoundError:
            return []

    def folder_descriptor(self) -> int:
        """A descriptor of this folder, for the caller to close and to lock: it shares nothing with others."""
        with self._opened() as folder:
            return os.open(".", _FOLDER, dir_fd=folder)

    # -- reading

    def open_to_read(self) -> BinaryIO:
        """A file, unbuffered."""
        with self._entry() as (folder, name):
            try:
                descriptor = os.open(name, _READ, dir_fd=folder)
            except OSError as error:
                if error.errno in {errno.ELOOP, errno.EMLINK, errno.ENXIO}:
                    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    self._root.check_file(found, os.fstat(folder), self.path)
                raise
            try:
                self._root.check_file(os.fstat(descriptor), os.fstat(folder), self.path)
                return os.fdopen(descriptor, "rb", buffering=0)
            except BaseException:
                os.close(descriptor)
                raise

    def content(self, limit: int | None = None) -> bytes:
        """All bytes of a file. Raises UsageError (CaptureError) if there are more than `limit`."""
        with self.open_to_read() as file:
            size = os.fstat(file.fileno()).st_size
            if limit is not None and size > limit:
                raise self._root.refusal(f"{self.path} has {size} bytes, more than {limit}: name another folder")
            parts = []
            left = size
            while left and (part := file.read(left)):
                parts.append(part)
                left -= len(part)
            return b"".join(parts)

    # -- writing

    def make_folder(self) -> None:
        """Create this folder and missing parents."""
        with self._opened(make=True):
            pass

    def create(self) -> BinaryIO:
        """A new file for its owner only, with its folders. Raises FileExistsError if it exists."""
        with self._entry(make=True) as (folder, name):
            return os.fdopen(os.open(name, _CREATE, FILE_MODE, dir_fd=folder), "wb", buffering=1 << 20)

    def put(self, data: bytes) -> None:
        """Write a file atomically: to a temporary file, to the disk, and then into place."""
        aside = self.parent / f"{self.parts[-1]}.new"
        with contextlib.suppress(FileNotFoundError):
            aside.remove_file()  # left by a killed run
        with aside.create() as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        aside.move_to(self)

    def move_to(self, target: ConfinedPath) -> None:
        """Rename a file, replacing the target. The target's folders are created."""
        assert target._root.identity == self._root.identity
        with self._entry() as (folder, name):
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            self._root.check_file(found, os.fstat(folder), self.path)
            with target._entry(make=True) as (into, new):
                os.rename(name, new, src_dir_fd=folder, dst_dir_fd=into)

    def remove_file(self) -> None:
        """Remove a file, or a symbolic link itself."""
        with self._entry() as (folder, name):
            os.unlink(name, dir_fd=folder)

    def remove_if_empty(self) -> None:
        """Remove this folder if it is empty."""
        with contextlib.suppress(OSError):
            if self.parts:
                with self._entry() as (folder, name):
                    os.rmdir(name, dir_fd=folder)
            else:
                os.rmdir(self._root.path)

    def remove_tree(self) -> None:
        """Remove this folder with everything in it; a missing folder is not an error.

        Symbolic links in it are removed, not followed. Raises UsageError if it is not a folder, or if folders are
        nested more deeply than in any run.
        """
        with contextlib.suppress(FileNotFoundError):
            with self._opened() as folder:
                self._empty(folder, self.path, 1)
            with self._entry() as (folder, name):
                os.rmdir(name, dir_fd=folder)

    def _empty(self, folder: int, path: Path, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise self._root.refusal(f"{path} is nested more deeply than any folder of an export: remove it")
        for name in os.listdir(folder):
            if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=folder)
                continue
            child = os.open(name, _FOLDER, dir_fd=folder)
            try:
                self._empty(child, path / name, depth + 1)
            finally:
                os.close(child)
            os.rmdir(name, dir_fd=folder)

    def sync(self) -> None:
        """Sync the names in this folder to the disk."""
        with self._opened() as folder:
            os.fsync(folder)

    def check_tree(self) -> None:
        """Raises UsageError if anything but the user's own folders and files is in this folder.

        For a folder whose path is passed to another program.
        """
        with contextlib.suppress(FileNotFoundError), self._opened() as folder:
            for name in os.listdir(folder):
                below = self / name
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if not stat.S_ISDIR(found.st_mode):
                    self._root.check_file(found, os.fstat(folder), below.path)
                elif len(below.parts) > MAX_DEPTH:
                    raise self._root.refusal(
                        f"{below} is nested more deeply than any folder of an export: name a new folder"
                    )
                else:
                    below.check_tree()

    def close(self) -> None:
        """Close the folder that all paths are in."""
        self._root.close()


def _with_path(error: OSError, path: Path) -> OSError:
    """The same error with the whole path; calls with a descriptor only know the last component."""
    return type(error)(error.errno, error.strerror, str(path))
