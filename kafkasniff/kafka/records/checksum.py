"""CRC-32C (Castagnoli, RFC 3720 appendix B.4), the checksum of record batches since magic 2.

Only the extension module of the package crc32c is imported. The package itself looks up its own version, which imports
package metadata and half of `email`: a quarter of the time until the first line.
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
        # Built differently from its wheels.
        import crc32c as front  # noqa: PLC0415 - only then

        function: Callable[[bytes | memoryview], int] = front.crc32c
        return function
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    function = module.crc32c
    return function


crc32c = _load()
"""The checksum of bytes."""
