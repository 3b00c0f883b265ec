"""Location of the data files: next to the code (even in a zip), or in the folder `dissectors` of a checkout."""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafkasniff.errors import DefinitionError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


_API_FILE: Final = re.compile(r"(\d{3,5})_([a-z0-9_]+)\.txt")
DEFINITIONS: Final = "KAFKASNIFF_DEFINITIONS"
"""Variable with folders of more definitions, separated as in PATH. Worker processes inherit it."""


@functools.cache
def data_folder() -> Traversable:
    """The folder with the definitions, a Path except in a zip; raises DefinitionError if there is none."""
    package = Path(__file__).parents[2]
    for folder in (package / "dissectors", package.parent / "dissectors"):
        if (folder / "headers.txt").is_file():
            return folder
    if not package.is_dir():
        # Only for a zip: the import takes longer than reading the files.
        from importlib.resources import files  # noqa: PLC0415

        zipped = files("kafkasniff") / "dissectors"
        if (zipped / "headers.txt").is_file():
            return zipped
    raise DefinitionError(f"{package / 'dissectors'}: the folder of the protocol's definitions is missing")


def read_data(name: str) -> tuple[Traversable, list[tuple[int, str]]]:
    """A table of the folder: its path, and (line number, line) of all lines but comments and empty ones."""
    path = data_folder() / name
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise DefinitionError(f"{path}: {error.strerror or 'there is no such file'}") from error
    lines = enumerate(text.splitlines(), 1)
    return path, [(number, line.rstrip()) for number, line in lines if line.strip() and not line.startswith("#")]


def definition_folder(name: str) -> Traversable:
    """A folder with definitions of APIs, or that of a vendor in `dissectors/vendors`."""
    folder = Path(name)
    return folder if folder.is_dir() else data_folder() / "vendors" / name


def vendors() -> list[str]:
    """The vendors in `dissectors/vendors`."""
    return [path.name for path in sorted_files(data_folder() / "vendors")]


def added_folders() -> list[Traversable]:
    """The folders that the environment names, whose definitions have precedence."""
    return [definition_folder(name) for name in os.environ.get(DEFINITIONS, "").split(os.pathsep) if name]


@functools.cache
def api_files() -> dict[int, tuple[str, Traversable]]:
    """API key → (name in snake_case, file), by key. Raises DefinitionError if two files have one key."""
    added: dict[int, tuple[str, Traversable]] = {}
    for folder in added_folders():
        for key, (name, path) in files_of(folder).items():
            if key in added:
                raise DefinitionError(f"{path}:1: key {key} is also in {added[key][1]}")
            added[key] = name, path
    return dict(sorted({**files_of(data_folder()), **added}.items()))


def files_of(folder: Traversable) -> dict[int, tuple[str, Traversable]]:
    """`api_files` of one folder."""
    found: dict[int, tuple[str, Traversable]] = {}
    for path in sorted_files(folder):
        if match := _API_FILE.fullmatch(path.name):
            key = int(match[1])
            if key in found:
                raise DefinitionError(f"{path}:1: key {key} is also in {found[key][1].name}")
            found[key] = (match[2], path)
    return found


def sorted_files(folder: Traversable) -> list[Traversable]:
    """The files of a folder by name; a zip has its own order."""
    return sorted(folder.iterdir(), key=lambda path: path.name)


def read_text(path: Traversable) -> str:
    """The content of a file of definitions. Raises DefinitionError."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DefinitionError(f"{path}: {error}") from error
