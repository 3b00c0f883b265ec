"""Objects that a `with` block closes at its end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

__all__ = ["ClosedAtExit"]


class ClosedAtExit(ABC):
    """A context manager that yields itself and is closed however its block ends."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Release what the object holds."""
