"""What the vectors prove: the versions of which every vector agrees; of an API those of request and response."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable, Iterator

from kafkasniff.kafka.apis.dissectors import api
from kafkasniff.kafka.apis.releases import defined_data
from tests.proven_file import Part
from tests.vectors.matching import differences
from tests.vectors.reader import Vector, vectors

KINDS = ("request", "response", "data", "records")
"""Kinds of vectors that are decoded."""
PART = Part(
    "# begin of the classes' part, written by `python -m tests.vectors proven` (tests/vectors/README.md)\n",
    "# end of the classes' part\n",
)


@functools.cache
def disagreements() -> dict[Vector, list[str]]:
    """The vectors that are decoded differently, with the differences."""
    found = {vector: differences(vector) for vector in vectors() if vector.kind in KINDS}
    return {vector: reported for vector, reported in found.items() if reported}


def proven_lines() -> list[str]:
    """Lines as `dissectors/proven.txt` has them: APIs by key and version, then structures by name, then batches."""
    return [*_pairs(), *_data(), *_batches()]


def _line(name: str, version: int, members: Iterable[Vector]) -> str:
    return f"{name} {version} vectors {' '.join(sorted({member.release for member in members}))}"


def _pairs() -> Iterator[str]:
    by_pair: dict[tuple[int, int], list[Vector]] = defaultdict(list)
    for vector in vectors():
        if vector.key is not None:
            by_pair[vector.key, vector.version].append(vector)
    for (key, version), members in sorted(by_pair.items()):
        found = api(key)
        both = {member.kind for member in members} == {"request", "response"}
        if found is not None and version in found.versions and both and not disagreements().keys() & set(members):
            yield _line(found.name, version, members)


def _data() -> Iterator[str]:
    by_layout: dict[tuple[str, int], list[Vector]] = defaultdict(list)
    for vector in vectors():
        if vector.kind == "data":
            by_layout[vector.name, vector.version].append(vector)
    for (name, version), members in sorted(by_layout.items()):
        if (name, version) in defined_data() and not disagreements().keys() & set(members):
            yield _line(f"data {name}", version, members)


def _batches() -> Iterator[str]:
    by_magic: dict[int, list[Vector]] = defaultdict(list)
    for vector in vectors():
        if vector.kind == "records":
            by_magic[vector.version].append(vector)
    for magic, members in sorted(by_magic.items()):
        if not disagreements().keys() & set(members):
            yield _line("batches", magic, members)
