"""Keeps pandas out of the process: pyarrow imports it, where it is installed, as soon as it is given a Python list.

Nothing of a command needs it, but the import takes longer than a small export does. Spark may need it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["allow_pandas", "refuse_pandas"]


class _Refusal:
    """A finder that says of pandas that there is none."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not imported by kafkasniff's command line", name=name)
        return None


_REFUSAL = _Refusal()


def refuse_pandas() -> None:
    """From here on `import pandas` fails, where it was not imported before."""
    if _REFUSAL not in sys.meta_path:
        sys.meta_path.insert(0, _REFUSAL)


def allow_pandas() -> None:
    """Imports are as they were. Has to come before pyarrow's first look for pandas, whose result it keeps."""
    if _REFUSAL in sys.meta_path:
        sys.meta_path.remove(_REFUSAL)
