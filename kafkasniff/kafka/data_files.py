"""Where the data files are: beside the code (in a zip, too), or in the folder `dissectors` of a checkout."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

from kafkasniff.errors import DefinitionError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

__all__ = ["data_folder", "read_data"]


@functools.cache
def data_folder() -> Traversable:
    """The folder with the definitions, a Path but within a zip; raises DefinitionError where there is none."""
    package = Path(__file__).parent.parent
    for folder in (package / "dissectors", package.parent / "dissectors"):
        if (folder / "headers.txt").is_file():
            return folder
    if not package.is_dir():
        # Within a zip; for all others the import would take longer than reading the files.
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
