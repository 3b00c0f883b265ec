"""Reads the committed vectors; README.md explains their form."""

from __future__ import annotations

import functools
import lzma
from pathlib import Path
from typing import Any

import msgspec

FOLDER = Path(__file__).parent
FILE = FOLDER / "vectors.jsonl.xz"
UNPRODUCED_FILE = FOLDER / "unproduced.json"


class Vector(msgspec.Struct, kw_only=True, eq=False, rename={"data": "bytes", "body": "json"}):
    """A message as Kafka's classes write it, and what they say it holds."""

    release: str
    """The Kafka release whose classes made it."""
    kind: str
    """request, response, data (a body alone, without the version in front of some), records, errors, apis."""
    name: str
    """Kafka's name of the schema; of the API for requests and responses."""
    key: int | None = None
    """The API key of requests and responses."""
    version: int
    variant: str
    """How it was filled; README.md lists the ways."""
    data: bytes
    """Header and body; the length prefix is not there."""
    header: dict[str, Any] = {}
    """Requests and responses."""
    body: dict[str, Any]
    """Kafka's JSON; `_unknownTags` in a struct are the tagged fields that Kafka's converter omits."""


class Unproduced(msgspec.Struct, frozen=True):
    """What the definitions hold and no published class can write."""

    kind: str
    """pair (a request and its response) or data."""
    name: str
    versions: list[int]
    reason: str
    otherwise: str
    """What checks it instead."""


@functools.cache
def vectors() -> tuple[Vector, ...]:
    """All vectors, sorted by kind, key or name, version and variant."""
    return tuple(msgspec.json.Decoder(Vector).decode_lines(lzma.decompress(FILE.read_bytes())))


@functools.cache
def records_by_size() -> dict[int, Vector]:
    """The few sets of batches in fields of type records, by their size in bytes."""
    sets = [vector for vector in vectors() if vector.kind == "records"]
    by_size = {len(vector.data): vector for vector in sets}
    assert len(by_size) == len(sets), "two sets of batches have the same size: sizes must identify sets"
    return by_size


def unproduced() -> tuple[Unproduced, ...]:
    """What has no vectors, with the reasons."""
    return tuple(msgspec.json.decode(UNPRODUCED_FILE.read_bytes(), type=list[Unproduced]))
