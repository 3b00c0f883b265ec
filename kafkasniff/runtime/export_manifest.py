"""The manifest, which makes a folder an export: its name and format, for commands and library alike."""

from __future__ import annotations

import contextlib
import os
import re
from typing import Final

from kafkasniff.errors import KafkasniffError, MissingPartError
from kafkasniff.runtime.addresses import Location

MANIFEST: Final = "manifest.json"
"""Name of the manifest, at the top of the folder."""
FORMAT: Final = "kafkasniff-export"
"""Value of its field `format`."""
MAX_MANIFEST: Final = 256 << 20
"""Maximum size of a manifest, or of the plan of a run, which take some hundred bytes per file and capture."""
TABLES: Final = ("exchanges", "records", "connections", "transport", "problems")
"""Folders of the tables."""


_FILE: Final = re.compile(r"[*?\[]|\.(pcap|pcapng|cap|gz|zst|lz4|bz2|xz)$")
"""Remote paths that are patterns or single captures: no request is needed to know that."""


def is_export(path: str | os.PathLike[str]) -> bool:
    """Whether a path is the folder of an export, complete or damaged, rather than of captures."""
    name = os.fspath(path)
    location = Location.of(name)
    if location.is_local:
        name = location.path
        if name == "-" or not os.path.isdir(name):
            return False
    elif _FILE.search(location.path):
        return False
    try:
        found = _format_of(read_manifest(name))
    except (FileNotFoundError, MissingPartError):
        return False
    except (OSError, KafkasniffError):
        found = None
    if found is not None:
        return found == FORMAT
    # Opening the export reports an invalid manifest; a folder of captures may have some other file of that name.
    return location.is_local and any(os.path.isdir(os.path.join(name, table)) for table in TABLES)


def _format_of(data: bytes) -> str | None:
    """The format that a manifest names, "" without one; None for other files."""
    # Most commands read captures by their names, and do not come here.
    import msgspec  # noqa: PLC0415

    class _Manifest(msgspec.Struct):
        format: str = ""

    try:
        return msgspec.json.decode(data, type=_Manifest).format
    except msgspec.MsgspecError:
        return None


def read_manifest(path: str) -> bytes:
    """The manifest of a folder or an object store.

    Raises OSError, CaptureError as `open_any_folder`, UsageError and MissingPartError as `ObjectStore`.
    """
    # Commands that read single captures need neither.
    from kafkasniff.runtime.confined_files import open_any_folder  # noqa: PLC0415
    from kafkasniff.runtime.object_store import ObjectStore  # noqa: PLC0415

    location = Location.of(path)
    if not location.is_local:
        return ObjectStore(location).get(MANIFEST, MAX_MANIFEST).data
    with contextlib.closing(open_any_folder(location.path)) as folder:
        return (folder / MANIFEST).content(MAX_MANIFEST)
