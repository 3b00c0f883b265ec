"""The manifest, which makes a folder an export: its name and format, for commands and library alike."""

from __future__ import annotations

import contextlib
import os
from typing import Final

import msgspec

from kafkasniff.errors import CaptureError

__all__ = ["FORMAT", "MANIFEST", "MAX_MANIFEST", "TABLES", "is_export"]

MANIFEST: Final = "manifest.json"
"""Name of the manifest, at the top of the folder."""
FORMAT: Final = "kafkasniff-export"
"""Value of its field `format`."""
MAX_MANIFEST: Final = 256 << 20
"""Maximum size of a manifest, or of the plan of a run, which take some hundred bytes per file and capture."""
TABLES: Final = ("exchanges", "records", "connections", "problems")
"""Folders of the tables."""


class _Manifest(msgspec.Struct):
    format: str = ""


def is_export(path: str | os.PathLike[str]) -> bool:
    """Whether a path is the folder of an export, complete or damaged, rather than of captures."""
    name = os.fspath(path)
    if name == "-" or not os.path.isdir(name):
        return False
    # Commands that read single captures do not need it.
    from kafkasniff.runtime.confined_files import open_any_folder  # noqa: PLC0415

    try:
        with contextlib.closing(open_any_folder(name)) as folder:
            content = (folder / MANIFEST).content(MAX_MANIFEST)
        return msgspec.json.decode(content, type=_Manifest).format == FORMAT
    except FileNotFoundError:
        return False
    except (OSError, CaptureError, msgspec.MsgspecError):
        # Opening the export reports an invalid manifest; a folder of captures may have some other file of that name.
        return any(os.path.isdir(os.path.join(name, table)) for table in TABLES)
