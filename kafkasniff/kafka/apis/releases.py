"""API versions of each Apache Kafka release, from `dissectors/releases.txt`."""

from __future__ import annotations

import functools

import msgspec

from kafkasniff.errors import DefinitionError
from kafkasniff.kafka.schema.data_files import read_data

__all__ = [
    "Spoken",
    "dropped_in",
    "find_release",
    "first_release",
    "is_stable",
    "releases",
    "removed_in",
    "spoken",
    "spoken_by",
]


class Spoken(msgspec.Struct, frozen=True):
    """The versions of an API that a release accepts, both ends included."""

    low: int
    high: int
    unstable: int | None = None
    """The one that needs an opt-in in that release."""

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"


class _Table(msgspec.Struct, frozen=True):
    order: tuple[str, ...]
    spoken: dict[int, dict[str, Spoken]]
    """Key → release → versions; releases without the API are absent."""
    removed: dict[int, str]
    """Key → first release without the API."""


def _spoken(words: tuple[str, ...]) -> Spoken | None:
    """`3-7` or `3`, optionally followed by `unstable N`."""
    low, _, high = words[0].partition("-")
    if not low.isdecimal() or not (high or low).isdecimal():
        return None
    match words[1:]:
        case ():
            return Spoken(int(low), int(high or low))
        case ("unstable", version) if version.isdecimal():
            return Spoken(int(low), int(high or low), int(version))
    return None


@functools.cache
def _table() -> _Table:
    path, lines = read_data("releases.txt")
    order: list[str] = []
    changes: dict[int, dict[str, Spoken | None]] = {}
    key: int | None = None
    for number, line in lines:
        fault = DefinitionError(f"{path}:{number}: neither `releases`, `api KEY NAME` nor `RELEASE VERSIONS`")
        match line.split():
            case ("releases", *names):
                order += names
            case ("api", text, _) if text.isdecimal():
                key = int(text)
                changes[key] = {}
            case (release, "removed") if key is not None and release in order:
                changes[key][release] = None
            case (release, *words) if key is not None and release in order and words:
                changes[key][release] = _spoken(tuple(words))
                if changes[key][release] is None:
                    raise fault
            case _:
                raise fault
    spoken_all: dict[int, dict[str, Spoken]] = {}
    removed: dict[int, str] = {}
    for api_key, by_release in changes.items():
        current: Spoken | None = None
        spoken_all[api_key] = {}
        for release in order:
            if release in by_release:
                current = by_release[release]
                if current is None:
                    removed[api_key] = release
            if current is not None:
                spoken_all[api_key][release] = current
    return _Table(tuple(order), spoken_all, removed)


def releases() -> tuple[str, ...]:
    """All known releases, oldest first."""
    return _table().order


def find_release(text: str) -> str | None:
    """The release that a text names: `3.9`, `3.9.1`, `v3.9.1`; None if unknown."""
    words = text.removeprefix("v").split(".")
    for count in range(len(words), 0, -1):
        if (name := ".".join(words[:count])) in _table().order:
            return name
    return None


def spoken(key: int) -> dict[str, Spoken]:
    """Release → versions that it accepts of an API, oldest first; empty for an unknown key."""
    return dict(_table().spoken.get(key, {}))


def spoken_by(release: str) -> dict[int, Spoken]:
    """Key → versions that a release accepts; empty if it is unknown."""
    return {key: table[release] for key, table in sorted(_table().spoken.items()) if release in table}


def removed_in(key: int) -> str | None:
    """The first release without an API; None if it was never removed."""
    return _table().removed.get(key)


def first_release(key: int, version: int) -> str | None:
    """The first release with a version: as a stable one, else at all; None if there is none."""
    unstable: str | None = None
    for release, versions in _table().spoken.get(key, {}).items():
        if version in versions:
            if versions.unstable != version:
                return release
            unstable = unstable or release
    return unstable


def dropped_in(key: int, version: int) -> tuple[str, int] | None:
    """The first release that no longer accepts a version, and its lowest accepted version; None if none dropped it.

    This excludes APIs that were removed altogether (`removed_in`).
    """
    known = False
    for release, versions in _table().spoken.get(key, {}).items():
        if known and version < versions.low:
            return release, versions.low
        known = known or version in versions
    return None


def is_stable(key: int, version: int) -> bool:
    """Whether some release has a version without an opt-in."""
    versions = _table().spoken.get(key, {}).values()
    return any(version in entry and entry.unstable != version for entry in versions)
