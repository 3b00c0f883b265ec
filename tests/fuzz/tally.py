"""How many inputs a family has had in all of its runs, saved in its folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Self

import msgspec

__all__ = ["Tally"]


class Tally(msgspec.Struct):
    """Sums over the runs of a family."""

    guided: int = 0
    """Inputs that were made with coverage."""
    unguided: int = 0
    """Inputs that were made without; the next such run continues there in its sequence."""
    guided_seconds: float = 0
    """CPU seconds of the runs, including their start."""
    unguided_seconds: float = 0
    findings: int = 0
    """Inputs that broke a promise."""

    @property
    def inputs(self) -> int:
        """All inputs."""
        return self.guided + self.unguided

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The tally of the family with this folder; zeros if nothing was run. Raises msgspec.DecodeError."""
        path = folder / "tally.json"
        return msgspec.json.decode(path.read_bytes(), type=cls) if path.exists() else cls()

    def write(self, folder: Path) -> None:
        """Replace the file as a whole, so that a killed run leaves the previous tally intact."""
        aside = folder / "tally.json.new"
        aside.write_bytes(msgspec.json.encode(self) + b"\n")
        os.replace(aside, folder / "tally.json")
