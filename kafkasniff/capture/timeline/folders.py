"""The captures that a command line names: files, folders, patterns, addresses."""

from __future__ import annotations

import os
from collections.abc import Sequence

from kafkasniff.capture.formats.heads import named_like_capture
from kafkasniff.capture.timeline.locations import CaptureFile, find_captures, is_pattern
from kafkasniff.errors import CaptureError
from kafkasniff.runtime.addresses import Location, name_of
from kafkasniff.runtime.export_manifest import is_export

__all__ = ["divided", "with_folders"]


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
