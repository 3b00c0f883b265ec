"""Locations of captures: paths, folders, patterns, and remote file systems, by random access.

Remote ones (`s3://`, `s3a://`, `gs://`, `hdfs://` and others that pyarrow.fs supports) are reached through pyarrow
instead of Hadoop's classes, because readers run in Python processes. They are configured by the environment, as pyarrow
documents (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, `CLASSPATH` for HDFS …), or by the query of the address
(`s3://bucket/captures/*.pcap?region=eu-west-1&endpoint_override=127.0.0.1:5000&scheme=http`).
"""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec

from kafkasniff.capture.formats.reader import HEAD_BYTES, begins_capture, named_like_capture
from kafkasniff.errors import CaptureError, UnreachableError, UsageError
from kafkasniff.runtime.addresses import Location, name_of
from kafkasniff.runtime.export_manifest import is_export

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

    from kafkasniff.capture.timeline.splits import ReadAt


_PATTERN: Final = re.compile(r"[*?\[]")

READ_AT_ONCE: Final = 64
"""Number of remote files that are examined at the same time: each takes some ten milliseconds, mostly of waiting."""

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class CaptureFile(msgspec.Struct, frozen=True):
    """A capture in a file system."""

    name: str
    """Its name in messages."""
    path: str
    """Its path or handle for opening."""
    size: int
    folder: str | None = None
    """Name of the folder that it was found in; None if it was named itself."""
    doubtful: bool = False
    """It counts only if it begins like a capture, which was not checked."""
    version: str | None = None
    """Its content when it was looked at, by ETag or time (`OpenCapture.version`); None: not looked at, or unknown."""


class FileSelection(msgspec.Struct, frozen=True):
    """Which of the files that paths name are listed, as in Spark's file sources."""

    name: str = "*"
    """A pattern for the last part of their paths."""
    recursive: bool = False
    """Also files in folders of a folder."""
    after_ns: int | None = None
    """Only files that were modified later, in nanoseconds since 1970."""
    before_ns: int | None = None

    @property
    def is_all(self) -> bool:
        """Whether it selects all files."""
        return (self.name, self.after_ns, self.before_ns) == ("*", None, None)

    def has(self, path: str, modified_ns: int | None) -> bool:
        """Whether it selects a file; `modified_ns` None: unknown."""
        if not _fits(path, self.name):
            return False
        if modified_ns is None:
            return True
        return (self.after_ns is None or modified_ns > self.after_ns) and (
            self.before_ns is None or modified_ns < self.before_ns
        )


EVERY_FILE: Final = FileSelection()


class _Entry(NamedTuple):
    """What a file system says of a path."""

    name: str
    size: int | None
    """In bytes; None for a folder."""
    modified_ns: int | None


def is_pattern(path: str) -> bool:
    """Whether a path has characters that stand for others (`*`, `?`, `[…]`)."""
    return _PATTERN.search(path) is not None


def for_each(
    function: Callable[[_Item], _Result], items: Sequence[_Item], *, remote: bool, at_once: int = READ_AT_ONCE
) -> Iterator[_Result]:
    """The results in the order of the items; `at_once` calls run at the same time if they are about `remote` files."""
    if not remote or len(items) < 2:
        yield from map(function, items)
        return
    # Imported on first use: local captures need no threads, and start-up is faster without it.
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(at_once, len(items))) as pool:
        yield from pool.map(function, items)


def find_captures(
    paths: Sequence[str], *, by_name: bool = False, selection: FileSelection = EVERY_FILE
) -> list[CaptureFile]:
    """The captures that paths, folders and patterns (`*`, `?`, `[…]`) name: in their order, each sorted by name.

    In a folder, files count that begin like a capture (compressed ones too), except hidden ones (`.…`, `_…`) and
    subfolders; `by_name`: also files that are named like one, whatever they hold. A path that exists is not a pattern.
    `selection` may leave none. Raises CaptureError if there is no capture otherwise or it cannot be reached, and
    UsageError if no path is given.
    """
    files = list_captures(paths, by_name=by_name, selection=selection)
    return captures_among(files, for_each(_counts, files, remote=any(map(_is_remote, files))))


def list_captures(
    paths: Sequence[str], *, by_name: bool = False, selection: FileSelection = EVERY_FILE
) -> list[CaptureFile]:
    """The files among which `find_captures` finds captures, without opening any.

    One comes twice if it is named, and in a folder that is named, too. Raises CaptureError and UsageError.
    """
    if not paths:
        raise UsageError("name at least one capture, a folder or a pattern")
    capture_files: dict[tuple[str, str | None], CaptureFile] = {}
    for path in paths:
        for file in _find(Location.of(path), by_name=by_name, selection=selection):
            capture_files.setdefault((file.path, file.folder), file)
    return list(capture_files.values())


def captures_among(files: Sequence[CaptureFile], answers: Iterable[bool]) -> list[CaptureFile]:
    """The captures among files that were listed, each once.

    `answers`: for each file whether it counts: if it is doubtful, whether it begins like a capture. Raises CaptureError
    if a folder has none.
    """
    capture_files: dict[str, CaptureFile] = {}
    folders: dict[str, bool] = {}
    for file, answer in zip(files, answers, strict=True):
        if file.folder is not None:
            folders[file.folder] = answer or folders.get(file.folder, False)
        if answer:
            capture_files.setdefault(file.path, file)
    for folder, has_captures in folders.items():
        if not has_captures:
            raise _no_captures(folder)
    return list(capture_files.values())


def _no_captures(folder: str) -> CaptureError:
    return CaptureError(f"{folder}: contains neither captures (pcap, pcapng) nor an export (manifest.json)")


def _is_remote(file: CaptureFile) -> bool:
    return not Location.of(file.path).is_local


def capture_at(path: str) -> CaptureFile:
    """A single capture by its path or address. Raises CaptureError if it cannot be reached, or is a folder."""
    location = Location.of(path)
    size = _Store(location).entry(location).size
    if size is None:
        raise CaptureError(f"{location.name}: is a folder; name the capture files in it")
    return CaptureFile(location.name, location.uri, size)


def listed(folder: str, selection: FileSelection = EVERY_FILE) -> list[CaptureFile]:
    """The files of a folder, or those that match a pattern, by name and whatever their content. Raises CaptureError."""
    location = Location.of(folder)
    if is_pattern(location.path):
        return _matching(location, selection)
    return _Store(location).files(location, selection)


def _find(location: Location, *, by_name: bool, selection: FileSelection) -> list[CaptureFile]:
    if is_pattern(location.path) and not (location.is_local and os.path.lexists(location.path)):
        files = _matching(location, selection)
        if not files and selection.is_all:
            raise CaptureError(f"{location.name}: no file matches")
        return files
    store = _Store(location)
    entry = store.entry(location)
    if entry.size is not None:
        wanted = selection.has(location.path, entry.modified_ns)
        return [CaptureFile(location.name, location.uri, entry.size)] if wanted else []
    files = store.files(location, selection)
    if not files and selection.is_all:
        raise _no_captures(location.name)
    return [
        CaptureFile(file.name, file.path, file.size, location.name, not (by_name and named_like_capture(file.name)))
        for file in files
    ]


def _counts(file: CaptureFile) -> bool:
    """Whether a file that was listed is to be read."""
    try:
        return not file.doubtful or is_capture(open_capture(file))
    except OSError as error:
        raise CaptureError(f"{file.name}: cannot be opened ({error.strerror or error})") from None


def _matching(location: Location, selection: FileSelection) -> list[CaptureFile]:
    """Files whose path matches, part by part: `*` does not match slashes."""
    parts = PurePosixPath(location.path).parts if location.path else ()
    first = next(index for index, part in enumerate(parts) if is_pattern(part))
    base = str(PurePosixPath(*parts[:first])) if first else "."
    folders = [location.at(base)]
    store = _Store(location)
    for part in parts[first:-1]:
        folders = [inner for folder in folders for inner in store.folders(folder) if _fits(inner.path, part)]
    return [
        file
        for folder in folders
        for file in store.files(folder, selection)
        if _fits(Location.of(file.path).path, parts[-1])
    ]


def _fits(path: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(PurePosixPath(path).name, pattern)


def is_capture(read_at: ReadAt) -> bool:
    """Whether a file begins like a capture, compressed or not. Raises OSError."""
    return begins_capture(read_at(0, HEAD_BYTES))


def open_capture(file: CaptureFile) -> OpenCapture:
    """Random access to a capture; if `file` has a version, only to that one."""
    location = Location.of(file.path)
    return _LocalCapture(file, location) if location.is_local else _RemoteCapture(file, location)


class OpenCapture(ABC):
    """Random access to a capture (`splits.ReadAt`).

    Failing reads of a remote capture raise UnreachableError, since the capture itself is not damaged then. A local one
    raises OSError. Raises CaptureError if the capture has another version than expected.
    """

    def __init__(self, file: CaptureFile, location: Location) -> None:
        self._file = file
        self._location = location
        self.version: str | None = None
        """The version that was read; None: nothing was read yet, or the store does not know versions."""

    @abstractmethod
    def __call__(self, offset: int, size: int, /) -> bytes:
        """Up to `size` bytes at `offset`."""

    def _check(self, version: str | None) -> None:
        self.version = version
        if version is not None and self._file.version not in {None, version}:
            raise CaptureError(f"{self._file.name}: was changed after it was planned; repeat the run")


class _LocalCapture(OpenCapture):
    def __call__(self, offset: int, size: int, /) -> bytes:
        # Opened for each read, so that hundreds of captures need not be open at once.
        descriptor = os.open(self._location.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            facts = os.fstat(descriptor)
            # A capture that is still written to grows, but keeps what was planned of it.
            self._check(None if facts.st_size > self._file.size else str(facts.st_mtime_ns))
            return os.pread(descriptor, size, offset)
        finally:
            os.close(descriptor)


class _RemoteCapture(OpenCapture):
    def __init__(self, file: CaptureFile, location: Location) -> None:
        super().__init__(file, location)
        self._opened: Any = None

    def __call__(self, offset: int, size: int, /) -> bytes:
        try:
            if self._opened is None:
                system, path = _file_system(self._location)
                opened = system.open_input_file(path)
                # The store's answer to opening has them: this takes no request.
                facts = opened.metadata()
                version = facts.get("ETag") or facts.get("Last-Modified")
                self._check(None if version is None else version.decode(errors="replace"))
                self._opened = opened
            data: bytes = self._opened.read_at(size, offset)
        except (OSError, ValueError) as error:
            raise UnreachableError(f"{self._location.name}: cannot be read ({_one_line(error)})") from None
        return data


def _file_system(location: Location) -> tuple[FileSystem, str]:
    """The file system of a location, and the path in it."""
    system, root = _connected(location.at("/"), os.getpid())
    return system, root + location.path


@lru_cache(maxsize=16)
def _connected(location: Location, process: int) -> tuple[FileSystem, str]:
    """A file system and the path of its root. Its threads and connections do not survive a fork, hence `process`."""
    del process
    import pyarrow as pa
    from pyarrow import fs

    # S3's client keeps as many connections as there are threads for it; the others would wait.
    pa.set_io_thread_count(max(pa.io_thread_count(), READ_AT_ONCE))
    try:
        found: tuple[FileSystem, str] = fs.FileSystem.from_uri(location.uri)
    except (OSError, ValueError, ImportError, NotImplementedError) as error:
        # The last two are pyarrow's errors for a file system that it was built without (S3, GCS, Azure, HDFS).
        raise UnreachableError(f"{location.name}: cannot be reached ({_one_line(error)})") from None
    # pyarrow's paths begin with the bucket, if there is one.
    return found[0], found[1].rstrip("/")


def _one_line(error: BaseException) -> str:
    """The first line of an exception's message, without the query of an address."""
    return re.sub(r"\?\S*", "?…", str(error).split("\n", 1)[0])


class _Store:
    """The file system of a location."""

    def __init__(self, location: Location) -> None:
        self._system: FileSystem | None = None
        self._root = ""
        if not location.is_local:
            self._system, self._root = _file_system(location.at(""))

    def entry(self, location: Location) -> _Entry:
        """What is at a location. Raises CaptureError."""
        try:
            if self._system is None:
                facts = os.stat(location.path)
                return _entry_of(location.path, facts)
            from pyarrow.fs import FileType

            info = self._system.get_file_info(self._root + location.path)
            if info.type == FileType.NotFound:
                raise FileNotFoundError(2, "No such file or folder")
            return _Entry(info.base_name, int(info.size) if info.type == FileType.File else None, info.mtime_ns)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else _one_line(error)
            raise CaptureError(f"{location.name}: cannot be opened ({reason})") from None

    def files(self, folder: Location, selection: FileSelection = EVERY_FILE) -> list[CaptureFile]:
        """The files in a folder that are not hidden, by name. Raises CaptureError."""
        capture_files: list[CaptureFile] = []
        for inner, entry in self._entries(folder):
            if entry.size is not None:
                if selection.has(inner.path, entry.modified_ns):
                    capture_files.append(CaptureFile(inner.name, inner.uri, entry.size))
            elif selection.recursive:
                capture_files += self.files(inner, selection)
        return capture_files

    def folders(self, folder: Location) -> list[Location]:
        """The folders in a folder that are not hidden, by name. Raises CaptureError."""
        return [inner for inner, entry in self._entries(folder) if entry.size is None]

    def _entries(self, folder: Location) -> list[tuple[Location, _Entry]]:
        """The entries of a folder that are not hidden."""
        try:
            entries = self._local(folder) if self._system is None else self._remote(folder, self._system)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else _one_line(error)
            raise CaptureError(f"{folder.name}: cannot be listed ({reason})") from None
        base = folder.path.rstrip("/") if folder.path != "." else ""
        lead = f"{base}/" if base or folder.path.startswith("/") else ""
        return [
            (folder.at(lead + entry.name), entry) for entry in sorted(entries) if entry.name[:1] not in {".", "_", ""}
        ]

    @staticmethod
    def _local(folder: Location) -> list[_Entry]:
        with os.scandir(folder.path) as entries:
            return [_entry_of(entry.name, entry.stat()) for entry in entries if entry.is_dir() or entry.is_file()]

    def _remote(self, folder: Location, system: FileSystem) -> list[_Entry]:
        from pyarrow.fs import FileSelector, FileType

        where = (self._root + folder.path).rstrip("/")
        return [
            _Entry(info.base_name, int(info.size) if info.type == FileType.File else None, info.mtime_ns)
            for info in system.get_file_info(FileSelector(where))
            if info.type in {FileType.File, FileType.Directory}
        ]


def _entry_of(name: str, facts: os.stat_result) -> _Entry:
    return _Entry(name, None if stat.S_ISDIR(facts.st_mode) else facts.st_size, facts.st_mtime_ns)


# The captures that a command line names: files, folders, patterns, addresses.


def divided(paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """Captures (in folders sorted by name), and folders that are exports. Raises CaptureError like `with_folders`."""
    exports = [path for path in paths if is_export(path)]
    return with_folders([path for path in paths if path not in exports]), exports


def with_folders(paths: Sequence[str], *, by_name: bool = False) -> list[str]:
    """The same paths, but folders and patterns replaced by the captures that they name, sorted by name.

    Hidden files (`.…`, `_…`) and subfolders do not count. `by_name`: also files that are named like captures, whatever
    they hold. Raises CaptureError if a folder has no captures or is an export, or if it or one of its files cannot be
    read.
    """
    found: list[str] = []
    for path in paths:
        if is_export(path):
            raise CaptureError(f"{name_of(path)} is an export, not a folder of captures")
        if _is_single(path):
            location = Location.of(path)
            # `file:///captures/a.pcap`
            found.append(location.path if location.is_local else path)
        else:
            found += map(_path_of, find_captures([path], by_name=by_name))
    return found


def _is_single(path: str) -> bool:
    """Whether a path names one capture, as far as that can be said without asking a remote file system."""
    if path == "-" or (os.path.lexists(path) and not os.path.isdir(path)):
        return True
    location = Location.of(path)
    if is_pattern(location.path):
        return False
    return named_like_capture(location.path) if not location.is_local else not os.path.isdir(location.path)


def _path_of(file: CaptureFile) -> str:
    """How a capture is opened: by the path given for a local one, by its whole address for a remote one."""
    return file.name if Location.of(file.path).is_local else file.path
