"""Folders of captures: identifies captures among their files by content."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from typing import Final

from kafkasniff.capture.formats.compressed import MAGIC_SIZE, inflater_for
from kafkasniff.capture.formats.pcap import HEADER_SIZE, is_pcap
from kafkasniff.capture.formats.pcapng import is_pcapng
from kafkasniff.errors import CaptureError
from kafkasniff.runtime.export_manifest import is_export

__all__ = ["HEAD_BYTES", "begins_capture", "captures_in", "divided", "with_folders"]

HEAD_BYTES: Final = 64 << 10
"""Bytes of a file that decide, in compressed form if it is compressed."""


def begins_capture(head: bytes) -> bool:
    """Whether a file that begins with these bytes (HEAD_BYTES of them, or all) is a capture, compressed or not."""
    inflater = inflater_for(head) if len(head) >= MAGIC_SIZE else None
    if inflater is not None:
        inflater.give(head)
        head = inflater.take()
    return len(head) >= HEADER_SIZE and (is_pcap(head) or is_pcapng(head))


def captures_in(folder: str) -> list[str]:
    """Paths of the captures in a folder, by name. Hidden files (`.…`, `_…`) and subfolders do not count.

    Raises CaptureError if there is none, or the folder or one of its files cannot be read.
    """
    try:
        names = sorted(name for name in os.listdir(folder) if name[:1] not in {".", "_"})
    except OSError as error:
        raise CaptureError(f"{folder}: cannot be listed ({error.strerror or error})") from None
    found = [path for path in (os.path.join(folder, name) for name in names) if _is_capture(path)]
    if not found:
        raise CaptureError(f"{folder}: contains neither captures (pcap, pcapng) nor an export (manifest.json)")
    return found


def divided(paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """Captures (in folders sorted by name), and folders that are exports. Raises CaptureError like `captures_in`."""
    exports = [path for path in paths if is_export(path)]
    return with_folders([path for path in paths if path not in exports]), exports


def with_folders(paths: Sequence[str]) -> list[str]:
    """The same paths, but each folder replaced by the captures in it.

    Raises CaptureError like `captures_in`, and if a folder is an export.
    """
    found: list[str] = []
    for path in paths:
        if is_export(path):
            raise CaptureError(f"{path} is an export, not a folder of captures")
        found += captures_in(path) if path != "-" and os.path.isdir(path) else (path,)
    return found


def _is_capture(path: str) -> bool:
    try:
        # Opening a FIFO would block.
        if not stat.S_ISREG(os.stat(path).st_mode):
            return False
        with open(path, "rb", buffering=0) as file:
            return begins_capture(file.read(HEAD_BYTES))
    except OSError as error:
        raise CaptureError(f"{path}: cannot be opened ({error.strerror or error})") from None
