"""Filters that the user has saved, for later runs: a file with an expression on each line."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kafkasniff.errors import OutputError
from kafkasniff.text.printable import printable

__all__ = ["SavedFilters", "filters_file"]

MAX_SAVED: Final = 200
"""Maximum number of saved filters: the oldest one is dropped."""
MAX_BYTES: Final = 1 << 20
"""Maximum size of the file that is read."""


class SavedFilters:
    """Expressions, the oldest first. `path`: of the file; None: they last as long as the process."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self.expressions: list[str] = []
        if path is not None:
            try:
                with path.open("rb") as file:
                    text = file.read(MAX_BYTES).decode("utf-8", "replace")
            except FileNotFoundError:
                return
            except OSError as error:
                raise OutputError(f"saved filters: {printable(str(error))}") from error
            self.expressions = [line for line in text.splitlines() if line.strip()][-MAX_SAVED:]

    def save(self, expression: str) -> None:
        """Add one as the newest. Raises OutputError."""
        kept = [one for one in self.expressions if one != expression]
        self.expressions = [*kept, expression][-MAX_SAVED:]
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # A new file with a name that nobody can predict, readable only for the user: values may be personal data.
            descriptor, new = tempfile.mkstemp(prefix=f".{self._path.name}-", dir=self._path.parent)
            try:
                with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                    file.writelines(f"{one}\n" for one in self.expressions)
                os.replace(new, self._path)
            except BaseException:
                os.unlink(new)
                raise
        except OSError as error:
            raise OutputError(f"saved filters: {printable(str(error))}") from error


def filters_file(environment: Mapping[str, str]) -> Path | None:
    """Where filters are saved (XDG Base Directory); None without a home directory."""
    base, home = environment.get("XDG_CONFIG_HOME"), environment.get("HOME")
    if base:
        return Path(base) / "kafkasniff" / "filters"
    return Path(home) / ".config" / "kafkasniff" / "filters" if home else None
