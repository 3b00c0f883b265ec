"""The files that a run has to be able to read later: kafkasniff, its data, its packages, Python.

Modules, extension modules with their libraries, and definitions are read when they are first needed: in the midst of a
capture, by a user who may not be the one that started it.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from typing import Final

from kafkasniff.kafka.data_files import data_folder

__all__ = ["PARTS", "own_files", "unreadable"]

PARTS: Final = (
    "_cffi_backend",
    "click",
    "cramjam",
    "crc32c",
    "cryptography",
    "google.protobuf",
    "isal",
    "lz4",
    "msgspec",
    "numpy",
    "opentelemetry.proto",
    "orjson",
    "prometheus_client",
    "pyarrow",
    "rich",
    "scapy",
    "zstandard",
)
"""Packages that `live` imports; those that are not installed are not missed."""
_NEVER_READ: Final = frozenset({"__pycache__", "include", "site-packages", "test", "tests"})
"""Folders of packages and of Python that hold nothing that is needed; without a cache a module is compiled again."""
DEFINITION: Final = ".txt"
"""A file of dissectors/."""
_LIBRARIES: Final = ".libs"
"""Beside a package that came as a wheel: the libraries of its extension modules."""


def unreadable(paths: Iterable[str]) -> str | None:
    """A file or folder, or one below it, that this process may not read now; None where all is well."""
    for path in paths:
        found = _unreadable_below(path)
        if found is not None:
            return found
    return None


def own_files() -> list[str]:
    """Files, and folders with all that is in them. Not all of them need be there."""
    return list(dict.fromkeys(_places()))


def _places() -> Iterator[str]:
    yield sys.executable
    # Of a virtual environment the program is a link, and this is what says so.
    yield os.path.join(sys.prefix, "pyvenv.cfg")
    yield str(data_folder())
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
    # Those of the Python that a virtual environment is of, too.
    yield os.path.dirname(os.__file__)
    yield sysconfig.get_path("platstdlib")


def _unreadable_below(path: str) -> str | None:
    """`path`, or what of it cannot be read; what is not there (in a zip, say) is not needed."""
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
        # Not access(2), which judges by the real user.
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
    except PermissionError:
        return False
    except OSError:
        return True
    return True
