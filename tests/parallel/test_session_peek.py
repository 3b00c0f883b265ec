"""The numbers of fetch sessions, read where they stand: what a full decoding says, or nothing."""

from __future__ import annotations

from typing import Any

import pytest

from kafkasniff.kafka.context import DecodeOptions
from kafkasniff.kafka.message import decode_request, decode_response
from kafkasniff.native.feed import VERSIONS
from kafkasniff.paired import Paired, PairedEntry
from kafkasniff.parallel.session_peek import has_sessions, requested_session, responded_session
from kafkasniff.versions import Version, version_of
from tests.vectors.reader import Vector, vectors

FETCH = 1
MESSAGES = [
    one
    for one in vectors()
    if one.key == FETCH
    and one.kind in {"request", "response"}
    # A request with tagged fields in its header is not taken in bulk.
    and not (one.kind == "request" and one.header.get("_unknownTags"))
]
NUMBERS = {"request": ("session_id", "session_epoch"), "response": ("error_code", "session_id")}
BEHIND = b"\1" * 20
"""Of the next message; two arrays without elements, if it were of this one."""


def entry(vector: Vector, data: bytes) -> tuple[PairedEntry, Version]:
    """A message as it is taken in bulk, with others around it."""
    version = version_of(FETCH * VERSIONS + vector.version)
    bulk = Paired(b"\xff" * 7 + data + BEHIND, [None], DecodeOptions())
    length = int.from_bytes(data[8:10], "big", signed=True) if vector.kind == "request" else 0
    found: Any = (0, 1, 0, None, bulk, 0, 0, 7, len(data), length, 0, 0, 0, version, 0)
    return found, version


def decoded(vector: Vector, data: bytes) -> dict[str, Any] | None:
    if vector.kind == "request":
        return decode_request(data, 0, len(data)).body
    return decode_response(data, 0, len(data), FETCH, vector.version).body


@pytest.mark.parametrize("kind", NUMBERS)
def test_every_version(kind: str) -> None:
    chosen = [one for one in MESSAGES if one.kind == kind]
    read, whole = set(), set()
    for vector in chosen:
        found, version = entry(vector, vector.data)
        assert has_sessions(version) is (vector.version >= 7)
        if vector.version < 7:
            continue
        body = decoded(vector, vector.data)
        assert body is not None
        numbers = (requested_session if kind == "request" else responded_session)(found, version)
        if numbers is None:
            assert vector.header.get("_unknownTags") or body["topics"] or body["forgotten_topics_data"]
            whole.add(vector.version)
        else:
            assert numbers == {name: body[name] for name in NUMBERS[kind]}
            read.add(vector.version)
    assert read == set(range(7, max(one.version for one in chosen) + 1))
    # Responses from where their headers may have tagged fields, and requests that name topics.
    assert whole == {version for version in read if kind == "request" or version >= 12}


def test_cut_off() -> None:
    """Whatever is missing, nothing is read that is not there."""
    for vector in MESSAGES:
        if vector.version in {7, 11, 12, 18} and vector.variant in {"default", "untagged"}:
            read = requested_session if vector.kind == "request" else responded_session
            for size in range(11, min(len(vector.data), 150)):
                data = vector.data[:size]
                numbers = read(*entry(vector, data))
                if numbers is not None:
                    body = decoded(vector, data) or {}
                    assert numbers == {name: body[name] for name in NUMBERS[vector.kind]}
                    assert numbers.get("session_epoch", -1) == -1 or not (
                        body.get("topics") or body.get("forgotten_topics_data")
                    )
