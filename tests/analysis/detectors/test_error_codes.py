"""Every error code at every place of a response: `check` names it, unless the client solves it by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from kafkasniff.analysis.detectors import run
from kafkasniff.kafka.apis import dissectors
from kafkasniff.kafka.schema.codes import error_by_code
from kafkasniff.kafka.schema.definition import Struct
from tests.analysis.detectors import scenes
from tests.analysis.detectors.talks import Talk, capture_of
from tests.choice import some_pairs

_ENTITIES: Final = {"topic_name": "orders", "group_id": "workers", "transactional_id": "ledger"}
_NOBODY: Final = frozenset({"client", "protocol", "answer"})
HARMLESS: Final = {
    46: "the records are stored",
    47: "the old producer of a program that was started again",
    90: "the old producer of a program that was started again",
    111: "the last member's session ends soon",
}
"""Codes that a single client may see: a note."""
NAMING: Final = (
    *("hidden-errors", "not-leader", "refused-commits", "denied", "fenced-producers", "missing-topics"),
    *("offsets-out-of-range", "sasl-failures", "oversized-messages", "repeated-sequences", "shared-instances"),
)
"""Detectors of error codes."""


class Place(NamedTuple):
    """Where a response has an error code, in the latest version of its API."""

    api: str
    version: int
    path: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.api}.{'.'.join(self.path)}"


def _values(struct: Struct) -> dict[str, Any]:
    """One of each: usual names, and zeros."""
    found: dict[str, Any] = {}
    for field in struct.fields:
        if field.struct is not None:
            found[field.name] = [_values(field.struct)] if field.array else _values(field.struct)
        elif field.type == "string":
            name = _ENTITIES.get(field.entity or "", None if field.nullable else "x")
            found[field.name] = [name or "x"] if field.array else name
        elif field.type == "uuid":
            found[field.name] = [bytes([1] * 16)] if field.array else bytes([1] * 16)
    return found


def _paths(struct: Struct, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for field in struct.fields:
        if field.type == "error":
            yield (*above, field.name)
        elif field.struct is not None:
            yield from _paths(field.struct, (*above, field.name))


def _places() -> Iterator[Place]:
    for key in dissectors.api_keys():
        api = dissectors.api(key)
        version = api.definition.response.versions.high
        for path in _paths(api.response(version).root):
            yield Place(api.name, version, path)


def refused(place: Place, code: int, times: int) -> Talk:
    """A client that is refused some times, every six seconds."""
    api = dissectors.api_by_name(place.api)
    asked, answer = _values(api.request(place.version).root), _values(api.response(place.version).root)
    if place.api == "Produce":
        asked["acks"] = -1
        asked["topic_data"][0]["partition_data"][0]["records"] = scenes.records(producer=(5, 0, 7))
    node = answer
    for name in place.path[:-1]:
        node = node[name][0] if isinstance(node[name], list) else node[name]
    # A refused topic or group has no parts.
    node.update({name: [] for name, value in node.items() if isinstance(value, list)}, **{place.path[-1]: code})
    talk = Talk()
    talk.ask("ApiVersions", 3, {}, {"api_keys": [{"api_key": 0, "max_version": 9}]})
    for _ in range(times):
        talk.ask(place.api, place.version, asked, answer, then=6)
    return talk.ended()


PLACES: Final = list(_places())
CODES: Final = [code for code in range(-1, 137) if code]


@pytest.mark.parametrize(("place", "code"), some_pairs(PLACES, CODES, 24, 270), ids=str)
def test_every_code_is_named(place: Place, code: int, tmp_path: Path) -> None:
    error = error_by_code(code)
    settles = error.settled_by(place.api)
    talk = refused(place, code, 7 if settles in _NOBODY else 1)
    found = run([str(capture_of(tmp_path / "a.pcap", [talk]))], only=NAMING).findings
    named = [one for one in found if error.name in f"{one.title} {one.meaning}" or one.detector == "missing-topics"]
    assert named, [one.title for one in found]
    assert settles == "answer" or code in HARMLESS or named[0].severity != "note"


def test_there_are_no_more_codes() -> None:
    assert all(error_by_code(code) is not None for code in CODES)
    assert error_by_code(CODES[-1] + 1) is None
    assert len(PLACES) > 100
