"""Keeps pandas out of the process: pyarrow imports it, if installed, as soon as it is given a Python list.

No command needs it, and the import takes longer than a small export. Spark may need it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["allow_pandas", "refuse_pandas"]


class _Refusal:
    """A finder that pretends that pandas is not installed."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not imported by kafkasniff's command line", name=name)
        return None


_REFUSAL = _Refusal()


def refuse_pandas() -> None:
    """From here on `import pandas` fails, unless it was imported before."""
    if _REFUSAL not in sys.meta_path:
        sys.meta_path.insert(0, _REFUSAL)


def allow_pandas() -> None:
    """Undo `refuse_pandas`. Call it before pyarrow first looks for pandas, since it keeps the result."""
    if _REFUSAL in sys.meta_path:
        sys.meta_path.remove(_REFUSAL)
