"""API versions of each Apache Kafka release, and which of them are defined and proven.

`dissectors/releases.txt` has the versions of releases.

Defined and proven are pairs (API, version), and versions of structures in records and bytes. Defined: a definition has
the version. Proven: bytes that this project did not make decode to values that it did not make. `dissectors/proven.txt`
lists all proofs; the comment at its top explains its lines.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

import msgspec

from kafkasniff.errors import DefinitionError
from kafkasniff.kafka.apis.dissectors import api, api_by_name, api_keys
from kafkasniff.kafka.schema.codes import data_folder, read_data
from kafkasniff.kafka.schema.schema import data_definitions


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


PROVEN_FILE = "proven.txt"

_Key = TypeVar("_Key")

Pair = tuple[int, int]
"""API key and version."""

Layout = tuple[str, int]
"""Name and version of a structure that is not a request or response."""


class Proof(msgspec.Struct, frozen=True):
    """The proof of one version; at least one of the two is present."""

    vectors: tuple[str, ...] = ()
    """Releases of Apache Kafka whose classes wrote messages for it, such as 4.4.0."""
    captures: tuple[str, ...] = ()
    """File names of captures of real clients and brokers that contain it."""

    def __or__(self, other: Proof) -> Proof:
        return Proof(
            tuple(dict.fromkeys(self.vectors + other.vectors)), tuple(dict.fromkeys(self.captures + other.captures))
        )


class Proven(NamedTuple):
    """The content of `dissectors/proven.txt`."""

    pairs: dict[Pair, Proof]
    data: dict[Layout, Proof]
    """Headers, and structures in records and bytes."""
    batches: dict[int, Proof]
    """Record batches and message sets, by magic."""


class PairCount(NamedTuple):
    """Number of defined and proven pairs of some releases, by kind of proof."""

    since: str
    """Releases that introduced the versions: `4.4`, a range such as `3.0-3.9`, or `none`."""
    defined: int
    proven: int
    by_vectors: int
    by_captures: int


def defined_pairs() -> set[Pair]:
    """The (API key, version) pairs in the definitions."""
    return {(key, version) for key in api_keys() if (found := api(key)) is not None for version in found.versions}


def defined_data() -> set[Layout]:
    """The (name, version) of all other structures in the definitions."""
    return {
        (name, version)
        for name, definition in data_definitions().items()
        for version in range(definition.message.versions.low, definition.message.versions.high + 1)
    }


def proven() -> Proven:
    """All proofs; empty if the file does not exist.

    Raises DefinitionError for a line that names no defined version, or that gives no proof.
    """
    found = Proven({}, {}, {})
    if not (data_folder() / PROVEN_FILE).is_file():
        return found
    path, lines = read_data(PROVEN_FILE)
    data = defined_data()
    for number, line in lines:
        fault = DefinitionError(
            f"{path}:{number}: a line is NAME VERSION `vectors` RELEASE…, or NAME VERSION `captures` RELEASE FILE…,"
            " of a version that is defined"
        )
        words = line.split()
        kind = words.pop(0) if words[0] in ("data", "batches") else "api"
        if kind == "batches":
            words.insert(0, "magic")
        if len(words) < 4 or not words[1].isdecimal():
            raise fault
        name, version, proof = words[0], int(words[1]), _proof(words[2], words[3:])
        if proof is None:
            raise fault
        if kind == "batches":
            _add(found.batches, version, proof)
        elif kind == "data" and (name, version) in data:
            _add(found.data, (name, version), proof)
        elif kind == "api" and (entry := api_by_name(name)) is not None and version in entry.versions:
            _add(found.pairs, (entry.key, version), proof)
        else:
            raise fault
    return found


def _proof(kind: str, words: list[str]) -> Proof | None:
    if kind == "vectors":
        return Proof(vectors=tuple(words))
    # The first word is the release whose classes decoded the captures.
    return Proof(captures=tuple(words[1:])) if kind == "captures" and len(words) > 1 else None


def _add(table: dict[_Key, Proof], key: _Key, proof: Proof) -> None:
    table[key] = table.get(key, Proof()) | proof


def count_by_release(pairs: Mapping[Pair, Proof]) -> list[PairCount]:
    """Proven pairs by the release that introduced a version, then in total.

    Releases before the newest major one are counted together, by their first number.
    """
    groups: dict[str | None, str] = {}
    newest = releases()[-1].split(".")[0]
    for release in releases():
        major = release.split(".")[0]
        same = [release for release in releases() if release.split(".")[0] == major]
        groups[release] = release if major == newest or len(same) == 1 else f"{same[0]}-{same[-1]}"
    groups[None] = "none"
    defined = {pair: groups[first_release(*pair)] for pair in defined_pairs()}
    counts = [
        _count(since, [pair for pair in defined if defined[pair] == since], pairs)
        for since in dict.fromkeys(groups.values())
    ]
    return [*(count for count in counts if count.defined), _count("all", defined, pairs)]


def version_ranges(versions: Iterable[int]) -> str:
    """Ascending versions in short: `0-3, 7`."""
    ranges: list[list[int]] = []
    for version in versions:
        if ranges and ranges[-1][-1] == version - 1:
            ranges[-1][1:] = [version]
        else:
            ranges.append([version])
    return ", ".join("-".join(map(str, found)) for found in ranges)


def _count(since: str, defined: Iterable[Pair], pairs: Mapping[Pair, Proof]) -> PairCount:
    tally = Counter[str]()
    for pair in defined:
        proof = pairs.get(pair, Proof())
        tally["defined"] += 1
        tally["proven"] += proof != Proof()
        tally["vectors"] += bool(proof.vectors)
        tally["captures"] += bool(proof.captures)
    return PairCount(since, tally["defined"], tally["proven"], tally["vectors"], tally["captures"])
