"""CRC-32C (Castagnoli, RFC 3720 appendix B.4), which record batches since magic 2 are checked by.

Of the package crc32c its extension module alone is imported. The package's front looks up its own version, for which
Python imports what reads packages' metadata, and half of `email` with it: a quarter of the time up to the first line.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from importlib.machinery import PathFinder

__all__ = ["crc32c"]

_EXTENSION = "crc32c._crc32c"


def _load() -> Callable[[bytes | memoryview], int]:
    package = importlib.util.find_spec("crc32c")
    places = None if package is None else package.submodule_search_locations
    found = None if places is None else PathFinder.find_spec(_EXTENSION, list(places))
    if found is None or found.loader is None:
        # Built in another way than its wheels are.
        import crc32c as front  # noqa: PLC0415 - only then

        function: Callable[[bytes | memoryview], int] = front.crc32c
        return function
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    function = module.crc32c
    return function


crc32c = _load()
"""The checksum of bytes."""
