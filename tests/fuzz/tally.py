"""How many inputs a family was given so far, in all of its runs: kept in its folder, so that runs add up."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Self

import msgspec

__all__ = ["Tally"]


class Tally(msgspec.Struct):
    """Sums over the runs of a family."""

    guided: int = 0
    """Inputs that were made with a look at coverage."""
    unguided: int = 0
    """Inputs that were made without; where the next such run goes on in its sequence."""
    guided_seconds: float = 0
    """CPU seconds that the runs took, with what it takes to begin."""
    unguided_seconds: float = 0
    findings: int = 0
    """Inputs that broke a promise."""

    @property
    def inputs(self) -> int:
        """All inputs."""
        return self.guided + self.unguided

    @classmethod
    def read(cls, folder: Path) -> Self:
        """That of the family whose folder this is; zeros where nothing was run. Raises msgspec.DecodeError."""
        path = folder / "tally.json"
        return msgspec.json.decode(path.read_bytes(), type=cls) if path.exists() else cls()

    def write(self, folder: Path) -> None:
        """Keep it; a run that is killed leaves the one before, whole."""
        aside = folder / "tally.json.new"
        aside.write_bytes(msgspec.json.encode(self) + b"\n")
        os.replace(aside, folder / "tally.json")
