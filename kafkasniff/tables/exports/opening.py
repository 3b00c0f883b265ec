"""Opens what a run writes into: the folder of an export, or an export in an object store."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from kafkasniff.errors import UsageError
from kafkasniff.runtime.addresses import Location
from kafkasniff.runtime.object_store import SCHEMES, is_object_store
from kafkasniff.tables.exports.folder import ExportFolder
from kafkasniff.tables.exports.store import ExportStore
from kafkasniff.tables.exports.target import ExportTarget

__all__ = ["check_output", "local_folder", "open_export"]

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def open_export(directory: str | os.PathLike[str]) -> ExportTarget:
    """The export in a folder, which is made if necessary, or at an address such as `s3://bucket/out`.

    Raises UsageError, OutputError, and MissingPartError as `check_output`, `ExportFolder` and `ExportStore` do.
    """
    name = os.fspath(directory)
    check_output(name)
    return ExportStore(Location.of(name)) if is_object_store(name) else ExportFolder(local_folder(name))


def check_output(directory: str) -> None:
    """Raises UsageError for an address that nothing can be written to."""
    if not is_object_store(directory):
        local_folder(directory, schemes=SCHEMES)


def local_folder(directory: str | os.PathLike[str], *, schemes: tuple[str, ...] = ()) -> Path:
    """The path of a folder: a path, or an address `file://…`.

    Raises UsageError for other addresses, which would name a folder `s3:` below the current one. `schemes`: those that
    would do.
    """
    name = os.fspath(directory)
    location = Location.of(name)
    if location.is_local and location.path != name:
        return Path(location.path)
    scheme = _SCHEME.match(name)
    if scheme is not None:
        if not _ADDRESS.match(name):
            raise UsageError(f"cannot write to {name}: an address begins with {scheme[1]}://, which a Path shortens")
        stores = f", or an object store ({', '.join(f'{one}://' for one in schemes)})" if schemes else ""
        raise UsageError(f"cannot write to {scheme[1]}://: name a folder of this machine{stores}")
    return Path(name)
