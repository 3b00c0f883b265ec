"""Addresses of files: paths of this machine, and URIs of remote file systems."""

from __future__ import annotations

import os
import re
from typing import Final, NamedTuple

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_QUERY: Final = re.compile(r"\?(?=[A-Za-z_]+=)")
_LOCAL: Final = ("file",)


class Location(NamedTuple):
    """The parts of an address: `{root}{path}{query}`."""

    root: str
    """Scheme and, if present, host or bucket: `s3://bucket`; empty for a local path."""
    path: str
    query: str
    """With its `?`; may hold secrets, so it is not part of `name`."""

    @classmethod
    def of(cls, text: str) -> Location:
        """The parts of a path or URI."""
        scheme = _SCHEME.match(text)
        if scheme is None:
            return cls("", text, "")
        if scheme[1].lower() in _LOCAL:
            return cls("", text[scheme.end() :], "")
        rest, *query = _QUERY.split(text[scheme.end() :], maxsplit=1)
        host, slash, path = rest.partition("/")
        # Hadoop's names for S3.
        name = "s3" if scheme[1].lower() in {"s3a", "s3n"} else scheme[1].lower()
        return cls(f"{name}://{host}", slash + path, "?" + query[0] if query else "")

    @property
    def is_local(self) -> bool:
        """Whether it is a local path."""
        return not self.root

    @property
    def name(self) -> str:
        """The address as shown to people: without user, password and query."""
        scheme, separator, host = self.root.partition("://")
        return f"{scheme}{separator}{host.rpartition('@')[2]}{self.path}"

    @property
    def uri(self) -> str:
        """The whole address; local paths are absolute, since other processes may have another working directory."""
        return os.path.abspath(self.path) if self.is_local else f"{self.root}{self.path}{self.query}"

    def at(self, path: str) -> Location:
        """Another path in the same file system."""
        return self._replace(path=path)


def name_of(path: str) -> str:
    """The name of a capture in messages and tables: its path, or its address without user, password and query."""
    location = Location.of(path)
    return path if location.is_local else location.name


def is_remote(path: str) -> bool:
    """Whether a path is an address in a remote file system."""
    return not Location.of(path).is_local
