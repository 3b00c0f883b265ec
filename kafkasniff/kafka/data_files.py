"""Where the data files are: packaged beside the code, or in the folder `dissectors` of a checkout."""

from __future__ import annotations

import functools
from importlib.resources import files
from pathlib import Path

from kafkasniff.errors import DefinitionError

__all__ = ["data_folder", "read_data"]


@functools.cache
def data_folder() -> Path:
    """The folder with the definitions; raises DefinitionError where there is none."""
    package = Path(str(files("kafkasniff")))
    for folder in (package / "dissectors", package.parent / "dissectors"):
        if (folder / "headers.txt").is_file():
            return folder
    raise DefinitionError(f"{package / 'dissectors'}: the folder of the protocol's definitions is missing")


def read_data(name: str) -> tuple[Path, list[tuple[int, str]]]:
    """A table of the folder: its path, and (line number, line) of all lines but comments and empty ones."""
    path = data_folder() / name
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise DefinitionError(f"{path}: {error.strerror}") from error
    lines = enumerate(text.splitlines(), 1)
    return path, [(number, line.rstrip()) for number, line in lines if line.strip() and not line.startswith("#")]
