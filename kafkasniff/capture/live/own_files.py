"""The files that a run must be able to read later: kafkasniff, its data, its packages, Python.

Modules, extension modules with their libraries, and definitions are read when they are first needed: in the middle of a
capture, possibly by another user than the one that started it.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from typing import Final

from kafkasniff.kafka.schema.data_files import added_folders, data_folder

__all__ = ["PARTS", "own_files", "unreadable"]

PARTS: Final = (
    "_cffi_backend",
    "certifi",
    "charset_normalizer",
    "click",
    "cramjam",
    "crc32c",
    "cryptography",
    "google.protobuf",
    "idna",
    "isal",
    "lz4",
    "msgspec",
    "numpy",
    "obstore",
    "opentelemetry",
    "orjson",
    "prometheus_client",
    "pyarrow",
    "requests",
    "rich",
    "scapy",
    "urllib3",
    "zstandard",
)
"""Packages that `live` imports; missing ones do not matter."""
_NEVER_READ: Final = frozenset({"__pycache__", "include", "site-packages", "test", "tests"})
"""Folders of packages and of Python without needed files; without a cache a module is recompiled."""
DEFINITION: Final = ".txt"
"""A file of dissectors/."""
_LIBRARIES: Final = ".libs"
"""Folder next to a package installed from a wheel: the libraries of its extension modules."""


def unreadable(paths: Iterable[str]) -> str | None:
    """A file or folder, or one below it, that this process cannot read now; None if there is none."""
    for path in paths:
        found = _unreadable_below(path)
        if found is not None:
            return found
    return None


def own_files() -> list[str]:
    """Files, and folders with everything in them. Some may be missing."""
    return list(dict.fromkeys(_places()))


def _places() -> Iterator[str]:
    yield sys.executable
    # In a virtual environment the program is a link, and this file marks it.
    yield os.path.join(sys.prefix, "pyvenv.cfg")
    yield str(data_folder())
    yield from map(str, added_folders())
    for name in ("kafkasniff", *PARTS):
        try:
            found = importlib.util.find_spec(name)
        except ModuleNotFoundError:  # of a package within another
            continue
        if found is None:
            continue
        if found.submodule_search_locations is None:
            if found.origin is not None:
                yield found.origin
            continue
        for place in found.submodule_search_locations:
            yield place
            yield place + _LIBRARIES
    # Including those of the Python that a virtual environment is based on.
    yield os.path.dirname(os.__file__)
    yield sysconfig.get_path("platstdlib")


def _unreadable_below(path: str) -> str | None:
    """`path`, or the unreadable part of it; missing paths (in a zip, say) are not needed."""
    try:
        entries = list(os.scandir(path))
    except NotADirectoryError:
        return None if _is_readable(path) else path
    except PermissionError:
        return path
    except OSError:
        return None
    suffixes = (*importlib.machinery.all_suffixes(), DEFINITION)
    for entry in entries:
        if entry.is_dir():
            found = None if entry.name in _NEVER_READ else _unreadable_below(entry.path)
            if found is not None:
                return found
        # Names of libraries have their version at the end.
        elif (entry.name.endswith(suffixes) or ".so." in entry.name) and not _is_readable(entry.path):
            return entry.path
    return None


def _is_readable(path: str) -> bool:
    try:
        # Not access(2), which uses the real user.
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
    except PermissionError:
        return False
    except OSError:
        return True
    return True
